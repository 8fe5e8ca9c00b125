"use strict";
// A conversation on a page. `answer`, of the file after this one, is where answers come from: an async generator of
// pieces of text from (messages, settings, signal), which may return {dropped: how many of the oldest were left out}.

const at = (id) => document.getElementById(id);
let messages = [],
  asking = null;

function show(kind, text) {
  const line = document.createElement("div");
  line.className = kind;
  line.textContent = text;
  at("log").append(line);
  scrollTo(0, document.documentElement.scrollHeight);
  return line;
}

function settings() {
  return {
    temperature: Number(at("temperature").value),
    topP: at("top-p").value === "" ? null : Number(at("top-p").value),
  };
}

function isAtEnd() {
  return innerHeight + scrollY > document.documentElement.scrollHeight - 40;
}

async function ask() {
  const line = show("assistant", ""),
    mine = (asking = new AbortController());
  let text = "",
    failed = null;
  at("send").disabled = true;
  at("stop").disabled = false;
  try {
    for await (const { piece, dropped } of answer([...messages], settings(), mine.signal)) {
      if (dropped) {
        messages.splice(messages[0].role === "system" ? 1 : 0, dropped);
        const left = document.createElement("div");
        left.className = "note";
        left.textContent = `The context is full: the ${dropped} oldest message${dropped > 1 ? "s" : ""} left out.`;
        line.before(left);
      }
      if (mine !== asking) return;
      const follows = isAtEnd();
      line.textContent = text += piece ?? "";
      if (follows) scrollTo(0, document.documentElement.scrollHeight);
    }
  } catch (error) {
    if (error.name !== "AbortError") failed = error;
  }
  if (mine !== asking) return;
  asking = null;
  if (text) messages.push({ role: "assistant", content: text });
  else messages.pop();
  if (failed) show("note", failed.message);
  at("send").disabled = false;
  at("stop").disabled = true;
}

function restart(first = []) {
  asking?.abort();
  asking = null;
  messages = [...first];
  at("log").replaceChildren();
  at("send").disabled = false;
  at("stop").disabled = true;
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = at("text").value;
  if (!content.trim() || asking) return;
  at("text").value = "";
  messages.push({ role: "user", content });
  show("user", content);
  ask();
});
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("form").requestSubmit();
  }
});
at("stop").addEventListener("click", () => asking?.abort());
at("reset").addEventListener("click", () => restart());
