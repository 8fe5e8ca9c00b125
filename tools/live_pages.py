"""Make the site's home page, which is the README, and its live pages with their pictures: a page that encodes what is
typed, with a small tokenizer trained on Python's help texts, a page that runs a small model trained on Python's
standard library, the page of accounting, and the files of KaTeX, which typesets the
formulas, and of Pyodide, which grades the first exercises in the browser.

    python tools/live_pages.py      writes docs/index.md, docs/course/live-tokenizer and live-model, .html and .png,
                                    and docs/guides/accounting-page.html, which git ignores
    python tools/live_pages.py --picture "runs/demo/model.html#def main" docs/model.png      the README's picture

`nox -s docs` runs it first. Where there is no Chromium, each picture is an empty one.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from urllib.parse import quote

import pages

sys.path.append(str(Path(__file__).parent.parent / "packages/bpe/tests"))
sys.path.append(str(Path(__file__).parent.parent / "demo"))
import chromium  # the tests of bpe's pages speak to the same browser
import corpus

DOCS = Path(__file__).parent.parent / "docs"
COURSE = DOCS / "course"
KATEX = DOCS / "katex"
KATEX_VERSION = "katex@0.16.22"
PYODIDE = DOCS / "pyodide"
PYODIDE_VERSION = "pyodide@314.0.7"
SCREEN = (900, 1000)
EMPTY_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
README_SCREEN = (1120, 1060)
TEXT = "def __init__(self"  # that the model continues in its picture
MODEL = (
    *("--model.vocab_size", "2000", "--model.context_length", "128"),
    *("--train.steps", "400", "--train.warmup_steps", "50"),
)

LIVE = """A model trained on Python's standard library for two minutes, and a tokenizer, at work in this page: type.

<div class="front">
<iframe src="course/live-model.html" title="A model of Python's standard library that continues what you type"></iframe>
<iframe src="course/live-tokenizer.html" title="A tokenizer that encodes what you type"></iframe>
</div>"""


def picture(page: Path, out: Path, screen: tuple[int, int], text: str = "") -> None:
    """A picture of a page's first screen, of so many pixels; text: what a model's page continues first."""
    if chromium.PATH is None:
        out.write_bytes(base64.b64decode(EMPTY_PNG))
        return
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        chromium.Chromium(Path(folder), screen) as browser,
    ):
        width, height = screen
        browser.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        browser.call("Page.navigate", url=page.resolve().as_uri() + (text and "#" + quote(text)))
        while browser.run("document.readyState") != "complete":
            time.sleep(0.02)
        browser.run("typeof ready === 'undefined' ? 0 : ready.then(() => 0)")
        browser.picture(out)


def tokenizer_page(folder: Path) -> None:
    """Write live-tokenizer.html."""
    pages.furnish(folder)
    tokenizer = folder / "tok.json"
    text = folder / "corpus.txt"
    run("bpe", "train", text, "--vocab-size", "4000", "--out", tokenizer, stdout=subprocess.DEVNULL)
    run("bpe", "view", tokenizer, "--out", COURSE / "live-tokenizer.html")
    picture(COURSE / "live-tokenizer.html", COURSE / "live-tokenizer.png", SCREEN)


def model_page(folder: Path) -> None:
    """Write live-model.html: a minute or two of training on two cores."""
    documents = corpus.split(corpus.standard_library())
    tokenizer, data = folder / "model-tok.json", folder / "data"
    data.mkdir()
    for name, part in (("train", documents.train), ("val", documents.heldout)):
        (folder / f"{name}.txt").write_bytes(corpus.joined(part))
    run("bpe", "train", folder / "train.txt", "--vocab-size", "2000", "--special", corpus.SEPARATOR, "--out", tokenizer)
    for name in ("train", "val"):
        run("bpe", "encode", tokenizer, folder / f"{name}.txt", "--out", data / f"{name}.npy")
    out = folder / "A model of Python"
    run("lm", "train", "cpu-demo", *MODEL, "--data", data, "--tokenizer", tokenizer, "--out", out, "--quiet")
    run("lm", "export", out, "--page", COURSE / "live-model.html", "--course", "{}/")
    picture(COURSE / "live-model.html", COURSE / "live-model.png", SCREEN, TEXT)


def run(package: str, *arguments: str | Path, stdout: int | None = None) -> None:
    """Run the command of a package."""
    subprocess.run([sys.executable, "-m", package, *map(str, arguments)], check=True, stdout=stdout)


def front_page() -> str:
    """The README with its links relative to docs/, the live model and tokenizer under its heading."""
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    text = text.replace("\n\n", f"\n\n{LIVE}\n\n", 1)
    text = re.sub(r"\]\(packages/(\w+)/README\.md", r"](reference/\1/index.md", text)
    return text.replace("](docs/", "](").replace("](CONTRIBUTING.md", "](contributing.md")


def fetch(package: str, folder: Path, files: tuple[str, ...]) -> None:
    """Put files of a package of npm into a folder, unless they are there; * stands for any name."""
    if folder.exists():
        return
    npm = shutil.which("npm")
    with tempfile.TemporaryDirectory() as unpacked:
        if npm is None or subprocess.run([npm, "pack", package, "--silent"], cwd=unpacked).returncode:
            print(f"{package} could not be fetched by npm: the site does without", file=sys.stderr)
            return
        with tarfile.open(next(Path(unpacked).glob("*.tgz"))) as archive:
            archive.extractall(unpacked, filter="data")
        root = Path(unpacked, "package")
        for path in [path for name in files for path in root.glob(name)]:
            out = folder / path.relative_to(root / "dist" if root / "dist" in path.parents else root)
            out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, out)


def fetch_python() -> None:
    """Put Python for browsers into docs/pyodide/, with the packages that the page of exercises runs there."""
    fetch(PYODIDE_VERSION, PYODIDE, ("pyodide.mjs", "pyodide.asm.*", "pyodide-lock.json", "python_stdlib.zip"))
    if PYODIDE.exists():
        pack_for_browsers(PYODIDE / "packages.zip")


def pack_for_browsers(path: Path) -> None:
    """Write accounting, bpe's reference, and stand-ins for what is compiled (docs/course/browser) into a zip file.

    With them go Python's help texts, which the graders take for some English and Pyodide leaves out.
    """
    packages = DOCS.parent / "packages"
    files = [(packages / "bpe/src", f"bpe/{name}.py") for name in ("reference", "native/__init__", "native/printable")]
    files += [(Path(sysconfig.get_path("stdlib")), f"pydoc_data/{name}.py") for name in ("__init__", "topics")]
    for root, pattern in ((packages / "accounting/src", "accounting/**/*.*"), (DOCS / "course/browser", "**/*.py")):
        files += [(root, str(file.relative_to(root))) for file in sorted(root.glob(pattern)) if file.suffix != ".pyc"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for root, name in files:
            archive.write(root / name, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--picture", nargs=2, metavar=("PAGE", "PNG"), help="only this: a page's picture")
    options = parser.parse_args()
    if options.picture:
        page, _, text = options.picture[0].partition("#")
        picture(Path(page), Path(options.picture[1]), README_SCREEN, text)
        return
    (DOCS / "index.md").write_text(front_page(), encoding="utf-8")
    fetch(KATEX_VERSION, KATEX, ("dist/katex.min.js", "dist/katex.min.css", "dist/fonts/*.woff2"))
    fetch_python()
    with tempfile.TemporaryDirectory() as name:
        tokenizer_page(Path(name))
        model_page(Path(name))
    run("accounting", "page", "--out", DOCS / "guides/accounting-page.html")


if __name__ == "__main__":
    main()
