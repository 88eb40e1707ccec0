// The picture of a mechanism in space, drawn by three.js: lit surfaces on a grid; z points upwards.

const FIELD = 26; // [degrees] the camera's field of view, nearly a parallel projection
const ROOM = 1.1; // how much more than the motion is in view at first
const CREASE = (40 * Math.PI) / 180; // faces that meet at a smaller angle look like one curved surface
const GHOST = 0.4; // the opacity of all motions but the first
const ARROW = 0.22, HEAD = [6, 0.45]; // an arrow's radius in symbol sizes; its head's length in radii, and radius in lengths
const CORNER = 0.01; // three.js unites the normals of corners that are closer

class Picture {
  constructor(canvas, page, theme, changed) {
    Object.assign(this, { canvas, page, theme, changed });
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: !page.isEased, alpha: true });
    this.renderer.shadowMap.enabled = true;
    this.renderer.shadowMap.type = THREE.PCFShadowMap;
    this.camera = new THREE.PerspectiveCamera(FIELD, 1, 0.1, 100);
    this.camera.up.set(0, 0, 1);
    this.controls = new THREE.OrbitControls(this.camera, canvas);
    this.controls.zoomToCursor = true;
    const middle = page.limits.map(([low, high]) => (low + high) / 2);
    this.middle = new THREE.Vector3(...middle);
    this.reach = Math.hypot(...page.limits.map(([low, high]) => high - low)) / 2;
    this.cloud = page.motions.flatMap((motion) => motion.cloud()).map((point) => new THREE.Vector3(...point).sub(this.middle));
    this.scene = new THREE.Scene();
    this.addLight();
    this.addFloor();
    this.bodies = page.motions.map((motion, k) => this.addMotion(motion, k));
    this.fineness = 1;
    this.paint();
    this.controls.addEventListener("change", () => {
      this.isFitted &&= this.isFitting;
      this.changed();
    });
  }

  // --- the camera ---------------------------------------------------------------------------------------

  resize(width, height) {
    Object.assign(this, { width, height });
    this.renderer.setPixelRatio((devicePixelRatio || 1) * this.fineness);
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    this.camera.updateProjectionMatrix();
    if (this.isFitted !== false) this.fit();
  }

  // Show all of the motion from the first direction, or from another: `elev`, `azim` [degrees].
  fit({ elev, azim } = this.page.view) {
    const [e, a] = [elev, azim].map((angle) => (angle * Math.PI) / 180);
    const back = new THREE.Vector3(Math.cos(e) * Math.cos(a), Math.cos(e) * Math.sin(a), Math.sin(e));
    const right = new THREE.Vector3(-Math.sin(a), Math.cos(a), 0), up = back.clone().cross(right);
    const tangent = Math.tan((FIELD * Math.PI) / 360) / ROOM;
    // From a distance d and moved by s, a point (x, z) is in view if |x − s| ≤ T (d − z), on both axes of the screen.
    let far = 0;
    this.controls.target.copy(this.middle);
    for (const [axis, T] of [[right, tangent * this.camera.aspect], [up, tangent]]) {
      let ahead = -Infinity, behind = -Infinity;
      for (const point of this.cloud) {
        const across = axis.dot(point), depth = T * back.dot(point);
        ahead = Math.max(ahead, depth + across);
        behind = Math.max(behind, depth - across);
      }
      far = Math.max(far, (ahead + behind) / (2 * T));
      this.controls.target.addScaledVector(axis, (ahead - behind) / 2);
    }
    this.isFitting = this.isFitted = true;
    this.camera.position.copy(this.controls.target).addScaledVector(back, far);
    this.controls.update();
    this.isFitting = false;
  }

  project(point) {
    const place = new THREE.Vector3(...point).project(this.camera);
    return [((place.x + 1) / 2) * this.width, ((1 - place.y) / 2) * this.height];
  }

  // At the point about which the camera turns.
  pixelsPerMetre() {
    const far = this.camera.position.distanceTo(this.controls.target);
    return this.height / (2 * far * Math.tan((FIELD * Math.PI) / 360));
  }

  screen() {
    const e = this.camera.matrixWorld.elements;
    return { right: e.slice(0, 3), up: e.slice(4, 7) };
  }

  scaleText() {
    return `grid ${written(this.cell, this.cell)} m`;
  }

  // How much a picture takes: all of it at level 0, then without shadows, then with ever fewer pixels and without paths,
  // whose wide lines take a processor that draws them longer than all bodies.
  ease(level) {
    const fineness = [1, 1, 0.7, 0.45][level];
    this.sun.castShadow = level === 0;
    if (fineness === this.fineness) return;
    this.fineness = fineness;
    this.renderer.setPixelRatio((devicePixelRatio || 1) * fineness);
  }

  // --- what is there ------------------------------------------------------------------------------------

  addLight() {
    const { reach, middle } = this, azim = ((this.page.view.azim - 35) * Math.PI) / 180;
    const sun = new THREE.DirectionalLight("#ffffff", 2.1);
    sun.position.set(Math.cos(azim), Math.sin(azim), 1.7).setLength(3 * reach).add(middle);
    sun.target.position.copy(middle);
    sun.castShadow = true;
    sun.shadow.mapSize.set(2048, 2048);
    Object.assign(sun.shadow.camera, { left: -reach, right: reach, bottom: -reach, top: reach, near: reach, far: 5 * reach });
    Object.assign(sun.shadow, { radius: 3, intensity: 0.6, normalBias: reach * 4e-3 });
    const sky = new THREE.HemisphereLight("#ffffff", "#9a948c", 1.5);
    sky.position.set(0, 0, 1);
    this.sun = sun;
    this.scene.add(sun, sun.target, sky);
  }

  // A grid of round numbers below the motion, on which shadows fall.
  addFloor() {
    const { middle } = this, sides = this.page.limits.map(([low, high]) => high - low);
    const lowest = this.cloud.reduce((least, { z }) => Math.min(least, z), 0);
    const floor = middle.z + lowest - 3e-3 * this.reach;
    this.cell = roundBelow(Math.max(...sides) / 6);
    this.floor = new THREE.Group();
    const cells = 2 * Math.ceil((0.9 * Math.max(sides[0], sides[1], sides[2] / 2)) / this.cell);
    const [x, y] = [middle.x, middle.y].map((coordinate) => Math.round(coordinate / this.cell) * this.cell);
    this.grid = [cells, x, y, floor];
    const shadow = new THREE.ShadowMaterial({ opacity: 0.22, depthWrite: false });
    this.ground = new THREE.Mesh(new THREE.PlaneGeometry(cells * this.cell, cells * this.cell), shadow);
    this.ground.position.set(x, y, floor);
    this.ground.receiveShadow = true;
    this.scene.add(this.floor);
  }

  // Grid and materials in the colours of the theme; again when it changes.
  paint() {
    const [cells, x, y, floor] = this.grid;
    const grid = new THREE.GridHelper(cells * this.cell, cells, this.theme.pale, this.theme.pale);
    grid.rotation.x = Math.PI / 2;
    grid.position.set(x, y, floor);
    this.floor.clear();
    this.floor.add(grid, this.ground);
    const { inks, ink } = this.theme;
    for (const { material, colour } of this.painted) material.color.set(inks.includes(colour) ? ink : colour);
  }

  addMotion(motion, k) {
    const group = new THREE.Group(), share = k ? GHOST : 1;
    this.painted ??= [];
    const pieces = motion.pieces.map((piece) => {
      const mesh = this.mesh(motion, piece, share, k);
      group.add(mesh);
      return { piece, mesh };
    });
    const arrows = motion.arrows.map((arrow) => {
      const parts = arrowMeshes(this.material(arrow.colour, share, k));
      group.add(...parts);
      return { arrow, parts };
    });
    const traces = motion.traces.map((trace) => {
      const lines = [[1, 0.35], [2, 1]].map(([width, alpha]) => this.line(trace, width, alpha * share));
      group.add(...lines);
      return { trace, line: lines[1] };
    });
    this.scene.add(group);
    return { motion, group, pieces, arrows, traces };
  }

  // Show other shapes in place of those of the motions.
  renew() {
    for (const { group } of this.bodies) {
      this.scene.remove(group);
      group.traverse(({ geometry, material }) => [geometry, material].forEach((resource) => resource?.dispose()));
    }
    this.painted = [];
    this.bodies = this.page.motions.map((motion, k) => this.addMotion(motion, k));
    this.paint();
  }

  material(colour, alpha, k, options = {}) {
    const look = { roughness: 0.55, metalness: 0, transparent: alpha < 1, opacity: alpha, ...options };
    const coincident = { polygonOffset: k > 0, polygonOffsetFactor: 1, polygonOffsetUnits: 4 * k };
    const material = new THREE.MeshStandardMaterial({ ...look, ...coincident });
    this.painted.push({ material, colour });
    return material;
  }

  mesh(motion, piece, share, k) {
    const shapes = piece.shapes.map((points) => surface(points, piece.faces, piece.dark, motion.size));
    const isSheer = piece.alpha < 1, sheer = { side: THREE.DoubleSide, depthWrite: false };
    const options = { vertexColors: piece.dark !== null, ...(isSheer ? sheer : {}) };
    const mesh = new THREE.Mesh(shapes[0].clone(), this.material(piece.colour, piece.alpha * share, k, options));
    Object.assign(mesh, { matrixAutoUpdate: false, frustumCulled: false, castShadow: !isSheer && share === 1 });
    mesh.receiveShadow = !isSheer && share === 1;
    mesh.userData.shapes = shapes;
    return mesh;
  }

  line(trace, width, alpha) {
    const geometry = new THREE.LineGeometry();
    geometry.setPositions(Array.from(trace.points.length > 3 ? trace.points : [...trace.points, ...trace.points]));
    const material = new THREE.LineMaterial({ linewidth: width, transparent: alpha < 1, opacity: alpha });
    this.painted.push({ material, colour: trace.colour });
    const line = new THREE.Line2(geometry, material);
    line.frustumCulled = false;
    return line;
  }

  // --- drawing ------------------------------------------------------------------------------------------

  draw(shown) {
    for (const { motion, group, pieces, arrows, traces } of this.bodies) {
      group.visible = motion.isVisible;
      for (const { piece, mesh } of pieces) move(mesh, motion.placed(piece));
      for (const { arrow, parts } of arrows) {
        pointArrow(parts, motion.point(arrow.start), motion.vector(arrow), ARROW * motion.size, shown.forces);
      }
      for (const { trace, line } of traces) line.geometry.instanceCount = Math.max(motion.passed(trace) - 1, 0);
      for (const child of group.children) if (child.isLine2) child.visible = shown.paths && this.fineness === 1;
    }
    const far = this.camera.position.distanceTo(this.middle);
    this.camera.near = Math.max(far - 3 * this.reach, far / 200);
    this.camera.far = far + 4 * this.reach;
    this.camera.updateProjectionMatrix();
    this.renderer.render(this.scene, this.camera);
  }
}

