// The form, its address and the answer; the figures are computed by questions.py's translation, in a worker.
"use strict";
const $ = (id) => document.getElementById(id),
  form = $("form");
const DEFAULTS = {
  purpose: "train",
  model: "llama-3-8b",
  config: "",
  device: "h100",
  devices: "8",
  price: "2.5",
  precision: "bf16",
  optimizer: "adamw",
  activation_checkpointing: "none",
  attention_kernel: "fused",
  loss: "chunked",
  gradient_dtype: "weights",
  moment_dtype: "fp32",
  offload: "none",
  lora_rank: "",
  frozen_dtype: "weights",
  model_code: "lm",
  batch: "1",
  context: "",
  tokens: "100B",
  micro_batches: "1",
  tensor: "1",
  pipeline: "1",
  zero: "3",
  weights: "bf16",
  cache: "bf16",
  output: "256",
};
const NUMBERS = [
  "devices",
  "price",
  "tokens",
  "micro_batches",
  "tensor",
  "pipeline",
  "batch",
  "context",
  "output",
  "lora_rank",
];
const OPTIONAL = ["context", "lora_rank"];

// The program runs in a worker: a search for what fits takes a while.
const worker = new Worker(URL.createObjectURL(new Blob([$("program").textContent])));
const waiting = new Map();
worker.onmessage = ({ data: [id, value, error] }) => {
  const [resolve, reject] = waiting.get(id);
  waiting.delete(id);
  error === undefined ? resolve(value) : reject(new Error(error));
};
let asked = 0;
const ask = (name, text) =>
  new Promise((resolve, reject) => {
    waiting.set(++asked, [resolve, reject]);
    worker.postMessage([asked, name, text]);
  });

// 1,000 and 1_000 as 1000; 10k, 5M, 8B, 1.5T and 1e12 as whole numbers; a price may have a fraction. A comma that
// is not before three digits is a mistake: read as a separator, 2,5 would be 25.
function number(name, text) {
  if (text.includes(",") && !/^\d{1,3}(,\d{3})+(\.\d*)?[a-z]?$/i.test(text))
    throw new Error(
      `${name.replace("_", " ")}: expected a point before decimals and a comma before each three digits, got “${text}”`,
    );
  const [, digits, fraction = "", power = "0", letter = ""] =
    /^(\d+)(?:\.(\d*))?(?:e(\d+))?([kmbt]?)$/i.exec(text.replace(/[,_\s]/g, "")) ?? [];
  if (digits === undefined) throw new Error(`${name.replace("_", " ")}: expected a number, got “${text}”`);
  const zeros = Number(power) + { "": 0, k: 3, m: 6, b: 9, t: 12 }[letter.toLowerCase()];
  if (zeros > 36) throw new Error(`${name.replace("_", " ")}: “${text}” is beyond what is counted`);
  const shifted = fraction.padEnd(zeros, "0"),
    rest = shifted.slice(zeros).replace(/0+$/, "");
  if (rest && name !== "price") throw new Error(`${name.replace("_", " ")}: expected a whole number, got “${text}”`);
  return (digits + shifted.slice(0, zeros)).replace(/^0+(?=\d)/, "") + (rest && `.${rest}`);
}

// The question as JSON, whole numbers of any size written out.
function question(fields) {
  const parts = Object.keys(DEFAULTS).map((name) => {
    const text = fields[name].trim();
    if (NUMBERS.includes(name)) return `"${name}":${OPTIONAL.includes(name) && !text ? null : number(name, text)}`;
    if (name === "config" && text) {
      let config;
      try {
        config = JSON.parse(text);
      } catch (error) {
        throw new Error(`config.json: ${error.message}`);
      }
      if (config === null || typeof config !== "object" || Array.isArray(config))
        throw new Error(`config.json: expected an object, got “${text.slice(0, 80)}”`);
      return `"config":${text}`;
    }
    return `"${name}":${name === "config" ? null : JSON.stringify(text)}`;
  });
  return `{${parts}}`;
}

