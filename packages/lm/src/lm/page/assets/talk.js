// Answers of a model on this page, by its own chat template.

const BATCH = 30; // milliseconds of computing between two pieces of an answer

class Talk {
  constructor(about, template, encoder, model) {
    Object.assign(this, { about, template, encoder, sequence: new Sequence(model) });
    this.random = generator(about.seed);
  }

  render(messages, addGenerationPrompt = true) {
    return render(this.template, messages, this.about.names, addGenerationPrompt);
  }

  /** The ids after which the answer comes. Special tokens that stand in a message are text. */
  prompt(messages) {
    const text = this.render(messages),
      names = [...this.encoder.special.keys()];
    const isText = ({ role }) => this.about.is_default || role !== "assistant";
    if (!messages.some((message) => isText(message) && names.some((name) => message.content.includes(name))))
      return this.encoder.encode(text).ids;
    const places = this.places(messages, text);
    if (!places)
      throw new Error("A message holds the name of a special token, and the chat template changes messages");
    const kept = places.filter(({ number }) => isText(messages[number])),
      ids = [];
    let begin = 0;
    const encode = (end) => ids.push(...this.encoder.encode(text.slice(begin, end), { special: false }).ids);
    for (const match of text.matchAll(anyOf(names))) {
      const first = match.index,
        end = first + match[0].length;
      if (kept.some((place) => place.begin < end && first < place.end)) continue; // it stands in a message
      encode(first);
      ids.push(this.encoder.special.get(match[0]));
      begin = end;
    }
    encode(text.length);
    return ids;
  }

  /** Where the contents stand in the text, by writing it again with marks in their places; null if that is another. */
  places(messages, text) {
    const marked = messages.map((message, number) => ({ ...message, content: `\ue000${number}\ue001` }));
    const parts = this.render(marked).split(/\ue000(\d+)\ue001/),
      places = [];
    let begin = 0;
    for (let i = 0; i < parts.length; i += 2) {
      if (!text.startsWith(parts[i], begin)) return null;
      begin += parts[i].length;
      if (i + 1 === parts.length) break;
      const number = Number(parts[i + 1]),
        { content } = messages[number];
      const strips = [
        [null, true, true],
        [null, true, false],
        [null, false, true],
        ["\n", true, false],
        ["\n", true, true],
      ];
      const said = [content, ...strips.map((how) => stripped(content, ...how))].find((way) =>
        text.startsWith(way + parts[i + 2], begin),
      );
      if (said === undefined) return null;
      places.push({ number, begin, end: begin + said.length });
      begin += said.length;
    }
    return begin === text.length ? places : null;
  }

  /** The prompt of a conversation that has to be short, and how many of its oldest messages were left out: the system's
   * stays, and what is left begins with a user's. */
  fit(messages, most) {
    const first = Number(messages[0].role === "system");
    for (let begin = first; begin < messages.length; begin++) {
      if (begin > first && messages[begin].role !== "user") continue;
      const ids = this.prompt([...messages.slice(0, first), ...messages.slice(begin)]);
      if (ids.length <= most) return { ids, dropped: begin - first };
    }
    throw new Error(`The last message alone is too long: the prompt has room for ${most} tokens`);
  }

  async *answer(messages, settings, signal) {
    const context = this.about.config.context_length,
      room = Math.min(this.about.max_new_tokens, context >> 1);
    const { ids, dropped } = this.fit(messages, context - room);
    yield { dropped };
    const { sequence } = this,
      decoder = new TextDecoder(),
      most = Math.min(this.about.max_new_tokens, context - ids.length);
    let text = "",
      shown = 0,
      stopped = false,
      drawn = performance.now();
    sequence.start(ids);
    for (let count = 0; count < most && !signal.aborted; count++) {
      const id = choose(sequence.logits, settings, this.random);
      if (this.about.stop.includes(id)) break;
      sequence.append(id);
      if (this.encoder.has(id)) text += decoder.decode(this.encoder.bytesOf(id), { stream: true });
      const ends = this.about.stop_strings.map((stop) => text.indexOf(stop)).filter((place) => place >= 0);
      if (ends.length) {
        text = text.slice(0, Math.min(...ends));
        stopped = true;
        break;
      }
      if (performance.now() - drawn < BATCH) continue;
      const certain = text.length - Math.max(0, ...this.about.stop_strings.map((stop) => overlap(text, stop)));
      if (certain > shown) yield { piece: text.slice(shown, (shown = certain)) };
      await new Promise((resume) => setTimeout(resume));
      drawn = performance.now();
    }
    yield { piece: text.slice(shown) + (stopped ? "" : decoder.decode()) };
  }
}

/** How long the longest beginning of `stop` is, short of the whole, with which the text ends. */
function overlap(text, stop) {
  for (let size = Math.min(stop.length - 1, text.length); size > 0; size--)
    if (text.endsWith(stop.slice(0, size))) return size;
  return 0;
}

/** An expression of any of the names, the longest first. */
function anyOf(names) {
  const longestFirst = [...names].sort((a, b) => b.length - a.length);
  return new RegExp(longestFirst.map((name) => name.replace(/[\\^$.*+?()[\]{}|\/]/g, "\\$&")).join("|"), "gu");
}

let talk, answer;
const ready = (async () => {
  const { about, encoder, model } = await unpackPage();
  talk = new Talk(about, TEMPLATE, encoder, model);
  answer = (...given) => talk.answer(...given);
  at("temperature").value = about.temperature;
  at("top-p").value = about.top_p ?? "";
  const system = about.system === null ? [] : [{ role: "system", content: about.system }];
  restart(system);
  at("reset").addEventListener("click", () => restart(system));
})();