// A surface of faces, which are polygons of corners by number, with normals that are smooth except at creases.
function surface(points, { corners, each }, dark, size) {
  const triangles = [], shades = [], tones = dark ? dark.length / (corners.length / each) : 0;
  for (let face = 0; face < corners.length / each; face++) {
    const first = corners[face * each];
    for (let i = 1; i + 1 < each; i++) {
      const [second, third] = [corners[face * each + i], corners[face * each + i + 1]];
      if (second === third || first === second || first === third) continue; // a face with fewer corners
      triangles.push(first, second, third);
      const shade = tones === 3 ? dark.subarray(3 * face, 3 * face + 3) : dark && [dark[face], dark[face], dark[face]];
      if (dark) for (let corner = 0; corner < 3; corner++) shades.push(...shade);
    }
  }
  const flat = new THREE.BufferGeometry(), positions = new Float32Array(3 * triangles.length);
  triangles.forEach((corner, i) => positions.set(points.subarray(3 * corner, 3 * corner + 3), 3 * i));
  // Normals do not depend on the size, but three.js unites corners by a distance that fits one unit.
  flat.setAttribute("position", new THREE.BufferAttribute(positions.map((x) => x * ((10 * CORNER) / (1e-2 * size))), 3));
  const smooth = THREE.toCreasedNormals(flat, CREASE);
  smooth.setAttribute("position", new THREE.BufferAttribute(positions, 3));
  if (dark) smooth.setAttribute("color", new THREE.BufferAttribute(new Float32Array(shades), 3));
  return smooth;
}

