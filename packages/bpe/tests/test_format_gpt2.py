"""GPT-2's two files: there and back, and wrong files refused by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from format_samples import BYTES, TEXTS, encode, read_pair, sample, says, spelled, write_text

import bpe
from bpe.formats import vocabularies
from bpe.native.printable import PRINTABLE


def test_every_byte_has_a_printable_stand_in_of_its_own() -> None:
    assert vocabularies.to_printable(b"a \n\x00\xff\xad") == "aĠĊĀÿŃ"
    assert [vocabularies.from_printable(character) for character in PRINTABLE] == BYTES
    for other in {*map(chr, range(0x180)), "世", "\ud800"} - set(PRINTABLE):
        assert vocabularies.from_printable("a" + other) is None
    tokenizers = pytest.importorskip("tokenizers", reason="compares with the alphabet of tokenizers")
    assert sorted(PRINTABLE) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def test_gpt2_there_and_back(tmp_path: Path) -> None:
    data = sample()
    assert data.merges is not None
    bpe.Tokenizer(data.vocab, data.merges, special_tokens=()).to_gpt2(tmp_path / "new")
    vocab_json, merges_txt = tmp_path / "new" / "vocab.json", tmp_path / "new" / "merges.txt"
    assert read_pair(vocab_json, merges_txt) == (data.vocab, data.merges)
    assert merges_txt.read_text(encoding="utf-8").startswith("#version: 0.2\nt h\nĠ th\n")
    tokenizers = pytest.importorskip("tokenizers", reason="reads the files with tokenizers itself")
    peer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocab_json), str(merges_txt)))
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain = data._replace(special_tokens={}, added_tokens={})
    for text in TEXTS:
        assert peer.encode(text).ids == encode(plain, text)


@pytest.mark.parametrize(
    ("text", "merges"),
    [
        ("#version: 0.2\n# #\nt h\n", [(b"#", b"#"), (b"t", b"h")]),
        ("# #\nt h\n", [(b"#", b"#"), (b"t", b"h")]),
        ("t h\n## ##\n", [(b"t", b"h"), (b"##", b"##")]),
        ("#version: 0.2\r\nt h\r\n", [(b"t", b"h")]),
        ("t h", [(b"t", b"h")]),
        ("#version: 0.2\n", []),
        ("", []),
    ],
)
def test_the_version_line_and_merges_of_number_signs(
    tmp_path: Path, text: str, merges: list[tuple[bytes, bytes]]
) -> None:
    vocab = dict(enumerate([*BYTES, b"th", b"##", b"####"]))
    vocab_json = write_text(tmp_path, "vocab.json", json.dumps(spelled(vocab)))
    assert read_pair(vocab_json, write_text(tmp_path, "merges.txt", text)) == (vocab, merges)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("#version: 0.2\nt h\nth\n", 3, "not two tokens with a space between: 'th'"),
        ("t h\n\n# #\n", 2, "not two tokens"),
        ("t  h\n", 1, "not two tokens"),
        ("t h t\n", 1, "not two tokens"),
        ("t 世\n", 1, "not in the vocabulary"),
        ("#version: 0.2\nt h\nt h\n", 3, "b't' and b'h' are merged twice"),
        ("t h\nth th\n", 2, "b'thth' is not in the vocabulary"),
        ("t hh\n", 1, "'hh' is not in the vocabulary"),
        ("t h\n#version: 0.2\n", 2, "'#version:' is not in the vocabulary"),
    ],
)
def test_wrong_merges(tmp_path: Path, text: str, line: int, reason: str) -> None:
    vocab_json = write_text(tmp_path, "vocab.json", json.dumps(spelled(dict(enumerate([*BYTES, b"th", b"##"])))))
    merges_txt = write_text(tmp_path, "merges.txt", text)
    with pytest.raises(ValueError, match=says(f"{merges_txt}, line {line}: ", reason)):
        read_pair(vocab_json, merges_txt)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ", line 1: not JSON: .* (the file may be cut short)"),
        ('{"a": 1, "b', ", line 1: not JSON: "),
        ('{"a": 1,', "(the file may be cut short)"),
        ("{\n\n]", ", line 3: not JSON: "),
        ("[1, 2]", ": expected the vocabulary to be an object of tokens and ids, got list"),
        ('{"a": 1, "a": 2}', ": the key 'a' stands twice in one object"),
        ('{"a": 1, "b": 1}', ": the id 1 stands twice, for 'a' and 'b'"),
        ('{"a": "1"}', ": the id of 'a' is '1': ids are whole numbers from 0 to 2147483647"),
        ('{"a": 1.0}', ": the id of 'a' is 1.0"),
        ('{"a": true}', ": the id of 'a' is True"),
        ('{"a": -1}', ": the id of 'a' is -1"),
        ('{"\\ud800": 1}', "holds a lone surrogate"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_wrong_vocabulary(tmp_path: Path, text: str, reason: str) -> None:
    vocab_json = write_text(tmp_path, "vocab.json", text)
    with pytest.raises(ValueError, match=says(str(vocab_json), *reason.split(".*"))):
        read_pair(vocab_json, write_text(tmp_path, "merges.txt", ""))


def test_a_vocabulary_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_bytes(b'{\n"\xff": 1}')
    with pytest.raises(ValueError, match="line 2: not UTF-8: byte 0xff"):
        read_pair(path, write_text(tmp_path, "merges.txt", ""))


def test_a_token_of_markup_that_ends_as_words_do_elsewhere(tmp_path: Path) -> None:
    vocab = {**dict(enumerate(BYTES)), 256: b"</", 257: b"w>", 258: b"</w>"}
    merges = [(b"<", b"/"), (b"w", b">"), (b"</", b"w>")]
    special = ["<| é |>", "世"]  # which the file spells byte by byte
    tokenizer = bpe.Tokenizer(vocab, merges, pattern=None, special_tokens=special)
    tokenizer.to_gpt2(tmp_path)
    files = tmp_path / "vocab.json", tmp_path / "merges.txt"
    for names in (special, {"世": 260, "<| é |>": 259}):
        read = bpe.Tokenizer.from_gpt2(*files, pattern=None, special_tokens=names)
        assert read.data == tokenizer.data
        assert read.encode("a</w>世", allowed_special="all") == [97, 258, 260]


def test_what_gpt2_files_cannot_say_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the key 'a' stands twice"):
        bpe.Tokenizer(dict(enumerate([*BYTES, b"a"])), []).to_gpt2(tmp_path / "new")
    assert not (tmp_path / "new").exists()
