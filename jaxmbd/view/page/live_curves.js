// Curves of what is explored, over the coordinate that drives it, with a dot where the mechanism is: on canvases, since
// they turn back at dead centres, and are drawn again for each change of a number.

class LiveCurves {
  constructor(element, theme) {
    Object.assign(this, { element, theme, panels: [], readings: [] });
    new ResizeObserver(() => this.draw()).observe(element);
  }

  take({ over, panels }) {
    this.over = over;
    this.element.hidden = panels.length === 0;
    if (this.panels.length !== panels.length) {
      this.element.replaceChildren();
      this.panels = panels.map(() => {
        const box = child(this.element, "div", "panel"), legend = child(box, "div", "legend");
        return { legend, canvas: child(child(box, "div", "plot"), "canvas") };
      });
    }
    panels.forEach((panel, k) => Object.assign(this.panels[k], panel));
    for (const { legend, title, curves } of this.panels) {
      legend.replaceChildren();
      child(legend, "b").textContent = title;
      curves.forEach((curve, i) => {
        const entry = child(legend, "span"), swatch = child(entry, "i", "swatch");
        swatch.style.borderColor = this.theme.of(colourOf(i));
        if (curves.length > 1) child(entry, "span").textContent = `${curve.label} `;
        curve.output = child(entry, "output");
      });
    }
    this.draw();
  }

  // `readings`: the values at the present position, the driving coordinate first.
  show(readings) {
    this.readings = readings;
    this.draw();
  }

  draw() {
    for (const panel of this.panels) if (panel.canvas.clientWidth) this.drawPanel(panel);
  }

  // What stays is drawn once, and copied; the dots are drawn each time.
  drawPanel(panel) {
    const { canvas, curves } = panel, { theme } = this, ratio = devicePixelRatio || 1;
    const key = [canvas.clientWidth, canvas.clientHeight, ratio, theme.paper].join();
    if (panel.key !== key || panel.drawn !== curves) Object.assign(panel, this.background(panel, ratio), { key, drawn: curves });
    const { back, place, x } = panel, context = canvas.getContext("2d"), { over } = this;
    Object.assign(canvas, { width: back.width, height: back.height });
    context.drawImage(back, 0, 0);
    context.scale(ratio, ratio);
    curves.forEach((curve, i) => {
      const here = this.readings[curve.quantity]?.[curve.component], at = this.readings[0]?.[0];
      if (here === undefined) return;
      const text = rounded(here);
      if (curve.output.textContent !== text) curve.output.textContent = text;
      const [u, v] = place(...nearestOn(x, curve.values, shownOver(over, [at])[0], here, over.isAngle && [360, 2 * Math.PI]));
      context.beginPath();
      context.arc(u, v, 4, 0, 2 * Math.PI);
      Object.assign(context, { fillStyle: theme.of(colourOf(i)), strokeStyle: theme.paper, lineWidth: 1.5 });
      context.fill();
      context.stroke();
    });
  }

  background({ canvas, curves }, ratio) {
    const width = canvas.clientWidth, height = canvas.clientHeight, { theme, over } = this;
    const back = Object.assign(document.createElement("canvas"), { width: width * ratio, height: height * ratio });
    const context = back.getContext("2d"), x = shownOver(over, over.values);
    context.scale(ratio, ratio);
    context.font = AXIS_FONT;
    const measure = (text) => context.measureText(text).width;
    const across = limitsOf([x]), up = roomy(...limitsOf(curves.map(({ values }) => values)), 0);
    const left = labelWidth(up, measure) + 10, bottom = height - 32, right = width - 8, top = 6;
    const place = (a, b) => [
      left + ((a - across[0]) / (across[1] - across[0] || 1)) * (right - left),
      bottom - ((b - up[0]) / (up[1] - up[0])) * (bottom - top),
    ];
    this.drawGrid(context, { across, up, left, right, top, bottom, place, measure });
    curves.forEach((curve, i) => {
      Object.assign(context, { strokeStyle: theme.of(colourOf(i)), lineWidth: 1.6, lineJoin: "round" });
      context.beginPath();
      curve.values.forEach((value, k) => context.lineTo(...place(x[k], value)));
      context.stroke();
    });
    return { back, place, x };
  }

  drawGrid(context, { across, up, left, right, top, bottom, place, measure }) {
    const { theme } = this;
    Object.assign(context, { strokeStyle: theme.pale, fillStyle: theme.grey, lineWidth: 1 });
    const step = this.over.isAngle ? degreesStep(across[1] - across[0], (right - left) / 55) : roundBelow((across[1] - across[0]) / 4 || 1);
    for (let k = Math.ceil(across[0] / step); k * step <= across[1]; k++) {
      const [u] = place(k * step, up[0]), text = written(k * step, step);
      line(context, Math.round(u) + 0.5, top, Math.round(u) + 0.5, bottom);
      context.fillText(text, Math.min(u - measure(text) / 2, right - measure(text)), bottom + 13);
    }
    const rise = roundBelow((up[1] - up[0]) / Math.max(2, Math.floor((bottom - top) / 28)) || 1);
    for (let k = Math.ceil(up[0] / rise); k * rise <= up[1]; k++) {
      const [, v] = place(across[0], k * rise), text = written(k * rise, rise);
      line(context, left, Math.round(v) + 0.5, right, Math.round(v) + 0.5);
      context.fillText(text, left - 5 - measure(text), v + 4);
    }
    const label = this.over.isAngle ? this.over.label.replace("[rad]", "[°]") : this.over.label;
    context.fillText(label, (left + right - measure(label)) / 2, bottom + 28);
  }
}

const CURVE_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
const colourOf = (curve) => CURVE_COLOURS[curve % CURVE_COLOURS.length];
const shownOver = ({ isAngle }, values) => (isAngle ? values.map((x) => (x * 180) / Math.PI) : values);
const limitsOf = (columns) => [Math.min(...columns.map((c) => Math.min(...c))), Math.max(...columns.map((c) => Math.max(...c)))];
const degreesStep = (span, most) => [1, 2, 5, 10, 15, 30, 45, 90, 180].find((step) => span / step <= most) ?? 360;

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

// The point of a curve next to a pair of values, which may be whole turns away from it: `turns` of both axes.
function nearestOn(xs, ys, x, y, turns) {
  const wrap = (d, turn) => (turn ? d - turn * Math.round(d / turn) : d);
  const [low, high] = limitsOf([xs]), [bottom, top] = limitsOf([ys]), [around, about] = turns || [0, 0];
  let best = 0, least = Infinity;
  for (let k = 0; k < xs.length; k++) {
    const far = Math.hypot(wrap(x - xs[k], around) / (high - low || 1), (y - ys[k]) / (top - bottom || 1));
    const turned = about ? Math.hypot(wrap(x - xs[k], around) / (high - low || 1), wrap(y - ys[k], about) / (top - bottom || 1)) : far;
    if (Math.min(far, turned) < least) [best, least] = [k, Math.min(far, turned)];
  }
  return [xs[best], ys[best]];
}
