"""Formats of published models that need a rule of their own, on small files made here."""

from __future__ import annotations

import base64
import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sentencepiece_samples import shapes, texts
from tokenizers import Tokenizer as Peer

import bpe
from bpe.formats import gguf, huggingface, reading, sentencepiece, table_cache, vocabularies

TEXTS = [*texts(3, 60), *("a" + " " * count + "b" for count in range(2, 70)), " " * 40, "\t\t\tx", "\n\n\n"]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes | int | float) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_of(pieces: list[tuple[str, float, int]], prefix: bool | None = True, trims: bool | None = False) -> bytes:
    """A model of sentencepiece, as protocol buffers. None for a setting that the file does not have."""
    parts = [
        field(1, field(1, text.encode()) + field(2, float(score)) + field(3, kind)) for text, score, kind in pieces
    ]
    settings = [field(number, int(value)) for number, value in ((3, prefix), (4, trims)) if value is not None]
    normalizer = field(1, b"identity") + b"".join(settings)
    return b"".join(parts) + field(2, field(3, 2) + field(35, 1)) + field(3, normalizer)


def pieces_with_runs(lengths: list[int]) -> list[tuple[str, float, int]]:
    """Control tokens, bytes, runs of spaces that rank last, merged pieces, characters: as Llama 2's model."""
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
    pieces += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    pieces += [("▁" * length, -1e9, 1) for length in lengths]
    merged = ["▁t", "he", "▁the", "in", "▁a", "er", "▁▁a"]
    pieces += [(text, -float(rank), 1) for rank, text in enumerate(merged)]
    return pieces + [(text, -float(len(merged) + rank), 1) for rank, text in enumerate("▁thearinbscé")]


@pytest.mark.parametrize("lengths", [[2, 4, 8, 5, 16, 6, 12, 13, 10, 14, 3, 9, 7, 11], [*range(2, 17)], [2], [2, 3, 4]])
def test_runs_of_spaces_that_rank_last_become_what_sentencepiece_makes_of_them(
    tmp_path: Path, lengths: list[int]
) -> None:
    sentencepiece_package = pytest.importorskip("sentencepiece")
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model_of(pieces_with_runs(lengths)))
    peer = sentencepiece_package.SentencePieceProcessor(model_file=str(path))
    tokenizer = bpe.load(path)
    chance = random.Random(1)
    more = ["".join(chance.choice([" ", "the", "a", "▁", "in", "é", "\n"]) for _ in range(50)) for _ in range(200)]
    for text in TEXTS + more:
        assert tokenizer.encode(text, disallowed_special=()) == peer.encode(text), text
    saved = tmp_path / "saved.bpe"
    tokenizer.save(saved)
    assert bpe.load(saved).data == tokenizer.data


def test_pieces_of_one_score_that_are_not_runs_of_spaces_are_refused(tmp_path: Path) -> None:
    pieces = pieces_with_runs([2])
    pieces[-20:-20] = [("ab", -500.0, 1), ("bc", -500.0, 1)]
    with pytest.raises(ValueError, match="'ab' and 'bc'"):
        sentencepiece.parse(model_of(pieces), "m.model")
    with pytest.raises(ValueError, match="runs of spaces"):
        sentencepiece.parse(model_of(pieces_with_runs([2, 3])), "m.model")  # five: 3 and 2 there, 2, 2 and 1 here


def test_a_model_becomes_a_tokenizer_json_of_the_same_ids(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model_of(pieces_with_runs([2, 4, 8, 6, 3, 5, 7])))
    tokenizer = bpe.load(path)
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    again, peer = bpe.load(tmp_path / "tokenizer.json"), Peer.from_file(str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        ids = tokenizer.encode(text, allowed_special="all")
        assert peer.encode(text, add_special_tokens=False).ids == again.encode(text, allowed_special="all") == ids


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_that_the_user_defined_are_found_in_the_text_with_its_space(tmp_path: Path, prefix: bool) -> None:
    sentencepiece_package = pytest.importorskip("sentencepiece")
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model_of([*pieces_with_runs([2, 4]), ("[REF]", 0.0, 4), ("[R]▁", 0.0, 4)], prefix=prefix))
    peer = sentencepiece_package.SentencePieceProcessor(model_file=str(path))
    tokenizer = bpe.load(path)
    chance = random.Random(2)
    parts = ["[REF]", "[R]", " ", "the", "a", "▁", "é", "\n", "<s>"]
    texts = ["".join(chance.choice(parts) for _ in range(chance.randrange(9))) for _ in range(400)]
    for text in texts:
        ids = tokenizer.encode(text, disallowed_special=())
        assert ids == peer.encode(text), text
        assert list(tokenizer.encode_iterable([*text], disallowed_special=())) == ids, text
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    output = Peer.from_file(str(tmp_path / "tokenizer.json"))
    for text in texts:
        if "[" not in text:  # what follows these pieces a tokenizer.json says otherwise
            assert output.encode(text).ids == tokenizer.encode(text, allowed_special="all"), text


