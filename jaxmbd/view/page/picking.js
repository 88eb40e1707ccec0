// What is under the pointer: a body, and which of its points, in the axes of its frame.

const FINGER = 12; // [px] by which a line or an edge may be missed
const NEAR = 14; // [px] of a corner of a surface, where none is hit

// The point that is grabbed at a pixel, as `{ frame, offset }`, or null; frames up to `movable` can be.
function grabbed(picture, motion, pixel, movable) {
  const found = picture.dimension === 3 || picture.camera ? hitInSpace(picture, motion, pixel, movable)
    : hitInPlane(picture, motion, pixel, movable);
  if (!found) return null;
  const { position, rotation } = motion.poses[found.frame], away = minus(found.point, position);
  const offset = away.map((_, i) => away.reduce((sum, x, k) => sum + rotation[k][i] * x, 0)); // by the transpose
  return { frame: found.frame, offset };
}

// Where a pointer wants the point that it holds: in the plane a place, in space a line away from the eye.
function aimed(picture, [x, y]) {
  if (!picture.camera) return { target: [(x - picture.x) / picture.scale, (picture.y - y) / picture.scale] };
  const { origin, direction } = rayThrough(picture, [x, y]);
  return { target: origin, along: direction };
}

const isMovable = (piece, movable) => !piece.end && piece.start.frame >= 0 && piece.start.frame < movable;

function hitInPlane(picture, motion, [x, y], movable) {
  const { context } = picture;
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  const pieces = motion.pieces.filter((piece) => isMovable(piece, movable)).sort((a, b) => b.layer - a.layer);
  const piece = pieces.find((one) => {
    const path = picture.path(motion, one);
    context.lineWidth = Math.max(one.width * POINT, FINGER);
    return (one.fill !== null && context.isPointInPath(path, x, y)) || context.isPointInStroke(path, x, y);
  });
  context.restore();
  return piece && { frame: piece.start.frame, point: aimed(picture, [x, y]).target };
}

function rayThrough(picture, [x, y]) {
  const { camera, width, height } = picture, origin = camera.position;
  const far = new THREE.Vector3((2 * x) / width - 1, 1 - (2 * y) / height, 0.5).unproject(camera).sub(origin).normalize();
  return { origin: [origin.x, origin.y, origin.z], direction: [far.x, far.y, far.z] };
}

function hitInSpace(picture, motion, pixel, movable) {
  const { origin, direction } = rayThrough(picture, pixel);
  let nearest = null, closest = null;
  for (const { piece, mesh } of picture.bodies[0].pieces) {
    if (!isMovable(piece, movable)) continue;
    const e = mesh.matrix.elements, axes = [0, 1, 2].map((i) => [e[4 * i], e[4 * i + 1], e[4 * i + 2]]);
    const place = [e[12], e[13], e[14]], into = (v) => axes.map((axis) => axis.reduce((sum, x, i) => sum + x * v[i], 0));
    const start = into(minus(origin, place)), way = into(direction), corners = mesh.geometry.getAttribute("position").array;
    for (let k = 0; k < corners.length; k += 9) {
      const far = crossing(start, way, corners, k);
      if (far !== null && (!nearest || far < nearest.far)) nearest = { far, frame: piece.start.frame };
    }
    if (nearest) continue;
    for (let k = 0; k < corners.length; k += 9) {
      const [x, y, z] = [corners[k], corners[k + 1], corners[k + 2]];
      const point = place.map((p, i) => p + axes[0][i] * x + axes[1][i] * y + axes[2][i] * z);
      const [u, v] = picture.project(point), miss = Math.hypot(u - pixel[0], v - pixel[1]);
      if (miss < NEAR && (!closest || miss < closest.miss)) closest = { miss, frame: piece.start.frame, point };
    }
  }
  if (nearest) return { frame: nearest.frame, point: origin.map((x, i) => x + nearest.far * direction[i]) };
  return closest;
}

// How far along a ray it meets the triangle at `k` in an array of corners (Möller and Trumbore, 1997); null if it does not.
function crossing(start, way, corners, k) {
  const [a, b, c] = [0, 3, 6].map((i) => [corners[k + i], corners[k + i + 1], corners[k + i + 2]]);
  const dot = (p, q) => p[0] * q[0] + p[1] * q[1] + p[2] * q[2];
  const u = minus(b, a), v = minus(c, a), h = cross(way, v), d = dot(u, h);
  if (Math.abs(d) < 1e-18) return null;
  const s = minus(start, a), x = dot(s, h) / d;
  if (x < 0 || x > 1) return null;
  const q = cross(s, u), y = dot(way, q) / d, far = dot(v, q) / d;
  return y >= 0 && x + y <= 1 && far > 0 ? far : null;
}
