// Grade exercises in the browser: a worker runs the grader in Pyodide, so that an endless loop can be stopped.
const FILES = {
  1: ["ex1_utf8.py", "checks_text.py"],
  2: ["ex2_bpe.py", "checks_tokenizer.py"],
  5: ["ex5_budget.py", "checks_budget.py"],
};
const COMMON = ["grade.py", "grading.py"];
const GRADE = `
import contextlib, importlib, io, sys
from pathlib import Path
import grade
importlib.invalidate_caches()
with contextlib.redirect_stdout(io.StringIO()) as printed:
    try:
        grade.grade(chapter, Path("mine.py"))
    except Exception as error:
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
  python.unpackArchive(await packages.arrayBuffer(), "zip");
  self.onmessage = ({ data }) => {
    python.FS.writeFile("mine.py", data.code);
    python.globals.set("chapter", data.chapter);
    self.postMessage(python.runPython(GRADE));
  };
  self.postMessage(null);
}

function page() {
  const element = (id) => document.getElementById(id);
  const [chapter, button, code, result] = ["chapter", "grade", "code", "result"].map(element);
  let worker = null;
  const key = () => `exercises-${chapter.value}`;
  const show = async () => {
    const skeleton = new URL(`exercises/${FILES[chapter.value][0]}`, import.meta.url);
    code.value = localStorage.getItem(key()) ?? (await text(skeleton));
  };
  const start = () => {
    button.textContent = "Stop";
    result.textContent = worker ? "Grading …" : "Loading Python, 13 MB …";
    const job = { code: code.value, chapter: Number(chapter.value) };
    const send = () => worker.postMessage(job);
    if (worker) return send();
    worker = new Worker(new URL("try.js", import.meta.url), { type: "module" });
    worker.onerror = (error) => stop(`Python could not be loaded: ${error.message}`);
    worker.onmessage = ({ data }) => {
      if (data === null) return send();
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
  code.oninput = () => localStorage.setItem(key(), code.value);
  button.onclick = () => (button.textContent === "Stop" ? stop("Stopped.") : start());
  show();
}

if (typeof document === "undefined") work();
else page();
