"use strict";
// A conversation on a page. `answer`, of the file after this one, is where answers come from: an async generator of
// {piece: text, tokens: their number so far} from (messages, settings, signal); {dropped} is the number of the oldest
// messages that were left out.

const at = (id) => document.getElementById(id);
const write = (text) => (at("text").value = text);
const KEPT = `conversation of ${location.pathname}`; // in the tab, so that a reload goes on with it
let messages = [],
  asking = null;

/** A line of the log; one of a message has buttons, whose names are attributes: copying takes the text alone. */
function show(kind, text, message = null) {
  const line = document.createElement("div"),
    words = line.appendChild(document.createElement("span"));
  line.className = kind;
  words.textContent = text;
  if (message && kind !== "note") {
    const buttons = line.appendChild(document.createElement("span")),
      actions = { Copy: () => navigator.clipboard.writeText(message.content) };
    if (kind === "user") actions.Edit = () => cut(line, message) && (write(message.content), at("text").focus());
    else actions["Once more"] = () => cut(line, message) && ask();
    buttons.className = "actions";
    for (const [name, act] of Object.entries(actions)) {
      const button = buttons.appendChild(document.createElement("button"));
      button.type = "button";
      button.dataset.name = name;
      button.setAttribute("aria-label", name);
      button.addEventListener("click", act);
    }
  }
  at("log").append(line);
  scrollTo(0, document.documentElement.scrollHeight);
  return line;
}

/** Take a message and all after it out of the conversation. False if it cannot be done now. */
function cut(line, message) {
  const place = messages.indexOf(message);
  if (asking || place < 0) return false;
  messages.length = place;
  while (line.nextSibling) line.nextSibling.remove();
  line.remove();
  keep();
  return true;
}

/** Keep the conversation in the tab; a browser that does not allow it forgets at a reload. */
function keep() {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(messages));
  } catch {
    // full, or turned off
  }
}

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

function settings() {
  const number = (id, otherwise) => (at(id).value === "" ? otherwise : Number(at(id).value));
  return { temperature: number("temperature", 1), topP: number("top-p", null) };
}

async function ask() {
  const message = { role: "assistant", content: "" },
    line = show("assistant", "", message),
    mine = (asking = new AbortController()),
    begun = performance.now();
  let failed = null,
    tokens = 0;
  setAnswering(true);
  try {
    for await (const part of answer([...messages], settings(), mine.signal)) {
      if (part.dropped) {
        messages.splice(messages[0].role === "system" ? 1 : 0, part.dropped);
        const oldest = part.dropped > 1 ? `${part.dropped} oldest messages` : "oldest message";
        line.before(show("note", `The context is full: the ${oldest} left out.`));
      }
      if (mine !== asking) return;
      const follows = innerHeight + scrollY > document.documentElement.scrollHeight - 40; // the reader is at the end
      tokens = part.tokens ?? tokens;
      line.firstChild.textContent = message.content += part.piece ?? "";
      if (follows) scrollTo(0, document.documentElement.scrollHeight);
    }
  } catch (error) {
    if (error.name !== "AbortError") failed = error;
  }
  if (mine !== asking) return;
  asking = null;
  const seconds = (performance.now() - begun) / 1000;
  if (tokens > 1) line.lastChild.dataset.speed = `${tokens} tokens, ${(tokens / seconds).toFixed(0)} a second`;
  if (message.content) messages.push(message);
  else giveBack(line);
  // fetch() tells of a network that fails by a TypeError
  const trouble = failed instanceof TypeError ? `No answer could be had: ${failed.message}` : failed?.message;
  if (failed) show("note", trouble);
  else if (!message.content) show("note", "The model ended the conversation here.");
  keep();
  setAnswering(false);
}

function setAnswering(isAnswering) {
  at("send").disabled = isAnswering;
  at("stop").disabled = !isAnswering;
}

/** What was not answered goes back into the box, unless something is there by now. */
function giveBack(line) {
  const asked = messages.at(-1).role === "user" ? messages.pop() : null;
  if (asked && !at("text").value) write(asked.content);
  if (asked && line.previousSibling?.className === "user") line.previousSibling.remove();
  line.remove();
}

/** A new conversation, which begins with these messages; the system's stands above the log. */
function restart(first = []) {
  asking?.abort();
  asking = null;
  messages = [...first];
  at("log").replaceChildren();
  for (const message of messages) show(message.role === "system" ? "note" : message.role, message.content, message);
  keep();
  setAnswering(false);
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = at("text").value;
  const isValid = ["temperature", "top-p"].every((id) => at(id).reportValidity());
  if (!content.trim() || asking || !isValid) return;
  write("");
  messages.push({ role: "user", content });
  show("user", content, messages.at(-1));
  ask();
});
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("form").requestSubmit();
  }
});
at("stop").addEventListener("click", () => asking?.abort());
