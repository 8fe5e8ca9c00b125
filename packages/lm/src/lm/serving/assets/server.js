// Answers of `lm serve`.

function headers() {
  const key = at("key").value;
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function introduce() {
  const reply = await fetch("/v1/models", { headers: headers() });
  at("asks").hidden = reply.ok && !at("key").value;
  if (reply.ok) at("name").textContent = document.title = (await reply.json()).data[0].id;
}

async function* answer(messages, { temperature, topP }, signal) {
  const stream_options = { include_usage: true };
  const limits = { temperature, ...(topP === null ? {} : { top_p: topP }) };
  const body = { messages, stream: true, stream_options, truncation: "auto", ...limits };
  const reply = await fetch("/v1/chat/completions", {
    method: "POST", signal, headers: headers(), body: JSON.stringify(body),
  });
  if (!reply.ok) {
    // a proxy answers in HTML
    const error = await reply.json().catch(() => null);
    throw new Error(error?.error?.message ?? `The server answered ${reply.status} ${reply.statusText}`);
  }
  yield { dropped: Number(reply.headers.get("X-Messages-Left-Out") ?? 0) };
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield { piece: event.choices[0]?.delta.content ?? "", tokens: event.usage?.completion_tokens };
    }
  }
}

at("key").addEventListener("change", introduce);
at("reset").addEventListener("click", () => restart());
restart(kept() ?? []);
const ready = introduce();
