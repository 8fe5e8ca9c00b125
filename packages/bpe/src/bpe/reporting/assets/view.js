// The page: every column's Encoder (encoder.js) encodes the text box, and the tokens are drawn.

const COLOURS = 6;
const STEP = 3000;        // tokens drawn at a time: the next ones follow when the reader comes near the end of these
const PATIENCE = 30;      // milliseconds that encoding may take for every keystroke to be encoded

/** One tokenizer: its section of the page, and the tokens of the current text. */
class Column {
  constructor(section, encoder) {
    this.section = section;
    this.encoder = encoder;
    this.name = section.dataset.name;
    this.drawn = section.querySelector("pre");
    this.more = section.querySelector(".more");
    this.trouble = section.querySelector(".trouble");
    this.ids = [];
    this.shown = 0;       // tokens that are on the page
    section.querySelector(".about").textContent = `${many(encoder.about.tokens, "token")} in the vocabulary`;
    this.drawn.addEventListener("pointerover", (event) => this.point(event));
    this.drawn.addEventListener("pointerleave", () => this.unpoint());
    this.drawn.addEventListener("click", (event) => this.choose(placeOf(event.target), false));
    this.drawn.addEventListener("keydown", (event) => this.walk(event));
    this.drawn.addEventListener("blur", () => this.choose(-1));
    const near = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting || this.shown >= this.ids.length) return;
      this.drawMore();
      near.unobserve(this.more);
      near.observe(this.more);      // which asks again whether it is near
    }, { rootMargin: "1500px" });
    near.observe(this.more);
  }

  /** Encode a text and draw it, leaving the tokens that have not changed where they are. */
  set(text, special, asIds) {
    this.choose(-1);
    const before = this.ids, beforeAsIds = this.asIds, kept = this.shown;
    this.asIds = asIds;
    this.drawn.classList.toggle("ids", asIds);
    try {
      Object.assign(this, this.encoder.encode(text, { special }));
      this.trouble.textContent = "";
    } catch (error) {
      Object.assign(this, { ids: [], sizes: [], text: "" });
      this.trouble.textContent = `This text cannot be encoded: ${error.message}.`;
    }
    this.locate();
    let same = 0;
    if (asIds === beforeAsIds) while (same < kept && before[same] === this.ids[same]) same++;
    while (same && this.into[same]) same--;     // a character that tokens share is drawn with all of them
    this.cutOff(asIds || same === this.ids.length ? same : Math.max(0, same - 1));
    this.drawMore(Math.max(kept, STEP));
    this.tellFacts();
  }

  /** For every token: the character (in UTF-16) that its first byte is in, how far into it, where it begins in bytes,
   * its colour. */
  locate() {
    const { text, sizes, ids } = this, count = ids.length;
    this.at = new Uint32Array(count + 1);
    this.into = new Uint8Array(count + 1);
    this.begins = new Uint32Array(count + 1);
    this.colours = new Uint8Array(count);
    let at = 0, into = 0, last = -1;
    for (let i = 0; i < count; i++) {
      this.at[i] = at;
      this.into[i] = into;
      let left = sizes[i] + into;
      this.begins[i + 1] = this.begins[i] + sizes[i];
      for (let code; left && left >= utf8Size(code = text.codePointAt(at)); at += code > 0xffff ? 2 : 1)
        left -= utf8Size(code);
      into = left;
      const colour = (Math.imul(ids[i], 0x9e3779b1) >>> 12) % COLOURS;
      this.colours[i] = last = colour === last ? (colour + 1) % COLOURS : colour;
    }
    this.at[count] = at;
  }

  cutOff(from) {
    const range = document.createRange();
    range.selectNodeContents(this.drawn);
    if (from) range.setStartAfter(this.drawn.children[from - 1]);
    range.deleteContents();
    this.shown = from;
  }

  drawMore(until = this.shown + STEP) {
    const spans = [];
    until = Math.min(until, this.ids.length);
    for (let i = this.shown; i < until; i++) spans.push(this.span(i));
    this.drawn.insertAdjacentHTML("beforeend", spans.join(""));
    this.shown = Math.max(this.shown, until);
    const all = this.shown >= this.ids.length;
    this.more.textContent = all
      ? ""
      : `${this.shown.toLocaleString("en")} of ${many(this.ids.length, "token")} are drawn; ` +
        "the next follow as you scroll.";
  }

  span(i) {
    const kind = this.encoder.isSpecial(this.ids[i]) ? "bpe-special" : `bpe-c${this.colours[i]}`;
    return `<span class="bpe-t ${kind}">${this.asIds ? this.ids[i] : this.inside(i)}</span>`;
  }

  /** What a token shows: its characters, and the bytes of those that it shares with its neighbours. */
  inside(i) {
    let at = this.at[i], left = this.sizes[i], drawn = "";
    if (this.into[i]) {
      const whole = String.fromCodePoint(this.text.codePointAt(at)), bytes = this.encoder.utf8.encode(whole);
      const until = Math.min(bytes.length, this.into[i] + left);
      drawn = chips(bytes.subarray(this.into[i], until));
      left -= until - this.into[i];
      if (until < bytes.length) return drawn;
      drawn += marked(whole);
      at += whole.length;
    }
    const end = this.into[i + 1] || i + 1 < this.ids.length ? this.at[i + 1] : this.text.length;
    if (end > at) drawn += marked(this.text.slice(at, end));
    if (i + 1 < this.ids.length && this.into[i + 1]) {
      const whole = String.fromCodePoint(this.text.codePointAt(this.at[i + 1]));
      drawn += chips(this.encoder.utf8.encode(whole).subarray(0, this.into[i + 1]));
    }
    return drawn;
  }

  tellFacts() {
    const count = this.ids.length, bytes = this.begins[count] ?? 0, characters = lengthOf(this.text);
    const each = (total) => (count ? (total / count).toFixed(2) : "—");
    const facts = [
      [count.toLocaleString("en"), count === 1 ? "token" : "tokens"],
      [each(bytes), "bytes a token"],
      [each(characters), "characters a token"],
      [new Set(this.ids).size.toLocaleString("en"), "different ones"],
    ];
    this.section.querySelector(".facts").innerHTML =
      facts.map(([value, unit]) => `<div><b>${value}</b><span>${unit}</span></div>`).join("");
  }

  // One token: pointed at or chosen

  point(event) {
    const place = placeOf(event.target);
    if (place < 0) return this.unpoint();
    this.describe(place, event);
    page.showBeside(this, place);
  }

  unpoint() {
    if (this.chosen >= 0) return this.describe(this.chosen);
    one("card").hidden = true;
    page.showBeside(this, -1);
  }

  choose(place, reveal = true) {
    this.drawn.children[this.chosen]?.classList.remove("at");
    this.chosen = place;
    page?.showBeside(this, place);
    if (place < 0) {
      one("card").hidden = true;
      return;
    }
    const span = this.drawn.children[place];
    span.classList.add("at");
    if (reveal) span.scrollIntoView({ block: "nearest" });
    this.describe(place);
    one("spoken").textContent = one("card").innerText;
  }

  walk(event) {
    const last = this.shown - 1;
    const to = { ArrowRight: this.chosen + 1, ArrowLeft: this.chosen - 1, Home: 0, End: last, Escape: -1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey || last < 0) return;
    event.preventDefault();
    this.choose(event.key === "Escape" ? -1 : Math.min(Math.max(to, 0), last));
    if (to > last - 50) this.drawMore();
  }

  describe(place, event) {
    const id = this.ids[place], bytes = this.encoder.bytesOf(id);
    const begin = this.begins[place], end = this.begins[place + 1];
    const spelt = new TextDecoder().decode(bytes), times = this.ids.reduce((sum, other) => sum + (other === id), 0);
    const from = lengthOf(this.text.slice(0, this.at[place]));
    const to = from + lengthOf(this.text.slice(this.at[place], this.at[place + 1]));
    const where = from === to ? `inside character ${from.toLocaleString("en")}`
      : to === from + 1 ? `character ${from.toLocaleString("en")}`
      : `characters ${from.toLocaleString("en")} to ${to.toLocaleString("en")}`;
    const said = this.encoder.isSpecial(id) ? "special token" : many(bytes.length, "byte");
    const card = one("card");
    card.innerHTML = `<b>${id}</b><q>${escaped(visible(spelt))}</q><code>${Array.from(bytes, hex).join(" ")}</code>`
      + `<div>${said} · bytes ${begin.toLocaleString("en")} to ${end.toLocaleString("en")} · ${where}`
      + ` · ${times === 1 ? "once" : `${times.toLocaleString("en")} times`} here</div>`;
    card.hidden = false;
    const span = this.drawn.children[place], boxes = [...span.getClientRects()];
    const under = event && boxes.find(({ top, bottom }) => top <= event.clientY && event.clientY <= bottom);
    const box = under || boxes.at(-1) || span.getBoundingClientRect();
    const below = box.bottom + 10 + card.offsetHeight < innerHeight;
    const left = Math.min(Math.max(12, box.left - 12), innerWidth - card.offsetWidth - 12);
    card.style.transform = `translate(${left}px, ${below ? box.bottom + 10 : box.top - 10 - card.offsetHeight}px)`;
  }
}

