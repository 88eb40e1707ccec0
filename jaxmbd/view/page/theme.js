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

// A new element at the end of another one.
function child(parent, tag, className = "") {
  const element = document.createElement(tag);
  element.className = className;
  parent.append(element);
  return element;
}
