// What is written over a picture: names, the scale of reactions, the directions of the axes.

const FONT = 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

class Overlay {
  constructor(canvas, page, theme) {
    Object.assign(this, { canvas, page, theme, context: canvas.getContext("2d") });
  }

  resize(width, height) {
    const ratio = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    Object.assign(this, { width, height, ratio });
  }

  draw(picture, shown) {
    const { context, ratio } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    if (shown.names) for (const motion of this.page.motions) if (motion.isVisible) this.drawNames(motion, picture);
    if (shown.forces && this.page.legend) this.drawLegend(picture);
    if (this.page.dimension === 3) this.drawAxes(picture);
  }

  // Text that stays inside the picture.
  write(text, x, y, colour, style = "") {
    const { context } = this;
    Object.assign(context, { font: `${style} 12px ${FONT}`, lineWidth: 3, lineJoin: "round", strokeStyle: this.theme.paper });
    const left = Math.max(Math.min(x, this.width - context.measureText(text).width - 3), 3);
    context.strokeText(text, left, y);
    context.fillStyle = this.theme.of(colour);
    context.fillText(text, left, y);
  }

  drawNames(motion, picture) {
    const unit = motion.size * picture.pixelsPerMetre();
    for (const label of motion.labels) {
      const [x, y] = picture.project(motion.point(label.start));
      const [right, up] = label.shift, [drop, style] = label.isBody ? [9, "italic"] : [0, ""];
      if (x < 0 || x > this.width) continue; // the picture was moved
      this.write(label.text, x + unit * right, y - unit * up + drop, label.colour, style);
    }
  }

  drawLegend(picture) {
    const { length, text } = this.page.legend, x = this.page.dimension === 2 ? 48 : 14, y = 18;
    const tip = x + length * picture.pixelsPerMetre();
    const colour = this.page.reactionColour;
    drawArrow(this.context, [x, y], [tip, y], colour);
    this.context.font = `12px ${FONT}`;
    const measure = (some) => this.context.measureText(some).width;
    lines(text, this.width - tip - 11, measure).forEach((line, k) => this.write(line, tip + 8, y + 4 + 16 * k, this.theme.ink));
  }

  drawAxes(picture) {
    const { right, up } = picture.screen(), x = 34, y = this.height - 30, arm = 24;
    const axes = [0, 1, 2].map((i) => ({ name: "xyz"[i], dx: arm * right[i], dy: -arm * up[i] }));
    for (const { name, dx, dy } of axes) {
      drawArrow(this.context, [x, y], [x + dx, y + dy], this.theme.grey, 1.5);
      const far = Math.hypot(dx, dy) / arm;
      if (far > 0.15) this.write(name, x + dx * (1 + 0.35 / far) - 3, y + dy * (1 + 0.35 / far) + 4, this.theme.grey);
    }
    this.write(picture.scaleText(), x + 42, this.height - 12, this.theme.grey);
  }
}

// A flat arrow between two pixels; its head is smaller if it is short.
function drawArrow(context, [x0, y0], [x1, y1], colour, width = 2.2) {
  const length = Math.hypot(x1 - x0, y1 - y0);
  if (!(length > 0.5)) return;
  const head = Math.min(5 * width, 0.6 * length), ux = (x1 - x0) / length, uy = (y1 - y0) / length;
  const [bx, by] = [x1 - head * ux, y1 - head * uy], half = 0.4 * head;
  Object.assign(context, { strokeStyle: colour, fillStyle: colour, lineWidth: width, lineCap: "butt" });
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(bx + 0.3 * head * ux, by + 0.3 * head * uy);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(bx - half * uy, by + half * ux);
  context.lineTo(bx + half * uy, by - half * ux);
  context.fill();
}
