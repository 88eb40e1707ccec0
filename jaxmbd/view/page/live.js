// The page that explores a mechanism: it asks Python by a connection, shows the answers, and sends what is dragged.

// --- the connection: messages are objects with an `id`, which the answer has too ------------------------------

class Connection {
  constructor() {
    Object.assign(this, { waiting: new Map(), last: 0, isOpen: true });
  }

  // A socket to the server that sent this page, or the notebook around its frame.
  async open() {
    const place = document.getElementById("connection").textContent.trim();
    if (place === "frame") {
      this.post = (message) => parent.postMessage({ jaxmbd: message }, "*");
      addEventListener("message", ({ source, data }) => source === parent && data?.jaxmbd && this.receive(data.jaxmbd));
      return;
    }
    const socket = new WebSocket(`ws://${location.host}${place}`);
    socket.addEventListener("message", ({ data }) => this.receive(JSON.parse(data)));
    socket.addEventListener("close", () => this.close());
    this.post = (message) => socket.send(JSON.stringify(message));
    await new Promise((done, failed) => {
      socket.addEventListener("open", done);
      socket.addEventListener("error", () => failed(new Error("There is no connection to Python.")));
    });
  }

  ask(message) {
    if (!this.isOpen) return new Promise(() => {});
    const id = ++this.last;
    return new Promise((done) => {
      this.waiting.set(id, done);
      this.post({ ...message, id });
    });
  }

  receive(answer) {
    this.waiting.get(answer.id)?.(answer);
    this.waiting.delete(answer.id);
  }

  close() {
    this.isOpen = false;
    this.closed?.();
  }
}

// --- the motion that follows the answers ----------------------------------------------------------------------

class LiveMotion extends Motion {
  // `poses` of all frames as two lists, positions and turns.
  take({ positions, turns }) {
    const { dimension } = this, size = dimension === 2 ? 1 : 4, ground = this.poses[-1];
    this.poses = Array.from({ length: this.frames }, (_, k) => ({
      position: positions.slice(dimension * k, dimension * (k + 1)),
      rotation: rotation(turns.slice(size * k, size * (k + 1))),
    }));
    this.poses[-1] = ground;
  }

  cloud() {
    return this.corners;
  }

  passed(trace) {
    return trace.points.length / this.dimension; // paths are shown as a whole
  }
}

async function motionOf({ motion, numbers, dimension, limits }) {
  const made = new LiveMotion(motion, dimension, await inflated(numbers));
  const [x, y, z] = limits;
  made.corners = x.flatMap((a) => y.flatMap((b) => (z ? z.map((c) => [a, b, c]) : [[a, b]])));
  return made;
}

// True where a processor draws what a graphics card should: it then draws without smoothing edges.
function isSoftware() {
  const context = document.createElement("canvas").getContext("webgl2"), about = context?.getExtension("WEBGL_debug_renderer_info");
  const name = about ? context.getParameter(about.UNMASKED_RENDERER_WEBGL) : "";
  context?.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software/i.test(name);
}

// --- all of it connected ----------------------------------------------------------------------------------------

// A picture that takes longer than this is drawn more simply while it moves, and as before when it rests.
const SLOW = 20, COARSEST = 3, REST = 300; // [ms], level, [ms]
const SHAPES_EACH = 400; // [ms] after which shapes and curves are asked for while a number changes

class Live {
  async start() {
    this.connection = new Connection();
    await this.connection.open();
    this.connection.closed = () => this.tell("Python has ended: start it again, and load this page anew.", true);
    const answer = await this.connection.ask({ kind: "start" });
    if (answer.kind === "error") throw new Error(answer.text);
    const page = { ...answer, motions: [await motionOf(answer)], panels: [], legend: null, isEased: isSoftware() };
    const element = (id) => document.getElementById(id), theme = new Theme(page.ink);
    const canvas = element("scene"), overlay = new Overlay(element("overlay"), page, theme);
    Object.assign(this, { page, theme, overlay, wanted: new Map(), shown: { names: false, forces: false, paths: true } });
    element("title").textContent = page.title;
    element("remark").textContent = page.remark;
    element("remark").hidden = !page.remark;
    element("header").hidden = !page.title && !page.remark;
    element("time").hidden = element("forces").hidden = true;
    element("live").hidden = false;
    this.curves = new LiveCurves(element("curves"), theme);
    this.panel = new Panel(page, (message) => this.want(message), (message) => this.ask(message), (found) => this.apply(found));
    this.dragging(canvas); // before the picture listens
    this.picture = new Picture(canvas, page, theme, () => this.changed());
    this.panel.takeNumbers(page.sliders);
    this.takeShapes(answer);
    this.addKeys();
    new ResizeObserver(([{ contentRect: { width, height } }]) => {
      if (!width || !height) return;
      this.picture.resize(width, height);
      overlay.resize(width, height);
      this.draw();
    }).observe(element("picture"));
    darkMode.addEventListener("change", () => {
      theme.read();
      this.picture.paint?.();
      this.curves.draw();
      this.changed();
    });
    return this;
  }

