// The picture of a mechanism in the plane, seen from straight above: lines and polygons that cover each other in layers.

const POINT = 4 / 3; // [px] of a point, the unit of line widths
const TRACE_LAYER = 2.5; // between links and bodies

class Picture {
  constructor(canvas, page, theme, changed) {
    Object.assign(this, { canvas, page, theme, changed, context: canvas.getContext("2d") });
    this.listen();
  }

  resize(width, height) {
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    const isFirst = this.width === undefined;
    const [dx, dy] = isFirst ? [0, 0] : [(width - this.width) / 2, (height - this.height) / 2];
    Object.assign(this, { width, height, ratio });
    if (isFirst || this.isFitted) this.fit();
    else this.move(dx, dy);
  }

  // Show all of the motion: `scale` [px/m], and the pixel of the origin.
  fit() {
    const [[left, right], [bottom, top]] = this.page.limits;
    this.scale = Math.min((this.width - 70) / (right - left), (this.height - 60) / (top - bottom));
    this.x = this.width / 2 - (this.scale * (left + right)) / 2 + 12;
    this.y = this.height / 2 + (this.scale * (bottom + top)) / 2 - 8;
    this.isFitted = true;
  }

  // The pixel of a point.
  project([x, y]) {
    return [this.x + this.scale * x, this.y - this.scale * y];
  }

  pixelsPerMetre() {
    return this.scale;
  }

  // Directions on the screen, in the world.
  screen() {
    return { right: [1, 0], up: [0, 1] };
  }

  draw(shown) {
    const { context, ratio } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.drawGrid();
    const motions = this.page.motions.map((motion, k) => ({ motion, share: k ? 0.45 : 1 }));
    for (const { motion, share } of motions.reverse()) {
      if (motion.isVisible) this.drawMotion(motion, share, shown);
    }
  }

  drawMotion(motion, share, shown) {
    const pieces = [...motion.pieces].sort((a, b) => a.layer - b.layer); // equal layers keep their order
    const above = pieces.findIndex((piece) => piece.layer > TRACE_LAYER);
    for (const piece of pieces.slice(0, above)) this.drawPiece(motion, piece, share);
    if (shown.paths) for (const trace of motion.traces) this.drawTrace(motion, trace, share);
    for (const piece of pieces.slice(above)) this.drawPiece(motion, piece, share);
    this.context.globalAlpha = share;
    if (shown.forces) {
      for (const arrow of motion.arrows) {
        const start = motion.point(arrow.start), tip = plus(start, motion.vector(arrow));
        drawArrow(this.context, this.project(start), this.project(tip), this.theme.of(arrow.colour));
      }
    }
    this.context.globalAlpha = 1;
  }

  drawPiece(motion, piece, share) {
    const { context } = this, path = this.path(motion, piece);
    if (piece.fill !== null) {
      context.globalAlpha = piece.alpha * share;
      context.fillStyle = this.theme.of(piece.fill);
      context.fill(path);
    }
    if (piece.width > 0) {
      context.globalAlpha = share;
      context.lineWidth = piece.width * POINT;
      context.lineCap = piece.width > 2 ? "round" : "butt";
      context.lineJoin = "round";
      context.strokeStyle = this.theme.of(piece.colour);
      context.setLineDash(piece.isDotted ? [context.lineWidth, 2 * context.lineWidth] : []);
      context.stroke(path);
      context.setLineDash([]);
    }
  }

  path(motion, piece) {
    const { origin, axes, shape, share } = motion.placed(piece);
    const start = piece.shapes[shape], stop = share === 0 ? start : piece.shapes[shape + 1], path = new Path2D();
    let isDown = false; // NaN lifts the pen
    for (let i = 0; i < start.length; i += 2) {
      const local = [between(start[i], stop[i], share), between(start[i + 1], stop[i + 1], share)];
      if (Number.isNaN(local[0])) {
        isDown = false;
        continue;
      }
      const pixel = this.project(plus(origin, turned(axes, local)));
      if (isDown) path.lineTo(...pixel);
      else path.moveTo(...pixel);
      isDown = true;
    }
    if (piece.fill !== null) path.closePath();
    return path;
  }

  drawTrace(motion, trace, share) {
    const count = trace.points.length / 2;
    for (const [until, width, alpha] of [[count, 0.8, 0.35], [motion.passed(trace), 1.5, 1]]) {
      this.context.beginPath();
      for (let i = 0; i < until; i++) this.context.lineTo(...this.project([trace.points[2 * i], trace.points[2 * i + 1]]));
      const strokeStyle = this.theme.of(trace.colour);
      Object.assign(this.context, { strokeStyle, lineWidth: width * POINT, globalAlpha: alpha * share });
      this.context.stroke();
    }
  }

  // Lines at round coordinates, with their numbers at the edges.
  drawGrid() {
    const { context, theme } = this, step = roundBelow(130 / this.scale);
    Object.assign(context, { globalAlpha: 1, lineWidth: 1, font: `11px ${FONT}` });
    Object.assign(context, { strokeStyle: theme.pale, fillStyle: theme.grey });
    context.beginPath();
    for (let k = Math.ceil(-this.x / this.scale / step); k * step * this.scale + this.x < this.width; k++) {
      const x = Math.round(this.x + k * step * this.scale) + 0.5;
      context.moveTo(x, 0);
      context.lineTo(x, this.height);
      const text = written(k * step, step);
      if (x + 3 + context.measureText(text).width < this.width) context.fillText(text, x + 3, this.height - 5);
    }
    for (let k = Math.ceil((this.y - this.height) / this.scale / step); this.y - k * step * this.scale > 0; k++) {
      const y = Math.round(this.y - k * step * this.scale) + 0.5;
      context.moveTo(0, y);
      context.lineTo(this.width, y);
      if (y > 30 && y < this.height - 18) context.fillText(written(k * step, step), 4, y - 3);
    }
    context.globalAlpha = 0.7;
    context.stroke();
    context.globalAlpha = 1;
    context.fillText("x [m]", this.width - 34, this.height - 20);
    context.fillText("y [m]", 4, 14);
  }

  // --- the pointer: drag to move, wheel or two fingers to magnify ---------------------------------------

  move(dx, dy) {
    this.x += dx;
    this.y += dy;
  }

  magnify(factor, x, y) {
    this.scale *= factor;
    this.x = x + factor * (this.x - x);
    this.y = y + factor * (this.y - y);
  }

  listen() {
    const held = new Map(), { canvas } = this;
    const here = (event) => [event.offsetX, event.offsetY];
    const done = () => {
      this.isFitted = false;
      this.changed();
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      held.set(event.pointerId, here(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return;
      const now = here(event), other = [...held].find(([id]) => id !== event.pointerId);
      held.set(event.pointerId, now);
      if (other) {
        const far = (point) => Math.hypot(point[0] - other[1][0], point[1] - other[1][1]);
        this.magnify(far(now) / Math.max(far(before), 1), ...other[1]);
      } else this.move(now[0] - before[0], now[1] - before[1]);
      done();
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => held.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.magnify(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...here(event));
      done();
    }, { passive: false });
  }
}
