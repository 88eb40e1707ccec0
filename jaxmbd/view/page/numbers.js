// The numbers of the page: one block of bytes, which `jaxmbd/view/_numbers.py` describes.

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The numbers that a reference stands for, row by row.
function numbersOf(block, { at, shape, kind, quantum, order, first }) {
  const count = shape.reduce((a, b) => a * b, 1);
  const words = new Uint32Array(count);
  for (let plane = 0; plane < 4; plane++) {
    for (let i = 0; i < count; i++) words[i] |= block[at + plane * count + i] << (8 * plane);
  }
  if (kind === "float") return new Float32Array(words.buffer);
  const steps = Int32Array.from(words, (word) => (word >>> 1) ^ -(word & 1));
  const row = first.length;
  for (let time = 0; time < order; time++) {
    for (let i = row; i < count; i++) steps[i] += steps[i - row];
  }
  return Float64Array.from(steps, (step, i) => first[i % row] + quantum * step);
}
