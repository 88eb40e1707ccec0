// The page: its data, its parts, and what happens when the time, the size or the theme changes.

async function start() {
  const text = (id) => document.getElementById(id).textContent;
  const page = JSON.parse(text("data")), block = await inflated(text("numbers"));
  page.motions = page.motions.map((motion) => new Motion(motion, page.dimension, block));
  for (const { curves } of page.panels) for (const curve of curves) {
    for (const samples of [curve, curve.measured]) {
      if (samples) for (const name of ["times", "values"]) samples[name] = numbersOf(block, samples[name]);
    }
  }
  const element = (id) => document.getElementById(id);
  const theme = new Theme(page.ink), clock = new Clock(page.span, page.speed);
  const shown = { names: false, forces: true, paths: true };
  let isAsked = false; // several changes are drawn once
  const changed = ({ alsoCurves = false } = {}) => {
    if (alsoCurves) curves.resize();
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      picture.draw(shown);
      overlay.draw(picture, shown);
    });
  };
  const overlay = new Overlay(element("overlay"), page, theme);
  const picture = new Picture(element("scene"), page, theme, changed);
  const curves = new Curves(element("curves"), page, theme, clock);
  new Controls(page, theme, clock, picture, shown, changed);
  clock.listeners.push((time) => {
    for (const motion of page.motions) motion.moveTo(time);
    curves.show(time);
    changed();
  });
  new ResizeObserver(([{ contentRect: { width, height } }]) => {
    if (!width || !height) return;
    picture.resize(width, height);
    overlay.resize(width, height);
    picture.draw(shown); // at once: a canvas is empty after its size was set
    overlay.draw(picture, shown);
  }).observe(element("picture"));
  darkMode.addEventListener("change", () => {
    theme.read();
    picture.paint?.();
    changed({ alsoCurves: true });
  });
  clock.seek(clock.start);
  if (location.hash === "#playing" && !matchMedia("(prefers-reduced-motion: reduce)").matches) clock.play();
  return { page, clock, picture };
}

// What went wrong is said on the page; `jaxmbd` is for scripts and the console.
const jaxmbd = start();
jaxmbd.catch((error) => {
  const message = document.getElementById("message");
  message.hidden = false;
  const hasWebGL = document.createElement("canvas").getContext("webgl2") !== null;
  message.textContent = hasWebGL
    ? `This page could not be shown: ${error}`
    : "This browser offers no WebGL 2, which the picture needs.";
  throw error;
});