let unknown = ""; // what the address chooses and the form does not have
const fields = () => Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, form.elements[name].value]));
function read() {
  // the question of the address
  const given = new URLSearchParams(location.hash.slice(1));
  unknown = "";
  for (const [name, value] of Object.entries(DEFAULTS)) form.elements[name].value = given.get(name) ?? value;
  for (const select of form.querySelectorAll("select"))
    if (select.selectedIndex < 0) {
      unknown = `the link's ${select.name.replace("_", " ")} “${given.get(select.name)}” is not known: choose another`;
      select.value = DEFAULTS[select.name];
    }
  if (form.elements.config.value) form.querySelector("details").open = true;
}
function write(values) {
  // what differs from the defaults
  const changed = Object.entries(values).filter(([name, value]) => value !== DEFAULTS[name]);
  history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
}

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}
// A kind of memory has one colour and one pattern wherever it stands: the colours of Okabe and Ito, which people who
// see fewer of them tell apart.
const KINDS = [
  ["weights", /^(parameters|matrices in|a matrix in|blocks|scales|embedding|positions|norms|head|value emb|adapters)/],
  ["gradients", /^gradients/],
  ["optimizer state", /^optimizer/],
  ["saved for the backward", /^(saved|in flight)/],
  ["a block in its backward", /^this block/],
  ["cache", /^(kv cache|keys|values|states)/],
  ["temporary", /./],
];
const kind = (name) => KINDS.findIndex(([, names]) => names.test(name));
const exact = (value) => (typeof value === "bigint" ? value.toLocaleString("en") : "");

function row({ name, value, shown, formula = "", numbers = "" }, swatch) {
  const head = element("th", { scope: "row" });
  if (swatch) head.append(element("span", { className: `swatch kind${kind(name)}` }));
  head.append(name);
  const cell = element("td", {}, shown);
  if (exact(value) && exact(value) !== shown) cell.append(element("small", {}, exact(value)));
  const how = numbers && numbers !== formula ? `${formula} = ${numbers}` : formula;
  return element("tr", {}, head, cell, ...(how ? [element("td", { className: "formula" }, how)] : []));
}

function show({ tables }) {
  const by = Object.fromEntries(tables.map((one) => [one.title, one])),
    memory = by.memory,
    fits = memory.total <= memory.device;
  const run = Object.fromEntries(by["the run"].rows.map((one) => [one.name, one]));
  const cards = [
    ["parameters", by.parameters.shown.replace(" parameters", "")],
    ["memory of a device", memory.shown, `of ${memory["device shown"]}`],
    ...(!fits
      ? [] // a run that cannot start has neither time nor cost
      : "steps" in run
      ? [
          ["time", run.time.shown, `${run["at best"].shown} to ${run["at worst"].shown}`],
          ["FLOPs of a step", by["FLOPs of a step"].shown],
          ["MFU", run.MFU.shown],
          ["cost", `$${run.cost.shown}`, "devices · hours · price"],
        ]
      : [
          ["first token", run["time to the first token"].shown, "at least"],
          ["last token", run["time of the last token"].shown, "at least"],
          ["tokens a second", run["tokens a second"].shown, "at most"],
          ["cost of 1M output tokens", `$${run["cost of 1M output tokens"].shown}`, "at least"],
        ]),
  ];
  $("verdict").className = fits ? "fits" : "wrong";
  $("verdict").firstChild.textContent = fits ? "✓ It fits" : "✗ It does not fit";
  $("verdict").lastChild.textContent =
    `${memory.shown} of the ${memory["device shown"]} of a device` +
    (fits ? "" : ": looking for what would make it fit …");
  $("cards").replaceChildren(
    ...cards.map(([name, value, note]) =>
      element(
        "div",
        {},
        element("dt", {}, name),
        element("dd", {}, value, ...(note ? [element("small", {}, note)] : [])),
      ),
    ),
  );
  const rest = fits ? [cards[2][1], cards.at(-1)[1]] : [];
  $("brief").textContent = [
    fits ? "fits" : "does not fit",
    `${memory.shown} of ${memory["device shown"]}`,
    ...rest,
  ].join(" · ");
  const longest = Number(memory.total > memory.device ? memory.total : memory.device);
  const share = (value) => `${(100 * Number(value)) / longest}%`;
  $("bar").replaceChildren(
    ...memory.rows.map((one) =>
      element("span", {
        className: `kind${kind(one.name)}`,
        title: `${one.name}: ${one.shown}`,
        style: `width: ${share(one.value)}`,
      }),
    ),
    element(
      "i",
      { style: `left: calc(${share(memory.device)} - 3px)` },
      element("b", { className: 2 * Number(memory.device) < longest ? "right" : "" }, memory["device shown"]),
    ),
  );
  $("bar").setAttribute(
    "aria-label",
    `${memory.shown} of ${memory["device shown"]}: ${memory.rows.map((one) => `${one.name} ${one.shown}`).join(", ")}`,
  );
  $("bar").removeAttribute("aria-labelledby");
  const kinds = [...new Set(memory.rows.map((one) => kind(one.name)))];
  $("kinds").replaceChildren(
    ...kinds.map((at) => element("span", {}, element("span", { className: `swatch kind${at}` }), KINDS[at][0])),
  );
  $("tables").replaceChildren(
    ...[memory, ...tables.filter((one) => one !== memory)].flatMap((one) => {
      const body = element("tbody", {}, ...one.rows.map((each) => row(each, one === memory)));
      const foot =
        one.total === null ? [] : [element("tfoot", {}, row({ name: "total", value: one.total, shown: one.shown }))];
      const head = one === memory ? [] : [element("h2", {}, one.title)];
      return [...head, element("table", {}, body, ...foot), element("p", { className: "soft" }, one.note)];
    }),
  );
}

