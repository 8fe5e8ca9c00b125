"""Every format: there and back, against the programs whose formats they are, and wrong files refused by name."""

from __future__ import annotations

import base64
import json
import os
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe import patterns, reference
from bpe.formats import MAX_ID, TokenizerData, gpt2, huggingface, native
from bpe.formats import tiktoken as tiktoken_format
from bpe.native.atomic_file import write_atomically

BYTES = [bytes([byte]) for byte in range(256)]
MERGES = [(b"t", b"h"), (b" ", b"th"), (b" th", b"e"), (b"#", b"#"), (b"\xc3", b"\xa9"), (b" ", b" "), (b"1", b"2")]
TEXTS = [
    "",
    "the  ##12 é e\u0301 the\n\n THE it's 12345",
    "<s>the</s> <tool> 世界 \x1c\x85 \n \n  ",
    " <tool><s>é<s",
]

data_folder = os.environ.get("GROUNDUP_DATA")
needs_data = pytest.mark.skipif(
    data_folder is None, reason="GROUNDUP_DATA names no folder with the published vocabularies"
)


def vocabulary(folder_file: str) -> Path:
    assert data_folder is not None
    return Path(data_folder, "vocab", folder_file)


def sample(**changes: Any) -> TokenizerData:
    """A small tokenizer with something of everything."""
    tokens = [*BYTES, *(left + right for left, right in MERGES), b" unreached"]
    vocab = dict(enumerate(tokens)) | {300: b"<s>", 301: b"</s>", 310: b"<tool>"}
    data = TokenizerData(
        vocab=vocab,
        merges=list(MERGES),
        special_tokens={"<s>": 300, "</s>": 301},
        pattern=patterns.resolve("gpt2"),
        added_tokens={"<tool>": 310},
    )
    return data._replace(**changes)


def encode(data: TokenizerData, text: str) -> list[int]:
    """The ids of text as reference.py has them."""
    cut_out = data.special_tokens | data.added_tokens
    cut_out_ids = set(cut_out.values())
    ids = {token: number for number, token in data.vocab.items() if number not in cut_out_ids}
    merges = None if data.merges is None else reference.rank_merges(data.merges)

    def encode_pretoken(pretoken: bytes) -> list[int]:
        if merges is None:
            return reference.encode_pretoken_by_ranks(pretoken, ids, ignore_merges=data.ignore_merges)
        return reference.encode_pretoken_by_merges(pretoken, merges, ids, ignore_merges=data.ignore_merges)

    if data.normalizer == "NFC":
        text = unicodedata.normalize("NFC", text)
    body = reference.encode(text.encode(), encode_pretoken, pattern=data.pattern, special_tokens=cut_out)
    return [data.special_tokens[n] for n in data.prefix] + body + [data.special_tokens[n] for n in data.suffix]


def says(*parts: str) -> str:
    """An expression for a message that begins with the first part and goes on to hold the others."""
    return "(?s)^" + ".*".join(map(re.escape, parts))


