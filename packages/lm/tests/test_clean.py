"""`lm data clean`: what stays of documents of every kind, and why the others go."""

import gzip
import json
import random
import re
import sys
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest

from lm.commands.cli import main
from lm.data import clean as module
from lm.data.clean import Recipe, clean, identify_language, mask, text_classifier, text_of
from lm.extras import MissingExtra

pytest.importorskip("bpe", reason="documents are read by bpe")
for name in ("datatrove", "spacy", "orjson", "resiliparse", "fastwarc", "py3langid", "sklearn"):
    pytest.importorskip(name, reason="the extra clean")
parquet = pytest.importorskip("pyarrow.parquet", reason="the extra clean")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

WORDS = sorted(set(re.findall(r"\b[a-z]{5,8}\b", " ".join(topics.values()))))
GERMAN = "Der Hund frisst den Hut, und die Katze sitzt auf der Matte und sieht dem Hund dabei zu. " * 4
MENU = "<nav><ul><li><a href='/'>Home</a></li><li><a href='/b'>Blog</a></li></ul></nav>"


def prose(seed: int) -> str:
    """English sentences that no two seeds share."""
    words = iter(random.Random(seed).sample(WORDS, 200))
    return " ".join(
        f"The {next(words)} of {next(words)} was {next(words)} to {next(words)} that {next(words)} and {next(words)}."
        for _ in range(20)
    )


def json_lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def texts_in(folder: Path) -> list[str]:
    return [row["text"] for path in sorted(folder.glob("*.parquet")) for row in parquet.read_table(path).to_pylist()]


def cleaned(capsys: pytest.CaptureFixture[str], out: Path, *arguments: str | Path) -> tuple[list[str], set[str]]:
    """The texts that stay, and the counts of the others."""
    assert main(["data", "clean", *map(str, arguments), "--out", str(out), "--jobs", "1"]) == 0
    return texts_in(out), set(capsys.readouterr().out.splitlines()[-1].removeprefix("left out: ").split(", "))


def test_documents_of_every_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = prose(0).replace(" was ", " is ", 1)
    short = "This text is much too short to be of any use to a model."
    files = [json_lines(tmp_path / "a.jsonl", [prose(0), GERMAN, short, near, prose(1), prose(0), ""])]
    page = f"<html><head><title>T</title></head><body>{MENU}<main><p>{prose(2)}</p></main></body></html>"
    files.append(tmp_path / "page.html")
    files[-1].write_text(page, encoding="utf-8")
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>{prose(3)}</p>".encode()
    head = f"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: {len(answer)}\r\n\r\n"
    files.append(tmp_path / "crawl.warc.gz")
    files[-1].write_bytes(gzip.compress(head.encode() + answer + b"\r\n\r\n"))
    urls = [f"file://{file}" for file in files]
    texts, left_out = cleaned(capsys, tmp_path / "out", *urls, "--filters", "gopher-quality")
    assert texts == [prose(seed) for seed in range(4)]
    assert left_out == {"language 1", "near_duplicate 2", "gopher_short_doc 1"}
    assert not (tmp_path / "out" / "work").exists()


def test_filters_benchmarks_a_classifier_and_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [
        f"{prose(0)} Ask ann@example.org.",
        prose(1),
        "The captain of the harbour and the teacher have one line, that is to be.\n" * 20,
        f"{{ {prose(7)}",
        prose(5).replace(" was ", " sells cheap "),
        prose(2),
        prose(2),
    ]
    lines = {
        "a": documents,
        "like": [prose(3), prose(4)],
        "unlike": [prose(seed).replace(" was ", " sells cheap ") for seed in (6, 8)],
        "benchmark": [prose(1)[100:300]],
    }
    a, like, unlike, benchmark = (json_lines(tmp_path / f"{name}.jsonl", texts) for name, texts in lines.items())
    options = ("--filters", "gopher-repetition", "c4", "--keep-duplicates", "--mask", "--benchmarks", benchmark)
    command = (a, "--language", "any", "--like", like, "--unlike", unlike, *options)
    texts, left_out = cleaned(capsys, tmp_path / "out", *command)
    assert texts == [f"{prose(0)} Ask |||EMAIL_ADDRESS|||.", prose(2), prose(2)]
    assert left_out == {"dup_line_frac 1", "curly_bracket 1", "contaminated 1", "classifier 1"}


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [json_lines(tmp_path / f"{seed}.jsonl", [prose(seed), prose(9)]) for seed in range(2)]
    out, recipe, read = tmp_path / "out", Recipe(filters=()), list[str]()

    def stopped(name: str, *arguments: Any) -> Any:
        if len(read) == 1:
            raise KeyboardInterrupt
        read.append(name)
        return original(name, *arguments)

    original = module.raw_pages
    monkeypatch.setattr(module, "raw_pages", stopped)
    with pytest.raises(KeyboardInterrupt):
        clean(files, out, recipe, jobs=1)
    with pytest.raises(ValueError, match="other files or settings"):
        clean(files, out, Recipe(), jobs=1)
    read.append("another")
    assert clean(files, out, recipe, jobs=1)[0] == 3
    assert read[2:] == [str(files[1])]
    with pytest.raises(ValueError, match="Parquet files already"):
        clean(files, out, recipe, jobs=1)
    assert texts_in(out) == [prose(0), prose(9), prose(1)]
    recipe = Recipe(filters=(), keep_duplicates=True)
    assert clean(files, tmp_path / "parallel", recipe, jobs=2)[0] == 4
    assert texts_in(tmp_path / "parallel") == [prose(0), prose(9), prose(1), prose(9)]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("a.b+c@mail.example.co.uk, x", "|||EMAIL_ADDRESS|||, x"),
        ("at 8.8.8.8 and 10.0.0.1", "at |||IP_ADDRESS||| and 10.0.0.1"),
        (
            "(510) 555-0123, +1 510-555-0123 or 510.555.0123",
            "|||PHONE_NUMBER|||, |||PHONE_NUMBER||| or |||PHONE_NUMBER|||",
        ),
        ("12345678901234 and 3.1415926535", "12345678901234 and 3.1415926535"),
    ],
)
def test_masks(text: str, right: str) -> None:
    assert mask(text) == right


def test_functions_of_one_text() -> None:
    assert identify_language(GERMAN)[0] == "de"
    assert 0.5 < identify_language(prose(0))[1] <= 1
    page = f"<p>caf\xe9</p><footer>{MENU}</footer><p>{prose(0)}</p>".encode("latin-1")
    assert "• Home" not in text_of(page)
    assert text_of(page, main_content=False).startswith("café\n\n")
    assert "• Home" in text_of(page, main_content=False)
    model = text_classifier([prose(0), prose(1)], ["cheap pills to buy now, cheap"] * 2)
    assert model.predict([prose(2), "buy cheap pills now"]).tolist() == [True, False]
    assert model.predict_proba(["buy cheap pills now"])[0, 0] > 0.5


@pytest.mark.parametrize("wrong", [{"like": ("a",)}, {"filters": ("gopher",)}])
def test_a_recipe_that_makes_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Recipe(**wrong)  # type: ignore[arg-type]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    module.identifier.cache_clear()
    with pytest.raises(MissingExtra, match=r"groundup-lm\[clean\]"):
        clean([json_lines(tmp_path / "a.jsonl", [prose(0)])], tmp_path / "out", Recipe(), jobs=2)
