// Curves beside the picture, drawn by uPlot: a panel for each unit or name, with the values at the time that is shown.

class Curves {
  constructor(element, page, theme, clock) {
    Object.assign(this, { element, page, theme, clock });
    element.hidden = page.panels.length === 0;
    this.panels = page.panels.map((panel) => this.panel(panel));
    new ResizeObserver(() => this.resize()).observe(element);
  }

  panel({ title, curves }) {
    const box = child(this.element, "div", "panel"), legend = child(box, "div", "legend"), plot = child(box, "div", "plot");
    child(legend, "b").textContent = title;
    const readings = curves.map((curve) => {
      const entry = child(legend, "span"), swatch = child(entry, "i", "swatch");
      swatch.style.borderTopStyle = curve.dash % DASHES.length ? "dashed" : "solid";
      const name = this.page.motions[curve.motion].name;
      child(entry, "span").textContent = name && this.page.motions.length > 1 ? `${curve.label}, ${name} ` : `${curve.label} `;
      return { swatch, output: child(entry, "output") };
    });
    return { title, curves, box, plot, readings };
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

  options({ curves, plot }) {
    const { theme, page } = this, grid = { stroke: theme.pale, width: 1 };
    const axis = { stroke: theme.grey, grid, ticks: { show: false }, font: `11px ${FONT}` };
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
      scales: { x: { time: false, range: () => page.span }, y: { range: (_, low, high) => roomy(low, high) } },
      axes: [{ ...axis, values, size: 26, gap: 2 }, { ...axis, values, size: 58, gap: 3 }],
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
    for (const { chart, now, curves, readings } of this.panels) {
      if (!chart) continue;
      now.style.left = `${chart.valToPos(t, "x")}px`;
      curves.forEach(({ times, values }, i) => {
        const [k, share] = located(times, t);
        const value = share === 0 ? values[k] : between(values[k], values[k + 1], share);
        readings[i].output.textContent = Number.isFinite(value) ? rounded(value) : "–";
      });
    }
  }
}

// The limits of an axis: some room above and below, and enough that constants do not show their rounding errors.
function roomy(low, high) {
  if (low === null || high === null) return [0, 1];
  const least = 1e-6 * Math.max(Math.abs(low), Math.abs(high)) || 1, lacking = Math.max(least - (high - low), 0) / 2;
  const room = 0.06 * Math.max(high - low, least) + lacking;
  return [low - room, high + room];
}

// A number with four digits.
function rounded(value) {
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(3).replace("e+", "e") : value.toPrecision(4);
  return text.replace(/^-/, "−");
}

function child(parent, tag, className = "") {
  const element = document.createElement(tag);
  element.className = className;
  parent.append(element);
  return element;
}