def write_text(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


# .tiktoken

RANKS = {token: number for number, token in enumerate([*BYTES, b"th", b" the", "é".encode()])}


def lines_of(ranks: dict[bytes, int]) -> list[str]:
    return [f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks.items()]


def test_tiktoken_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "vocab.tiktoken"
    ranks = {**RANKS, b"gap": 5000}
    tiktoken_format.write(path, ranks)
    assert path.read_bytes().startswith(b"AA== 0\nAQ== 1\n")
    assert tiktoken_format.read(path) == tiktoken_format.read(str(path)) == ranks
    load = pytest.importorskip("tiktoken.load", reason="reads the file with tiktoken itself")
    assert load.load_tiktoken_bpe(str(path)) == ranks


def test_tiktoken_in_any_order_with_blank_lines_and_windows_line_ends(tmp_path: Path) -> None:
    path = write_text(tmp_path, "x.tiktoken", "\r\n".join(reversed(lines_of(RANKS))) + "\r\n\r\n")
    assert tiktoken_format.read(path) == RANKS


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("dGhl", "not a token in base64, a space and a rank: b'dGhl'"),
        ("dGhl 259 1", "not a token in base64"),
        (" 259", "not a token in base64"),
        ("dGh 259", "not base64: b'dGh'"),
        ("d*Gh 259", "not base64"),
        ("dGhl x", "a rank is a whole number from 0 to 2147483647, not b'x'"),
        ("dGhl -1", "not b'-1'"),
        ("dGhl 2147483648", "not b'2147483648'"),
        ("dGhl " + "9" * 5000, "a rank is a whole number"),
        ("dGg= 259", "the token b'th' stands twice, with ranks 256 and 259"),
        ("dGhl 97", "the rank 97 stands twice, for b'a' and b'the'"),
    ],
)
def test_a_wrong_tiktoken_file(tmp_path: Path, line: str, reason: str) -> None:
    path = write_text(tmp_path, "x.tiktoken", "\n".join([*lines_of(RANKS), line]) + "\n")
    with pytest.raises(ValueError, match=says(f"{path}, line 260: ", reason)):
        tiktoken_format.read(path)


def test_a_tiktoken_file_without_some_bytes(tmp_path: Path) -> None:
    path = write_text(tmp_path, "x.tiktoken", "\n".join(lines_of(RANKS)[:200]))
    with pytest.raises(ValueError, match="no token for byte 0xc8 and 55 other bytes"):
        tiktoken_format.read(path)
    with pytest.raises(ValueError, match="no token for byte 0x00"):
        tiktoken_format.read(write_text(tmp_path, "empty.tiktoken", ""))
    with pytest.raises(ValueError, match="no token for byte 0xff"):
        tiktoken_format.write(tmp_path / "not.tiktoken", {token: rank for token, rank in RANKS.items() if rank != 255})
    assert not (tmp_path / "not.tiktoken").exists()


small_ranks = st.lists(st.text(alphabet="ab", min_size=2, max_size=5), unique=True, max_size=12)


@settings(max_examples=150, deadline=None)
@given(tokens=small_ranks, text=st.text(alphabet="ab", min_size=1, max_size=12))
def test_merges_from_ranks_encode_as_the_ranks_do(tokens: list[str], text: str) -> None:
    ranks = {token: number for number, token in enumerate([b"a", b"b", *(t.encode() for t in sorted(tokens, key=len))])}
    merges = reference.rank_merges(tiktoken_format.merges_from_ranks(ranks))
    pretoken = text.encode()
    by_merges = reference.encode_pretoken_by_merges(pretoken, merges, ranks, ignore_merges=True)
    assert by_merges == reference.encode_pretoken_by_ranks(pretoken, ranks)


# vocab.json and merges.txt


def test_every_byte_has_a_printable_stand_in_of_its_own() -> None:
    assert gpt2.to_printable(b"a \n\x00\xff\xad") == "aĠĊĀÿŃ"
    assert [gpt2.from_printable(character) for character in gpt2.PRINTABLE] == BYTES
    for other in {*map(chr, range(0x180)), "世", "\ud800"} - set(gpt2.PRINTABLE):
        assert gpt2.from_printable("a" + other) is None
    tokenizers = pytest.importorskip("tokenizers", reason="compares with the alphabet of tokenizers")
    assert sorted(gpt2.PRINTABLE) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def test_gpt2_there_and_back(tmp_path: Path) -> None:
    data = sample()
    assert data.merges is not None
    gpt2.write(tmp_path / "new", data.vocab, data.merges)
    vocab_json, merges_txt = tmp_path / "new" / "vocab.json", tmp_path / "new" / "merges.txt"
    assert gpt2.read(vocab_json, merges_txt) == (data.vocab, data.merges)
    assert merges_txt.read_text(encoding="utf-8").startswith("#version: 0.2\nt h\nĠ th\n")
    tokenizers = pytest.importorskip("tokenizers", reason="reads the files with tokenizers itself")
    peer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocab_json), str(merges_txt)))
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain = data._replace(special_tokens={}, added_tokens={})
    for text in TEXTS:
        assert peer.encode(text).ids == encode(plain, text)


