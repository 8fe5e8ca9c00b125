"use strict";
// The forward pass of a Transformer, one token at a time: id → embedding → blocks → norm → logits.
//
// It is lm's model.py for one sequence, in plain loops over Float32Arrays, and what to write in another language. Only
// the products of a matrix and a vector have a faster form (memory.js). A model's weights have lm's names. `see`, where
// given, is called with (name of the part, its numbers, its shape) after each part; a block's own parts are named in
// block() and attention().

class Model {
  /** config: lm's ModelConfig with `rope_frequencies`, how far each pair rotates from one position to the next.
   * weights: {name: Matrix}, of memory.js. */
  constructor(config, weights) {
    this.config = config;
    this.weights = weights;
    const kvWidth = config.kv_heads * config.head_dim, width = config.num_heads * config.head_dim;
    // what attention looks back at, a row for each position; queries only for those who look inside
    this.cache = Array.from({ length: config.num_layers }, () => ({
      keys: new Rows(kvWidth), values: new Rows(kvWidth), queries: new Rows(width),
    }));
    this.clear();
  }

  clear() {
    this.length = 0;     // tokens in the cache
  }

  /** Append a token to the sequence; the logits of what follows it. */
  forward(id, see = () => {}) {
    return this.logits(this.hidden(id, see), see);
  }

  /** Append a token; the residual stream (d_model) after the last block. */
  hidden(id, see = () => {}) {
    const { config, weights } = this, position = this.length++;
    let x = weights["embedding.weight"].row(id);
    if (config.position === "learned") x = add(x, weights["positions.weight"].row(position));
    see("embedding", x, [config.d_model]);
    for (let layer = 0; layer < config.num_layers; layer++) x = this.block(layer, x, position, id, see);
    return x;
  }

  /** The residual stream after any block as logits (vocab_size). */
  logits(x, see = () => {}) {
    const { config, weights } = this;
    x = this.norm("final_norm", x);
    see("final_norm", x, [config.d_model]);
    const logits = (weights["head.weight"] ?? weights["embedding.weight"]).times(x).slice(0, config.vocab_size);
    const cap = config.logit_softcap;
    if (cap !== null) for (let i = 0; i < logits.length; i++) logits[i] = cap * Math.tanh(logits[i] / cap);
    see("logits", logits, [config.vocab_size]);
    return logits;
  }

  /** x (d_model) after attention and feed-forward, each added to what came in. */
  block(layer, x, position, id, see = () => {}) {
    const width = [this.config.d_model], name = `blocks.${layer}`;
    const norm = (part, y) => {
      y = this.norm(`${name}.${part}`, y);
      see(part, y, width);
      return y;
    };
    see("input", x, width);
    const isPost = this.config.norm_placement === "post";
    const sublayers = [
      ["attention", (y) => this.attention(layer, y, position, id, see)],
      ["ffn", (y) => this.feedForward(layer, y, see)],
    ];
    for (const [part, sublayer] of sublayers) {
      const y = sublayer(isPost ? x : norm(`${part}_norm`, x));
      see(`${part}_output`, y, width);
      x = isPost ? norm(`${part}_norm`, add(x, y)) : add(x, y);
      see(`after_${part}`, x, width);
    }
    return x;
  }

  /** What the heads gather from this position and those before it: x (d_model) → (d_model). */
  attention(layer, x, position, id, see = () => {}) {
    const { num_heads: heads, kv_heads: kvHeads, head_dim: size } = this.config;
    const name = `blocks.${layer}.attention`, qkv = this.linear(`${name}.qkv`, x);
    const q = qkv.slice(0, heads * size), k = qkv.slice(heads * size, (heads + kvHeads) * size);
    const v = qkv.slice((heads + kvHeads) * size);
    if (this.weights[`${name}.value_embedding.weight`]) this.addValueEmbedding(name, v, x, id);
    for (const [part, vector] of [["q_norm", q], ["k_norm", k]]) {
      const weight = this.weights[`${name}.${part}.weight`];
      for (let at = 0; weight && at < vector.length; at += size)
        vector.set(rmsNorm(vector.subarray(at, at + size), weight.row(0), this.config.norm_eps), at);
    }
    if (this.config.position === "rope")
      for (const vector of [q, k])
        for (let at = 0; at < vector.length; at += size)
          rotate(vector.subarray(at, at + size), position, this.config.rope_frequencies);
    const cache = this.cache[layer];
    cache.queries.set(position, q);
    cache.keys.set(position, k);
    cache.values.set(position, v);
    see("q", q, [heads, size]);
    see("k", k, [kvHeads, size]);
    see("v", v, [kvHeads, size]);
    const gathered = new Float32Array(heads * size), begin = this.firstSeen(position);
    for (let head = 0; head < heads; head++) {
      const weights = this.attentionWeights(layer, head, position);
      const out = gathered.subarray(head * size, (head + 1) * size);
      for (let i = 0; i < weights.length; i++) {
        const value = cache.values.row(begin + i).subarray(this.kvHead(head) * size);
        for (let j = 0; j < size; j++) out[j] += weights[i] * value[j];
      }
    }
    see("heads", gathered, [heads, size]);
    return this.linear(`${name}.output`, gathered);
  }