  get motion() {
    return this.page.motions[0];
  }

  // --- messages -------------------------------------------------------------------------------------------------

  // Ask when the answer before has come; of several wishes of a kind only the last one counts.
  want(message) {
    this.wanted.set(message.kind, message);
    this.pump();
  }

  async pump() {
    if (this.isBusy) return;
    this.isBusy = true;
    while (this.wanted.size) {
      const [kind, message] = this.wanted.entries().next().value;
      this.wanted.delete(kind);
      await this.apply(await this.connection.ask(message), message);
      const isOld = performance.now() - (this.shapesAt ?? 0) > SHAPES_EACH;
      if (this.isStale && (isOld || !this.wanted.size) && !this.held) await this.takeAnew();
    }
    this.isBusy = false;
  }

  async ask(message) {
    const answer = await this.connection.ask(message);
    if (answer.kind === "error") this.tell(answer.text, true);
    return answer;
  }

  async takeAnew() {
    this.isStale = false;
    await this.apply(await this.connection.ask({ kind: "shapes" }));
  }

  async apply(answer, message = {}) {
    if (answer.kind === "error") {
      this.tell(answer.text, true);
      return;
    }
    if (answer.kind === "shapes") {
      const motion = await motionOf(answer);
      Object.assign(this.page, { motions: [motion], limits: answer.limits });
      this.picture.renew?.();
      if (answer.sliders) this.panel.takeNumbers(answer.sliders);
      this.takeShapes(answer);
      if (answer.count !== undefined) this.panel.takeModes(answer.count, answer.present);
      else if (answer.sliders) this.panel.takeModes(0, null);
      this.tell("");
      return;
    }
    if (answer.kind !== "pose") return;
    this.takePose(answer);
    if (message.kind === "number") {
      this.isStale = true;
      this.panel.takeModes(0, null);
      if (!this.wanted.has("number")) this.panel.showNumber(answer.name, answer.value);
    }
    if (this.page.driving.length > 1) this.isStale = true; // paths depend on the coordinates that are held
    if (answer.isReached) this.tell(answer.remark ?? "");
    else if (answer.isDone) this.tell(`as near as it gets: ${this.distance(answer.missed, message)} away`);
    if (!answer.isDone && !this.wanted.has(message.kind) && (message.kind !== "drag" || this.held)) {
      requestAnimationFrame(() => this.wanted.has(message.kind) || this.want(message));
    }
  }

  distance(missed, { kind, name }) {
    const isAngle = kind === "coordinate" && this.page.coordinates.find((one) => one.name === name).unit === "rad";
    if (isAngle) return `${(missed * DEGREES).toPrecision(3)}°`;
    return missed < 1 ? `${Number((1000 * missed).toPrecision(3))} mm` : `${missed.toPrecision(3)} m`;
  }

  takeShapes({ driving, active, curves, pose }) {
    this.shapesAt = performance.now();
    Object.assign(this.page, { driving, active });
    this.panel.takeDriving(driving, active, this.page.coordinates);
    this.curves.take(curves);
    this.takePose(pose);
  }

  takePose(pose) {
    this.motion.take(pose);
    this.panel.showDriving(pose.driving);
    this.panel.showMode(pose.present);
    this.curves.readings = pose.readings;
    this.poses = (this.poses ?? 0) + 1;
    this.changed();
  }

  // --- the picture ----------------------------------------------------------------------------------------------

