// A motion: where bodies, and what moves with them, are at a time. Points are arrays of two or three numbers [m].

// The index k and the share s of a time between times[k] and times[k + 1]; before the first and after the last, those.
function located(times, t) {
  if (times.length < 2 || t <= times[0]) return [0, 0];
  let low = 0, high = times.length - 1;
  if (t >= times[high]) return [high - 1, 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t) low = middle;
    else high = middle;
  }
  return [low, (t - times[low]) / (times[high] - times[low])];
}

const between = (a, b, s) => (s === 0 ? a : a + s * (b - a));
const identity = (dimension) => (dimension === 2 ? [[1, 0], [0, 1]] : [[1, 0, 0], [0, 1, 0], [0, 0, 1]]);
const turned = (matrix, v) => matrix.map((row) => row.reduce((sum, x, i) => sum + x * v[i], 0));
const plus = (a, b) => a.map((x, i) => x + b[i]);
const minus = (a, b) => a.map((x, i) => x - b[i]);
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

// The rotation matrix of an angle [rad], or of a quaternion, scalar first.
function rotation(turn) {
  if (turn.length === 1) {
    const c = Math.cos(turn[0]), s = Math.sin(turn[0]);
    return [[c, -s], [s, c]];
  }
  const norm = Math.hypot(...turn);
  const [e, x, y, z] = turn.map((number) => number / norm);
  return [
    [1 - 2 * (y * y + z * z), 2 * (x * y - e * z), 2 * (x * z + e * y)],
    [2 * (x * y + e * z), 1 - 2 * (x * x + z * z), 2 * (y * z - e * x)],
    [2 * (x * z - e * y), 2 * (y * z + e * x), 1 - 2 * (x * x + y * y)],
  ];
}

// The rotation matrix that turns the x axis of the plane, or the z axis of space, to a direction, as `facing` in Python.
function facing(direction) {
  const length = Math.hypot(...direction);
  if (length === 0) return identity(direction.length);
  const along = direction.map((x) => x / length);
  if (along.length === 2) return [[along[0], -along[1]], [along[1], along[0]]];
  const sizes = along.map(Math.abs), least = sizes.indexOf(Math.min(...sizes));
  const across = cross([0, 1, 2].map((i) => (i === least ? 1 : 0)), along);
  const norm = Math.hypot(...across), x = across.map((number) => number / norm), y = cross(along, x);
  return [0, 1, 2].map((i) => [x[i], y[i], along[i]]);
}

// The axes of a piece between two places, along which it is stretched where its shapes are for other lengths.
function stretched(axes, length, lengths) {
  const ratio = length / Math.min(Math.max(length, lengths[0]), lengths.at(-1));
  if (!(Math.abs(ratio - 1) > 1e-6)) return axes;
  const along = axes.length === 2 ? 0 : 2;
  return axes.map((row) => row.map((x, k) => (k === along ? ratio * x : x)));
}

const MOMENTS = 40, SOME = 50; // of how many times and of how many corners of a piece it is looked up how far they reach

class Motion {
  constructor(data, dimension, block) {
    const numbers = (reference) => numbersOf(block, reference);
    Object.assign(this, data, { dimension, isVisible: true });
    this.times = numbers(data.times);
    this.positions = numbers(data.positions);
    this.turns = numbers(data.turns);
    this.arrows = data.arrows.map((arrow) => ({ ...arrow, vectors: numbers(arrow.vectors) }));
    this.traces = data.traces.map((trace) => ({ ...trace, points: numbers(trace.points) }));
    this.pieces = data.pieces.map((piece) => ({
      ...piece,
      shapes: piece.shapes.map(numbers),
      faces: piece.faces && { corners: numbers(piece.faces), each: piece.faces.shape[1] },
      dark: piece.dark && numbers(piece.dark), // a factor for each face, or three
    }));
    this.moveTo(this.times[0]);
  }

  // Go to a time [s]; the other methods answer for it. `poses`: of bodies, then of moving markers; -1 is the ground.
  moveTo(t) {
    [this.moment, this.share] = located(this.times, t);
    this.poses = Array.from({ length: this.frames }, (_, frame) => ({
      position: this.row(this.positions, this.frames, this.dimension, frame),
      rotation: rotation(this.row(this.turns, this.frames, this.dimension === 2 ? 1 : 4, frame)),
    }));
    this.poses[-1] = { position: Array(this.dimension).fill(0), rotation: identity(this.dimension) };
  }

  // Numbers of one of several things at the time.
  row(values, count, size, index) {
    const start = (this.moment * count + index) * size, next = start + count * size;
    return Array.from({ length: size }, (_, i) =>
      this.share === 0 ? values[start + i] : between(values[start + i], values[next + i], this.share));
  }

  // The position of a place that is fixed in a frame.
  point({ frame, offset }) {
    const { position, rotation } = this.poses[frame];
    return plus(position, turned(rotation, offset));
  }

  // The vector of an arrow [m].
  vector(arrow) {
    return this.row(arrow.vectors, 1, this.dimension, 0);
  }

  // Where a piece is: its origin, its axes, and its shapes k and k + 1 with the share between them.
  placed(piece) {
    if (piece.end) {
      const origin = this.point(piece.start), away = minus(this.point(piece.end), origin);
      const length = Math.hypot(...away), [shape, share] = located(piece.lengths, length);
      return { origin, axes: stretched(facing(away), length, piece.lengths), shape, share };
    }
    const axes = piece.isUpright ? identity(this.dimension) : this.poses[piece.start.frame].rotation;
    return { origin: this.point(piece.start), axes, shape: 0, share: 0 };
  }

  // Points of all that is drawn, at some times.
  cloud() {
    const points = [], last = this.times.length - 1;
    for (let k = 0; k <= MOMENTS; k++) {
      this.moveTo(this.times[Math.round((k / MOMENTS) * last)]);
      for (const piece of this.pieces) {
        const { origin, axes, shape } = this.placed(piece), corners = piece.shapes[shape];
        const size = this.dimension, stride = size * Math.max(1, Math.floor(corners.length / size / SOME));
        for (let i = 0; i < corners.length; i += stride) {
          points.push(plus(origin, turned(axes, corners.subarray(i, i + size))));
        }
      }
      for (const arrow of this.arrows) points.push(plus(this.point(arrow.start), this.vector(arrow)));
    }
    this.moveTo(this.times[0]);
    return points;
  }

  // The number of points of a path that have been passed.
  passed(trace) {
    const count = trace.points.length / this.dimension;
    return Math.min(Math.round((this.moment + this.share) * trace.perFrame) + 1, count);
  }
}