@pytest.mark.parametrize("defined", [[], [("[REF]", 0.0, 4)]])
@pytest.mark.parametrize("trims", [True, False, None])
@pytest.mark.parametrize("prefix", [True, False, None])
def test_spaces_are_treated_as_the_settings_of_a_model_say(
    tmp_path: Path, prefix: bool | None, trims: bool | None, defined: list[Any]
) -> None:
    sentencepiece_package = pytest.importorskip("sentencepiece")
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model_of([*pieces_with_runs([2, 4]), *defined], prefix, trims))
    peer = sentencepiece_package.SentencePieceProcessor(model_file=str(path))
    tokenizer = bpe.load(path)
    chance = random.Random(4)
    parts = [" ", "  ", "   ", "▁", "▁ ", "the", "a", "é", "\n", "\t", "<s>", "[REF]", "\u3000", "\u00a0", "in"]
    for text in ["", " ", "▁", *("".join(chance.choices(parts, k=chance.randrange(7))) for _ in range(300))]:
        ids = tokenizer.encode(text, disallowed_special=())
        assert ids == peer.encode(text), text
        # of several tokens of spaces in front sentencepiece takes a space each
        if tokenizer.decode_bytes(ids[:1]) or not ids:
            stream = tokenizer.decode_stream()
            assert "".join(map(stream.step, ids)) + stream.finish() == tokenizer.decode(ids) == peer.decode(ids), text


def changed(change: Any, tmp_path: Path) -> tuple[bpe.Tokenizer, Peer]:
    """A file of Gemma's kind after a change, here and in tokenizers."""
    path = tmp_path / "tokenizer.json"
    shapes()["gemma"].to_huggingface(path)
    file = json.loads(path.read_text())
    change(file)
    path.write_text(json.dumps(file))
    return bpe.load(path), Peer.from_file(str(path))


def tab_instead_of_its_byte(file: dict[str, Any]) -> None:
    vocab = file["model"]["vocab"]
    vocab.pop("\t", None)
    file["model"]["merges"] = [merge for merge in file["model"]["merges"] if "\t" not in "".join(merge)]
    vocab["\t"] = vocab.pop("<0x09>")
    vocab["\t\t"] = max(vocab.values()) + 1
    file["model"]["merges"].append(["\t", "\t"])


def added_tokens_in_merges(file: dict[str, Any]) -> None:
    vocab = file["model"]["vocab"]
    for text, left, right in [("▁▁", "▁", "▁"), ("▁▁▁", "▁▁", "▁")]:
        if text not in vocab:
            vocab[text] = max(vocab.values()) + 1
            file["model"]["merges"].append([left, right])
        options = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        file["added_tokens"].append({"id": vocab[text], "content": text, **options})


@pytest.mark.parametrize("change", [tab_instead_of_its_byte, added_tokens_in_merges])
def test_gemmas_vocabularies(tmp_path: Path, change: Any) -> None:
    tokenizer, peer = changed(change, tmp_path)
    tokenizer.to_huggingface(tmp_path / "again.json")
    again = Peer.from_file(str(tmp_path / "again.json"))
    for text in [*TEXTS, "▁▁a▁▁▁", "a\t\tb"]:
        expected = peer.encode(text, add_special_tokens=False)
        ids = tokenizer.encode(text, allowed_special="all")
        assert ids == expected.ids
        assert tokenizer.decode(ids) == peer.decode(ids, skip_special_tokens=False)
        output = again.encode(text, add_special_tokens=False)
        assert (output.ids, output.offsets) == (expected.ids, expected.offsets)


def test_byte_fallback_without_a_decoder_is_read(tmp_path: Path) -> None:
    tokenizer, peer = changed(lambda file: file.update(decoder=None), tmp_path)
    assert all(tokenizer.encode(text, allowed_special="all") == peer.encode(text).ids for text in TEXTS)


BYTE_RANKS = {bytes([byte]): byte for byte in range(256)} | {b"th": 256, b"the": 257, b" the": 258}


