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
    const near = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting || this.shown >= this.ids.length) return;
      this.drawMore();
      near.unobserve(this.more);
      near.observe(this.more);      // which asks again whether it is near
    }, { rootMargin: "1500px" });
    near.observe(this.more);
  }

  /** Encode a text and draw the first of its tokens. */
  set(text, special, asIds) {
    this.asIds = asIds;
    this.drawn.classList.toggle("ids", asIds);
    try {
      Object.assign(this, this.encoder.encode(text, { special }));
      this.trouble.textContent = "";
    } catch (error) {
      Object.assign(this, { ids: [], sizes: [], text: "" });
      this.trouble.textContent = `This text cannot be encoded: ${error.message}.`;
    }
    this.bytes = this.sizes.reduce((sum, size) => sum + size, 0);
    this.insides = insides(this.text, this.sizes);
    this.colour = -1;
    this.shown = 0;
    this.drawn.textContent = "";
    this.drawMore();
    this.tellFacts();
  }

  drawMore() {
    const until = Math.min(this.shown + STEP, this.ids.length);
    let spans = "";
    for (; this.shown < until; this.shown++) spans += this.span(this.ids[this.shown], this.insides.next().value);
    this.drawn.insertAdjacentHTML("beforeend", spans);
    this.more.textContent = until === this.ids.length ? ""
      : `${until.toLocaleString("en")} of ${many(this.ids.length, "token")} are drawn; the next follow as you scroll.`;
  }

  /** A token as view.py draws it: a colour for each id, another one where two neighbours would have the same. */
  span(id, inside) {
    const colour = (Math.imul(id, 0x9e3779b1) >>> 12) % COLOURS, bytes = this.encoder.bytesOf(id);
    this.colour = colour === this.colour ? (colour + 1) % COLOURS : colour;
    const special = this.encoder.isSpecial(id), kind = special ? "bpe-special" : `bpe-c${this.colour}`;
    const label = special ? "special token" : many(bytes.length, "byte");
    const title = `${id} · ${label} · ${Array.from(bytes, hex).join(" ")}`;
    return `<span class="bpe-t ${kind}" title="${title}">${this.asIds ? id : inside}</span>`;
  }

  tellFacts() {
    const count = this.ids.length, each = (total) => (count ? (total / count).toFixed(2) : "—");
    const facts = [
      [count.toLocaleString("en"), count === 1 ? "token" : "tokens"],
      [each(this.bytes), "bytes a token"],
      [each(lengthOf(this.text)), "characters a token"],
      [new Set(this.ids).size.toLocaleString("en"), "different ones"],
    ];
    this.section.querySelector(".facts").innerHTML =
      facts.map(([value, unit]) => `<div><b>${value}</b><span>${unit}</span></div>`).join("");
  }
}

/** The HTML inside each token, by its bytes. A character that several tokens share is drawn in the last of them, after
 * its bytes. */
function* insides(text, sizes) {
  const utf8 = new TextEncoder();
  let token = 0, room = sizes[0], drawn = "", run = "";
  for (const character of text) {
    for (; !room; room = sizes[++token]) {
      yield drawn + marked(run);
      drawn = run = "";
    }
    const size = utf8Size(character.codePointAt(0));
    if (size <= room) {
      room -= size;
    } else {
      drawn += marked(run);
      run = "";
      for (const byte of utf8.encode(character)) {
        for (; !room; room = sizes[++token]) {
          yield drawn;
          drawn = "";
        }
        drawn += chips([byte]);
        room--;
      }
    }
    run += character;
  }
  yield drawn + marked(run);
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
    for (const input of document.querySelectorAll("input")) input.addEventListener("change", () => this.draw());
    this.draw();
  }

  typed() {
    this.text = one("text").value;
    one("note").hidden = true;
    clearTimeout(this.later);
    if (this.lasted < PATIENCE) this.draw();
    else this.later = setTimeout(() => this.draw(), Math.min(600, this.lasted));
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
    if (!second) return `<b>${many(count(first), "token")}</b> for ${many(first.bytes, "byte")}.`;
    if (count(first) === count(second)) return `Both take <b>${many(count(first), "token")}</b>.`;
    const [less, more] = count(first) < count(second) ? [first, second] : [second, first];
    const share = (100 * (1 - count(less) / count(more))).toFixed(1);
    return `${escaped(less.name)} takes <b>${share}% fewer tokens</b> than ${escaped(more.name)}.`;
  }
}

let page;
const ready = (async () => {
  const sections = [...document.querySelectorAll("section[data-vocabulary]")];
  const columns = [];
  for (const section of sections) columns.push(new Column(section, await unpack(section.dataset.vocabulary)));
  page = new Page(columns, JSON.parse(one("given").textContent));
})();
