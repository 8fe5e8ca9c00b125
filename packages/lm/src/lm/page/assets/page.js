// The page: the model reads the typed text and continues it; one token of the text is chosen, and the views
// show what the model computed there.

const OPENING = 40; // tokens that the model writes of itself, where it has a token that begins a text
const GLANCE = 24; // tokens of each head at a glance, and of the one that is drawn large
const LARGE = 96;
const FEW = 4096; // numbers of a part that are written out; of more the first

/** The text, its tokens as they are drawn, and which of them is chosen. */
class Page {
  constructor(about, encoder, model) {
    Object.assign(this, { about, encoder, model, chosen: -1, step: 0, running: null, times: {} });
    this.sequence = new Sequence(model, this.times);
    this.prompt = null; // the text that the sequence began with
    this.introduce();
    this.listen();
    this.forget();
    this.draw();
    for (const id of ["go", "next", "clear"]) one(id).disabled = false;
  }

  introduce() {
    const { config, dtype, parameters } = this.about,
      heads = many(config.num_heads, "head");
    one("headline").innerHTML =
      `A Transformer of <b>${short(parameters)} parameters</b> that runs on this page. ${escaped(this.about.origin)}`;
    one("facts").textContent =
      `${many(config.num_layers, "block")} of width ${config.d_model}, ${heads} of ` +
      `${config.head_dim}, ${many(config.vocab_size, "token")}, a context of ${config.context_length}. Weights in ` +
      `${dtype}, computed in fp32 by WebAssembly SIMD.`;
    for (const says of this.about.course ? document.querySelectorAll(".says[data-chapter]") : []) {
      const { chapter } = says.dataset,
        address = escaped(this.about.course.replace("{}", chapter)),
        name = `chapter ${chapter.split("-")[0]} of the course`;
      says.insertAdjacentHTML("beforeend", ` <a href="${address}" target="_blank">More in ${name}.</a>`);
    }
    const options = (count) => range(count).map((i) => `<option value="${i}">${i + 1}</option>`).join("");
    one("attention-layer").innerHTML = one("step-layer").innerHTML = options(config.num_layers);
    one("attention-layer").value = config.num_layers - 1;
    one("attention-head").innerHTML = '<option value="-1">mean of all</option>' + options(config.num_heads);
  }

