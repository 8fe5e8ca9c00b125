"""A page that computes: this package's formulas in JavaScript, and a form.

formulas.js is translated from the Python of questions.py and all that it calls, by generate/page_formulas.py;
runtime.js has what Python means. No formula is written twice.
"""

from __future__ import annotations

import json
from pathlib import Path

from accounting.hardware import devices
from accounting.planning import accuracy

HERE = Path(__file__).parent


def page() -> str:
    """Return the page, one file of HTML that needs no other."""
    tables = {"devices": devices.rows(), "accuracy": accuracy.rows()}
    data = json.dumps(tables, ensure_ascii=False, separators=(",", ":"))
    rows = "([name, rows]) => [name, $.as_list(rows.map((row) => $.dict(Object.entries(row))))]"
    constants = f"const DATA = Object.fromEntries(Object.entries({data}).map({rows}));"
    script = "\n".join([_asset("runtime.js"), constants, _asset("formulas.js"), _asset("page.js")])
    script = script.replace("</", "<\\/")  # no end tag within the script
    return _asset("page.html").replace("/*STYLE*/", _asset("page.css")).replace("/*SCRIPT*/", script)


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
