"use strict";
// Byte-level BPE and SentencePiece's in the browser: what reporting/javascript.py packs, read and run.
// It gives the ids of bpe.Tokenizer.encode().
//
// A symbol is a sequence of bytes that merging can make; symbols are numbered in the order of the packed file.

const LONGEST_CACHED = 64;     // characters of a pretoken that is remembered
const MOST_CACHED = 200_000;   // pretokens remembered before all are forgotten

class Encoder {
  /** From the inflated bytes: a line of JSON, then the bytes of all symbols. */
  constructor(data) {
    const line = data.indexOf(10);
    const about = JSON.parse(new TextDecoder().decode(data.subarray(0, line)));
    this.about = about;
    this.bytes = data.subarray(line + 1);
    this.count = about.ids.length;
    this.splitters = about.pattern.map((source) => splitter(source, about.classes));
    if (about.normalizer) this.assigned = new RegExp(`[^${about.unassigned}]+`, "gu");
    this.readSymbols(about.lengths, about.ids);
    if (!about.by_rank) this.readMerges(about.made, about.left);
    this.cutOut = new Map(Object.entries(about.added));
    this.special = new Map([...Object.entries(about.special), ...this.cutOut]);
    this.utf8 = new TextEncoder();
    this.byteOfId = new Map(about.byte_ids?.map((id, byte) => [id, byte]));
    this.cache = new Map();
    this.room(1024);
  }

  /** The ids are differences to the one before plus one. */
  readSymbols(lengths, ids) {
    this.ids = new Uint32Array(this.count);
    for (let i = 0, id = -1; i < this.count; i++) this.ids[i] = id += 1 + ids[i];
    this.begins = new Uint32Array(this.count + 1);
    for (let i = 0; i < this.count; i++) this.begins[i + 1] = this.begins[i] + lengths[i];
    this.symbolOfId = new Map();
    let slots = 512;
    while (slots < 2 * this.count) slots *= 2;
    this.slots = new Int32Array(slots).fill(-1);
    this.symbolOfByte = new Int32Array(256).fill(-1);
    for (let i = 0; i < this.count; i++) {
      this.symbolOfId.set(this.ids[i], i);
      let at = hash(this.bytes, this.begins[i], this.begins[i + 1]) & (slots - 1);
      while (this.slots[at] >= 0) at = (at + 1) & (slots - 1);
      this.slots[at] = i;
      if (lengths[i] === 1) this.symbolOfByte[this.bytes[this.begins[i]]] = i;
    }
  }

  /** Each merge is the symbol it makes, as a difference too, and where that is cut in two. */
  readMerges(differences, lefts) {
    let slots = 64;
    while (slots < 2 * lefts.length) slots *= 2;
    this.pairLeft = new Int32Array(slots).fill(-1);
    this.pairRight = new Int32Array(slots);
    this.pairMade = new Int32Array(slots);
    this.pairRank = new Int32Array(slots);
    for (let rank = 0, made = -1; rank < lefts.length; rank++) {
      made += 1 + differences[rank];
      const begin = this.begins[made], cut = begin + lefts[rank];
      const left = this.find(this.bytes, begin, cut), right = this.find(this.bytes, cut, this.begins[made + 1]);
      const at = this.pairSlot(left, right);
      this.pairLeft[at] = left;
      this.pairRight[at] = right;
      this.pairMade[at] = made;
      this.pairRank[at] = rank;
    }
  }

  pairSlot(left, right) {
    const mask = this.pairLeft.length - 1;
    let at = mix(left, right) & mask;
    while (this.pairLeft[at] >= 0 && (this.pairLeft[at] !== left || this.pairRight[at] !== right)) at = (at + 1) & mask;
    return at;
  }

  /** The symbol that bytes[begin:end] are, or -1. */
  find(bytes, begin, end) {
    const mask = this.slots.length - 1;
    for (let at = hash(bytes, begin, end) & mask; this.slots[at] >= 0; at = (at + 1) & mask) {
      const symbol = this.slots[at], first = this.begins[symbol];
      if (this.begins[symbol + 1] - first !== end - begin) continue;
      let i = begin;
      while (i < end && bytes[i] === this.bytes[first + i - begin]) i++;
      if (i === end) return symbol;
    }
    return -1;
  }