def spelled(tokens: dict[int, bytes]) -> dict[str, int]:
    return {gpt2.to_printable(token): number for number, token in tokens.items()}


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
    assert gpt2.read(vocab_json, write_text(tmp_path, "merges.txt", text)) == (vocab, merges)


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
        ("t hh\n", 1, "b'hh' is not in the vocabulary"),
        ("t h\n#version: 0.2\n", 2, "b'#version:' is not in the vocabulary"),
    ],
)
def test_wrong_merges(tmp_path: Path, text: str, line: int, reason: str) -> None:
    vocab_json = write_text(tmp_path, "vocab.json", json.dumps(spelled(dict(enumerate([*BYTES, b"th", b"##"])))))
    merges_txt = write_text(tmp_path, "merges.txt", text)
    with pytest.raises(ValueError, match=says(f"{merges_txt}, line {line}: ", reason)):
        gpt2.read(vocab_json, merges_txt)


ALL = json.dumps(spelled(dict(enumerate(BYTES))))[1:-1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ", line 1: not JSON: .* (the file may be cut short)"),
        ('{"a": 1, "b', ", line 1: not JSON: "),
        ('{"a": 1,', "(the file may be cut short)"),
        ("{\n\n]", ", line 3: not JSON: "),
        ("[1, 2]", ": a vocabulary is an object of tokens and ids, not list"),
        ('{"a": 1}', ": not a whole byte-level vocabulary: no token for byte 0x00 and 254 other bytes"),
        ('{"a": 1, "a": 2}', ": the key 'a' stands twice in one object"),
        ('{"a": 1, "b": 1}', ": the id 1 stands twice, for 'a' and 'b'"),
        ('{"a": "1"}', ": the id of 'a' is '1': ids are whole numbers from 0 to 2147483647"),
        ('{"a": 1.0}', ": the id of 'a' is 1.0"),
        ('{"a": true}', ": the id of 'a' is True"),
        ('{"a": -1}', ": the id of 'a' is -1"),
        ('{"": 1}', ": an empty token"),
        (f'{{{ALL}, "世": 256, "ä¸ĸ": 257}}', r": the token b'\xe4\xb8\x96' stands twice, with ids 256 and 257"),
        ('{"\\ud800": 1}', "holds a lone surrogate"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_wrong_vocabulary(tmp_path: Path, text: str, reason: str) -> None:
    vocab_json = write_text(tmp_path, "vocab.json", text)
    with pytest.raises(ValueError, match=says(str(vocab_json), *reason.split(".*"))):
        gpt2.read(vocab_json, write_text(tmp_path, "merges.txt", ""))


def test_a_vocabulary_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    path.write_bytes(b'{\n"\xff": 1}')
    with pytest.raises(ValueError, match="line 2: not UTF-8: byte 0xff"):
        gpt2.read(path, write_text(tmp_path, "merges.txt", ""))


def test_what_gpt2_files_cannot_say_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the key 'a' stands twice"):
        gpt2.write(tmp_path / "new", dict(enumerate([*BYTES, b"a"])), [])
    assert not (tmp_path / "new").exists()


# tokenizer.json


def peer_of(path: Path) -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="reads the file with tokenizers itself")
    return tokenizers.Tokenizer.from_file(str(path))


