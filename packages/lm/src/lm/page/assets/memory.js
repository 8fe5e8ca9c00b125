// The weights of a page in one WebAssembly.Memory, and the product of a matrix and a vector by the kernel of kernel.py,
// in plain JavaScript where the browser has no SIMD.

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
    return this.scale === undefined ? this.memory.timesFloat32(this, x) : this.memory.timesInt8(this, x);
  }
}

class Memory {
  /** room: bytes of all weights. kernel: the bytes of the WebAssembly module, null for plain JavaScript. */
  constructor(room, kernel, longest) {
    this.x = 0;                                   // addresses: a vector that comes in, one that goes out
    this.y = 4 * padded(longest);
    this.free = 2 * this.y;
    const pages = Math.ceil((this.free + room) / 65536);
    this.hasKernel = kernel !== null && typeof WebAssembly === "object" && WebAssembly.validate(kernel);
    if (this.hasKernel) {
      const memory = new WebAssembly.Memory({ initial: pages });
      this.kernel = new WebAssembly.Instance(new WebAssembly.Module(kernel), { page: { memory } }).exports;
      this.buffer = memory.buffer;
    } else {
      this.buffer = new ArrayBuffer(pages * 65536);
    }
    this.floats = new Float32Array(this.buffer);
    this.bytes = new Int8Array(this.buffer);
  }

  take(bytes) {
    const address = this.free;
    this.free += Math.ceil(bytes / 64) * 64;
    return address;
  }

  timesFloat32(matrix, x) {
    const { rows, columns, stride, address } = matrix;
    if (this.hasKernel) {
      this.put(x, stride);
      this.kernel.multiply_float32(address, this.x, this.y, rows, stride);
      return this.floats.slice(this.y / 4, this.y / 4 + rows);
    }
    const y = new Float32Array(rows);
    for (let i = 0; i < rows; i++) {
      let sum = 0;
      const at = address / 4 + i * stride;
      for (let j = 0; j < columns; j++) sum += this.floats[at + j] * x[j];
      y[i] = sum;
    }
    return y;
  }

  timesInt8(matrix, x) {
    const { rows, columns, stride, address, scale } = matrix;
    if (this.hasKernel) {
      this.put(x, stride);
      this.kernel.multiply_int8(address, scale, this.x, this.y, rows, stride);
      return this.floats.slice(this.y / 4, this.y / 4 + rows);
    }
    const y = new Float32Array(rows);
    for (let i = 0; i < rows; i++) {
      let sum = 0;
      const at = address + i * stride;
      for (let j = 0; j < columns; j++) sum += this.bytes[at + j] * x[j];
      y[i] = sum * this.floats[scale / 4 + i];
    }
    return y;
  }

  put(x, stride) {
    this.floats.set(x, this.x / 4);
    this.floats.fill(0, this.x / 4 + x.length, this.x / 4 + stride);
  }
}

const padded = (columns) => Math.ceil(columns / COLUMNS) * COLUMNS;
const WORD = { float: new Float32Array(1) };
WORD.bits = new Uint32Array(WORD.float.buffer);
