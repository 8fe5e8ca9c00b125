"""The tool that looks at the site on a telephone finds what is too wide, and what is loaded from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import chromium
import pytest

TOOL = Path(__file__).parent.parent / "tools" / "check_site.py"
PAGE = """<!doctype html><html lang="en"><title>A page</title><meta name="viewport" content="width=device-width">
<main><h1>A page</h1><p>Words.</p>{}</main></html>"""


@pytest.mark.skipif(chromium.PATH is None, reason="there is no Chromium here")
@pytest.mark.parametrize(
    ("part", "message"),
    [
        ('<div style="width: 100px">narrow</div>', "0 faults"),
        ('<div style="width: 900px">wide</div>', "page: wider than 390 pixels: DIV wide"),
        ('<div style="overflow-x: auto" tabindex="0"><div style="width: 900px">scrolls</div></div>', "0 faults"),
        ('<img src="http://127.0.0.1:9/x.png">', "page: loads http://127.0.0.1:9/x.png"),
        ("<style>p { font-size: 9px }</style>", "page: text of 9 pixels"),
        ('<input type="text">', "page: axe: ('light', ['label'"),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, part: str, message: str) -> None:
    if "axe" in message and chromium.axe(tmp_path) is None:
        pytest.skip("npm cannot fetch axe-core")
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text(PAGE.format(part))
    done = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True, timeout=120)
    assert message in done.stdout, done.stderr
    assert done.returncode == ("0 faults" not in message)