  listen() {
    const on = (id, kind, act) => one(id).addEventListener(kind, act);
    on("controls", "submit", (event) => {
      event.preventDefault();
      if (this.running) this.running = null;
      else this.write(Number(one("count").value));
    });
    on("next", "click", () => one("controls").reportValidity() && this.write(1));
    on("clear", "click", () => this.restart());
    on("prompt", "input", () => {
      this.restart();
      // The address holds the text, so that it can be sent; a long one would make the address useless.
      const text = one("prompt").value;
      history.replaceState(null, "", text.length > 2000 ? "#" : `#${encodeURIComponent(text)}`);
    });
    on("prompt", "paste", (event) => {
      const hasReturns = event.clipboardData.getData("text/plain").includes("\r\n");
      one("trouble").textContent = hasReturns ? "The browser has replaced CR LF, the ends of lines, by LF." : "";
    });
    addEventListener("hashchange", () => this.open());
    on("prompt", "keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) one("controls").requestSubmit();
    });
    for (const input of document.querySelectorAll("input[name=draw]"))
      input.addEventListener("change", () => this.draw());
    on("tokens", "click", (event) => {
      const span = event.target.closest(".bpe-t");
      if (span) this.choose(Number(span.dataset.place));
    });
    on("tokens", "keydown", (event) => this.walk(event));
    for (const id of ["attention-layer", "attention-head"]) on(id, "change", () => this.drawAttention());
    on("glance", "click", ({ offsetX, offsetY, target }) => {
      const { num_layers: layers, num_heads: heads } = this.about.config;
      one("attention-layer").value = Math.floor((layers * offsetY) / target.offsetHeight);
      one("attention-head").value = Math.floor((heads * offsetX) / target.offsetWidth);
      this.drawAttention();
    });
    on("step-layer", "change", () => this.drawStep());
    on("step-back", "click", () => this.drawStep(this.step - 1));
    on("step-on", "click", () => this.drawStep(this.step + 1));
  }

  restart() {
    Object.assign(this, { running: null, prompt: null, chosen: -1 });
    this.sequence.clear();
    this.forget();
    this.draw();
  }

  /** Begin with the text of the address, model.html#some%20text; without one the model writes of itself. */
  async open() {
    let text = location.hash.slice(1);
    try {
      text = decodeURIComponent(text);
    } catch {
      // a "%" that begins no escape stands for itself
    }
    if (text === one("prompt").value && (text || this.prompt !== null || !this.about.begin.length)) return;
    one("prompt").value = text;
    this.restart();
    await this.write(OPENING);
  }

  settings() {
    const number = (id) => (one(id).value === "" ? null : Number(one(id).value));
    return { temperature: number("temperature") ?? 1, topK: number("top-k"), topP: number("top-p") };
  }

  /** The ids of a text to continue, as lm's prompt_ids has them. */
  promptIds(text) {
    const { ids } = this.encoder.encode(text),
      { prefix, begin } = this.about;
    return ids.length === 0 ? begin : ids[0] === prefix[0] ? ids : [...prefix, ...ids];
  }

  begin() {
    const ids = this.promptIds(one("prompt").value);
    if (!ids.length) throw new Error("Type something to continue: this model has no token that begins a text");
    this.prompt = ids.length;
    this.forget();
    this.random = generator(Number(one("seed").value));
    this.sequence.starting(ids);
  }

  /** Continue by `count` tokens, or until the text ends or is stopped. */
  async write(count) {
    if (this.running) return;
    // Another call of write() puts its own object here: this one ends when it sees that.
    const run = (this.running = {});
    one("trouble").textContent = "";
    one("go").textContent = "Stop";
    one("next").disabled = true;
    const { sequence } = this;
    const goesOn = () => this.running === run;
    const take = inFrames(() => {
      this.chosen = sequence.read - 1;
      this.drawTokens();
      const isReading = sequence.read < sequence.ids.length;
      const progress = `reading: ${sequence.read} of ${many(sequence.ids.length, "token")}`;
      one("measure").textContent = isReading ? progress : "";
    }, goesOn);
    let begun = performance.now(),
      written = 0;
    try {
      if (this.prompt === null) this.begin();
      await take(sequence.reading());
      begun = performance.now();
      const settings = this.settings();
      while (goesOn() && written < count) {
        const id = choose(sequence.logits, settings, this.random);
        if (this.about.stop.includes(id)) {
          one("trouble").textContent = `The model ended the text (${this.name(id)}).`;
          break;
        }
        written++;
        await take(sequence.appending(id));
      }
    } catch (error) {
      one("trouble").textContent = `${error.message}.`;
    }
    if (this.running && this.running !== run) return;
    const speed = (written / (performance.now() - begun)) * 1000;
    this.running = null;
    one("go").textContent = "Continue";
    one("next").disabled = false;
    this.chosen = sequence.read - 1;
    this.draw();
    const tokens = `${many(sequence.ids.length, "token")}, ${sequence.ids.length - (this.prompt ?? 0)} of them written`;
    one("measure").textContent = written > 1 ? `${tokens} · ${speed.toFixed(0)} tokens a second` : tokens;
  }

  // Tokens

  name(id) {
    return this.encoder.has(id) ? visible(new TextDecoder().decode(this.encoder.bytesOf(id))) : `id ${id}`;
  }

  token(id) {
    return `<span class="token">${escaped(this.name(id))}</span>`;
  }

  /** Forget the drawn tokens. */
  forget() {
    Object.assign(this, { insides: [], begun: [], mode: null });
  }

  /** Add to `insides` what the next token shows: its characters, and of one that it shares with its neighbours its own
   * bytes; the token that completes a character shows it too, so that it can be read and copied. */
  addInside(id) {
    if (!this.encoder.has(id)) return this.insides.push(`id ${id}`);
    const bytes = this.encoder.bytesOf(id);
    let begun = this.encoder.isSpecial(id) ? [] : this.begun,
      text = wholeCharacters([...begun, ...bytes]);
    if (text === null) {
      // the character that was begun does not go on here
      begun = [];
      text = wholeCharacters(bytes);
    }
    if (text === null) {
      this.begun = [];
      return this.insides.push(chips(bytes));
    }
    const size = this.encoder.utf8.encode(text).length;
    const own = text && begun.length ? utf8Size(text.codePointAt(0)) - begun.length : 0;
    this.insides.push(
      chips(bytes.subarray(0, own)) + marked(text) + chips(bytes.subarray(Math.max(0, size - begun.length))),
    );
    this.begun = [...begun, ...bytes].slice(size);
  }

  span(place, style, text) {
    const id = this.sequence.ids[place],
      classes = ["bpe-t"];
    if (this.encoder.isSpecial(id)) classes.push("bpe-special");
    else if (!style) classes.push(`bpe-c${place % 6}`);
    if (place === this.chosen) classes.push("at");
    if (place >= this.prompt) classes.push("made");
    return `<span class="${classes.join(" ")}" data-place="${place}"${style && ` style="${style}"`}>${text}</span>`;
  }

  draw() {
    this.drawTokens();
    const { sequence } = this;
    one("measure").textContent = sequence.ids.length ? many(sequence.ids.length, "token") : "";
    one("views").hidden = this.chosen < 0;
    if (this.chosen < 0) return;
    this.drawCandidates();
    this.drawAttention();
    this.drawLens();
    this.drawNorms();
    this.drawStep();
    this.drawTimes();
  }

  /** Draw the tokens that are not drawn yet, and mark the chosen one. */
  drawTokens() {
    const mode = document.querySelector("input[name=draw]:checked").value,
      box = one("tokens"),
      { ids, places } = this.sequence;
    if (mode !== this.mode) box.replaceChildren();
    this.mode = mode;
    while (this.insides.length < ids.length) this.addInside(ids[this.insides.length]);
    const spans = [];
    for (let place = box.children.length; place < ids.length; place++) {
      const odds = places[place]?.probability;
      const style = mode === "odds" && odds !== undefined ? shade(odds) : "";
      spans.push(this.span(place, style, mode === "ids" ? `${ids[place]} ` : this.insides[place]));
    }
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    box.classList.toggle("ids", mode === "ids");
    box.insertAdjacentHTML("beforeend", spans.join(""));
    box.querySelector(".at")?.classList.remove("at");
    box.children[this.chosen]?.classList.add("at");
    if (this.running && follows) box.scrollTop = box.scrollHeight;
  }

  choose(place) {
    this.chosen = Math.min(Math.max(place, 0), this.sequence.read - 1);
    this.draw();
    one("tokens").querySelector(".at")?.scrollIntoView({ block: "nearest" });
    const id = this.sequence.ids[this.chosen];
    one("spoken").textContent = `Token ${this.chosen + 1}: ${this.name(id)}, id ${id}`;
  }

  walk(event) {
    const to = { ArrowRight: this.chosen + 1, ArrowLeft: this.chosen - 1, Home: 0, End: Infinity }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey || !this.sequence.ids.length) return;
    event.preventDefault();
    this.choose(to);
  }

  // Views of the chosen token

  /** Its position in the cache; below 0 if the context has forgotten it. */
  get position() {
    return this.chosen - this.sequence.begin;
  }

  forgotten(id) {
    if (this.position >= 0) return false;
    one(id).innerHTML = '<p class="note">The context was full and this token is forgotten: choose a later one.</p>';
    return true;
  }

  drawCandidates() {
    const id = this.sequence.ids[this.chosen],
      place = this.sequence.places[this.chosen];
    if (!place) {
      one("candidates").innerHTML = '<p class="note">Nothing stood before this token.</p>';
      return;
    }
    const rows = [...place.candidates];
    if (!rows.some((row) => row.id === id)) rows.push({ id, probability: place.probability });
    one("candidates").innerHTML = table(
      ["token", "id", "probability", ""],
      rows.map(({ id, probability }) => [this.token(id), id, percent(probability), rod(probability)]),
      rows.findIndex((row) => row.id === id),
    );
  }

  drawAttention() {
    one("attention-most").textContent = "";
    if (this.forgotten("attention")) return;
    const layer = Number(one("attention-layer").value),
      head = Number(one("attention-head").value);
    const { position, sequence } = this,
      first = sequence.begin,
      weights = this.attentionWeights(layer, head, position);
    one("attention").innerHTML = Array.from(weights, (weight, i) =>
      this.span(first + i, shade(weight), this.insides[first + i]),
    ).join("");
    this.drawSquares(layer, head);
    const most = Array.from(weights.keys())
      .sort((a, b) => weights[b] - weights[a])
      .slice(0, 5);
    const name = (place) => `${this.name(sequence.ids[place])} (token ${place + 1})`;
    one("attention-most").textContent =
      "Most: " + most.map((i) => `${name(first + i)} ${percent(weights[i])}`).join(", ");
  }

  /** How much a position takes from each up to itself, in one head or, below 0, in the mean of all. */
  attentionWeights(layer, head, position) {
    const { model } = this,
      begin = model.firstSeen(position),
      heads = head < 0 ? range(this.about.config.num_heads) : [head],
      weights = new Float32Array(position + 1);
    for (const each of heads)
      model.attentionWeights(layer, each, position).forEach((weight, i) => {
        weights[begin + i] += weight / heads.length;
      });
    return weights;
  }

  /** The chosen head as a square, and, where tokens were added since, all heads. */
  drawSquares(layer, head) {
    const { num_layers: layers, num_heads: heads } = this.about.config,
      { read, begin } = this.sequence;
    const count = this.paint(one("square"), [layer], [head], LARGE);
    const name = `layer ${layer + 1}, ${head < 0 ? "the mean of all heads" : `head ${head + 1}`}`;
    one("square").ariaLabel = `Attention among the last ${many(count, "token")}: ${name}`;
    if (this.glanced === `${begin} ${read}`) return;
    this.glanced = `${begin} ${read}`;
    one("glance").ariaLabel = `Attention in ${many(layers, "layer")}, each with ${many(heads, "head")}`;
    this.paint(one("glance"), range(layers), range(heads), GLANCE);
  }

  /** Paint squares of the last tokens, at most `most`, layers from top to bottom; the number of these tokens. */
  paint(canvas, layers, heads, most) {
    const length = this.sequence.read - this.sequence.begin,
      count = Math.min(most, length),
      first = length - count;
    canvas.width = heads.length * (count + 1) - 1;
    canvas.height = layers.length * (count + 1) - 1;
    const brush = canvas.getContext("2d");
    brush.fillStyle = getComputedStyle(canvas).color;
    layers.forEach((layer, down) =>
      heads.forEach((head, across) => {
        for (let row = 0; row < count; row++) {
          const weights = this.attentionWeights(layer, head, first + row).subarray(first);
          weights.forEach((weight, column) => {
            brush.globalAlpha = Math.sqrt(weight);
            brush.fillRect(across * (count + 1) + column, down * (count + 1) + row, 1, 1);
          });
        }
      }),
    );
    return count;
  }

  drawLens() {
    if (this.forgotten("lens")) return;
    const { sequence, model } = this;
    const rows = range(this.about.config.num_layers + 1).map((layer) => {
      const logits = model.logits(sequence.streams[2 * layer].row(this.position));
      const best = likeliest(softmax(logits), 5).map((it) => `${this.token(it.id)} ${percent(it.probability)}`);
      return [layer ? `block ${layer}` : "embedding", ...best];
    });
    one("lens").innerHTML = table(["after", "first", "second", "third", "fourth", "fifth"], rows);
  }

  drawNorms() {
    if (this.forgotten("norms")) return;
    const norms = this.sequence.streams.map((stream) => Math.hypot(...stream.row(this.position)));
    const most = Math.max(...norms);
    one("norms").innerHTML = table(
      ["after", "norm", ""],
      norms.map((norm, i) => [
        i ? `${i % 2 ? "attention" : "feed-forward"} of block ${(i + 1) >> 1}` : "embedding",
        norm.toFixed(2),
        rod(norm / most),
      ]),
    );
  }

  drawStep(step = this.step) {
    if (this.forgotten("step")) return;
    const layer = Number(one("step-layer").value),
      parts = [];
    this.sequence.rerunBlock(layer, this.chosen, (part, x, shape) => parts.push({ part, x: x.slice(), shape }));
    this.step = Math.min(Math.max(step, 0), parts.length - 1);
    const { part, x, shape } = parts[this.step],
      [title, sentence] = PARTS[part];
    one("step-where").textContent = `step ${this.step + 1} of ${parts.length}`;
    one("step-back").disabled = this.step === 0;
    one("step-on").disabled = this.step === parts.length - 1;
    const numbers = Array.from(x.subarray(0, FEW), (value) => value.toFixed(3)).join(" ");
    const rest = x.length > FEW ? ` … and ${x.length - FEW} more` : "";
    one("step").innerHTML =
      `<h3>${title}: ${shape.join(" × ")}</h3><p>${sentence}</p>${strip(x, shape)}` +
      `<div class="vector" tabindex="0" role="group" aria-label="The numbers">${numbers}${rest}</div>`;
  }

  drawTimes() {
    // Each part's median over the tokens: the first calls and other programs make means a matter of chance.
    const times = TIMED.map(([, ...parts]) => parts.reduce((sum, part) => sum + median(this.times[part] ?? []), 0));
    const total = times.reduce((sum, time) => sum + time, 0) || 1;
    const rows = TIMED.map(([name], i) => {
      const share = times[i] / total;
      return [name, `${(1000 * times[i]).toFixed(0)} µs`, percent(share), rod(share)];
    });
    one("times").innerHTML = table(["part, in all blocks", "a token", "share", ""], rows);
  }
}

