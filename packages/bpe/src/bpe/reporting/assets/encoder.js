"use strict";
// Byte-level BPE and SentencePiece's in the browser: what reporting/javascript.py packs, read and run.
// It gives the ids of bpe.Tokenizer.encode().
//
// A symbol is a sequence of bytes that merging can make, here a string with a character below U+0100 for each byte.
// Symbols are numbered in the order of the packed file.

const LONGEST_CACHED = 64;     // characters of a pretoken that is remembered
const MOST_CACHED = 200_000;   // pretokens remembered before all are forgotten

class Encoder {
  /** From the inflated bytes: a line of JSON, then the bytes of all symbols. */
  constructor(data) {
    const line = data.indexOf(10);
    const about = JSON.parse(new TextDecoder().decode(data.subarray(0, line)));
    this.about = about;
    this.utf8 = new TextEncoder();
    this.cache = new Map();
    this.splitters = about.pattern.map((source) => splitter(source, about.classes));
    if (about.normalizer) this.assigned = new RegExp(`[^${about.unassigned}]+`, "gu");
    const text = latin1(data.subarray(line + 1));
    let end = 0;
    this.symbols = about.lengths.map((length) => text.slice(end, end += length));
    this.symbolOf = new Map(this.symbols.map((symbol, i) => [symbol, i]));
    this.ids = sums(about.ids);
    if (!about.by_rank) {
      // each merge is the symbol that it makes, and the number of bytes of its left half
      this.made = sums(about.made);
      this.rankOf = new Map(this.made.map((made, rank) => {
        const symbol = this.symbols[made], cut = about.left[rank];
        return [pair(this.symbolOf.get(symbol.slice(0, cut)), this.symbolOf.get(symbol.slice(cut))), rank];
      }));
    }
    this.cutOut = new Map(Object.entries(about.added));
    this.special = new Map([...Object.entries(about.special), ...this.cutOut]);
    this.specialIds = new Set(this.special.values());
    // of two names of one id the first is what it is decoded to
    const names = [...this.special].reverse().map(([name, id]) => [id, latin1(this.utf8.encode(name))]);
    const bytes = (about.byte_ids ?? []).map((id, byte) => [id, String.fromCharCode(byte)]);
    this.tokenOf = new Map([...names, ...this.symbols.map((symbol, i) => [this.ids[i], symbol]), ...bytes]);
  }

  /** {ids, sizes, text}: the ids of a text, the bytes of each, and the text they spell, which is normalized. */
  encode(text, { special = true } = {}) {
    text = text.toWellFormed();
    if (this.assigned) text = text.replace(this.assigned, (run) => run.normalize(this.about.normalizer));
    const out = { ids: [], sizes: [], text: "" };
    const names = special ? this.special : this.cutOut;
    let begin = 0;
    if (names.size) {
      // the longest of those that begin at the leftmost position
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
        symbols = this.merge(latin1(this.utf8.encode(piece)));
        if (this.cache.size >= MOST_CACHED) this.cache.clear();
        if (piece.length <= LONGEST_CACHED) this.cache.set(piece, symbols);
      }
      for (const symbol of symbols) {
        const bytes = this.symbols[symbol], id = this.ids[symbol];
        const ids = id < this.about.first_partial ? [id] : Array.from(bytes, (byte) => this.about.byte_ids[code(byte)]);
        for (const one of ids) {
          out.ids.push(one);
          out.sizes.push(bytes.length / ids.length);
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

  /** The symbols of one pretoken: while two neighbours can be merged, the pair of the lowest rank is,
   * the leftmost first. */
  merge(pretoken) {
    if (this.about.ignore_merges && this.symbolOf.has(pretoken)) return [this.symbolOf.get(pretoken)];
    const symbols = Array.from(pretoken, (byte) => {
      if (!this.symbolOf.has(byte)) throw new Error(`byte 0x${hex(code(byte))} has no token in this vocabulary`);
      return this.symbolOf.get(byte);
    });
    const next = symbols.map((_, i) => i + 1), previous = symbols.map((_, i) => i - 1), heap = new Heap();
    const consider = (at) => {
      const left = symbols[at], right = symbols[next[at]];
      if (left === undefined || right === undefined) return;
      let made, rank;
      if (this.about.by_rank) rank = this.ids[made = this.symbolOf.get(this.symbols[left] + this.symbols[right])];
      else made = this.made[rank = this.rankOf.get(pair(left, right))];
      if (made !== undefined) heap.push({ key: rank * 0x400000 + at, at, left, right, made });
    };
    for (let i = 0; i + 1 < symbols.length; i++) consider(i);
    for (let best; (best = heap.pop()) !== undefined;) {
      const { at, left, right, made } = best, after = next[at];
      // what was merged since with something else is void, and so is what was merged into its neighbour
      if (symbols[at] !== left || symbols[after] !== right) continue;
      symbols[at] = made;
      symbols[after] = -1;
      next[at] = next[after];
      previous[next[at]] = at;
      consider(previous[at]);
      consider(at);
    }
    return symbols.filter((symbol) => symbol >= 0);
  }

  /** The bytes of a token, special ones too. */
  bytesOf(id) {
    return Uint8Array.from(this.tokenOf.get(id), code);
  }

  /** True if there is such a token: a model may have more. */
  has(id) {
    return this.tokenOf.has(id);
  }

  isSpecial(id) {
    return this.specialIds.has(id);
  }
}

/** A heap of candidate pairs by their keys: lowest rank first, the leftmost of equals. A position has 22 bits. */
class Heap {
  items = [];

  push(item) {
    const { items } = this;
    let slot = items.length;
    for (let parent; slot && items[parent = (slot - 1) >> 1].key > item.key; slot = parent) {
      items[slot] = items[parent];
    }
    items[slot] = item;
  }

  /** The best candidate; undefined where none is left. */
  pop() {
    const { items } = this, best = items[0], last = items.pop();
    if (!items.length) return best;
    let slot = 0;
    for (let child = 1; child < items.length; child = 2 * slot + 1) {
      if (child + 1 < items.length && items[child + 1].key < items[child].key) child++;
      if (items[child].key >= last.key) break;
      items[slot] = items[child];
      slot = child;
    }
    items[slot] = last;
    return best;
  }
}

/** Numbers from their differences to the one before, less one. */
function sums(differences) {
  let last = -1;
  return differences.map((difference) => last += 1 + difference);
}

/** The key of two symbols. */
function pair(left, right) {
  return left * 0x4000000 + right;
}

function code(byte) {
  return byte.charCodeAt(0);
}

/** A character below U+0100 for each byte. */
function latin1(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return text;
}

/** The expression with its classes spelt out: §3§ stands for the fourth of them. */
function splitter(source, classes) {
  return new RegExp(source.replace(/§(\d+)§/g, (_, index) => `[${classes[index]}]`), "gu");
}

/** The matches of the expression and what lies between them. */
function isolate(text, expression) {
  const pieces = [];
  let end = 0;
  for (const { 0: match, index } of text.matchAll(expression)) {
    if (!match) throw new Error(`the split pattern matches nothing at character ${index}`);
    if (index > end) pieces.push(text.slice(end, index));
    pieces.push(match);
    end = index + match.length;
  }
  if (end < text.length) pieces.push(text.slice(end));
  return pieces;
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