/** All columns, and the text that they draw. */
class Page {
  constructor(columns, given) {
    this.columns = columns;
    this.text = given;
    this.lasted = 0;
    const box = one("text");
    box.value = given;
    if (box.value !== given) {
      one("note").hidden = false;
      one("note").textContent =
        "The text has carriage returns, which a box on a page cannot hold: they are lost once you edit it.";
    }
    box.addEventListener("input", () => this.typed());
    box.addEventListener("dragover", (event) => event.preventDefault());
    box.addEventListener("drop", (event) => this.dropped(event));
    for (const input of document.querySelectorAll("input")) input.addEventListener("change", () => this.draw());
    addEventListener("scroll", () => columns.forEach((column) => column.unpoint()), { passive: true });
    this.draw();
  }

  typed() {
    this.text = one("text").value;
    one("note").hidden = true;
    clearTimeout(this.later);
    if (this.lasted < PATIENCE) this.draw();
    else this.later = setTimeout(() => this.draw(), Math.min(600, this.lasted));
  }

  async dropped(event) {
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    one("text").value = await file.text();
    this.typed();
  }

  draw() {
    const begun = performance.now();
    const asIds = document.querySelector("input[name=draw]:checked").value === "ids";
    for (const column of this.columns) column.set(this.text, one("special").checked, asIds);
    const text = this.text.toWellFormed(), lines = text ? text.split("\n").length : 0;
    one("measure").textContent
      = [many(lengthOf(text), "character"), many(new TextEncoder().encode(text).length, "byte"), many(lines, "line")]
        .join(" · ");
    one("headline").innerHTML = this.headline();
    this.lasted = performance.now() - begun;
  }