const PARTS = {
  embedding: ["Embedding", "The token's row of the embedding."],
  input: ["The residual stream", "What comes into the block: the embedding and all that earlier blocks have added."],
  attention_norm: ["Norm of attention", "The vector brought to a common size, each feature times a learned weight."],
  q: ["Queries", "What each head looks for: W_q x, rotated by the position where the model has rotary embeddings."],
  k: ["Keys", "What each head offers to be found by: W_k x, rotated alike. It stays in the cache for later tokens."],
  v: ["Values", "What each head hands over where it is found: W_v x. It stays in the cache, too."],
  heads: ["What the heads gather", "Of each head the mean of all values, weighted by softmax(q k / √head_dim)."],
  attention_output: ["Output of attention", "The heads mixed by one matrix: what attention adds to the stream."],
  after_attention: ["The stream after attention", "The sum of what came in and the output of attention."],
  ffn_norm: ["Norm of feed-forward", "The stream brought to a common size again."],
  gate: ["Gate", "W_gate x: how far each feature of the feed-forward opens."],
  up: ["Up", "W_up x: the features of the feed-forward, more than the stream has."],
  hidden: ["Hidden features", "silu(gate) · up, or the activation of up: the only place where features are bent."],
  ffn_output: ["Output of feed-forward", "The features brought back to the stream's width by W_down."],
  after_ffn: ["The stream after the block", "The sum again: what the next block reads."],
  final_norm: ["Final norm", "The stream brought to a common size for the head."],
  logits: ["Logits", "The head: a score for every token of the vocabulary."],
};

