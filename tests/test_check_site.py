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
PAGES = {
    "narrow": ('<div style="width: 100px">narrow</div>', ""),
    "scrolls": ('<div style="overflow-x: auto" tabindex="0"><div style="width: 900px">scrolls</div></div>', ""),
    "wide": ('<div style="width: 900px">wide</div>', "wide: wider than 390 pixels: DIV wide"),
    "loads": ('<img src="http://127.0.0.1:9/x.png" alt="">', "loads: loads http://127.0.0.1:9/x.png"),
    "small": ("<style>p { font-size: 9px }</style>", "small: text of 9 pixels"),
    "label": ('<input type="text">', "label: axe: ('light', ['label'"),
}


@pytest.mark.skipif(chromium.PATH is None, reason="there is no Chromium here")
@pytest.mark.parametrize("names", [("narrow", "scrolls"), tuple(PAGES)], ids=["sound", "all"])
def test_what_is_wrong_is_found(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(PAGE.format(PAGES[name][0]))
    done = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True, timeout=120)
    *faults, summary = done.stdout.splitlines()
    has_axe = any(": axe: " in fault for fault in faults)
    expected = {name: PAGES[name][1] for name in names if PAGES[name][1] and (name != "label" or has_axe)}
    assert {fault.partition(":")[0] for fault in faults} == set(expected), done.stdout + done.stderr
    for message in expected.values():
        assert any(fault.startswith(message) for fault in faults), message
    assert summary.startswith(f"{len(names)} pages at 390 pixels, {len(faults)} faults")
    assert done.returncode == bool(faults)