  /** {ids, sizes, text}: the ids of a text, the bytes of each, and the text they spell, which is normalized. */
  encode(text, { special = true } = {}) {
    text = text.toWellFormed();
    if (this.assigned) text = text.replace(this.assigned, (run) => run.normalize(this.about.normalizer));
    const out = { ids: [], sizes: [], text: "" };
    const names = special ? this.special : this.cutOut;
    let begin = 0;
    if (names.size) {
      // the longest of those that begin at the leftmost place
      const longestFirst = [...names.keys()].sort((a, b) => b.length - a.length);
      const one = new RegExp(longestFirst.map((name) => name.replace(/[\\^$.*+?()[\]{}|\/]/g, "\\$&")).join("|"), "gu");
      for (const match of text.matchAll(one)) {
        this.encodeStretch(text.slice(begin, match.index), out);
        out.text += match[0];
        out.ids.push(names.get(match[0]));
        out.sizes.push(this.utf8.encode(match[0]).length);
        begin = match.index + match[0].length;
      }
    }
    this.encodeStretch(begin ? text.slice(begin) : text, out);
    return out;
  }

  encodeStretch(text, out) {
    if (this.about.byte_ids) text = this.spaced(text, out.ids.length === 0);
    out.text += text;
    let pieces = text ? [text] : [];
    for (const expression of this.splitters) pieces = pieces.flatMap((piece) => isolate(piece, expression));
    for (const piece of pieces) {
      let symbols = this.cache.get(piece);
      if (symbols === undefined) {
        symbols = this.merge(piece);
        if (piece.length <= LONGEST_CACHED) {
          if (this.cache.size >= MOST_CACHED) this.cache.clear();
          this.cache.set(piece, symbols);
        }
      }
      for (const symbol of symbols) {
        const begin = this.begins[symbol], end = this.begins[symbol + 1];
        if (this.ids[symbol] < this.about.first_partial) {
          out.ids.push(this.ids[symbol]);
          out.sizes.push(end - begin);
        } else {
          for (const byte of this.bytes.subarray(begin, end)) {
            out.ids.push(this.about.byte_ids[byte]);
            out.sizes.push(1);
          }
        }
      }
    }
  }

  /** As SentencePiece does it: spaces for its marks, and a space in front. */
  spaced(text, isFirst) {
    const { space } = this.about, plain = text.replaceAll("\u2581", " ");
    if (!text || space === "never" || (space === "first" && !isFirst)) return plain;
    return plain.startsWith(" ") && (space === "each" || space === "first") ? plain : " " + plain;
  }

  /** Room for a pretoken of `size` bytes. */
  room(size) {
    this.scratch = new Uint8Array(size);
    this.symbols = new Int32Array(size);
    this.sizes = new Uint32Array(size);
    this.next = new Int32Array(size);
    this.previous = new Int32Array(size);
    this.heap = new Heap(3 * size);
  }

  /** The symbols of one pretoken: while two neighbours can be merged, the pair of the lowest rank is,
   * the leftmost first. */
  merge(pretoken) {
    if (3 * pretoken.length > this.scratch.length) this.room(6 * pretoken.length);
    const size = this.utf8.encodeInto(pretoken, this.scratch).written;
    if (this.about.ignore_merges) {
      const whole = this.find(this.scratch, 0, size);
      if (whole >= 0) return [whole];
    }
    const { symbols, sizes, next, previous, heap } = this;
    for (let i = 0; i < size; i++) {
      symbols[i] = this.symbolOfByte[this.scratch[i]];
      if (symbols[i] < 0) throw new Error(`byte 0x${hex(this.scratch[i])} has no token in this vocabulary`);
      sizes[i] = 1;
      next[i] = i + 1 < size ? i + 1 : -1;
      previous[i] = i - 1;
    }
    heap.clear();
    for (let i = 0; i + 1 < size; i++) this.consider(i);
    while (heap.size) {
      const at = heap.pop(), after = next[at];
      // what was merged since with something else is void, and so is what was merged into its neighbour
      if (symbols[at] !== heap.left || after < 0 || symbols[after] !== heap.right) continue;
      symbols[at] = heap.made;
      sizes[at] += sizes[after];
      symbols[after] = -1;
      next[at] = next[after];
      if (next[at] >= 0) {
        previous[next[at]] = at;
        this.consider(at);
      }
      if (previous[at] >= 0) this.consider(previous[at]);
    }
    const found = [];
    for (let at = 0; at >= 0 && size; at = next[at]) found.push(symbols[at]);
    return found;
  }