// Parts whose time is drawn together: all that leads to the first that is named.
const TIMED = [
  ["Embedding", "embedding"],
  ["Norms", "attention_norm", "ffn_norm", "final_norm"],
  ["Queries, keys, values", "q", "k", "v"],
  ["Attention", "heads"],
  ["Output of attention", "attention_output"],
  ["Gate and up", "gate", "up"],
  ["Activation", "hidden"],
  ["Down", "ffn_output"],
  ["Sums", "input", "after_attention", "after_ffn"],
  ["Head", "logits"],
];

const range = (count) => [...Array(count).keys()];
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
const rod = (share) => `<span class="rod" style="width:${(100 * share).toFixed(1)}%"></span>`;
const shade = (share) =>
  `background:color-mix(in srgb, var(--own) ${(70 * Math.sqrt(share)).toFixed(0)}%, transparent)`;
const short = (count) => (count >= 1e6 ? `${(count / 1e6).toFixed(1)} million` : count.toLocaleString("en"));

function table(head, rows, chosen = -1) {
  const cell = (value, i) => {
    const kind = head[i] === "" ? ' class="rods"' : typeof value === "number" ? ' class="number"' : "";
    return `<td${kind}>${value}</td>`;
  };
  const body = rows.map((row, i) => `<tr${i === chosen ? ' class="chosen"' : ""}>${row.map(cell).join("")}</tr>`);
  const names = head.map((name) => (name ? `<th scope="col">${name}</th>` : "<td></td>")).join("");
  return `<table><thead><tr>${names}</tr></thead><tbody>${body.join("")}</tbody></table>`;
}

