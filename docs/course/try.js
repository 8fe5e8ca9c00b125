// Grade exercises in the browser: a worker runs the grader in Pyodide, so that an endless loop can be stopped.
const FILES = {
  1: ["ex1_utf8.py", "checks_text.py"],
  2: ["ex2_bpe.py", "checks_tokenizer.py"],
  3: ["ex3_judge.py", "checks_tokenizer.py"],
  5: ["ex5_budget.py", "checks_budget.py"],
  11: ["ex11_data.py", "checks_data.py"],
  14: ["ex14_measuring.py", "checks_measuring.py"],
};
const COMMON = ["grade.py", "grading.py", "limits.py"];
const GRADE = `
import contextlib, importlib, io, sys
from pathlib import Path
import grade
importlib.invalidate_caches()
with contextlib.redirect_stdout(io.StringIO()) as printed:
    try:
        grade.grade(chapter, Path("mine.py"))
    except BaseException as error:
        print(f"✗ {type(error).__name__}: {error}")
printed.getvalue()
`;

const text = async (url) => {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return answer.text();
};

async function work() {
  const { loadPyodide } = await import("../pyodide/pyodide.mjs");
  const python = await loadPyodide({ indexURL: new URL("../pyodide/", import.meta.url).href });
  for (const name of [...COMMON, ...Object.values(FILES).map((files) => files[1])])
    python.FS.writeFile(name, await text(new URL(`exercises/${name}`, import.meta.url)));
  const packages = await fetch(new URL("../pyodide/packages.zip", import.meta.url));
  if (!packages.ok) throw new Error(`${packages.url}: ${packages.status}`);
  python.unpackArchive(await packages.arrayBuffer(), "zip");
  self.onmessage = ({ data }) => {
    python.FS.writeFile("mine.py", data.code);
    python.globals.set("chapter", data.chapter);
    self.postMessage(python.runPython(GRADE));
  };
  self.postMessage(null);
}

// Tab and Enter as an editor has them. Escape gives the next Tab back to the page.
function edit(code, event) {
  if (event.key === "Escape") code.dataset.leaves = "yes";
  const leaves = event.key === "Tab" && (event.shiftKey || code.dataset.leaves);
  if (event.key !== "Escape") delete code.dataset.leaves;
  if (leaves || event.ctrlKey || event.metaKey || !["Tab", "Enter"].includes(event.key)) return;
  event.preventDefault();
  const before = code.value.slice(0, code.selectionStart);
  const line = before.slice(before.lastIndexOf("\n") + 1);
  const indent = line.match(/^ */)[0] + (line.trimEnd().endsWith(":") ? "    " : "");
  code.setRangeText(event.key === "Tab" ? "    " : "\n" + indent, code.selectionStart, code.selectionEnd, "end");
  code.dispatchEvent(new Event("input"));
}

function page() {
  const element = (id) => document.getElementById(id);
  const [chapter, button, skeleton, code, lines, result] =
    ["chapter", "grade", "skeleton", "code", "lines", "result"].map(element);
  let worker = null;
  const key = () => `exercises-${chapter.value}`;
  const original = () => text(new URL(`exercises/${FILES[chapter.value][0]}`, import.meta.url));
  const number = () => {
    lines.textContent = code.value.split("\n").map((_, i) => i + 1).join("\n");
    lines.scrollTop = code.scrollTop;
  };
  const show = async () => {
    code.value = localStorage.getItem(key())?.trim() ? localStorage.getItem(key()) : await original();
    number();
  };
  const start = () => {
    button.textContent = "Stop";
    result.textContent = worker ? "Grading …" : "Loading Python, 13 MB …";
    const job = { code: code.value, chapter: Number(chapter.value) };
    const send = () => {
      result.textContent = "Grading …";
      worker.postMessage(job);
    };
    if (worker) return send();
    worker = new Worker(new URL("try.js", import.meta.url), { type: "module" });
    worker.onerror = (error) => stop(`Python could not be loaded: ${error.message}`);
    worker.onmessage = ({ data }) => {
      if (data === null) return send();
      if (data.failure) return stop(`Python could not be loaded: ${data.failure}`);
      result.textContent = data;
      button.textContent = "Grade";
    };
  };
  const stop = (words) => {
    worker?.terminate();
    worker = null;
    result.textContent = words;
    button.textContent = "Grade";
  };
  chapter.onchange = show;
  code.oninput = () => {
    localStorage.setItem(key(), code.value);
    number();
  };
  code.onscroll = number;
  code.onkeydown = (event) => {
    if (event.key === "Enter" && event.ctrlKey && button.textContent === "Grade") start();
    else edit(code, event);
  };
  skeleton.onclick = async () => {
    if (!confirm("Put the exercise's empty bodies back, in place of what you wrote?")) return;
    localStorage.removeItem(key());
    code.value = await original();
    number();
  };
  button.onclick = () => (button.textContent === "Stop" ? stop("Stopped.") : start());
  show();
}

// a rejected promise does not reach the page's onerror
if (typeof document === "undefined") work().catch((error) => self.postMessage({ failure: String(error) }));
else page();
