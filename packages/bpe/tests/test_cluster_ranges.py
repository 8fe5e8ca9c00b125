"""Parts of files, as the tasks of a cluster read them: together they are the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import TEXTS as ANY_TEXTS

import bpe
from bpe import patterns
from bpe.cluster import encoding, ranges
from bpe.corpus import sources
from bpe.outputs import arrow_files, encode_source
from bpe.patterns import scanner_of
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.special_tokens import SpecialTokens

SPECIAL = ("<|endoftext|>", "<|end", "x")
TEXTS = st.lists(
    st.one_of(ANY_TEXTS, st.sampled_from([*SPECIAL, "word " * 9, "\r\n\n ", "don't", "٣٣٣", "字字", "é" * 7])),
    max_size=20,
).map("".join)


def counted_in_parts(file: sources.File, part_size: int, pattern: str | None, special: tuple[str, ...]) -> bpe.Counts:
    """The counts of all parts of a file, added up."""
    resolved, names = patterns.resolve(pattern), SpecialTokens(special)
    scanner = scanner_of(resolved)
    counts = bpe.count([], pattern=pattern, special_tokens=special)
    (entry,) = ranges.listed([file])
    for part in ranges.parts_of(entry, part_size, can_cut=scanner >= 0):
        source, _ = ranges.source_of(part, lambda text, at: safe_cut(text, at, scanner, names), names.longest)
        counts = counts.merge(bpe.count(source, pattern=pattern, special_tokens=special, num_threads=1))
    return counts


@settings(max_examples=60)
@given(TEXTS, st.integers(1, 60), st.sampled_from(["gpt2", "cl100k", "o200k", None, r"\p{L}+|\s|[^\p{L}\s]"]))
@example("a<|endoftext|>" * 9, 5, None)
@pytest.mark.filterwarnings("ignore:no compiled scanner")
def test_parts_of_a_text_are_the_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, part_size: int, pattern: str | None
) -> None:
    path = tmp_path_factory.mktemp("ranges") / "text"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    whole = bpe.count([path], pattern=pattern, special_tokens=SPECIAL)
    assert counted_in_parts(sources.PlainText(path), part_size, pattern, SPECIAL) == whole


def test_a_window_grows_until_a_cut_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is longer than many windows, and special tokens that lie across their borders."""
    monkeypatch.setattr(ranges, "WINDOW", 4)
    path = tmp_path / "text"
    path.write_bytes(b"a" * 5000 + b"<|endoftext|>" + b"b " * 300 + b"<|end" + b"c" * 100)
    for pattern in ("gpt2", None):
        whole = bpe.count([path], pattern=pattern, special_tokens=SPECIAL)
        for part_size in (7, 64, 601):
            assert counted_in_parts(sources.PlainText(path), part_size, pattern, SPECIAL) == whole


@settings(max_examples=30)
@given(st.lists(st.one_of(TEXTS, st.none()), max_size=12), st.integers(1, 80), st.booleans())
def test_parts_of_json_lines_are_the_lines(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str | None], part_size: int, ends: bool
) -> None:
    """None stands for a blank line; the last line may end with a newline or not."""
    path = tmp_path_factory.mktemp("ranges") / "texts.jsonl"
    lines = ["" if text is None else json.dumps({"text": text}) for text in texts]
    path.write_bytes(("\n".join(lines) + "\n" * ends).encode())
    whole = bpe.count([path], special_tokens=SPECIAL)
    assert counted_in_parts(sources.JsonLines(path), part_size, "gpt2", SPECIAL) == whole


@pytest.mark.parametrize("format", ["npy", "bin", "parquet"])
@settings(max_examples=20)
@given(TEXTS, st.integers(1, 80), st.sampled_from(["gpt2", "o200k", None]), st.booleans())
def test_parts_are_joined_to_what_the_whole_file_gives(
    tmp_path_factory: pytest.TempPathFactory, format: Any, text: str, part_size: int, pattern: str | None, ends: bool
) -> None:
    """In chunks of a few bytes, which end elsewhere than parts do, and in row groups of a few ids."""
    if format == "parquet":
        pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("parts")
    (folder / "text").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_source, "CHUNK", 30)
        patch.setattr(arrow_files, "GROUP", 10)
        tokenizer = bpe.train(["some words, a word", "é 字字"], 265, pattern=pattern, special_tokens=SPECIAL)
        end_of_text = SPECIAL[0] if ends else None
        tokenizer.encode_file(folder / "text", folder / "a", format=format, end_of_text=end_of_text, num_threads=1)
        how = {"dtype": None, "format": format, "end_of_text": end_of_text, "allowed_special": "all"}
        recipe = encoding.recipe_for(tokenizer, how)
        (entry,) = ranges.listed([sources.PlainText(folder / "text")])
        parts = ranges.parts_of(entry, part_size, can_cut=recipe.can_cut)
        encoded: list[encode_source.Encoded] = []
        for part in parts:
            source, goes_on = ranges.source_of(part, recipe.cut, recipe.margin)
            encoded += encode_source.encoded_groups(source, recipe, 1, goes_on=goes_on)
        encode_source.write_encoded(lambda _: encoded, folder / "b", recipe)
    for name in ("a", "a.json", *(["a.index"] if format == "bin" else [])):
        assert (folder / f"b{name[1:]}").read_bytes() == (folder / name).read_bytes()


def test_a_wrong_line_is_named_as_in_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a"}\n' * 500 + "{\n" + '{"text": "a"}\n' * 20)
    with pytest.raises(ValueError, match="line 501"):
        counted_in_parts(sources.JsonLines(path), 100, "gpt2", SPECIAL)


def test_parts_of_parquet_are_row_groups(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "texts.parquet"
    table = pyarrow.table({"text": [None if i % 7 == 0 else f"row {i} of the table" for i in range(1000)]})
    parquet.write_table(table, path, row_group_size=90)
    file = sources.Parquet(path)
    whole = bpe.count([path])
    for part_size in (1, 3000, 1 << 30):
        parts = list(ranges.parts_of(*ranges.listed([file]), part_size, can_cut=True))
        assert sum(part.size for part in parts) == path.stat().st_size
        assert counted_in_parts(file, part_size, "gpt2", ("<|endoftext|>",)) == whole


def test_compressed_and_empty_files_are_one_part_or_none(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(b"some words " * 1000))
    assert len(list(ranges.parts_of(*ranges.listed([sources.PlainText(path)]), 10, can_cut=True))) == 1
    assert counted_in_parts(sources.PlainText(path), 10, "gpt2", SPECIAL) == bpe.count([path], special_tokens=SPECIAL)
    (tmp_path / "empty").touch()
    assert not len(counted_in_parts(sources.PlainText(tmp_path / "empty"), 10, "gpt2", SPECIAL))


def test_a_file_that_grows_or_goes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"some words " * 100)
    (part, *_) = ranges.parts_of(*ranges.listed([sources.PlainText(path)]), 100, can_cut=True)
    path.write_bytes(b"other words")
    with pytest.raises(ValueError, match="changed"):
        ranges.source_of(part, lambda text, at: at, 0)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        ranges.source_of(part, lambda text, at: at, 0)
