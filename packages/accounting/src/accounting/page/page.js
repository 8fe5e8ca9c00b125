// The form, the link and the tables: the numbers come from answer() of questions.py, translated above.
const { answer, QUESTION, CHOICES } = Object.fromEntries(
  ["answer", "QUESTION", "CHOICES"].map((name) => [name, $.from("accounting.page.questions", name)]),
);
const TITLES = {
  parameters: "Parameters",
  flops: "FLOPs",
  memory: "Memory in training",
  largest: "Largest that fits",
  time: "Time and cost",
  serving: "Memory in generation",
};
const COLOURS = ["#3b78c2", "#d97706", "#2f9e6e", "#b5489a", "#8a6fd1", "#7c8794", "#c2503b"];
const form = document.getElementById("question"),
  out = document.getElementById("answer");

function to_python(value) {
  if (typeof value === "number") return Number.isInteger(value) ? BigInt(value) : value;
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return $.as_list(value.map(to_python));
  return $.dict(Object.entries(value).map(([name, one]) => [name, to_python(one)]));
}
function from_python(value) {
  if (Array.isArray(value)) return value.map(from_python);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries($.entries(value).map(([name, one]) => [name, from_python(one)]));
}
const ask = (question) => from_python(answer(to_python(question)));
const defaults = Object.fromEntries($.entries(QUESTION));

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function read() {
  // the question of the form; text that is no JSON throws
  const question = {};
  for (const [name, text] of new FormData(form)) {
    if (name === "config") question.config = text.trim() ? JSON.parse(text) : null;
    else question[name] = typeof defaults[name] === "string" ? text : Number(text);
  }
  return question;
}
function link(question) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(question)) {
    if (name === "config") {
      if (value) parts.set(name, JSON.stringify(value));
    } else if (String(value) !== String(defaults[name])) parts.set(name, value);
  }
  history.replaceState(null, "", `#${parts}`);
}
function fill() {
  // the form, from the link
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(defaults)) form.elements[name].value = parts.get(name) ?? value ?? "";
}
function table(part) {
  const body = element("tbody", {});
  for (const row of part.rows) {
    const how = element("td", {});
    if (row.formula) {
      const cut = (text) => (text.length > 600 ? `${text.slice(0, 600)} …` : text);
      const code = [element("code", {}, cut(row.formula))];
      if (row.numbers && row.numbers !== row.formula)
        code.push(element("br", {}), element("code", {}, `= ${cut(row.numbers)}`));
      how.append(
        element("details", {}, element("summary", { "aria-label": `Formula of ${row.name}` }, "formula"), ...code),
      );
    }
    const exact = typeof row.value === "bigint" ? row.value.toLocaleString("en") : "";
    const cells = [
      element("th", { scope: "row" }, row.name),
      element("td", { class: "number" }, row.words),
      element("td", { class: "number" }, exact),
      how,
    ];
    body.append(element("tr", row.name === "total" || row.name === "wall clock" ? { class: "sum" } : {}, ...cells));
  }
  const head = element(
    "tr",
    {},
    ...["", "", "exactly", "how"].map((name) => element("td", { class: name === "exactly" ? "number" : "" }, name)),
  );
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Table" },
    element("table", {}, element("thead", {}, head), body),
  );
}
function bar(part) {
  const total = Number(part.rows.at(-1).value),
    limit = Number(part.limit),
    whole = Math.max(total, limit);
  const words = part.rows.at(-1).words,
    verdict = part.fits ? `${words} fit on the device` : `${words} do not fit on the device`;
  const drawn = element("div", {
    class: "bar",
    role: "img",
    "aria-label": `${verdict}: ${((100 * total) / limit).toFixed(0)}% of its memory`,
  });
  const legend = element("ul", { class: "legend" });
  part.groups.forEach((group, i) => {
    const colour = COLOURS[i % COLOURS.length];
    drawn.append(element("span", { style: `width:${(100 * Number(group.value)) / whole}%;background:${colour}` }));
    legend.append(
      element(
        "li",
        {},
        element("b", { style: `background:${colour}` }),
        `${group.name} ${(Number(group.value) / 1e9).toFixed(2)} GB`,
      ),
    );
  });
  drawn.append(element("i", { style: `left:calc(${(100 * limit) / whole}% - 3px)` }));
  return [
    element(
      "p",
      part.fits ? {} : { class: "bad" },
      `${verdict}, which has ${(limit / 1e9).toFixed(0)} GB (the line).`,
    ),
    drawn,
    legend,
  ];
}
function show() {
  let question;
  try {
    question = read();
  } catch (error) {
    out.replaceChildren(element("p", { class: "bad" }, `The config.json is not JSON: ${error.message}`));
    return;
  }
  if (!form.checkValidity()) {
    out.replaceChildren(
      element("p", { class: "bad" }, "A number is missing or out of range: it is marked in the form."),
    );
    return;
  }
  link(question);
  const parts = ask(question);
  out.replaceChildren(
    ...Object.entries(parts).map(([name, part]) => {
      const section = element("section", {}, element("h2", {}, TITLES[name]));
      if (part.refused !== undefined) section.append(element("p", { class: "bad" }, part.refused));
      else
        section.append(
          ...(name === "memory" ? bar(part) : []),
          table(part),
          element("p", { class: "note" }, part.convention),
        );
      return section;
    }),
  );
}

for (const [name, choices] of $.entries(CHOICES))
  form.elements[name].append(...choices.map((choice) => element("option", { value: choice }, String(choice))));
fill();
let waiting;
form.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(show, 150);
});
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", () => {
  fill();
  show();
});
document.getElementById("copy").addEventListener("click", async () => {
  const said = document.getElementById("copied");
  try {
    await navigator.clipboard.writeText(location.href);
    said.textContent = "The link is copied.";
  } catch {
    said.textContent = "Copy it from the address bar.";
  }
});
show();