// Put a piece where it is; that of a spring also takes the shape of its length.
function move(mesh, { origin, axes, shape, share }) {
  const [x, y, z] = axes, [ox, oy, oz] = origin;
  mesh.matrix.set(...x, ox, ...y, oy, ...z, oz, 0, 0, 0, 1);
  mesh.matrixWorldNeedsUpdate = true;
  const { shapes } = mesh.userData;
  if (shapes.length === 1) return;
  for (const name of ["position", "normal"]) {
    const attribute = mesh.geometry.getAttribute(name);
    const start = shapes[shape].getAttribute(name).array, stop = shapes[shape + 1].getAttribute(name).array;
    for (let i = 0; i < start.length; i++) attribute.array[i] = between(start[i], stop[i], share);
    attribute.needsUpdate = true;
  }
}

// A shaft and a head along z, of unit size.
function arrowMeshes(material) {
  const shaft = new THREE.CylinderGeometry(1, 1, 1, 16), head = new THREE.ConeGeometry(1, 1, 24);
  return [shaft, head].map((geometry) => {
    geometry.rotateX(Math.PI / 2).translate(0, 0, 0.5);
    const mesh = new THREE.Mesh(geometry, material);
    return Object.assign(mesh, { castShadow: !material.transparent, frustumCulled: false });
  });
}

function pointArrow([shaft, head], start, vector, radius, isShown) {
  const direction = new THREE.Vector3(...vector), length = direction.length();
  shaft.visible = head.visible = isShown && length > 1e-3 * radius;
  if (!shaft.visible) return;
  direction.normalize();
  const tip = Math.min(HEAD[0] * radius, 0.6 * length), wide = HEAD[1] * tip, thin = Math.min(radius, 0.4 * wide);
  shaft.scale.set(thin, thin, length - tip);
  head.scale.set(wide, wide, tip);
  for (const mesh of [shaft, head]) {
    mesh.position.set(...start);
    mesh.quaternion.setFromUnitVectors(new THREE.Vector3(0, 0, 1), direction);
  }
  head.position.addScaledVector(direction, length - tip);
}
