// Numbers as text, and the room that text takes: `measure` gives the width [px] of a text.

// The largest of 1, 2, 5 times a power of ten that is not above a value.
function roundBelow(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [5, 2, 1].find((digit) => digit * power <= value * (1 + 1e-12)) * power;
}

const withMinus = (text) => text.replace("e+", "e").replace(/^-/, "−");

// A number as text with the decimals that tell multiples of a step apart: two for 0.25, one for 0.2 and 2.5.
function written(value, step) {
  const power = (x) => Math.floor(Math.log10(x) + 1e-9), first = step / 10 ** power(step);
  const more = Math.abs(first - Math.round(first)) > 1e-6 ? 1 : 0;
  const decimals = Math.max(0, more - power(step)), size = Math.abs(value);
  if (decimals > 5 || size >= 1e6) {
    if (size < 1e-3 * step) return "0"; // a rounding error
    return withMinus(value.toExponential(Math.max(0, power(size) - power(step) + more)));
  }
  return withMinus((value + 0).toFixed(decimals).replace(/^-(0(\.0*)?)$/, "$1"));
}

// A number with four digits.
function rounded(value) {
  const size = Math.abs(value);
  return withMinus(size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(3) : value.toPrecision(4));
}

// A number of a panel whose axis begins to count at an offset.
function reading(value, offset) {
  if (!Number.isFinite(value)) return "–";
  if (offset === 0) return rounded(value);
  return `${withMinus(String(offset))} ${value < 0 ? "−" : "+"} ${rounded(Math.abs(value))}`;
}

// The limits of an axis: some room above and below, and enough that constants do not show their rounding errors.
function roomy(low, high, offset) {
  if (low === null || high === null) return [0, 1];
  const size = Math.max(Math.abs(low), Math.abs(high), Math.abs(offset));
  const least = 1e-6 * size || 1, lacking = Math.max(least - (high - low), 0) / 2;
  const room = 0.06 * Math.max(high - low, least) + lacking;
  return [low - room, high + room];
}

const widest = (texts, measure) => Math.ceil(Math.max(0, ...texts.map(measure)));

// The width of the labels of an axis between two limits, whatever step of about a fifth of them it has.
function labelWidth([low, high], measure) {
  const step = roundBelow((high - low) / 5 || 1);
  return widest([step, step / 2, step / 4].flatMap((some) => [written(low, some), written(high, some)]), measure);
}

// Text in lines that are no wider than some room, broken between words.
function lines(text, room, measure) {
  const found = [];
  for (const word of text.split(" ")) {
    const longer = found.length ? `${found.at(-1)} ${word}` : word;
    if (found.length && measure(longer) <= room) found[found.length - 1] = longer;
    else found.push(word);
  }
  return found;
}
