// What export.py put into a page: the model's weights, its tokenizer and their settings.

/** {about, encoder, model} of the page; what was unpacked is removed from it. */
async function unpackPage() {
  const about = JSON.parse(document.getElementById("about").textContent);
  const encoder = await unpack("vocabulary"), model = unpackModel(about, await inflated("weights"), bytesIn("kernel"));
  for (const id of ["weights", "vocabulary"]) document.getElementById(id).remove();
  return { about, encoder, model };
}

/** A number of float16 from its bits; weights have no infinities. */
function fromFloat16(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

/** A matrix of float32 as int8 with a scale for each row, by the rule of lm.ops.cpu.int8.Int8Linear, at an address. */
function asInt8({ memory, rows, columns, stride, address: from }, address, scale) {
  for (let i = 0; i < rows; i++) {
    const row = memory.floats.subarray(from / 4 + i * stride, from / 4 + i * stride + columns);
    const largest = row.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    WORD.float[0] = Math.max(largest / 127, 2 ** -126);
    // the nearest bfloat16, of two equally near the even one
    WORD.bits[0] = (WORD.bits[0] + 0x7fff + ((WORD.bits[0] >>> 16) & 1)) & 0xffff0000;
    const step = (memory.floats[scale / 4 + i] = WORD.float[0]);
    row.forEach((value, j) => {
      memory.bytes[address + i * stride + j] = Math.min(Math.max(nearestEven(Math.fround(value / step)), -127), 127);
    });
  }
  return new Matrix(memory, { rows, columns, address, scale });
}

/** The nearest integer, of two equally near the even one, as torch.round. */
function nearestEven(x) {
  const down = Math.floor(x), rest = x - down;
  return rest < 0.5 || (rest === 0.5 && down % 2 === 0) ? down : down + 1;
}

/** The Model of what page.py packed: about.tensors say name, shape and kind in the order of the data. */
function unpackModel(about, data, kernel) {
  const rowsOf = (shape) => shape.length === 1 ? [1, shape[0]] : shape;
  let room = 0, longest = 0;
  for (const { shape, kind } of about.tensors) {
    const [rows, columns] = rowsOf(shape);
    room += rows * padded(columns) * (kind === "fp16" ? 4 : 1) + 4 * rows + 256;
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
    const address = memory.take(rows * stride * (kind === "fp16" ? 4 : 1));
    let scale;
    if (kind === "tied int8") {
      weights[name] = asInt8(weights["embedding.weight"], address, memory.take(4 * rows));
      continue;
    }
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