  /** How much a position in the cache attends to each from firstSeen(position) to itself: they add up to 1. */
  attentionWeights(layer, head, position) {
    const { queries, keys } = this.cache[layer], size = this.config.head_dim, begin = this.firstSeen(position);
    const q = queries.row(position).subarray(head * size, (head + 1) * size);
    const scores = new Float32Array(position + 1 - begin), scale = 1 / Math.sqrt(size);
    for (let i = 0; i < scores.length; i++) {
      const at = (begin + i) * keys.width + this.kvHead(head) * size;
      let sum = 0;
      for (let j = 0; j < size; j++) sum += q[j] * keys.data[at + j];
      scores[i] = sum * scale;
    }
    return softmax(scores);
  }

  /** The first position that one sees: the first of all, or of its sliding window. */
  firstSeen(position) {
    const window = this.config.sliding_window;
    return window === null ? 0 : Math.max(0, position + 1 - window);
  }

  /** The key and value head of a query head: every one serves as many. */
  kvHead(head) {
    return Math.floor(head * this.config.kv_heads / this.config.num_heads);
  }

  /** v += 2 sigmoid(gate) · the token's own embedding, a gate for each key head. */
  addValueEmbedding(name, v, x, id) {
    const gate = this.linear(`${name}.value_gate`, x), own = this.weights[`${name}.value_embedding.weight`].row(id);
    const size = this.config.head_dim;
    for (let i = 0; i < v.length; i++) v[i] += 2 / (1 + Math.exp(-gate[Math.floor(i / size)])) * own[i];
  }

  /** down(silu(gate x) · up x), or down(f(up x)): x (d_model) → (d_model). */
  feedForward(layer, x, see = () => {}) {
    const name = `blocks.${layer}.ffn`, { d_ff: size, ffn } = this.config;
    let hidden;
    if (ffn === "swiglu") {
      const both = this.linear(`${name}.gate_up`, x), gate = both.slice(0, size), up = both.slice(size);
      see("gate", gate, [size]);
      see("up", up, [size]);
      hidden = up.map((value, i) => silu(gate[i]) * value);
    } else {
      const up = this.linear(`${name}.up`, x);
      see("up", up, [size]);
      hidden = up.map(ACTIVATIONS[ffn]);
    }
    see("hidden", hidden, [size]);
    return this.linear(`${name}.down`, hidden);
  }

  norm(name, x) {
    const weight = this.weights[`${name}.weight`]?.row(0), bias = this.weights[`${name}.bias`]?.row(0);
    const { norm, norm_eps: eps } = this.config;
    if (norm === "none") return x;
    return norm === "rmsnorm" ? rmsNorm(x, weight, eps) : layerNorm(x, weight, bias, eps);
  }

  /** W x, plus the bias where there is one. */
  linear(name, x) {
    const y = this.weights[`${name}.weight`].times(x), bias = this.weights[`${name}.bias`];
    return bias ? add(y, bias.row(0)) : y;
  }
}

/** Vectors of one width by their position, with room for more as they come. */
class Rows {
  constructor(width) {
    this.width = width;
    this.data = new Float32Array(64 * width);
  }

  row(position) {
    return this.data.subarray(position * this.width, (position + 1) * this.width);
  }

  set(position, vector) {
    if ((position + 1) * this.width > this.data.length) {
      const more = new Float32Array(2 * this.data.length);
      more.set(this.data);
      this.data = more;
    }
    this.data.set(vector, position * this.width);
  }
}

const add = (x, y) => x.map((value, i) => value + y[i]);

/** x / √(mean(x²) + eps) · weight. */
function rmsNorm(x, weight, eps) {
  let squares = 0;
  for (const value of x) squares += value * value;
  const scale = 1 / Math.sqrt(squares / x.length + eps);
  return x.map((value, i) => value * scale * weight[i]);
}

/** (x - mean) / √(variance + eps) · weight + bias. */
function layerNorm(x, weight, bias, eps) {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  let squares = 0;
  for (const value of x) squares += (value - mean) ** 2;
  const scale = 1 / Math.sqrt(squares / x.length + eps);
  return x.map((value, i) => (value - mean) * scale * weight[i] + (bias ? bias[i] : 0));
}

/** exp(x) / Σ exp(x); the largest is taken off first, so that no exponential overflows. */
function softmax(x) {
  let largest = -Infinity, sum = 0;
  for (const value of x) if (value > largest) largest = value;
  const exponentials = x.map((value) => Math.exp(value - largest));
  for (const value of exponentials) sum += value;
  return exponentials.map((value) => value / sum);
}

/** Rotate the pairs (i, i + width / 2) of a head in place, by position · frequency of the pair. */
function rotate(head, position, frequencies) {
  const half = frequencies.length;
  for (let i = 0; i < half; i++) {
    const cos = Math.cos(position * frequencies[i]), sin = Math.sin(position * frequencies[i]);
    const a = head[i], b = head[i + half];
    head[i] = a * cos - b * sin;
    head[i + half] = a * sin + b * cos;
  }
}

const silu = (x) => x / (1 + Math.exp(-x));

const ACTIVATIONS = {
  silu,
  gelu: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  gelu_exact: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  relu2: (x) => Math.max(0, x) ** 2,
};

/** 2/√π exp(-x²) Σ 2ⁿ x²ⁿ⁺¹ / (1 · 3 · … · (2n + 1)), whose terms have one sign; beyond 6 it is ±1. */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x, sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) sum += term *= 2 * x * x / (2 * n + 1);
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
}
