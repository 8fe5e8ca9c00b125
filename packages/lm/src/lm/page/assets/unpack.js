// What export.py put into a page: the model's weights, its tokenizer and what is said about both.

/** {about, encoder, model} of the page; what was unpacked is removed from it. */
async function unpackPage() {
  const about = JSON.parse(document.getElementById("about").textContent);
  const kernel = Uint8Array.from(atob(document.getElementById("kernel").textContent), (letter) => letter.charCodeAt(0));
  const encoder = await unpack("vocabulary"), model = unpackModel(about, await inflated("weights"), kernel);
  for (const id of ["weights", "vocabulary"]) document.getElementById(id).remove();
  return { about, encoder, model };
}

/** A number of float16 from its bits; weights have no infinities. */
function fromFloat16(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

/** The Model of what page.py packed: about.tensors say name, shape and kind in the order in which data has them. */
function unpackModel(about, data, kernel) {
  const rowsOf = (shape) => shape.length === 1 ? [1, shape[0]] : shape;
  let room = 0, longest = 0;
  for (const { shape, kind } of about.tensors) {
    const [rows, columns] = rowsOf(shape);
    room += rows * padded(columns) * (kind === "int8" ? 1 : 4) + 4 * rows + 256;
    longest = Math.max(longest, rows, columns);
  }
  const memory = new Memory(room, kernel, longest), weights = {};
  const view = new DataView(data.buffer, data.byteOffset);
  let at = 0;
  const read = (address, count) => {
    for (let i = 0; i < count; i++, at += 2) memory.floats[address / 4 + i] = fromFloat16(view.getUint16(at, true));
  };
  for (const { name, shape, kind } of about.tensors) {
    const [rows, columns] = rowsOf(shape), stride = padded(columns);
    const address = memory.take(rows * stride * (kind === "int8" ? 1 : 4));
    let scale;
    if (kind === "int8") {
      scale = memory.take(4 * rows);
      // a scale is a bfloat16: the upper half of a float32
      for (let i = 0; i < rows; i++, at += 2) {
        WORD.bits[0] = view.getUint16(at, true) << 16;
        memory.floats[scale / 4 + i] = WORD.float[0];
      }
    }
    for (let i = 0; i < rows; i++) {
      if (kind === "int8") {
        memory.bytes.set(data.subarray(at, at += columns), address + i * stride);
      } else {
        read(address + 4 * i * stride, columns);
      }
    }
    weights[name] = new Matrix(memory, { rows, columns, address, scale });
  }
  const model = new Model(about.config, weights);
  model.memory = memory;
  return model;
}
