"""`lm data clean`: what stays of documents of every kind, and why the others go."""

import gzip
import json
import sys
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from lm.commands.cli import main
from lm.data.clean import Recipe, broken_rule, clean
from lm.extras import MissingExtra

pytest.importorskip("bpe", reason="documents are read by bpe")
for module in ("resiliparse", "fastwarc", "py3langid", "rensa", "sklearn"):
    pytest.importorskip(module, reason="the extra clean")

PROSE = [" ".join(topics[name].split()[:300]) for name in ("assignment", "class", "exceptions", "import", "lambda")]
GERMAN = "Der Hund frisst den Hut, und die Katze sitzt auf der Matte und sieht dem Hund dabei zu. " * 4
MENU = "<nav><ul><li><a href='/'>Home</a></li><li><a href='/b'>Blog</a></li></ul></nav>"


def cleaned(capsys: pytest.CaptureFixture[str], out: Path, *arguments: str | Path) -> tuple[list[str], str]:
    """The texts that stay, and the line about the others."""
    assert main(["data", "clean", *map(str, arguments), "--out", str(out)]) == 0
    texts = [json.loads(line)["text"] for line in out.read_text(encoding="utf-8").splitlines()]
    return texts, capsys.readouterr().out.splitlines()[-1]


def json_lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def test_documents_of_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = PROSE[0].replace(" target ", " aim ", 1)
    assert near != PROSE[0]
    files = [
        json_lines(
            tmp_path / "a.jsonl",
            [
                PROSE[0],
                GERMAN,
                "This text is much too short to be of any use to a model.",
                near,
                PROSE[1],
                PROSE[0],
                "",
            ],
        )
    ]
    page = f"<html><head><title>T</title></head><body>{MENU}<main><p>{PROSE[2]}</p></main></body></html>"
    files.append(tmp_path / "page.html")
    files[-1].write_text(page, encoding="utf-8")
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>{PROSE[3]}</p>".encode()
    head = f"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: {len(answer)}\r\n\r\n"
    files.append(tmp_path / "crawl.warc.gz")
    files[-1].write_bytes(gzip.compress(head.encode() + answer + b"\r\n\r\n"))
    texts, left_out = cleaned(capsys, tmp_path / "out.jsonl", *files, "--jobs", "1")
    assert [text.split() for text in texts] == [PROSE[i].split() for i in (0, 1, 2, 3)]
    assert sorted(left_out.removeprefix("left out: ").split(", ")) == [
        "exact duplicates 1", "language 1", "near duplicates 1", "words 1",
    ]  # fmt: skip


def test_lines_and_a_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [f"Accept all cookies\n{text}" for text in PROSE[:3]] + ["buy cheap pills now " * 20]
    files = [
        json_lines(tmp_path / f"{name}.jsonl", texts)
        for name, texts in (("a", documents), ("like", PROSE[3:]), ("unlike", ["cheap pills to buy now, cheap"] * 2))
    ]
    options = ("--language", "any", "--no-gopher", "--similarity", "0", "--max-line-copies", "2", "--jobs", "2")
    texts, left_out = cleaned(
        capsys, tmp_path / "out.jsonl", files[0], "--like", files[1], "--unlike", files[2], *options
    )
    assert texts == PROSE[:3]
    assert left_out == "left out: classifier 1"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("the cat and " * 20, ""),
        ("the cat and " * 16, "words"),
        ("it is a to be of " * 10, "word length"),
        ("the # canine # and # feline have " * 10, "symbols"),
        ("- the feline and others\n" * 20, "bullets"),
        ("the cat and all of its little brothers and sisters were here ...\n" * 5, "ellipses"),
        ("the 1234 and 5678 " * 20, "letters"),
        ("colour theory matters " * 20, "stop words"),
    ],
)
def test_rules(text: str, rule: str) -> None:
    assert broken_rule(text) == rule
    assert broken_rule("colour theory matters " * 20, None) == ""


@pytest.mark.parametrize("wrong", [{"like": ("a",)}, {"max_line_copies": 0}, {"similarity": 1.5}])
def test_a_recipe_that_makes_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Recipe(**wrong)  # type: ignore[arg-type]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(MissingExtra, match=r"groundup-lm\[clean\]"):
        clean([json_lines(tmp_path / "a.jsonl", PROSE)], tmp_path / "out.jsonl", Recipe(), jobs=2)
