// Buttons, the slider of the time, and keys.

const ICONS = { play: "M3 1.5v13l11-6.5z", pause: "M3 2h3.5v12H3zM9.5 2H13v12H9.5z" };
const KEYS = [
  ["space", "play, pause"], ["← →", "one frame back, on (with shift: ten)"], ["Home End", "first, last time"],
  ["+ −", "faster, slower"], ["L", "repeat"], ["N A P", "names, arrows, paths"], ["F", "first view"],
];
const SPACE_KEYS = [["X Y Z", "along the axes"], ["drag", "turn (right button: move)"], ["wheel", "magnify"]];
const PLANE_KEYS = [["drag", "move"], ["wheel", "magnify"]];

class Controls {
  // `shown`: what of the picture is shown; `changed`: to be called to draw it again.
  constructor(page, theme, clock, picture, shown, changed) {
    Object.assign(this, { page, clock, picture, shown, changed });
    const ids = "header title motions remark time play slider clock speed loop names forces paths fit help keys".split(" ");
    this.element = Object.fromEntries(ids.map((id) => [id, document.getElementById(id)]));
    this.addHeader(theme);
    this.addTime();
    this.addToggles();
    addEventListener("keydown", (event) => this.press(event));
    clock.listeners.push((time) => this.show(time));
  }

  addHeader(theme) {
    const { header, title, motions, remark } = this.element, { page } = this;
    title.textContent = page.title;
    title.hidden = !page.title;
    remark.textContent = page.remark;
    remark.hidden = !page.remark;
    header.hidden = title.hidden && remark.hidden && page.motions.length === 1;
    if (page.motions.length === 1) return;
    for (const motion of page.motions) {
      const button = child(motions, "button", "motion");
      child(button, "i", "swatch").style.borderColor = theme.of(motion.colour);
      child(button, "span").textContent = motion.name;
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        motion.isVisible = !motion.isVisible;
        button.setAttribute("aria-pressed", motion.isVisible);
        this.changed({ alsoCurves: true });
      });
    }
  }

  addTime() {
    const { time, play, slider, speed, loop } = this.element, { clock } = this;
    time.hidden = clock.start === clock.stop;
    [slider.min, slider.max] = [clock.start, clock.stop];
    const gaps = this.page.motions.map(({ times }) => (times.at(-1) - times[0]) / (times.length - 1));
    this.frame = Math.min(...gaps.filter((gap) => gap > 0));
    this.digit = roundBelow((clock.stop - clock.start) / 500 || 1);
    const speeds = new Set([clock.speed]);
    for (let power = -4; power <= 4; power++) for (const digit of [1, 2, 5]) speeds.add(Number(`${digit}e${power}`));
    this.speeds = [...speeds].filter((x) => x >= clock.speed / 1000 && x <= clock.speed * 1000).sort((a, b) => a - b);
    for (const x of this.speeds) speed.append(new Option(String(x), x, x === clock.speed, x === clock.speed));
    play.addEventListener("click", () => this.toggle());
    slider.addEventListener("input", () => {
      const time = Number(slider.value); // `pause` puts the slider where the clock is
      clock.pause();
      clock.seek(time);
    });
    speed.addEventListener("change", () => (clock.speed = Number(speed.value)));
    loop.addEventListener("click", () => this.press({ key: "l" }));
  }

  addToggles() {
    const { page, element } = this;
    element.forces.hidden = page.motions.every((motion) => motion.arrows.length === 0);
    element.paths.hidden = page.motions.every((motion) => motion.traces.length === 0);
    for (const [name, key] of [["names", "n"], ["forces", "a"], ["paths", "p"], ["fit", "f"], ["help", "?"]]) {
      element[name].addEventListener("click", () => this.press({ key }));
    }
    for (const [key, what] of [...KEYS, ...(page.dimension === 3 ? SPACE_KEYS : PLANE_KEYS)]) {
      child(element.keys, "kbd").textContent = key;
      child(element.keys, "span").textContent = what;
    }
  }

  toggle() {
    if (this.clock.isPlaying) this.clock.pause();
    else this.clock.play();
  }

  step(frames) {
    this.clock.pause();
    this.clock.seek(this.clock.time + frames * this.frame);
  }

  quicken(by) {
    const { clock, element } = this, index = this.speeds.indexOf(clock.speed) + by;
    clock.speed = this.speeds[Math.min(Math.max(index, 0), this.speeds.length - 1)];
    element.speed.value = clock.speed;
  }

  turn(name, isOn) {
    this.element[name].setAttribute("aria-pressed", isOn);
    return isOn;
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target?.tagName === "SELECT") return;
    const { clock, picture, shown } = this, far = event.shiftKey ? 10 : 1;
    const flip = (name) => {
      shown[name] = this.turn(name, !shown[name]);
      this.changed();
    };
    const look = (view) => {
      picture.fit(view);
      this.changed();
    };
    const actions = {
      " ": () => this.toggle(),
      arrowleft: () => this.step(-far),
      arrowright: () => this.step(far),
      home: () => clock.seek(clock.start),
      end: () => clock.seek(clock.stop),
      "+": () => this.quicken(1),
      "-": () => this.quicken(-1),
      l: () => (clock.isLooping = this.turn("loop", !clock.isLooping)),
      n: () => flip("names"),
      a: () => flip("forces"),
      p: () => flip("paths"),
      f: () => look(),
      "?": () => (this.element.keys.hidden = !this.turn("help", this.element.keys.hidden)),
    };
    if (this.page.dimension === 3) {
      actions.x = () => look({ elev: 0, azim: 0 });
      actions.y = () => look({ elev: 0, azim: -90 });
      actions.z = () => look({ elev: 89.99, azim: -90 }); // at 90 degrees, up would have no direction
    }
    const action = actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault?.();
    action();
  }

  show(time) {
    const { slider, clock, play } = this.element, { isPlaying, stop } = this.clock;
    slider.value = time;
    clock.textContent = `t = ${written(time, this.digit)} s of ${written(stop, this.digit)} s`;
    const what = isPlaying ? "pause" : "play";
    play.setAttribute("aria-label", what);
    play.querySelector("path").setAttribute("d", ICONS[what]);
  }
}