/** Numbers as a strip of colours, a line for each head. */
function strip(x, shape) {
  const columns = Math.min(shape.at(-1), 256),
    most = x.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
  const cells = [];
  for (let row = 0; row < x.length / shape.at(-1); row++)
    for (let i = 0; i < columns; i++) {
      const share = x[row * shape.at(-1) + i] / most,
        colour = share > 0 ? "var(--own)" : "#c2662a";
      cells.push(
        `<i style="background:color-mix(in srgb, ${colour} ${Math.round(100 * Math.abs(share))}%, transparent)"></i>`,
      );
    }
  const layout = `grid-template-columns:repeat(${columns},1fr)`;
  return `<div class="strip" aria-hidden="true" style="${layout}">${cells.join("")}</div>`;
}

/** The characters that bytes begin with; a rest at the end begins another one. Null if they are not UTF-8. */
function wholeCharacters(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  try {
    return decoder.decode(Uint8Array.from(bytes), { stream: true });
  } catch {
    return null;
  }
}

const median = (values) => (values.length ? values.slice().sort((a, b) => a - b)[values.length >> 1] : 0);

let page;
const ready = (async () => {
  const { about, encoder, model } = await unpackPage();
  page = new Page(about, encoder, model);
  await page.open();
})();
ready.catch((error) => {
  one("headline").textContent = `The model could not be unpacked: ${error.message}`;
});
