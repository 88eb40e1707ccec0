// Curves beside the picture, drawn by uPlot: a panel for each unit or name, with the values at the time that is shown.

const AXIS_FONT = `11px ${FONT}`;

class Curves {
  constructor(element, page, theme, clock) {
    Object.assign(this, { element, page, theme, clock });
    const context = document.createElement("canvas").getContext("2d");
    context.font = AXIS_FONT;
    this.measure = (text) => context.measureText(text).width;
    const times = page.panels.flatMap(({ curves }) => curves.flatMap(({ times }) => [times[0], times.at(-1)]));
    this.span = [Math.min(...page.span, ...times), Math.max(...page.span, ...times)]; // a motion may have ended early
    element.hidden = page.panels.length === 0;
    this.panels = page.panels.map((panel) => this.panel(panel));
    new ResizeObserver(() => this.resize()).observe(element);
  }

  panel({ title, offset, curves }) {
    const box = child(this.element, "div", "panel"), legend = child(box, "div", "legend"), plot = child(box, "div", "plot");
    child(legend, "b").textContent = title;
    if (offset !== 0) child(legend, "span", "offset").textContent = `axis: ${withMinus(String(offset))} + …`;
    const readings = curves.map((curve) => {
      const entry = child(legend, "span"), swatch = child(entry, "i", "swatch");
      swatch.style.borderTopStyle = curve.dash % DASHES.length ? "dashed" : "solid";
      const name = this.page.motions[curve.motion].name;
      child(entry, "span").textContent = name && this.page.motions.length > 1 ? `${curve.label}, ${name} ` : `${curve.label} `;
      return { swatch, output: child(entry, "output") };
    });
    return { title, offset, curves, box, plot, readings };
  }

  // Draw all anew, in the size of their boxes and the colours of the theme.
  resize() {
    for (const panel of this.panels) {
      panel.chart?.destroy();
      panel.curves.forEach((curve, i) => (panel.readings[i].swatch.style.borderColor = this.theme.of(curve.colour)));
      panel.chart = new uPlot(this.options(panel), this.data(panel), panel.plot);
      panel.now = child(panel.chart.over, "div", "now");
      this.listen(panel.chart);
    }
  }

  data({ curves }) {
    const tables = [];
    for (const { times, values, measured } of curves) {
      tables.push([Array.from(times), Array.from(values, (x) => (Number.isFinite(x) ? x : null))]);
      if (measured) tables.push([Array.from(measured.times), Array.from(measured.values)]);
    }
    return uPlot.join(tables); // where another curve alone has a time, this one goes on
  }

  options({ curves, plot, offset }) {
    const { theme, page, span, measure } = this, below = labelWidth(span, measure), grid = { stroke: theme.pale, width: 1 };
    const axis = { stroke: theme.grey, grid, ticks: { show: false }, font: AXIS_FONT };
    const values = (_, splits, axis, space, step) => splits.map((value) => written(value, step));
    const series = curves.flatMap((curve) => {
      const stroke = theme.of(curve.colour), show = page.motions[curve.motion].isVisible;
      const dash = DASHES[curve.dash % DASHES.length];
      const line = { stroke, show, width: 1.6, dash, pxAlign: 0, points: { show: false } };
      const dots = { stroke, show, paths: () => null, points: { show: true, size: 5, stroke, fill: theme.paper } };
      return curve.measured ? [line, dots] : [line];
    });
    return {
      width: plot.clientWidth,
      height: plot.clientHeight,
      legend: { show: false },
      cursor: { show: false },
      hooks: { draw: [() => this.show(this.clock.time)] }, // only now does uPlot know where a time is
      padding: [8, Math.ceil(below / 2) + 2, 0, 0], // for halves of labels at the ends of the axes
      scales: { x: { time: false, range: () => span }, y: { range: (_, low, high) => roomy(low, high, offset) } },
      axes: [
        { ...axis, values, size: 26, gap: 2, space: below + 18 },
        { ...axis, values, size: (_, texts) => Math.max(widest(texts ?? [], measure) + 12, below / 2), gap: 5, space: 24 },
      ],
      series: [{}, ...series],
    };
  }

  // Dragging in a panel sets the time.
  listen(chart) {
    const seek = (event) => {
      if (event.buttons) this.clock.seek(chart.posToVal(event.clientX - chart.over.getBoundingClientRect().left, "x"));
    };
    chart.over.addEventListener("pointerdown", (event) => {
      chart.over.setPointerCapture(event.pointerId);
      this.clock.pause();
      seek(event);
    });
    chart.over.addEventListener("pointermove", seek);
  }

  show(t) {
    for (const { chart, now, curves, readings, offset } of this.panels) {
      if (!chart) continue;
      now.style.left = `${chart.valToPos(t, "x")}px`;
      curves.forEach(({ times, values }, i) => {
        const [k, share] = located(times, t);
        const value = share === 0 ? values[k] : between(values[k], values[k + 1], share);
        readings[i].output.textContent = reading(value, offset);
      });
    }
  }
}