VARIANTS: list[dict[str, Any]] = [
    {},
    {"ignore_merges": True},
    {"normalizer": "NFC"},
    {"prefix": ("<s>",)},
    {"prefix": ("<s>", "<s>"), "suffix": ("</s>",)},
    {"normalized": frozenset({"<tool>"})},
    {"pattern": patterns.resolve(None)},
    {"pattern": patterns.resolve(r"\d")},
    {"special_tokens": {}, "added_tokens": {}, "merges": []},
    *({"pattern": patterns.resolve(name)} for name in patterns.PATTERNS),
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: str(changes)[:40])
def test_huggingface_there_and_back_and_in_tokenizers(tmp_path: Path, changes: dict[str, Any]) -> None:
    data = sample(**changes)
    path = tmp_path / "tokenizer.json"
    huggingface.write(path, data)
    assert huggingface.read(path) == data
    peer = peer_of(path)
    assert peer.get_vocab_size() == len(data.vocab)
    for text in TEXTS:
        encoding = peer.encode(text)
        assert encoding.ids == encode(data, text)
        if not (data.prefix or data.suffix or data.normalizer):
            assert peer.decode(encoding.ids, skip_special_tokens=False) == text


def test_a_space_before_the_text_is_read_as_tokenizers_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    huggingface.write(path, sample(add_prefix_space=True, special_tokens={}, added_tokens={}))
    data = huggingface.read(path)
    assert data.add_prefix_space
    assert peer_of(path).encode("the").ids == encode(data, " the")