  /** Put the pair that begins at `at` into the heap, if it can be merged. */
  consider(at) {
    const left = this.symbols[at], after = this.next[at], right = this.symbols[after];
    if (this.about.by_rank) {
      const made = this.find(this.scratch, at, after + this.sizes[after]);
      if (made >= 0) this.heap.push(this.ids[made], at, left, right, made);
      return;
    }
    const slot = this.pairSlot(left, right);
    if (this.pairLeft[slot] >= 0) this.heap.push(this.pairRank[slot], at, left, right, this.pairMade[slot]);
  }

  /** The bytes of a token, special ones too. */
  bytesOf(id) {
    if (this.byteOfId.has(id)) return Uint8Array.of(this.byteOfId.get(id));
    const symbol = this.symbolOfId.get(id);
    if (symbol !== undefined) return this.bytes.subarray(this.begins[symbol], this.begins[symbol + 1]);
    return this.utf8.encode([...this.special].find(([, number]) => number === id)[0]);
  }

  /** True if there is such a token: a model may have more. */
  has(id) {
    return this.symbolOfId.has(id) || this.byteOfId.has(id) || this.isSpecial(id);
  }

  isSpecial(id) {
    this.specialIds ??= new Set(this.special.values());
    return this.specialIds.has(id);
  }
}

/** A heap of candidate pairs: lowest rank first, the leftmost of equals. A rank has 31 bits, a place 22. */
class Heap {
  constructor(room) {
    this.keys = new Float64Array(room + 1);
    this.pairs = new Int32Array(3 * (room + 1));
    this.size = 0;
  }

  clear() { this.size = 0; }

  push(rank, at, left, right, made) {
    const { keys, pairs } = this, key = rank * 0x400000 + at;
    let place = this.size++;
    while (place) {
      const parent = (place - 1) >> 1;
      if (keys[parent] <= key) break;
      this.move(parent, place);
      place = parent;
    }
    keys[place] = key;
    pairs[3 * place] = left;
    pairs[3 * place + 1] = right;
    pairs[3 * place + 2] = made;
  }

  /** The place in the text of the best candidate, which is left in `left`, `right` and `made`. */
  pop() {
    const { keys, pairs } = this, best = keys[0];
    [this.left, this.right, this.made] = pairs;
    const last = --this.size, key = keys[last];
    let place = 0;
    for (let child = 1; child < last; child = 2 * place + 1) {
      if (child + 1 < last && keys[child + 1] < keys[child]) child++;
      if (keys[child] >= key) break;
      this.move(child, place);
      place = child;
    }
    this.move(last, place);
    return best % 0x400000;
  }

  move(from, to) {
    this.keys[to] = this.keys[from];
    this.pairs.copyWithin(3 * to, 3 * from, 3 * from + 3);
  }
}

/** The expression with its classes spelt out: §3§ stands for the fourth of them. */
function splitter(source, classes) {
  return new RegExp(source.replace(/§(\d+)§/g, (_, index) => `[${classes[index]}]`), "gu");
}

/** The matches of the expression and what lies between them. */
function isolate(text, expression) {
  const pieces = [];
  let end = 0, match;
  expression.lastIndex = 0;
  while ((match = expression.exec(text)) !== null) {
    if (!match[0]) throw new Error(`the split pattern matches nothing at character ${match.index}`);
    if (match.index > end) pieces.push(text.slice(end, match.index));
    pieces.push(match[0]);
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push(text.slice(end));
  return pieces;
}

function hash(bytes, begin, end) {
  let value = 0x811c9dc5;
  for (let i = begin; i < end; i++) value = Math.imul(value ^ bytes[i], 0x01000193);
  return value ^ (value >>> 15);
}

function mix(left, right) {
  const value = Math.imul(Math.imul(left, 0x9e3779b1) ^ right, 0x85ebca6b);
  return value ^ (value >>> 13);
}

function hex(byte) {
  return byte.toString(16).padStart(2, "0");
}

/** The bytes in the element of that id: base64 of a zlib stream. */
async function inflated(id) {
  const stream = new Blob([bytesIn(id)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The bytes that an element holds in base64. Uint8Array.from would make a string of each: too much for 200 MB. */
function bytesIn(id) {
  const letters = atob(document.getElementById(id).textContent), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** The Encoder in the element of that id. */
async function unpack(id) {
  return new Encoder(await inflated(id));
}