// Changes that people make when a run does not fit, each tried alone, then the first two together.
const REMEDIES = {
  train: [
    { activation_checkpointing: "full" },
    { activation_checkpointing: "selective" },
    { batch: "1" },
    { optimizer: "adamw8bit" },
    { precision: "pure_bf16" },
    { devices: 2 },
    { devices: 8 },
    { activation_checkpointing: "full", batch: "1" },
    { activation_checkpointing: "full", precision: "pure_bf16" },
    { activation_checkpointing: "full", precision: "pure_bf16", optimizer: "adamw8bit", batch: "1" },
    { activation_checkpointing: "full", batch: "1", devices: 8 },
    { activation_checkpointing: "full", batch: "1", devices: 64 },
  ],
  generate: [
    { cache: "fp8" },
    { weights: "fp8" },
    { weights: "int4" },
    { batch: "1" },
    { devices: 2 },
    { devices: 4 },
    { devices: 8 },
    { weights: "int4", devices: 8 },
  ],
};
// The words of a field's label, without those of the field itself and of the other purpose.
function label(name) {
  const nodes = [...(form.elements[name].labels?.[0]?.childNodes ?? [])];
  const words = nodes.filter((one) => !one.name && !one.hidden).map((one) => one.textContent);
  return words.join("").replace(/\s+/g, " ").trim() || name;
}
async function remedies(values, current) {
  const sentences = [];
  for (const changes of REMEDIES[values.purpose]) {
    if (sentences.length === 3 || !current()) break;
    const changed = { ...values, ...changes };
    if (changes.devices) changed.devices = String(changes.devices * Number(number("devices", values.devices)));
    if (changes.devices && values.purpose === "train") changed.zero = "3";
    if (Object.keys(changes).every((name) => changed[name] === values[name])) continue;
    try {
      const { tables } = await ask("answer", question(changed)),
        memory = tables.find((one) => one.title === "memory");
      if (memory.total > memory.device) continue;
      const words = Object.keys(changes).map((name) =>
        name === "devices" ? `${changed.devices} devices` : `${label(name).toLowerCase()} ${changed[name]}`,
      );
      sentences.push(`${words.join(" and ")} (${memory.shown})`);
    } catch {
      continue; // such a change is not counted here
    }
  }
  return sentences;
}