@settings(max_examples=60, deadline=None)
@given(text=st.lists(st.sampled_from([*"the #12\n'", "é", "e\u0301", "<s>", "<tool>", "  "])).map("".join))
def test_what_is_written_encodes_as_in_tokenizers(tmp_path_factory: Any, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "written.json"
    data = sample(normalizer="NFC", ignore_merges=True, pattern=patterns.resolve("qwen2"))
    if not path.exists():
        huggingface.write(path, data)
    assert peer_of(path).encode(text).ids == encode(data, text)


def test_what_tokenizers_trains_is_read(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="reads what tokenizers has trained")
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    peer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = (Path(__file__)).read_text(encoding="utf-8")
    peer.train_from_iterator([text], trainer)
    path = tmp_path / "tokenizer.json"
    peer.save(str(path))
    data = huggingface.read(path)
    assert data.special_tokens == {"<s>": 0, "</s>": 1}
    assert data.pattern.name == "gpt2"
    counts = reference.count_pretokens([text.encode()], "gpt2", [])
    expected = reference.train(counts, 300, special_tokens=["<s>", "</s>"], tie_break="huggingface")
    assert (data.vocab, data.merges) == expected
    assert peer.encode(text).ids == encode(data, text)


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

    assert huggingface.read(saved(tmp_path, old)) == huggingface.read(saved(tmp_path)) == sample()


def test_added_tokens_outside_the_vocabulary(tmp_path: Path) -> None:
    def outside(file: dict[str, Any]) -> None:
        for name in ("<s>", "</s>", "<tool>"):
            del file["model"]["vocab"][name]

    assert huggingface.read(saved(tmp_path, outside)) == sample()


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
    data = huggingface.read(path)
    assert data.pattern == patterns.Pattern(None, (r"\p{N}", r"a\.b", patterns.PATTERNS["llama3"][0]))
    assert data.normalizer is None
    peer = peer_of(path)
    for text in [*TEXTS, "aXb a.b 12"]:
        assert peer.encode(text).ids == encode(data, text)


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(file: Any) -> None:
        for key in path[:-1]:
            file = file[key]
        file[path[-1]] = value

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
        (put("model", "end_of_word_suffix", value="</w>"), "</w>"),
        (put("model", "vocab", value=[]), "the model has no"),
        (put("model", "vocab", "a", value=98), "the id 98 stands twice, for b'a' and 'b'"),
        (put("model", "vocab", "a", value="x"), "the id of 'a' is 'x'"),
        (put("model", "vocab", "▁the", value=999), "the token '▁the' has a character that stands for no byte"),
        (put("model", "vocab", "<s>", value=999), "'<s>' has the id 999 in the vocabulary and 300 as an added token"),
        (put("model", "vocab", value={"a": 1}), "no token for byte 0x00"),
        (put("model", "merges", 0, value="a b c"), "merge 0: not two tokens with a space between: 'a b c'"),
        (put("model", "merges", 1, value=["a", ["b"]]), "merge 1: not two tokens"),
        (put("model", "merges", 1, value=["a", "世"]), "merge 1: '世' is not in the vocabulary"),
        (put("model", "merges", 1, value=["a", "b"]), "merge 1: b'ab' is not in the vocabulary"),
        (put("model", "merges", 1, value=["t", "h"]), "merge 1: b't' and b'h' are merged twice"),
        (put("model", "ignore_merges", value="yes"), "\"ignore_merges\" is 'yes': it should be true or false"),
        (put("truncation", value={"max_length": 5}), '"truncation" is set, which is not supported'),
        (put("padding", value={}), '"padding" is set'),
        (put("normalizer", value={"type": "Lowercase"}), "the normalizer 'Lowercase' is not supported: only NFC, NFD"),
        (
            put("normalizer", value={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFKD"}]}),
            "the normalizers NFC, NFKD together are not supported",
        ),
        (put("normalizer", value={"type": "Sequence"}), 'a Sequence without "normalizers"'),
        (put("normalizer", value="NFC"), "without a type"),
        (put("pre_tokenizer", value=None), "the last pre-tokenizer is 'none'"),
        (put("pre_tokenizer", value={"type": "Whitespace"}), "the last pre-tokenizer is 'Whitespace'"),
        (split_with(r"\s+", "MergedWithNext"), "a Split with the behaviour 'MergedWithNext' is not supported"),
        (split_with(r"\d", "Removed", invert=True), "a Split with the behaviour 'Removed', inverted, is not supported"),
        (split_with(r"\s++$|\S"), "holds '$', which tokenizers and `regex` read differently"),
        (split_with(r"\p{N}{1,3}+"), "holds '{1,3}+', which"),
        (split_with("("), "does not compile"),
        (split_with("a*"), "can match the empty string"),
        (put("decoder", value={"type": "WordPiece"}), "the decoder 'WordPiece' is not supported"),
        (
            put("post_processor", value={"type": "Unknown"}),
            "the post-processor 'Unknown' is not supported",
        ),
        (
            put("post_processor", value={"type": "TemplateProcessing", "single": []}),
            "does not hold that text once",
        ),
        (
            put("post_processor", value={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[X]"}}]}),
            "which is no special token of the file",
        ),
        *(
            (
                put("post_processor", value={"type": "TemplateProcessing", **parts}),
                "which is no special token of the file",
            )
            for parts in (
                {"single": [{"SpecialToken": 5}]},
                {"single": [{"SpecialToken": {"id": ["<s>"]}}], "special_tokens": {}},
                {"single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": "none"},
                {"single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {"<s>": [300]}},
                {"single": ["<s>"], "special_tokens": {"<s>": {"ids": [300]}}},
            )
        ),
        *(
            (put("post_processor", value={"type": "BertProcessing", "cls": token, "sep": token}), "BertProcessing puts")
            for token in (None, ["<s>"], [["<s>"], 300], ["<s>", 301], {"<s>": 300})
        ),
        (put("added_tokens", value={}), '"added_tokens" is no list'),
        (put("added_tokens", 0, value=1), "an added token without text"),
        (put("added_tokens", 0, "id", value=None), "the id of '<s>' is None"),
        (put("added_tokens", 0, "content", value="</s>"), "the added token '</s>' stands twice"),
        (put("added_tokens", 0, "id", value=301), "the id 301 stands twice, for '<s>' and '</s>'"),
        (put("added_tokens", 0, "lstrip", value=1), '"lstrip" is 1: it should be true or false'),
        (put("added_tokens", 0, "single_word", value="no"), "\"single_word\" is 'no'"),
    ],
)
def test_what_is_not_supported_or_wrong_is_refused_by_name(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    path = saved(tmp_path, change)
    with pytest.raises(ValueError, match=says(f"{path}: ", reason)):
        huggingface.read(path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"merges": None}, "needs a list of merges"),
        ({"vocab": sample().vocab | {999: b"a"}}, "the ids 97 and 999 would both be spelled 'a'"),
        ({"pattern": patterns.Pattern(None, (r"\s+$",))}, "which tokenizers and `regex` read differently"),
        ({"pattern": patterns.Pattern(None, (r"a\Z",))}, "read differently"),
        ({"pattern": patterns.resolve("llama3"), "add_prefix_space": True}, "only under the gpt2 pattern or none"),
        ({"special_tokens": {"<x>": 97}}, "no token for byte 0x61"),
        ({"normalizer": "Lowercase"}, "the normalizer 'Lowercase' is not supported"),
        ({"prefix": ("<tool>",)}, "which is no special token of the file"),
        ({"special_tokens": {"<s>": 300, "<x>": 300}}, "would not come back as it is"),
        ({"merges": [(b"x", b"y")]}, "b'xy' is not in the vocabulary"),
    ],
)
def test_what_a_tokenizer_json_cannot_say_is_not_written(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=says("", reason)):
        huggingface.write(tmp_path / "tokenizer.json", sample(**changes))
    assert not list(tmp_path.iterdir())


# Our own


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
    assert native.read(path) == data


tokens = st.lists(st.binary(min_size=2, max_size=6), unique=True, max_size=8)


@settings(max_examples=60, deadline=None)
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
    path = tmp_path_factory.getbasetemp() / "any.json"
    native.write(path, data)
    assert native.read(path) == data


def test_the_same_tokenizer_gives_the_same_bytes(tmp_path: Path) -> None:
    data = everything()
    shuffled = data._replace(
        vocab=dict(reversed(data.vocab.items())),
        special_tokens=dict(reversed(data.special_tokens.items())),
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
    assert native.read(tmp_path / "tok.json") == data


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tok.json"
    native.write(path, everything())
    whole = path.read_bytes()
    for length in [*range(0, len(whole) - 1, 97), len(whole) - 2]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}.*: not (JSON|UTF-8)"):
            native.read(path)


def test_a_file_altered_anywhere_is_refused_or_still_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tok.json"
    native.write(path, everything())
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert native.read(path) == everything()
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
        ({"format": "groundup-bpe", "version": 1, "tokenizer": {"a": "\ud800"}, "sha256": ""}, "altered since"),
    ],
)
def test_a_file_that_is_none_of_ours(tmp_path: Path, file: Any, reason: str) -> None:
    path = write_text(tmp_path, "tok.json", json.dumps(file))
    with pytest.raises(ValueError, match=says(f"{path}: ", reason)):
        native.read(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("vocab", value=None), "\"vocab\" is 'None': it should be a list of tokens"),
        (put("vocab", 0, value=7), '"vocab" is'),
        (put("vocab", 0, value="世"), "'世' spells no token"),
        (put("vocab", 0, value=""), "'' spells no token"),
        (put("vocab", 0, value="a"), "no token for byte 0x00"),
        (put("ids", value=[1]), '"ids" is'),
        (put("ids", 0, value="0"), "the id of b'\\x00' is '0'"),
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
        native.read(path)