  changed() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame((now) => {
      this.isAsked = false;
      this.ease(now);
      this.draw();
      this.curves.draw();
    });
  }

  // Find how simply the picture must be drawn to follow the hand on this computer.
  ease(now) {
    const since = now - (this.drawnAt ?? now);
    this.drawnAt = now;
    clearTimeout(this.resting);
    if (!this.picture.ease) return;
    this.resting = setTimeout(() => {
      this.picture.ease(0);
      this.draw();
      this.drawnAt = undefined;
    }, REST);
    if (since > 0 && since < 10 * REST) this.pace = 0.7 * (this.pace ?? since) + 0.3 * since;
    this.level ??= 0;
    if (this.pace > SLOW && this.level < COARSEST) {
      this.level++;
      this.pace = SLOW / 2;
    }
    this.picture.ease(this.level);
  }

  draw() {
    this.picture.draw(this.shown);
    this.overlay.draw(this.picture, this.shown);
    if (this.shown.paths && this.picture.fineness < 1) for (const trace of this.motion.traces) this.drawPath(trace);
    if (this.held) this.drawHeld();
  }

  // A path over a picture in space that is drawn more simply.
  drawPath({ points, colour }) {
    const { context } = this.overlay;
    Object.assign(context, { strokeStyle: this.theme.of(colour), lineWidth: 2, lineJoin: "round" });
    context.beginPath();
    for (let i = 0; i < points.length; i += 3) context.lineTo(...this.picture.project([points[i], points[i + 1], points[i + 2]]));
    context.stroke();
  }

  // The point that is held, and a line from it to the pointer.
  drawHeld() {
    const { context } = this.overlay, [x, y] = this.picture.project(this.motion.point(this.held)), [u, v] = this.held.pixel;
    Object.assign(context, { strokeStyle: this.theme.ink, fillStyle: this.theme.paper, lineWidth: 1.5, globalAlpha: 0.8 });
    context.setLineDash([4, 4]);
    line(context, x, y, u, v);
    context.setLineDash([]);
    context.beginPath();
    context.arc(x, y, 5, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
    context.globalAlpha = 1;
  }

  // A body under the pointer is dragged; elsewhere the picture moves or turns.
  dragging(canvas) {
    const here = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || this.held) return;
      const found = grabbed(this.picture, this.motion, here(event), this.page.movable);
      if (!found) return;
      event.stopImmediatePropagation();
      canvas.setPointerCapture(event.pointerId);
      this.held = { ...found, pointer: event.pointerId, pixel: here(event) };
      this.changed();
    }, { capture: true });
    canvas.addEventListener("pointermove", (event) => {
      if (this.held?.pointer !== event.pointerId) {
        if (!event.buttons) canvas.style.cursor = grabbed(this.picture, this.motion, here(event), this.page.movable) ? "move" : "";
        return;
      }
      event.stopImmediatePropagation();
      this.held.pixel = here(event);
      const { frame, offset } = this.held;
      this.want({ kind: "drag", frame, offset, ...aimed(this.picture, this.held.pixel) });
      this.changed();
    }, { capture: true });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, (event) => {
        if (this.held?.pointer !== event.pointerId) return;
        event.stopImmediatePropagation();
        this.held = null;
        this.tell("");
        this.changed();
        if (this.isStale && !this.isBusy) this.takeAnew();
      }, { capture: true });
    }
  }

  tell(text, isError = false) {
    const status = document.getElementById("status");
    status.hidden = !text;
    status.textContent = text;
    status.className = isError ? "error" : "";
  }

  addKeys() {
    const element = (id) => document.getElementById(id), { picture, shown } = this;
    const flip = (name) => {
      shown[name] = !shown[name];
      element(name).setAttribute("aria-pressed", shown[name]);
      this.changed();
    };
    const look = (view) => {
      picture.fit(view);
      this.changed();
    };
    const actions = { n: () => flip("names"), p: () => flip("paths"), f: () => look(), "?": () => {
      element("keys").hidden = !element("keys").hidden;
      element("help").setAttribute("aria-pressed", !element("keys").hidden);
    } };
    if (this.page.dimension === 3) {
      Object.assign(actions, { x: () => look({ elev: 0, azim: 0 }), y: () => look({ elev: 0, azim: -90 }), z: () => look({ elev: 89.99, azim: -90 }) });
    }
    const keys = [["drag a body", "move the mechanism"], ["N P", "names, paths"], ["F", "first view"]];
    keys.push(...(this.page.dimension === 3 ? [["X Y Z", "along the axes"], ["drag beside it", "turn (right button: move)"]] : [["drag beside it", "move the picture"]]));
    for (const [key, what] of [...keys, ["wheel", "magnify"]]) {
      child(element("keys"), "kbd").textContent = key;
      child(element("keys"), "span").textContent = what;
    }
    for (const [id, key] of [["names", "n"], ["paths", "p"], ["fit", "f"], ["help", "?"]]) element(id).addEventListener("click", actions[key]);
    element("paths").hidden = this.motion.traces.length === 0;
    addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT", "TEXTAREA"].includes(event.target?.tagName)) return;
      actions[event.key.toLowerCase()]?.();
    });
  }
}

// What went wrong is said on the page; `jaxmbd` is for scripts and the console.
const jaxmbd = new Live().start();
jaxmbd.catch((error) => {
  const message = document.getElementById("message");
  message.hidden = false;
  const hasWebGL = document.createElement("canvas").getContext("webgl2") !== null;
  message.textContent = hasWebGL
    ? `This page could not be shown: ${error.message}`
    : "This browser offers no WebGL 2, which the picture needs.";
  throw error;
});
