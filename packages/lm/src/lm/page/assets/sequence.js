// Text as ids: a sequence that a model reads and continues, and how one token of many is chosen.

const SHOWN = 10;     // candidates remembered of each place
const TIMED_TOKENS = 200;
const FRAME = 30;     // milliseconds of computing between two drawings

/** A function that takes steps of a model; every FRAME milliseconds of them it calls draw() and lets the page listen,
 * and it ends early where goesOn() is false after that. */
function inFrames(draw, goesOn) {
  let drawn = performance.now();
  return async (steps) => {
    for (const _ of steps) {
      if (performance.now() - drawn < FRAME) continue;
      draw();
      await new Promise((resume) => setTimeout(resume));
      drawn = performance.now();
      if (!goesOn()) return;
    }
  };
}

/** Ids, the newest of them in the model's cache, and the results that the model computed of them. */
class Sequence {
  /** time: {part: [milliseconds of each of the last tokens]}, written where given. */
  constructor(model, time = null) {
    this.model = model;
    this.time = time;
    this.clear();
  }

  clear() {
    this.ids = [];
    this.places = [];         // of each id {probability, candidates}; null for the first
    this.logits = null;       // of what follows
    this.forget(0);
  }

  /** Begin with a prompt, as lm.generate reads it: of one longer than the context the end. */
  start(ids) {
    for (const _ of this.starting(ids));
  }

  append(id) {
    for (const _ of this.appending(id));
  }

  /** start() by steps of one token. */
  starting(ids) {
    this.clear();
    this.ids = [...ids];
    this.forget(Math.max(0, ids.length - this.model.config.context_length));
    this.places = ids.slice(0, this.begin).map(() => null);
    return this.reading();
  }

  /** append() by steps: where the context is full, the older half is forgotten and the younger read again. */
  appending(id) {
    const { context_length: context } = this.model.config;
    this.ids.push(id);
    this.places.push(this.odds(id));
    if (this.model.length === context) this.forget(this.ids.length - Math.max(1, context >> 1));
    return this.reading();
  }

  /** Forget the cache: the ids from `begin` on are to be read. */
  forget(begin) {
    this.model.clear();
    this.begin = begin;
    const { num_layers, d_model } = this.model.config;
    this.streams = Array.from({ length: 2 * num_layers + 1 }, () => new Rows(d_model));
  }

  /** The number of ids that are in the cache or were. */
  get read() {
    return this.begin + this.model.length;
  }

  /** Read the ids that are not in the cache yet, one a step. Who stops it may go on later. */
  *reading() {
    while (this.read < this.ids.length) {
      const place = this.read, id = this.ids[place];
      if (place >= this.places.length) this.places.push(this.odds(id));
      this.compute(id);
      yield;
    }
  }

  /** The probability of an id after those that were read, and the likeliest ones beside it. */
  odds(id) {
    const probabilities = this.logits && softmax(this.logits);
    return probabilities && { candidates: likeliest(probabilities, SHOWN), probability: probabilities[id] };
  }

  /** The logits after an id. */
  compute(id) {
    let stream = 0, before = performance.now();
    const spent = {}, position = this.model.length;
    this.logits = this.model.forward(id, (part, x) => {
      if (part === "embedding" || part.startsWith("after_")) this.streams[stream++].set(position, x);
      if (!this.time) return;
      const now = performance.now();
      spent[part] = (spent[part] ?? 0) + now - before;
      before = now;
    });
    for (const part of this.time ? Object.keys(spent) : []) {
      const times = (this.time[part] ??= []);
      times.push(spent[part]);
      if (times.length > TIMED_TOKENS) times.shift();
    }
  }

  /** Run a block again at a place of the text, to see its parts: the logits and the cache stay as they are. */
  rerunBlock(layer, place, see) {
    const position = place - this.begin;
    this.model.block(layer, this.streams[2 * layer].row(position), position, this.ids[place], see);
  }
}

/** The first of the largest. */
function argmax(x) {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}

/** The `count` likeliest tokens: [{id, probability}], the likeliest first. */
function likeliest(probabilities, count) {
  const best = [];
  for (let id = 0, least = -1; id < probabilities.length; id++) {
    if (probabilities[id] <= least) continue;
    let at = best.length;
    while (at && best[at - 1].probability < probabilities[id]) at--;
    best.splice(at, 0, { id, probability: probabilities[id] });
    if (best.length > count) best.pop();
    if (best.length === count) least = best[count - 1].probability;
  }
  return best;
}

/** One token, chosen as lm's Sampling does: temperature 0 takes the likeliest, any other divides; topK keeps the
 * likeliest k; topP the fewest whose probabilities reach p; then one is drawn. A topK or topP of null keeps all. */
function choose(logits, { temperature, topK = null, topP = null }, random) {
  if (temperature === 0 || topK === 1) return argmax(logits);
  let weights = softmax(Float64Array.from(logits, (value) => value / temperature));
  if (topK !== null && topK < weights.length) {
    const least = weights.slice().sort()[weights.length - topK];
    weights = weights.map((value) => value < least ? 0 : value);
  }
  if (topP !== null && topP < 1) {
    const ordered = weights.slice().sort().reverse(), whole = ordered.reduce((sum, value) => sum + value, 0);
    let sum = 0, kept = 0;
    while (sum < topP * whole) sum += ordered[kept++];
    weights = weights.map((value) => value < ordered[kept - 1] ? 0 : value);
  }
  let left = random() * weights.reduce((sum, value) => sum + value, 0);
  for (let id = 0; id < weights.length; id++) if ((left -= weights[id]) < 0) return id;
  return argmax(weights);
}

/** Numbers from 0 to 1 that the seed decides: splitmix32. They are not PyTorch's. */
function generator(seed) {
  return () => {
    seed = (seed + 0x9e3779b9) | 0;
    let z = Math.imul(seed ^ (seed >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32;
  };
}
