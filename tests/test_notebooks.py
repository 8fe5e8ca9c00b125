"""The course's notebooks: made from its pages, and run."""

from __future__ import annotations

import json
from pathlib import Path

import notebooks
import pytest

PAGE = """# A chapter

<!-- before: echo ready > state.txt -->
```sh
cat state.txt
```

Some words, and [a page](../guides/one.md).

```python
>>> numbers = [1, 2]
>>> numbers[5]
Traceback (most recent call last):
IndexError: list index out of range
>>> len(numbers)
2
>>> total = sum(numbers)
>>> total
3
```

![a picture](one.svg) and [a page](live-model.html){ target=_blank }

<iframe class="live" src="live-model.html#x" title="A model" loading="lazy"></iframe>

??? success "Answer"
    It is `3`.

<!-- not run: it needs a network -->
```python
download()
```
"""


def test_a_page_becomes_cells(tmp_path: Path) -> None:
    page = tmp_path / "1-text.md"
    page.write_text(PAGE, encoding="utf-8")
    (tmp_path / "one.svg").write_text("<svg/>", encoding="utf-8")
    cells = [(one["cell_type"], "".join(one["source"])) for one in notebooks.notebook(page)["cells"]]
    error = "try:\n    numbers[5]\nexcept Exception as error:\n    print(error)\n"
    assert cells[1:] == [
        ("markdown", "# A chapter"),
        ("code", "%%bash\necho ready > state.txt"),
        ("code", "%%bash\ncat state.txt"),
        ("markdown", "Some words, and [a page](../../guides/one.md)."),
        ("code", f"numbers = [1, 2]\n{error}".rstrip()),
        ("code", "len(numbers)"),
        ("code", "total = sum(numbers)\ntotal"),
        (
            "markdown",
            "![a picture](attachment:one.svg) and [a page](../live-model.html)\n\n[A model](../live-model.html#x)\n\n"
            "<details><summary>Answer</summary>\n\nIt is `3`.\n\n\n</details>\n\n```python\ndownload()\n```",
        ),
    ]
    assert notebooks.notebook(page)["cells"][-1]["attachments"] == {"one.svg": {"image/svg+xml": "PHN2Zy8+"}}


@pytest.mark.parametrize("name", ["2-byte-pair-encoding", "11-data"])
def test_a_chapter_runs_as_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / f"{name}.ipynb"
    path.write_text(json.dumps(notebooks.notebook(notebooks.COURSE / f"{name}.md")), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    notebooks.run(path)
    assert Path("corpus.txt").exists()
    path.write_text(json.dumps({"cells": [notebooks.cell("code", "1 / 0")]}), encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        notebooks.run(path)
