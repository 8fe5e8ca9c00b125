"""The normal forms of Unicode, and the places of what they change, beside tokenizers."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from format_samples import sample
from tokenizers import Tokenizer as Peer
from tokenizers import normalizers

import bpe
from bpe.encoding.normal_forms import in_form, normalized
from bpe.formats import huggingface
from bpe.scanning.special_tokens import SpecialTokens

FORMS = {form: getattr(normalizers, form)() for form in ("NFC", "NFD", "NFKC", "NFKD")}
MARKS = "\u0300\u0301\u0302\u0323\u0327\u0345\u0334\u093c\u0e48\u0e38\u064b\u0651\u3099"
PARTS = [
    *"ab eAO\n<é가각각ﬁ①ﷺΩ中か",
    *MARKS,
    "\u1100\u1161\u11a8",
    "\u0958",
    "\u0344",
    "ǖ",
    "ệ",
    "\U0001d15e",
    "\U0001f600",
    "x" * 40,
]
NONE = SpecialTokens()


def formed(text: str, form: str) -> tuple[str, str]:
    """The form of a str, and that of its bytes, both as str."""
    of_str, of_bytes = in_form(text, form, NONE), normalized(text.encode(), form)
    return of_str if isinstance(of_str, str) else of_str.decode(), text if of_bytes is None else of_bytes.decode()


@pytest.mark.parametrize("form", FORMS)
def test_every_character_by_itself_and_among_marks(form: str) -> None:
    codes = [*range(0xD800), *range(0xE000, 0x20000), *range(0x2F7F0, 0x2FA30), *range(0xE0000, 0xE0200), 0x10FFFF]
    for before, after in (("", "a"), ("e\u0323", "\u0301"), ("a\u0345", "\u0334b")):
        text = "".join(f"{before}{chr(code)}{after}" for code in codes)
        assert formed(text, form) == (FORMS[form].normalize_str(text),) * 2


@pytest.mark.parametrize("form", FORMS)
def test_texts_of_letters_and_marks_in_any_order(form: str) -> None:
    chance = random.Random(form)
    for _ in range(3000):
        text = "".join(chance.choice(PARTS) for _ in range(chance.randrange(1, 40)))
        assert formed(text, form) == (FORMS[form].normalize_str(text),) * 2, ascii(text)
    letters = "xe\u0323\u0302\U0001f600\u1112\u1161\u11abi\u0301\u0308中é" * 20
    for end in range(60, 150):  # marks on both sides of the end of a block, of two bytes a character and of four
        for text in (letters[:end], letters[:end].replace("\U0001f600", "a")):
            assert formed(text, form) == (FORMS[form].normalize_str(text),) * 2, ascii(text)
    for text in ("a" + "\u0301\u0323" * 5000, "\u0301" * 999, "ﷺ" * 99, "가" * 999 + "\u11a8"):
        assert formed(text, form) == (FORMS[form].normalize_str(text),) * 2


@pytest.mark.parametrize("form", FORMS)
def test_bytes_that_are_no_text_stay_as_they_are(form: str) -> None:
    for broken in (b"\xff", b"\xc3", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xcc", b"\xf0\x9f\x98"):
        whole = b"e\xcc\x81" + broken + b"\xcc\x81\xcc\xa3" + broken
        left, right = (normalized(part, form) or part for part in (b"e\xcc\x81", b"\xcc\x81\xcc\xa3"))
        assert (normalized(whole, form) or whole) == left + broken + right + broken
    assert in_form("e\u0301é\ud800", form, NONE) is None
    assert in_form("plain", form, NONE) == "plain"
    assert normalized(b"", form) is None


@pytest.mark.parametrize("form", FORMS)
def test_a_special_token_is_seen_where_the_form_hides_or_makes_it(form: str) -> None:
    special = SpecialTokens(["<a>", "==", " "], [1, 2, 3])
    for text in ("é<a>e\u0301", "é<a>\u0338", "é==\u0323\u0338", "e\u0301 ", "＝＝é", "é<\u0338a>"):
        holds = special.search(text.encode()) or special.search(FORMS[form].normalize_str(text).encode())
        unchanged = FORMS[form].normalize_str(text) == text
        assert (in_form(text, form, special) is None) == (holds is not None and not unchanged), ascii(text)
    marks = [chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code)).startswith("M")]
    for symbol in map(chr, [*range(48), *range(58, 65), *range(91, 97), *range(123, 128)]):
        text = "a".join(symbol + mark for mark in marks if mark != "\u0338")
        assert FORMS[form].normalize_str(text).count(symbol) >= len(marks) - 1


STEPS: list[dict[str, Any]] = [
    *({"type": form} for form in FORMS),
    {"type": "Lowercase"},
    {"type": "StripAccents"},
    {"type": "Nmt"},
    {"type": "Prepend", "prepend": "_a"},
    {"type": "Replace", "pattern": {"String": "ab"}, "content": "é "},
    {"type": "Replace", "pattern": {"Regex": " +|e"}, "content": ""},
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
]


def options(chance: random.Random) -> dict[str, bool]:
    return {flag: chance.random() < 0.5 for flag in ("lstrip", "rstrip", "single_word", "normalized", "special")}


@pytest.mark.parametrize("seed", range(12))
def test_ids_and_places_of_a_changed_text_are_those_of_tokenizers(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "tokenizer.json"
    huggingface.write(path, sample(special_tokens={}, added_tokens={}))
    file = json.loads(path.read_text())
    file["normalizer"] = {"type": "Sequence", "normalizers": chance.sample(STEPS, chance.randrange(1, 4))}
    file["pre_tokenizer"]["add_prefix_space"] = seed % 3 == 0
    for number, text in enumerate(chance.sample(["\n\n\n", "<X>", " <y>", "a b", "<x>  ", "ab", "e\u0301"], 3), 400):
        file["model"]["vocab"][text] = number
        file["added_tokens"].append({"id": number, "content": text, **options(chance)})
    path.write_text(json.dumps(file))
    tokenizer, peer = bpe.load(path), Peer.from_file(str(path))
    for _ in range(60):
        text = "".join(
            chance.choice([*PARTS, "\n\n\n", "<X>", "<y>", "th", "the "]) for _ in range(chance.randrange(20))
        )
        try:
            encoding = peer.encode(text, add_special_tokens=False)
        except BaseException:
            continue
        ids = tokenizer.encode(text, allowed_special="all")
        assert ids == encoding.ids, ascii(text)
        expected = ids, [begin for begin, _ in encoding.offsets]
        assert tokenizer.encode_with_offsets(text, allowed_special="all") == expected, ascii(text)
        of_bytes = tokenizer.encode_with_offsets(text.encode(), allowed_special="all")
        begins = [len(text.encode()[:at].decode("utf-8", "ignore")) for at in of_bytes[1]]
        assert (of_bytes[0], begins) == expected
        assert tokenizer.encode_batch([text, text.encode()], allowed_special="all") == [ids, ids]


@pytest.mark.parametrize("normalizer", [None, "NFKC"])
def test_texts_without_a_flagged_token_and_with_one(tmp_path: Path, normalizer: str | None) -> None:
    data = sample(normalizer=normalizer, lstrip=frozenset({"<tool>"}), rstrip=frozenset({"<s>"}))
    huggingface.write(tmp_path / "tokenizer.json", data)
    tokenizer, peer = bpe.load(tmp_path / "tokenizer.json"), Peer.from_file(str(tmp_path / "tokenizer.json"))
    texts = ["plain the", "é the", "ﬁe\u0301", "a <tool> b", "<s>  é", "＜tool＞ é", "<s", "é <tool>", "the " * 300, ""]
    expected = [peer.encode(text, add_special_tokens=False).ids for text in texts]
    assert [tokenizer.encode(text, allowed_special="all") for text in texts] == expected
    assert [tokenizer.encode(text.encode(), allowed_special="all") for text in texts] == expected
    assert tokenizer.encode_batch(texts, allowed_special="all") == expected
    assert tokenizer.encode_ordinary("é <s> x") == tokenizer.encode("é <s> x", disallowed_special=())
    with pytest.raises(ValueError, match="disallowed special token"):
        tokenizer.encode("é <s>")
    for one in (tokenizer, bpe.Tokenizer.from_data(sample(normalizer=normalizer))):
        assert one.encode("\ud800e\u0301") == one.encode("\ufffd\u00e9" if normalizer else "\ufffde\u0301")


def test_a_token_that_normalizes_to_the_text_of_another_has_its_own_flags(tmp_path: Path) -> None:
    data = sample(
        normalizer='[{"type": "Lowercase"}]',
        added_tokens={"Foo": 400, "foo": 401},
        normalized=frozenset({"foo"}),
        rstrip=frozenset({"Foo"}),
    )
    data = data._replace(vocab={**data.vocab, 400: b"Foo", 401: b"foo"})
    assert bpe.Tokenizer.from_data(data).encode("foo a Foo  b") == [401, 32, 97, 32, 400, 98]


@pytest.mark.parametrize("late", [frozenset({"  ", "    "}), frozenset({"  ", "e\u0301"})])
def test_tokens_that_are_looked_for_in_the_normal_form(tmp_path: Path, late: frozenset[str]) -> None:
    numbers = dict(zip(sorted(late), (400, 401), strict=True))
    data = sample(normalizer="NFC", added_tokens=numbers, normalized=late)
    # tokenizers spells such a token in its normal form
    spelled = {number: unicodedata.normalize("NFC", text).encode() for text, number in numbers.items()}
    data = data._replace(vocab=data.vocab | spelled)
    huggingface.write(tmp_path / "tokenizer.json", data)
    tokenizer, peer = bpe.load(tmp_path / "tokenizer.json"), Peer.from_file(str(tmp_path / "tokenizer.json"))
    assert (tokenizer._text_encoder.form is not None) == ("    " in late)
    chance = random.Random(1)
    for _ in range(300):
        text = "".join(chance.choice([*PARTS, " ", "  ", "    ", "<s>", "é", "e\u0301"]) for _ in range(8))
        expected = peer.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, allowed_special="all") == expected, ascii(text)
        assert tokenizer.encode(text.encode(), allowed_special="all") == expected
        assert list(tokenizer.encode_iterable([*text], allowed_special="all")) == expected
        session = tokenizer.encode_session(allowed_special="all")
        assert session.append(text[:5]) == (0, tokenizer.encode(text[:5], allowed_special="all"))
        session.append(text[5:])
        assert session.ids.tolist() == expected


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_texts_in_a_form_are_encoded_alike_by_every_call(form: str) -> None:
    tokenizer = bpe.Tokenizer.from_data(sample(normalizer=form, added_tokens={}))
    texts = [
        "plain",
        "é",
        "e\u0301 the",
        "<s>e\u0301</s>",
        "＜s＞e\u0301",
        "the\u0301 " * 400,
        "e\u0301\ud800",
        "<s>é",
        "",
    ]
    for text in texts:
        ids = tokenizer.encode(text, allowed_special="all")
        repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        parts = [FORMS[form].normalize_str(part) for part in repaired.replace("<s>", "\0<s>\0").split("\0")]
        plain = bpe.Tokenizer.from_data(sample(added_tokens={}))
        kinds = ({"<s>", "</s>"} if part == "<s>" or "</s>" in part else set() for part in parts)
        assert ids == [
            number
            for part, kind in zip(parts, kinds, strict=True)
            for number in plain.encode(part, allowed_special=kind, disallowed_special=())
        ]
        if "\ud800" not in text:
            assert tokenizer.encode(text.encode(), allowed_special="all") == ids
            assert tokenizer.encode_to_numpy(text, allowed_special="all").tolist() == ids
    assert (
        tokenizer.encode_batch(texts * 3, allowed_special="all")
        == [tokenizer.encode(t, allowed_special="all") for t in texts] * 3
    )
    with pytest.raises(ValueError, match="disallowed special token"):
        tokenizer.encode_batch(["e\u0301<s>"])
