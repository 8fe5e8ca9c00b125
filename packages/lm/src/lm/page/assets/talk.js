// Answers of a model on this page, by its own chat template.

// @huggingface/jinja 0.5.11 ignores the characters that strip(), lstrip() and rstrip() are to remove.
const { prototype } = jinja.Interpreter,
  { evaluateCallExpression } = prototype;
prototype.evaluateCallExpression = function (expression, environment) {
  const result = evaluateCallExpression.call(this, expression, environment),
    { callee, args } = expression,
    side = /^([lr]?)strip$/.exec(callee.property?.value ?? "")?.[1];
  if (side === undefined || !args.length) return result;
  const text = [...this.evaluate(callee.object, environment).value],
    stays = (sign) => !this.evaluate(args[0], environment).value.includes(sign),
    begin = side === "r" ? 0 : text.findIndex(stays),
    end = side === "l" ? text.length : text.findLastIndex(stays) + 1;
  result.value = begin < 0 ? "" : text.slice(begin, end).join("");
  return result;
};

class Talk {
  constructor(about, encoder, model) {
    Object.assign(this, { about, encoder, sequence: new Sequence(model) });
    this.template = new jinja.Template(about.template);
    this.random = generator(about.seed);
  }

  render(messages, addGenerationPrompt = true) {
    const more = { tools: null, documents: null, add_generation_prompt: addGenerationPrompt };
    return this.template.render({ ...this.about.names, ...more, messages });
  }

  /** The ids after which the answer comes. The names of special tokens that stand in a message are text: the template
   * has a mark in place of each. */
  prompt(messages) {
    const names = [...this.encoder.special.keys()],
      marks = ["\ue000", "\ue001"],
      all = [...names, ...marks];
    const stays = ({ role }, name) => role === "assistant" && this.about.read_in_answers.includes(name);
    const hidden = messages.map((message) => ({
      ...message,
      content: message.content.replace(anyOf(all), (name) =>
        stays(message, name) ? name : `\ue000${all.indexOf(name)}\ue001`,
      ),
    }));
    const marked = this.render(hidden),
      shown = (text) => text.replace(/\ue000(\d+)\ue001/g, (_, number) => all[number]);
    if (shown(marked) === marked) return this.encoder.encode(marked).ids;
    const ids = [];
    let begin = 0;
    const encode = (end) => ids.push(...this.encoder.encode(shown(marked.slice(begin, end)), { special: false }).ids);
    for (const match of marked.matchAll(anyOf(names))) {
      encode(match.index);
      ids.push(this.encoder.special.get(match[0]));
      begin = match.index + match[0].length;
    }
    encode(marked.length);
    return ids;
  }

  /** The prompt of a conversation that has to be short, and how many of its oldest messages were left out: the system's
   * stays, and the rest begins with a user's. */
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
      written = 0,
      shown = 0,
      stopped = false,
      drawn = performance.now();
    await inFrames(() => {}, () => !signal.aborted)(sequence.starting(ids));
    for (let count = 0; count < most && !signal.aborted; count++) {
      const id = choose(sequence.logits, settings, this.random);
      if (this.about.stop.includes(id)) break;
      sequence.append(id);
      written++;
      if (this.encoder.has(id)) text += decoder.decode(this.encoder.bytesOf(id), { stream: true });
      const ends = this.about.stop_strings.map((stop) => text.indexOf(stop)).filter((place) => place >= 0);
      if (ends.length) {
        text = text.slice(0, Math.min(...ends));
        stopped = true;
        break;
      }
      if (performance.now() - drawn < FRAME) continue;
      const certain = text.length - Math.max(0, ...this.about.stop_strings.map((stop) => overlap(text, stop)));
      if (certain > shown) yield { piece: text.slice(shown, (shown = certain)), tokens: written };
      await new Promise((resume) => setTimeout(resume));
      drawn = performance.now();
    }
    yield { piece: text.slice(shown) + (stopped ? "" : decoder.decode()), tokens: written };
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
  talk = new Talk(about, encoder, model);
  answer = (...given) => talk.answer(...given);
  at("temperature").value = about.temperature;
  at("top-p").value = about.top_p ?? "";
  const system = about.system === null ? [] : [{ role: "system", content: about.system }];
  const { parameters, config, dtype } = about;
  at("facts").textContent =
    `${(parameters / 1e6).toFixed(1)} million parameters in ${dtype}, a context of ${config.context_length} tokens; ` +
    "it computes on this page, and nothing is sent.";
  restart(kept() ?? system);
  at("reset").addEventListener("click", () => restart(system));
})();