def test_an_empty_token_in_a_tiktoken_file_is_left_out(tmp_path: Path) -> None:
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in BYTE_RANKS.items()]
    path = tmp_path / "vocabulary.tiktoken"
    path.write_text("".join(lines) + "= 259\n")
    tokenizer = bpe.load(path, pattern="gpt2")
    assert (tokenizer.vocab_size, tokenizer.encode("the the")) == (259, [257, 258])


def test_tekken_has_its_special_tokens_first(tmp_path: Path) -> None:
    path = tmp_path / "tekken.json"
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in [*BYTE_RANKS.items(), (b"ab", 259)]
    ]
    config = {"pattern": r"\w+|\s+|[^\w\s]+", "default_vocab_size": 289, "default_num_special_tokens": 30}
    path.write_text(json.dumps({"config": config, "vocab": vocab}))
    tokenizer = bpe.load(path)
    assert tokenizer.encode("the ab") == [30 + 257, 30 + 32, 30 + 97, 30 + 98]  # the last token is beyond the size
    assert tokenizer.encode("[INST]<SPECIAL_29>", allowed_special="all") == [3, 29]
    path.write_text(json.dumps({"config": config, "vocab": vocab[:200]}))
    with pytest.raises(ValueError, match="259"):
        bpe.load(path)