  headline() {
    const [first, second] = this.columns, count = (column) => column.ids.length;
    if (!first || this.columns.length > 2 || !this.text) return "";
    if (!second) return `<b>${many(count(first), "token")}</b> for ${many(first.begins[count(first)], "byte")}.`;
    if (count(first) === count(second)) return `Both take <b>${many(count(first), "token")}</b>.`;
    const [less, more] = count(first) < count(second) ? [first, second] : [second, first];
    const share = (100 * (1 - count(less) / count(more))).toFixed(1);
    return `${escaped(less.name)} takes <b>${share}% fewer tokens</b> than ${escaped(more.name)}.`;
  }

  /** Mark, in the other columns, what stands where a token of this one does. */
  showBeside(column, place) {
    for (const span of document.querySelectorAll(".beside")) span.classList.remove("beside");
    if (place < 0) return;
    for (const other of this.columns) {
      if (other === column || other.text !== column.text) continue;
      const first = firstAfter(other.begins, column.begins[place]);
      for (let i = first; i < other.shown && other.begins[i] < column.begins[place + 1]; i++) {
        other.drawn.children[i].classList.add("beside");
      }
    }
  }
}

/** The place of the token whose span this is in, or -1. */
function placeOf(node) {
  const span = node.closest(".bpe-t");
  return span ? Array.prototype.indexOf.call(span.parentNode.children, span) : -1;
}

/** The token that the byte is in: the last that begins no later. */
function firstAfter(begins, byte) {
  let low = 0, high = begins.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (begins[middle] <= byte) low = middle;
    else high = middle - 1;
  }
  return low;
}

let page;
const ready = (async () => {
  const sections = [...document.querySelectorAll("section[data-vocabulary]")];
  const columns = [];
  for (const section of sections) columns.push(new Column(section, await unpack(section.dataset.vocabulary)));
  page = new Page(columns, JSON.parse(one("given").textContent));
})();
