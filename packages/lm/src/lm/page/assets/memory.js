// The weights of a page in one WebAssembly.Memory, and the product of a matrix and a vector by kernel.c.

const COLUMNS = 16;     // a row is as long as a multiple of it, with zeros at the end

/** A weight: float32, or int8 with a scale for each row. A vector is a matrix of one row. */
class Matrix {
  constructor(memory, { rows, columns, address, scale }) {
    Object.assign(this, { memory, rows, columns, address, scale });
    this.stride = padded(columns);
  }

  /** Row i as float32; of an int8 matrix never asked. */
  row(i) {
    return this.memory.floats.subarray(this.address / 4 + i * this.stride).slice(0, this.columns);
  }

  /** W x (rows). */
  times(x) {
    const { memory, rows, stride, address, scale } = this;
    memory.floats.set(x, memory.x / 4);
    memory.floats.fill(0, memory.x / 4 + x.length, memory.x / 4 + stride);
    if (scale === undefined) memory.kernel.multiply_float32(address, memory.x, memory.y, rows, stride);
    else memory.kernel.multiply_int8(address, scale, memory.x, memory.y, rows, stride);
    return memory.floats.slice(memory.y / 4, memory.y / 4 + rows);
  }
}

class Memory {
  /** room: bytes of all weights. kernel: the bytes of the WebAssembly module. */
  constructor(room, kernel, longest) {
    this.x = 0;                                   // addresses: a vector that comes in, one that goes out
    this.y = 4 * padded(longest);
    this.free = 2 * this.y;
    const pages = Math.ceil((this.free + room) / 65536);
    const memory = new WebAssembly.Memory({ initial: pages });
    this.kernel = new WebAssembly.Instance(new WebAssembly.Module(kernel), { env: { memory } }).exports;
    this.floats = new Float32Array(memory.buffer);
    this.bytes = new Int8Array(memory.buffer);
  }

  take(bytes) {
    const address = this.free;
    this.free += Math.ceil(bytes / 64) * 64;
    return address;
  }
}

const padded = (columns) => Math.ceil(columns / COLUMNS) * COLUMNS;
const WORD = { float: new Float32Array(1) };
WORD.bits = new Uint32Array(WORD.float.buffer);
