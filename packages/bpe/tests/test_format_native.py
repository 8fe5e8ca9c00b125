"""Our own format: there and back, and damaged or altered files refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from format_samples import BYTES, VARIANTS, put, sample, says, tokens, write_text
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe import patterns
from bpe.formats import MAX_ID, TokenizerData, native, reading


def everything() -> TokenizerData:
    return sample(
        pattern=patterns.resolve((r"\d", r"\s+")),
        ignore_merges=True,
        normalized=frozenset({"<tool>"}),
        normalizer="NFC",
        prefix=("<s>",),
        suffix=("</s>", "</s>"),
        name="everything",
    )


@pytest.mark.parametrize(
    "data", [*(sample(**changes) for changes in VARIANTS), everything(), sample(merges=None)], ids=str
)
def test_native_there_and_back(tmp_path: Path, data: TokenizerData) -> None:
    path = tmp_path / "tok.json"
    native.write(path, data)
    assert reading.read(path, "native").data == data


@settings(max_examples=30, deadline=None)
@given(extra=tokens, gap=st.integers(0, MAX_ID - 300), special=st.text(st.characters(codec="utf-8"), min_size=1))
def test_native_there_and_back_for_any_tokens(
    tmp_path_factory: Any, extra: list[bytes], gap: int, special: str
) -> None:
    vocab = (
        dict(enumerate(BYTES))
        | {256 + gap + place: token for place, token in enumerate(extra)}
        | {MAX_ID: special.encode()}
    )
    merges = [(token[:1], token[1:]) for token in extra if len(token) == 2]
    data = TokenizerData(vocab, merges, {special: MAX_ID}, patterns.resolve("o200k"))
    path = tmp_path_factory.mktemp("written") / "any.json"
    native.write(path, data)
    assert reading.read(path, "native").data == data


def test_the_same_tokenizer_gives_the_same_bytes(tmp_path: Path) -> None:
    data = everything()
    shuffled = data._replace(
        vocab=dict(reversed(data.vocab.items())), special_tokens=dict(reversed(data.special_tokens.items()))
    )
    native.write(tmp_path / "a", data)
    native.write(tmp_path / "b", shuffled)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert native.fingerprint(data) == native.fingerprint(shuffled) == native.fingerprint(data._replace(name="other"))
    assert native.fingerprint(data) != native.fingerprint(data._replace(ignore_merges=False))
    assert native.fingerprint(data) != native.fingerprint(data._replace(pattern=patterns.resolve("gpt2")))


def test_two_special_tokens_may_share_an_id(tmp_path: Path) -> None:
    data = sample(special_tokens={"<s>": 300, "<other>": 300, "</s>": 301})
    native.write(tmp_path / "tok.json", data)
    assert reading.read(tmp_path / "tok.json", "native").data == data


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tok.json"
    native.write(path, everything())
    whole = path.read_bytes()
    for length in [*range(0, len(whole) - 1, 97), len(whole) - 2]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}.*: not (JSON|UTF-8)"):
            reading.read(path, "native")


def test_a_file_altered_anywhere_is_refused_or_still_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tok.json"
    native.write(path, everything())
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert reading.read(path, "native").data == everything()
        except ValueError as error:
            assert str(error).startswith(str(path))  # noqa: PT017  (either outcome is right)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A saved tokenizer, its content changed by someone who knows how the checksum is made."""
    path = folder / "tok.json"
    native.write(path, everything())
    file = json.loads(path.read_text(encoding="utf-8"))
    change(file["tokenizer"])
    file["sha256"] = native._checksum(file["tokenizer"])
    return write_text(folder, "tok.json", json.dumps(file))


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ({"version": 1}, "not a tokenizer saved by this package"),
        ([], "not a tokenizer saved by this package"),
        ({"format": "groundup-bpe", "version": 2}, "written in version 2 of the format; this package reads 1"),
        ({"format": "groundup-bpe", "version": "1"}, "a whole number from 1, not '1'"),
        ({"format": "groundup-bpe", "version": 1}, "altered since it was written"),
        ({"format": "groundup-bpe", "version": 1, "tokenizer": {}, "sha256": "00"}, "altered since it was written"),
        ({"format": "groundup-bpe", "version": 1, "tokenizer": {"a": "\ud800"}, "sha256": ""}, "lone surrogate"),
    ],
)
def test_a_file_that_is_none_of_ours(tmp_path: Path, file: Any, reason: str) -> None:
    path = write_text(tmp_path, "tok.json", json.dumps(file))
    with pytest.raises(ValueError, match=says(f"{path}: ", reason)):
        reading.read(path, "native")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("vocab", value=None), "\"vocab\" is 'None'"),
        (put("vocab", 0, value=7), '"vocab" is'),
        (put("vocab", 0, value="世"), "'世' spells no token"),
        (put("vocab", 0, value=""), "'' spells no token"),
        (put("vocab", 0, value="a"), "no token for byte 0x00"),
        (put("ids", value=[1]), '"ids" is'),
        (put("ids", 0, value="0"), "the id of 'Ā' is '0'"),
        (put("ids", 0, value=1), "the id 1 stands twice"),
        (put("merges", value="t h"), '"merges" is'),
        (put("merges", 0, value="th"), "merge 0: not two tokens"),
        (put("merges", 0, value="q q"), "b'qq' is not in the vocabulary"),
        (put("special_tokens", value=["<s>"]), '"special_tokens" is'),
        (put("special_tokens", value={"<s>": -1}), '"special_tokens" is'),
        (put("special_tokens", "</s>", value=97), "the token '</s>' has the id 97, which the vocabulary gives to b'a'"),
        (put("added_tokens", "<s>", value=300), "'<s>' is a special token and an added one"),
        (put("late_tokens", value=["<x>"]), '"late_tokens" is'),
        (put("prefix", value=["<tool>"]), '"prefix" is'),
        (put("suffix", value="</s>"), '"suffix" is'),
        (put("pattern", value=None), '"pattern" is'),
        (put("pattern", value="gpt9"), "no split pattern is named 'gpt9'"),
        (put("pattern", value=["("]), "does not compile"),
        (put("whole_first", value=1), '"whole_first" is'),
        (put("normalizer", value="Lowercase"), '"normalizer" is'),
        (put("name", value=5), '"name" is'),
        (lambda body: body.pop("suffix"), '"suffix" is missing'),
    ],
)
def test_content_of_the_wrong_kind_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    path = rewritten(tmp_path, change)
    with pytest.raises(ValueError, match=says(f"{path}: ", reason)):
        reading.read(path, "native")


def test_what_would_not_come_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gives to b'a'"):
        native.write(tmp_path / "tok.json", sample(special_tokens={"<s>": 97}))
    with pytest.raises(ValueError, match=r"the normalizer .* is not supported"):
        native.write(tmp_path / "tok.json", sample(normalizer="Lowercase"))
    assert not list(tmp_path.iterdir())
