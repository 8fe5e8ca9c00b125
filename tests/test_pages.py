"""The tool that runs the pages: what is wrong on a page is found, with its line.

`nox -s docs` runs the pages themselves.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import live_pages
import pages
import pytest


def page(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pages, "ROOT", folder)
    monkeypatch.chdir(folder)
    (folder / "code.py").write_text("def f():\n    if 1:\n\n        b\n")
    path = folder / "page.md"
    path.write_text(text)
    return path


RIGHT = """# Title

```python
a = 1
```

Words.

```python
>>> a + 1
2
```

<!-- before: echo more > made.txt -->
```console
$ cat made.txt
more
$ seq 9
1
...
9
```

<!-- not run: it never ends -->
```sh
sleep infinity
```

<!-- from: code.py -->
```python
if 1:

    b
```

```toml
key = 1
```
"""


def test_a_right_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran, reasons = pages.run_page(page(tmp_path, RIGHT, monkeypatch))
    assert ran == 5
    assert reasons == ["page.md:26: not run: it never ends"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("a + 1", "a + 2"), "page.md:10"),
        (("a = 1", "a = b"), "'b' is not defined"),
        (("\nmore\n", "\nless\n"), "page.md:16"),
        (("echo more", "false"), "exit status 1"),
        (("key = 1", "key ="), "Invalid value"),
        (("```toml", "```"), "page.md:36: say the language"),
        (("```toml", "```ocaml"), "nothing is known about blocks in ocaml"),
        (("key = 1\n```", "key = 1"), "page.md:36: this block is not closed"),
        (("    b", "    c"), "page.md:31: this does not stand in code.py"),
        (("code.py -->\n", "code.py -->\nWords.\n"), "page.md:30: .* directly in front"),
        (("ends -->\n", "ends -->\nWords.\n"), "directly in front"),
    ],
)
def test_what_is_wrong_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], fault: str
) -> None:
    assert change[0] in RIGHT
    wrong = page(tmp_path, RIGHT.replace(*change), monkeypatch)
    with pytest.raises((pages.Fault, NameError, ValueError), match=fault):
        pages.run_page(wrong)


def test_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[a](page.md#x) [b](none.md) [c](https://example.org/x) [d](https://nowhere) ![e](none.png)\n"
    text += "```text\n[f](no.md)\n```\n"
    wrong = list(pages.wrong_links(page(tmp_path, text, monkeypatch)))
    assert [line.split()[1].strip(":") for line in wrong] == ["none.md", "https://nowhere", "none.png"]


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accounting")
    text = "`accounting.parameters(shape)` `accounting.nothing` `tools/no.py` `nothing.x`\n"
    text += "`accounting.TransformerShape.d_model`\n"
    wrong = list(pages.unknown_names(page(tmp_path, text, monkeypatch)))
    assert [line.split()[-1] for line in wrong] == ["accounting.nothing", "tools/no.py"]


def test_what_the_pages_name_exists() -> None:
    for package in pages.PACKAGES:
        pytest.importorskip(package)
    assert not [line for page in pages.pages([]) for line in pages.unknown_names(page)]


def test_the_corpus_and_what_is_held_out(tmp_path: Path) -> None:
    pages.furnish(tmp_path)
    corpus, heldout = ((tmp_path / f"{name}.txt").read_text() for name in ("corpus", "heldout"))
    assert len(corpus) > 300_000
    assert len(heldout) > 30_000
    assert heldout[:1000] not in corpus


@pytest.mark.parametrize("name", pages.PACKAGES)
def test_the_reference_has_every_public_class_and_function(name: str) -> None:
    package = pytest.importorskip(name)
    text = "".join(page.read_text(encoding="utf-8") for page in (pages.ROOT / "docs/reference" / name).glob("*.md"))
    values = {each: getattr(package, each) for each in package.__all__}
    public = {each for each, value in values.items() if inspect.isclass(value) or inspect.isroutine(value)}
    assert public
    assert {each for each in public if f"::: {name}.{each}\n" not in text} == set()


def test_the_home_page_is_the_readme_with_links_from_docs() -> None:
    links = re.findall(r"\]\(([^)#\s]+)", live_pages.front_page())
    assert "reference/bpe/index.md" in links
    assert "model.png" in links
    assert [link for link in links if "://" not in link and not (live_pages.DOCS / link).exists()] == []


def test_chapter_2_is_graded_by_the_reference_where_nothing_is_compiled(tmp_path: Path) -> None:
    """As the page of exercises does it: the packages of its zip file come before those installed."""
    live_pages.pack_for_browsers(tmp_path / "packages.zip")
    grade = """
import sys
sys.path[:0] = sys.argv[1:]
import bpe, grade, pathlib, regex
assert grade.grade(2, pathlib.Path(sys.argv[3]))
assert "packages.zip" in bpe.__file__ + bpe.reference.__file__ and "packages.zip" in regex.__file__
"""
    solution = Path(__file__).with_name("course_solutions") / "ex2_bpe.py"
    paths = (tmp_path / "packages.zip", live_pages.DOCS / "course/exercises", solution)
    process = subprocess.run([sys.executable, "-c", grade, *paths], capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "4 of 4 right" in process.stdout
