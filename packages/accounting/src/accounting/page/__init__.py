"""A page that computes: formulas.js is translated from questions.py and all that it needs (generate/page_formulas.py),
runtime.js has Python's meaning. No formula is written twice."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def page() -> str:
    """Return the page, one file of HTML that needs no other."""
    program = "".join(map(_asset, ("runtime.js", "formulas.js", "worker.js"))).replace("</", "<\\/")
    text = _asset("page.html").replace("/*STYLE*/", _asset("page.css")).replace("/*SCRIPT*/", _asset("page.js"))
    return text.replace("/*PROGRAM*/", program)


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