def test_gguf(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    trained = bpe.train(["the cat sat on the mat, the other cat 123"] * 3, 270, pattern="llama3")
    trained.to_huggingface(tmp_path / "tokenizer.json")
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    vocab = file["model"]["vocab"]
    writer = package.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([*vocab, "[PAD]"])
    writer.add_token_types([3 if text.startswith("<|") else 1 for text in vocab] + [5])
    writer.add_token_merges([" ".join(merge) for merge in file["model"]["merges"]])
    finish(writer)
    tokenizer = bpe.load(tmp_path / "model.gguf")
    assert tokenizer.data.vocab == trained.data.vocab
    for text in [*TEXTS, "the cat<|endoftext|>"]:
        assert tokenizer.encode(text, allowed_special="all") == trained.encode(text, allowed_special="all")

    pieces = pieces_with_runs([2])
    writer = package.GGUFWriter(tmp_path / "pieces.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    finish(writer)
    (tmp_path / "tokenizer.model").write_bytes(model_of(pieces))
    assert bpe.load(tmp_path / "pieces.gguf").data == bpe.load(tmp_path / "tokenizer.model").data

    content = (tmp_path / "model.gguf").read_bytes()
    for size in (4, 20, 100, 2000):
        (tmp_path / "cut.gguf").write_bytes(content[:size])
        with pytest.raises(ValueError, match="cut short"):
            bpe.load(tmp_path / "cut.gguf")


def test_split_patterns_of_gguf_are_those_of_tokenizers() -> None:
    vocab = {vocabularies.to_printable(bytes([byte])): byte for byte in range(256)}
    text = (
        "Hello, y'all! I'M 1234567 x=3;\n\n  def f(x):\r\n\treturn x  \n`` $^~|<=> a_b ßΩ ÀÉ ǅ 中文字か가나 "
        "日本語テキスト。 。,! ١٢٣ ½ e\u0301 \U0001f600 ที่ हिन्दी A'Sb 's　！ end  "
    )
    for expressions, names in gguf._NAMES.items():
        values = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": names.split()[0], "tokenizer.ggml.merges": []}
        file = gguf._as_tokenizer_json(values, list(vocab), [1] * 256, "model.gguf")
        peer = Peer.from_str(json.dumps({**file, "version": "1.0"}))
        pieces = bpe.Tokenizer.from_data(huggingface.of_file(file, "model.gguf"))._text_encoder.split(text.encode())
        assert peer.pre_tokenizer is not None
        expected = [vocabularies.from_printable(piece) for piece, _ in peer.pre_tokenizer.pre_tokenize_str(text)]
        assert pieces == expected, expressions


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def folder_of_model(folder: Path) -> dict[str, Any]:
    """A tokenizer.json beside a configuration that has one token more."""
    folder.mkdir(parents=True)
    tokenizer = bpe.train(["the cat sat on the mat"], 262)
    tokenizer.to_huggingface(folder / "tokenizer.json")
    token = {"content": "<|im_start|>", "special": True, "lstrip": False, "rstrip": False, "normalized": False}
    config = {
        "tokenizer_class": "GPT2Tokenizer",
        "added_tokens_decoder": {"262": token, "256": {**token, "content": "<|endoftext|>"}},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return config


def test_added_tokens_of_tokenizer_config_json(tmp_path: Path) -> None:
    folder_of_model(tmp_path / "model")
    tokenizer = bpe.load(tmp_path / "model")
    assert tokenizer.special_tokens == {"<|endoftext|>": 256, "<|im_start|>": 262}
    assert "<|im_start|>" not in bpe.load(tmp_path / "model" / "tokenizer.json").special_tokens
    tokenizer.to_gpt2(tmp_path / "pair")
    (tmp_path / "model" / "tokenizer_config.json").rename(tmp_path / "pair" / "tokenizer_config.json")
    assert bpe.load(tmp_path / "pair").special_tokens == tokenizer.special_tokens


def test_a_model_of_the_hub_is_loaded_from_the_cache_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    model = tmp_path / "models--owner--some-model"
    folder_of_model(model / "snapshots" / "abc")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc")
    program = "import bpe; print(bpe.load('owner/some-model').vocab_size)\nbpe.load('owner/other')"
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == "263\n"
    assert "FileNotFoundError" in result.stderr.splitlines()[-1]
    assert "owner/other" in result.stderr.splitlines()[-1]
    without = "import sys; sys.modules['huggingface_hub'] = None; " + program
    command = [sys.executable, "-c", without]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "install huggingface_hub" in result.stderr.splitlines()[-1]


def test_a_published_pattern_is_recognised_by_what_it_does() -> None:
    from bpe import patterns
    from bpe.expressions import automaton
    from bpe.scanning import scanner

    (o200k,) = patterns.PATTERNS["o200k"]
    for expression in (f"(?:{o200k})", o200k.replace(r"\p{L}", r"[\p{Lu}\p{Ll}\p{Lt}\p{Lm}\p{Lo}]")):
        for language in ("oniguruma", "fancy-regex"):
            pattern = patterns.resolve(expression, language)
            assert (pattern.name, patterns.scanner_of(pattern)) == (None, scanner.SCANNED["o200k"])
    removed = {"type": "Split", "pattern": {"Regex": o200k}, "behavior": "Removed", "invert": True}
    assert (
        patterns.of_steps([removed, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]).name
        == "o200k"
    )
    expressions = [*patterns.PATTERNS.values(), *((spelling,) for spelling in patterns._OTHER_SPELLINGS)]
    digests = {
        automaton.digest([(patterns._automaton_of(one, "fancy-regex"), False) for one in several]): several
        for several in expressions
    }
    assert digests.keys() == patterns.SCANNED_BY_DIGEST.keys()
    for digest, several in digests.items():
        assert patterns.SCANNED_BY_DIGEST[digest] == patterns.resolve(several).name


@pytest.mark.parametrize("module", ["patterns.py", "encoding/normalizing.py", "expressions/steps.py", "published.py"])
def test_kept_tables_depend_on_every_module(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a source checkout, which the tests of an installed wheel are not: hence one of empty files."""
    assert table_cache._code()[0] == bpe.__version__
    names = ("formats/table_cache.py", "encoding/encoder.pyx", module)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(table_cache, "__file__", str(tmp_path / names[0]))
    before = table_cache._code()
    (tmp_path / module).write_text("changed")
    assert table_cache._code() != before
    (tmp_path / names[1]).unlink()
    assert table_cache._code() == [bpe.__version__]  # an installed wheel changes with its version alone


def test_tiktokens_recipe_for_more_special_tokens() -> None:
    (expression,) = bpe.patterns.PATTERNS["cl100k"]
    base = bpe.Encoding("base", pat_str=expression, mergeable_ranks=BYTE_RANKS, special_tokens={"<|a|>": 259})
    more = bpe.Encoding(
        name="more",
        pat_str=base._pat_str,
        mergeable_ranks=base._mergeable_ranks,
        special_tokens={**base._special_tokens, "<|im_start|>": 260},
    )
    assert more.encode("the<|im_start|> the<|a|>", allowed_special="all") == [257, 260, 258, 259]
    with pytest.raises(ValueError, match="disallowed special token"):
        more.encode("<|a|>")


def test_the_command_says_its_version() -> None:
    result = subprocess.run([sys.executable, "-m", "bpe", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"bpe {bpe.__version__}\n"


def test_a_pattern_beside_a_file_that_holds_its_own_is_refused(tmp_path: Path) -> None:
    folder_of_model(tmp_path / "model")
    with pytest.raises(ValueError, match="leave out pattern"):
        bpe.load(tmp_path / "model", pattern="gpt2")
    assert reading.read(tmp_path / "model" / "tokenizer.json", "huggingface").data.name is None