// The field that a message is about: by the name that the formulas have for it.
const FIELDS = { batch_size: "batch", seq_len: "context", data: "devices", "config.json": "config" };
function blame(message) {
  const words = message.match(/[\w.]+/g) ?? [];
  const named = words.map((word) => FIELDS[word] ?? word).find((word) => word in DEFAULTS && word !== "purpose");
  return { ...FIELDS, model_type: "config" }[words[0]] ?? named;
}

let latest = 0;
async function update() {
  const mine = ++latest,
    values = fields();
  if (!unknown) write(values);
  for (const purpose of ["train", "generate"])
    for (const node of document.querySelectorAll(`form .${purpose}`)) node.hidden = values.purpose !== purpose;
  for (const one of form.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
  form.elements.model.disabled = values.config.trim() !== "";
  $("result").setAttribute("aria-busy", "true");
  try {
    if (unknown) throw new Error(unknown);
    const text = question(values),
      answer = await ask("answer", text);
    if (mine !== latest) return;
    show(answer);
    $("error").hidden = true;
    $("answer").hidden = false;
    $("result").setAttribute("aria-busy", "false");
    $("largest").setAttribute("aria-busy", "true");
    const { rows } = await ask("largest", text);
    if (mine !== latest) return;
    $("largest").tBodies[0].replaceChildren(...rows.map((one) => row(one)));
    $("largest").setAttribute("aria-busy", "false");
    if ($("verdict").className !== "wrong") return;
    const changes = await remedies(values, () => mine === latest);
    if (mine !== latest) return;
    const sizes = rows.filter((one) => one.value).map((one) => `${one.name} ${one.shown}`);
    const most = sizes.length ? ` At most, all else as it is: ${sizes.slice(0, 2).join(" or ")}.` : "";
    $("verdict").lastChild.textContent =
      $("verdict").lastChild.textContent.replace(/: looking.*/, ". ") +
      (changes.length
        ? `It would with ${changes.join(", or with ")}.`
        : "No single change that is tried here is enough.") +
      most;
  } catch (error) {
    if (mine !== latest) return;
    const field = blame(error.message);
    if (field) form.elements[field].setAttribute?.("aria-invalid", "true");
    const name = field && !error.message.startsWith("config") ? `${label(field)}: ` : "";
    $("error").textContent = name + error.message;
    $("brief").textContent = "";
    $("error").hidden = false;
    $("answer").hidden = true;
    $("result").setAttribute("aria-busy", "false");
  }
}

const ready = ask("choices").then(({ choices, symbols }) => {
  for (const select of form.querySelectorAll("select"))
    select.append(...choices[select.name].map((value) => element("option", { value }, value)));
  $("symbols").tBodies[0].append(
    ...Object.entries(symbols).map(([name, meaning]) =>
      element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)), element("td", {}, meaning)),
    ),
  );
  read();
  return update();
});
let pause = 0;
form.addEventListener("input", () => {
  unknown = "";
  clearTimeout(pause);
  pause = setTimeout(update, 250);
});
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", () => {
  read();
  update();
});
$("formulas").checked = innerWidth > 700; // a telephone has no room for them until they are called for
const folded = () => document.body.classList.toggle("folded", !$("formulas").checked);
$("formulas").addEventListener("change", folded);
folded();
$("pin").addEventListener("click", () => {
  const settings = new URLSearchParams(location.hash.slice(1)).toString().replaceAll("&", ", ") || "the defaults";
  const copies = ["verdict", "cards"].map((id) => {
    const copy = $(id).cloneNode(true);
    copy.classList.add(`kept-${id}`);
    copy.removeAttribute("id");
    copy.removeAttribute("role");
    return copy;
  });
  $("pinned").replaceChildren(element("p", { className: "soft" }, `Kept: ${decodeURIComponent(settings)}`), ...copies);
  $("pinned").hidden = false;
});
$("copy").addEventListener("click", async () => {
  clearTimeout(pause);
  write(fields());
  try {
    await navigator.clipboard.writeText(location.href);
    $("copied").textContent = "Copied.";
  } catch {
    $("copied").textContent = "The address of this page is the link.";
  }
});
