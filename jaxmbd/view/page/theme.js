// Colours: those of the style sheet, which follow the browser's preference for light or dark.

const darkMode = matchMedia("(prefers-color-scheme: dark)");

class Theme {
  constructor(ink) {
    this.inks = [ink, "#000000"]; // what is drawn in ink, and arrows of applied forces
    this.read();
  }

  read() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "ink", "grey", "pale"]) this[name] = style.getPropertyValue(`--${name}`).trim();
  }

  // The colour to draw with: ink and paper are those of the theme.
  of(colour) {
    if (this.inks.includes(colour)) return this.ink;
    return colour === "#ffffff" ? this.paper : colour;
  }
}

const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];

// The largest of 1, 2, 5 times a power of ten that is not above a value.
function roundBelow(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [5, 2, 1].find((digit) => digit * power <= value * (1 + 1e-12)) * power;
}

// A number as text with the decimals that tell multiples of a step apart: two for 0.25, one for 0.2 and 2.5.
function written(value, step) {
  const power = (x) => Math.floor(Math.log10(x) + 1e-9), first = step / 10 ** power(step);
  const more = Math.abs(first - Math.round(first)) > 1e-6 ? 1 : 0;
  const decimals = Math.max(0, more - power(step)), size = Math.abs(value);
  if (decimals > 5 || size >= 1e6) {
    if (size === 0) return "0";
    return value.toExponential(Math.max(0, power(size) - power(step) + more)).replace("e+", "e").replace(/^-/, "−");
  }
  return (value + 0).toFixed(decimals).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−");
}
