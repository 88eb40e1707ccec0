// Sliders, assembly modes and what is exported: beside the picture, below it on a telephone.

const DEGREES = 180 / Math.PI;

class Panel {
  // `ask(message)`: a promise of the answer; `want(message)`: to be asked soon, where only the last one of its kind counts.
  constructor(page, want, ask, apply) {
    Object.assign(this, { page, want, ask, apply });
    const ids = "driving drive numbers modes find present reset export exported python toml why copy download done".split(" ");
    this.element = Object.fromEntries(ids.map((id) => [id, document.getElementById(id)]));
    this.listen();
  }

  listen() {
    const { element } = this;
    element.find.addEventListener("click", () => this.findModes());
    element.reset.addEventListener("click", async () => this.apply(await this.ask({ kind: "reset" })));
    element.export.addEventListener("click", () => this.export());
    element.drive.addEventListener("change", async () => this.apply(await this.ask({ kind: "drive", name: element.drive.value })));
    element.done.addEventListener("click", () => element.exported.close());
    element.copy.addEventListener("click", () => {
      element.python.select();
      navigator.clipboard?.writeText(element.python.value).catch(() => document.execCommand("copy"));
    });
  }

  // --- sliders ----------------------------------------------------------------------------------------------

  takeNumbers(sliders) {
    const { numbers } = this.element;
    numbers.replaceChildren();
    document.getElementById("some-numbers").hidden = sliders.length === 0;
    this.numbers = new Map(sliders.map((slider) => {
      const row = sliderRow(numbers, slider.name, slider.unit, slider, (value) => this.want({ kind: "number", name: slider.name, value }));
      return [slider.name, row];
    }));
  }

  takeDriving(driving, active, coordinates) {
    const { element } = this, names = driving.map(({ name }) => name).join();
    document.getElementById("some-coordinates").hidden = driving.length === 0;
    if (names !== this.names) {
      this.names = names;
      element.driving.replaceChildren();
      this.driving = driving.map(({ name }) => {
        const isAngle = coordinates.find((one) => one.name === name).unit === "rad", scale = isAngle ? DEGREES : 1;
        const limits = { low: 0, high: 1, value: 0 };
        const row = sliderRow(element.driving, name, isAngle ? "°" : "m", limits, (value) => this.want({ kind: "coordinate", name, value: value / scale }));
        return Object.assign(row, { scale, isAngle });
      });
      element.drive.replaceChildren(...coordinates.map(({ name }) => new Option(name, name)));
    }
    driving.forEach(({ low, high, value }, k) => {
      const row = this.driving[k];
      Object.assign(row, { low, high });
      row.limit(low * row.scale, high * row.scale);
      row.show(value * row.scale);
    });
    element.drive.value = active;
    element.drive.parentElement.hidden = coordinates.length < 2 || driving.length === 0;
  }

  // The values of the driving coordinates, angles within their ranges.
  showDriving(values) {
    values.forEach((value, k) => {
      const row = this.driving[k], turn = 2 * Math.PI;
      if (row.isAngle && (value < row.low || value > row.high)) value = row.low + ((((value - row.low) % turn) + turn) % turn);
      row.show(value * row.scale);
    });
  }

  showNumber(name, value) {
    this.numbers.get(name)?.show(value);
  }

  // --- assembly modes ---------------------------------------------------------------------------------------

  async findModes() {
    const { find } = this.element;
    find.disabled = true;
    find.textContent = "searching …";
    let answer = await this.ask({ kind: "modes" });
    while (answer.isSearching) {
      await new Promise((done) => setTimeout(done, 250));
      answer = await this.ask({ kind: "found" });
    }
    find.disabled = false;
    find.textContent = "find them";
    if (answer.kind === "modes") this.takeModes(answer.count, answer.present);
  }

  takeModes(count, present) {
    const { modes, present: text } = this.element;
    modes.replaceChildren();
    text.textContent = count ? (count === 1 ? "There is one." : `There are ${count}, at these values:`) : "";
    for (let index = 0; index < count; index++) {
      const button = child(modes, "button");
      button.textContent = String(index + 1);
      button.title = `show assembly mode ${index + 1}`;
      button.addEventListener("click", async () => this.apply(await this.ask({ kind: "mode", index })));
    }
    this.showMode(present);
  }

  showMode(present) {
    [...this.element.modes.children].forEach((button, k) => button.setAttribute("aria-pressed", k === present));
  }

  // --- export -----------------------------------------------------------------------------------------------

  async export() {
    const { element } = this, answer = await this.ask({ kind: "export" });
    if (answer.kind !== "export") return;
    element.python.value = answer.python;
    element.why.textContent = answer.why && `There is no model file: ${answer.why}`;
    element.download.hidden = !answer.toml;
    if (answer.toml) {
      URL.revokeObjectURL(element.download.href);
      element.download.href = URL.createObjectURL(new Blob([answer.toml], { type: "application/toml" }));
      element.download.download = answer.name;
    }
    element.exported.showModal();
  }
}

// A row with a name, a slider and a field; `show` and `limit` change what it shows, unless somebody types into it.
function sliderRow(parent, name, unit, { low, high, value }, changed) {
  const row = child(parent, "label", "row"), title = child(row, "span", "name"), slider = child(row, "input"), field = child(row, "input");
  title.textContent = name;
  title.title = name;
  child(row, "span", "unit").textContent = unit;
  slider.type = "range";
  slider.step = "any";
  slider.setAttribute("aria-label", name);
  field.type = "number";
  field.step = "any";
  field.setAttribute("aria-label", `${name} as a number`);
  const show = (some) => {
    slider.value = some;
    if (document.activeElement !== field) field.value = Number(some.toPrecision(5));
  };
  const limit = (least, most) => Object.assign(slider, { min: least, max: most });
  slider.addEventListener("input", () => {
    if (document.activeElement !== field) field.value = Number(Number(slider.value).toPrecision(5));
    changed(Number(slider.value));
  });
  field.addEventListener("change", () => field.value !== "" && Number.isFinite(field.valueAsNumber) && changed(field.valueAsNumber));
  limit(low, high);
  show(value);
  return { show, limit };
}
