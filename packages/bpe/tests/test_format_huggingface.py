"""tokenizer.json: there and back, beside tokenizers; what is not supported is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from format_samples import TEXTS, VARIANTS, encode, peer_of, put, sample, says, write_text

import bpe
from bpe import Tokenizer, patterns
from bpe.formats import huggingface, native, reading, vocabularies


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: str(changes)[:40])
def test_huggingface_there_and_back_and_in_tokenizers(tmp_path: Path, changes: dict[str, Any]) -> None:
    data = sample(**changes)
    path = tmp_path / "tokenizer.json"
    huggingface.write(path, data)
    back = reading.read(path, "huggingface").data
    assert back._replace(pattern=back.pattern._replace(language="fancy-regex")) == data
    peer = peer_of(path)
    assert peer.get_vocab_size() == len(data.vocab)
    for text in TEXTS:
        encoding = peer.encode(text)
        assert encoding.ids == encode(data, text)
        if not (data.prefix or data.suffix or data.normalizer):
            assert peer.decode(encoding.ids, skip_special_tokens=False) == text


def test_a_space_before_the_text_is_read_as_tokenizers_writes_it(tmp_path: Path) -> None:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    steps = patterns.of_steps([byte_level, {"type": "Digits", "individual_digits": True}])
    path = tmp_path / "tokenizer.json"
    for pattern in (patterns.resolve("gpt2"), steps):
        huggingface.write(path, sample(pattern=pattern, add_prefix_space=True, special_tokens={}, added_tokens={}))
        data = reading.read(path, "huggingface").data
        assert data.add_prefix_space
        assert peer_of(path).encode("the").ids == encode(data, " the")


def saved(folder: Path, change: Callable[[dict[str, Any]], None] = lambda file: None, **changes: Any) -> Path:
    """A good tokenizer.json, changed."""
    path = folder / "tokenizer.json"
    huggingface.write(path, sample(**changes))
    file = json.loads(path.read_text(encoding="utf-8"))
    change(file)
    return write_text(folder, "tokenizer.json", json.dumps(file))


def test_both_styles_of_merges(tmp_path: Path) -> None:
    def old(file: dict[str, Any]) -> None:
        file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]

    assert (
        reading.read(saved(tmp_path, old), "huggingface").data
        == reading.read(saved(tmp_path), "huggingface").data
        == sample()
    )


def test_added_tokens_outside_the_vocabulary(tmp_path: Path) -> None:
    def outside(file: dict[str, Any]) -> None:
        for name in ("<s>", "</s>", "<tool>"):
            del file["model"]["vocab"][name]

    assert reading.read(saved(tmp_path, outside), "huggingface").data == sample()


def test_older_and_other_ways_to_say_the_same(tmp_path: Path) -> None:
    def other(file: dict[str, Any]) -> None:
        words = {"type": "Split", "pattern": {"String": "a.b"}, "behavior": "Isolated", "invert": False}
        llama = {"Regex": patterns.PATTERNS["llama3"][0]}
        file["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "Sequence", "pretokenizers": [words]},
                {"type": "Split", "pattern": llama, "behavior": "Removed", "invert": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        }
        file["normalizer"] = {"type": "Sequence", "normalizers": []}
        del file["model"]["type"], file["model"]["ignore_merges"]
        file["model"]["unk_token"] = "<s>"
        file["model"]["continuing_subword_prefix"] = ""

    path = saved(tmp_path, other)
    data = reading.read(path, "huggingface").data
    assert [step["type"] for step in json.loads(data.pattern.steps)] == ["Digits", "Split", "Split", "ByteLevel"]
    assert patterns.scanner_of(data.pattern) >= 0
    assert data.normalizer is None
    peer = peer_of(path)
    for text in [*TEXTS, "aXb a.b 12"]:
        assert peer.encode(text).ids == encode(data, text)


def test_bytes_without_tokens_and_tokens_without_bytes_are_as_in_tokenizers(tmp_path: Path) -> None:
    def fewer(file: dict[str, Any]) -> None:
        model = file["model"]
        for byte in (0xC0, 0xFF, ord("!"), ord("x")):
            del model["vocab"][vocabularies.to_printable(bytes([byte]))]
        model["vocab"] |= {"世界": 400, "th世": 401, "世": 402}
        model["merges"] += [["th", "世"]]

    path = saved(tmp_path, fewer, ignore_merges=True)
    tokenizer, peer = Tokenizer.from_huggingface(path), peer_of(path)
    tokenizer.to_huggingface(tmp_path / "written.json")
    tokenizer.save(tmp_path / "saved.bpe")
    others = [bpe.load(tmp_path / name) for name in ("written.json", "saved.bpe")]
    assert [other.data for other in others] == [tokenizer.data] * 2
    for text in ("th!!e x xx th世 世界", "!", "txhx!", "x" * 99, "世界", "!the" * 40, *TEXTS):
        ids = peer.encode(text, add_special_tokens=False).ids
        assert [t.encode(text, allowed_special="all") for t in (tokenizer, *others)] == [ids] * 3, text
    assert tokenizer.encode(b"th\xff\xc0e") == tokenizer.encode("the")
    assert tokenizer.decode([400, 401]) == peer.decode([400, 401]) == "世界th世"


def beside_an_unspelled_token(merge: Any) -> Callable[[dict[str, Any]], None]:
    def change(file: dict[str, Any]) -> None:
        file["model"]["vocab"]["世"] = 999
        file["model"]["merges"] = [merge]

    return change


def split_with(expression: str, behaviour: str = "Isolated", invert: bool = False) -> Callable[[dict[str, Any]], None]:
    step = {"type": "Split", "pattern": {"Regex": expression}, "behavior": behaviour, "invert": invert}
    last = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    return put("pre_tokenizer", value={"type": "Sequence", "pretokenizers": [step, last]})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("model", "type", value="Unigram"), "the model is 'Unigram', which is not supported: only BPE is"),
        (put("model", value=[]), "the model is []"),
        (put("model", "dropout", value=0.1), 'the model has "dropout": 0.1, which is not supported'),
        (put("model", "vocab", value=[]), 'the model BPE has "vocab": [], expected an object'),
        (put("model", "vocab", "a", value=98), "the id 98 stands twice, for 'a' and 'b'"),
        (put("model", "vocab", "a", value="x"), "the id of 'a' is 'x'"),
        (put("model", "vocab", "<s>", value=999), "'<s>' has the id 999 in the vocabulary and 300 as an added token"),
        (put("model", "vocab", value={"世": 1}), "none of its tokens stands for bytes"),
        (put("model", "merges", 0, value="a b c"), "merge 0: not two tokens with a space between: 'a b c'"),
        (put("model", "merges", 1, value=["a", ["b"]]), "merge 1: not two tokens"),
        *((beside_an_unspelled_token(merge), "merge 0: not two tokens") for merge in (5, None, [["a"], "b"])),
        (put("model", "merges", 1, value=["a", "世"]), "merge 1: '世' is not in the vocabulary"),
        (put("model", "merges", 1, value=["a", "b"]), "merge 1: b'ab' is not in the vocabulary"),
        (put("model", "merges", 1, value=["t", "h"]), "merge 1: b't' and b'h' are merged twice"),
        (put("model", "ignore_merges", value="yes"), "\"ignore_merges\": 'yes', expected true or false"),
        (put("normalizer", value={"type": "Precompiled"}), "the normalizer 'Precompiled' is not supported: only NFC,"),
        (put("normalizer", value={"type": "Prepend"}), 'the normalizer Prepend has "prepend": None, expected a text'),
        (put("normalizer", value={"type": "Sequence"}), 'a Sequence without "normalizers"'),
        (put("normalizer", value="NFC"), "without a type"),
        (put("pre_tokenizer", value=None), "the decoder ByteLevel is not supported for a vocabulary of words"),
        (put("pre_tokenizer", value={"type": "Whitespace"}), "the decoder ByteLevel is not supported"),
        (put("pre_tokenizer", value={"type": "Metaspace"}), "Metaspace without byte_fallback"),
        (split_with(r"\s+", "Merged"), "Split with the behaviour 'Merged'"),
        (split_with(r"\X"), "the pattern '\\\\X', an expression of Oniguruma: \\X, at character 2, is not supported"),
        (split_with("("), "a ( without its )"),
        (split_with(""), "Split without a pattern"),
        (put("decoder", value={"type": "WordPiece"}), "the decoder 'WordPiece' is not supported"),
        (put("post_processor", value={"type": "Unknown"}), "the post-processor 'Unknown' is not supported"),
        (put("post_processor", value={"type": "TemplateProcessing", "single": []}), "does not hold that text once"),
        *(
            (
                put("post_processor", value={"type": "TemplateProcessing", **parts}),
                "which is no special token of the file",
            )
            for parts in (
                {"single": [{"SpecialToken": {"id": "[X]"}}]},
                {"single": [{"SpecialToken": 5}]},
                {"single": [{"SpecialToken": {"id": ["<s>"]}}], "special_tokens": {}},
                {"single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}},
                {"single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {"<s>": [300]}},
                {"single": ["<s>"], "special_tokens": {"<s>": {"ids": [300]}}},
            )
        ),
        *(
            (
                put("post_processor", value={"type": "BertProcessing", "cls": token, "sep": token}),
                "BertProcessing has" if not isinstance(token, list) else "BertProcessing puts",
            )
            for token in (None, ["<s>"], [["<s>"], 300], ["<s>", 301], {"<s>": 300})
        ),
        (put("added_tokens", value={}), '"added_tokens" is no list'),
        (put("added_tokens", 0, value=1), "an added token without text"),
        (put("added_tokens", 0, "id", value=None), "the id of '<s>' is None"),
        (put("added_tokens", 0, "content", value="</s>"), "the added token '</s>' stands twice"),
        (put("added_tokens", 0, "id", value=301), "the id 301 stands twice, for '<s>' and '</s>'"),
        (put("added_tokens", 0, "lstrip", value=1), "'lstrip': 1"),
        (put("added_tokens", 0, "single_word", value="no"), "'single_word': 'no'"),
    ],
)
def test_what_is_not_supported_or_wrong_is_refused_by_name(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    path = saved(tmp_path, change)
    with pytest.raises(ValueError, match=says(f"{path}: ", reason)):
        reading.read(path, "huggingface")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"merges": None}, "needs a list of merges"),
        ({"vocab": sample().vocab | {999: b"a"}}, "the ids 97 and 999 would both be spelled 'a'"),
        ({"pattern": patterns.Pattern(None, (r"\s+$",))}, "reads it differently"),
        ({"pattern": patterns.Pattern(None, (r"a\Z",))}, "cannot express the pattern"),
        ({"pattern": patterns.resolve("llama3"), "add_prefix_space": True}, "only under the gpt2 pattern or none"),
        ({"special_tokens": {"<x>": 97}}, "give another tokenizer"),
        ({"normalizer": "Lowercase"}, "the normalizer 'Lowercase' is not supported"),
        ({"prefix": ("<tool>",)}, "which is no special token of the file"),
        ({"special_tokens": {"<s>": 300, "<x>": 300}}, "give another tokenizer"),
        ({"merges": [(b"x", b"y")]}, "b'xy' is not in the vocabulary"),
    ],
)
def test_what_a_tokenizer_json_cannot_say_is_not_written(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=says("", reason)):
        huggingface.write(tmp_path / "tokenizer.json", sample(**changes))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kinds", [("plain",), ("prefix",), ("plain", "prefix"), ()])
@pytest.mark.parametrize("around", [(), ("<s>",)])
def test_offsets_that_leave_out_white_space_do_so_when_written(
    tmp_path: Path, kinds: tuple[str, ...], around: tuple[str, ...]
) -> None:
    steps: list[dict[str, Any]] = [
        {"type": "ByteLevel", "add_prefix_space": kind == "prefix", "trim_offsets": True, "use_regex": False}
        for kind in kinds
    ]
    roberta = {"type": "RobertaProcessing", "sep": ["<s>", 300], "cls": ["</s>", 301], "trim_offsets": False}
    steps += [{**roberta, "add_prefix_space": False}] * len(around)
    path = saved(
        tmp_path, put("post_processor", value={"type": "Sequence", "processors": steps}), add_prefix_space=True
    )
    data, peer = reading.read(path, "huggingface").data, peer_of(path)
    assert data.trim_offsets == kinds
    huggingface.write(tmp_path / "written.json", data)
    native.write(tmp_path / "saved.bpe", data)
    assert (
        reading.read(tmp_path / "written.json", "huggingface").data
        == reading.read(tmp_path / "saved.bpe", "native").data
        == data
    )
    for text in (*TEXTS, "the  the", "  the ", "a"):
        theirs, output = peer.encode(text), peer_of(tmp_path / "written.json").encode(text)
        assert (output.ids, output.offsets) == (theirs.ids, theirs.offsets)


def test_truncation_and_padding_are_kept_and_said_to_be_unused(tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    path = saved(tmp_path, put("truncation", value=truncation))
    with pytest.warns(UserWarning, match="its truncation are kept|its truncation"):
        data = reading.read(path, "huggingface").data
    assert len(encode(data, "the the the the")) > 3
    huggingface.write(path, data)
    assert json.loads(path.read_text(encoding="utf-8"))["truncation"] == truncation


@pytest.mark.parametrize("kind", ["BertProcessing", "RobertaProcessing", "TemplateProcessing"])
def test_templates_of_two_texts(tmp_path: Path, kind: str) -> None:
    parts = [{"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}}]
    single = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    step: dict[str, Any] = {
        "BertProcessing": {"cls": ["<s>", 300], "sep": ["</s>", 301]},
        "RobertaProcessing": {
            "cls": ["<s>", 300],
            "sep": ["</s>", 301],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
        "TemplateProcessing": {
            "single": single,
            "pair": [*parts, {"Sequence": {"id": "A", "type_id": 1}}],
            "special_tokens": {
                name: {"id": name, "ids": [number], "tokens": [name]} for name, number in (("<s>", 300), ("</s>", 301))
            },
        },
    }[kind]
    path = saved(tmp_path, put("post_processor", value={"type": kind, **step}))
    tokenizer = Tokenizer.from_huggingface(path)
    peer = peer_of(path)
    one, other = tokenizer.encode("the 12"), tokenizer.encode("é")
    assert tokenizer.post_process(one) == peer.encode("the 12").ids
    assert tokenizer.post_process(one, other) == peer.encode("the 12", "é").ids
    tokenizer.to_huggingface(path)
    assert peer_of(path).encode("the 12", "é").ids == tokenizer.post_process(one, other)