def test_what_would_not_come_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="gives to b'a'"):
        native.write(tmp_path / "tok.json", sample(special_tokens={"<s>": 97}))
    with pytest.raises(ValueError, match='"normalizer" is'):
        native.write(tmp_path / "tok.json", sample(normalizer="Lowercase"))
    assert not list(tmp_path.iterdir())


# All of them


@pytest.mark.parametrize("read", [native.read, huggingface.read])
def test_a_number_too_long_is_refused_by_name(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ValueError, match=r"file\.json: not JSON of ours: .*5000 digits"):
        read(write_text(tmp_path, "file.json", f'{{"model": {"1" * 5000}}}'))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    there = write_text(tmp_path, "vocab.json", f"{{{ALL}}}")
    readers: list[Callable[[], Any]] = [
        lambda: tiktoken_format.read(missing),
        lambda: gpt2.read(missing, there),
        lambda: gpt2.read(there, missing),
        lambda: huggingface.read(missing),
        lambda: native.read(missing),
    ]
    for read in readers:
        with pytest.raises(FileNotFoundError, match="missing"):
            read()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text(tmp_path, "file", "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: .*file"):
            write_atomically(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_atomically(tmp_path / "nowhere" / "file", b"")


@pytest.mark.skipif(os.name != "posix", reason="pipes and links of POSIX")
def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """`--out /dev/null` by who may do anything would put a file in its place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for data in (b"new", b"newer"):
        write_atomically(link, data)
        assert target.read_bytes() == data
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, pipe, target]


# The published files


@needs_data
@pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
def test_published_tiktoken_files(tmp_path: Path, name: str) -> None:
    path = vocabulary(f"{name}.tiktoken")
    ranks = tiktoken_format.read(path)
    tiktoken_format.write(tmp_path / "copy", ranks)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


@needs_data
def test_published_gpt2_files(tmp_path: Path) -> None:
    vocab, merges = gpt2.read(vocabulary("encoder.json"), vocabulary("vocab.bpe"))
    assert (len(vocab), len(merges), vocab[50256]) == (50257, 50000, b"<|endoftext|>")
    gpt2.write(tmp_path, vocab, merges)
    assert (tmp_path / "merges.txt").read_bytes() == vocabulary("vocab.bpe").read_bytes()
    assert json.loads((tmp_path / "vocab.json").read_bytes()) == json.loads(vocabulary("encoder.json").read_bytes())


PROSE = (
    "The quick brown fox isn't 12345 years old; naïve façade, e\u0301tude — ΑΒΓ «цитата» "
    "世界の皆さん、こんにちは 안녕하세요 ไทย हिन्दी 👩\u200d🚀🇩🇪 \t\n\n    def f(x):\r\n        return x**2 // 3  # ok\n"
    "<think>hm</think> <|im_start|><｜User｜> www.example.com/a_b?c=1 \n "
)


@needs_data
@pytest.mark.parametrize(
    ("name", "pattern", "size"),
    [("llama3", "llama3", 128256), ("qwen3", "qwen2", 151669), ("deepseek_v3", "deepseek-v3", 129280)],
)
def test_published_tokenizer_jsons(tmp_path: Path, name: str, pattern: str, size: int) -> None:
    path = vocabulary(f"{name}_tokenizer.json")
    data = huggingface.read(path)
    assert (data.pattern.name, len(data.vocab)) == (pattern, size)
    assert encode(data, PROSE) == peer_of(path).encode(PROSE, add_special_tokens=False).ids

    copy = tmp_path / "tokenizer.json"
    huggingface.write(copy, data)
    assert peer_of(copy).encode(PROSE).ids == encode(data, PROSE)
    native.write(copy, data)
    assert native.read(copy) == data


@needs_data
@pytest.mark.parametrize("name", ["p50k_base", "cl100k_base"])
def test_published_ranks_as_a_tokenizer_json(tmp_path: Path, name: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="compares with the ids of tiktoken")
    ranks = tiktoken_format.read(vocabulary(f"{name}.tiktoken"))
    data = TokenizerData(
        vocab={number: token for token, number in ranks.items()} | {200_000: b"<think>"},
        merges=tiktoken_format.merges_from_ranks(ranks),
        special_tokens={"<think>": 200_000},
        pattern=patterns.resolve(name),
        ignore_merges=True,
    )
    path = tmp_path / "tokenizer.json"
    huggingface.write(path, data)
    peer = tiktoken.Encoding(
        name,
        pat_str=data.pattern.expressions[0],
        mergeable_ranks=ranks,
        special_tokens=data.special_tokens,
    )
    assert peer_of(path).encode(PROSE).ids == peer.encode(PROSE, allowed_special="all")
