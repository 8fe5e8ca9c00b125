"""Tokenizers with more added tokens or fewer merges, beside transformers and a training to the smaller size."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_samples import needs_data, vocabulary
from strategies import corpus

import bpe

TEXTS = [
    "say <new> and<new>x",
    "<|im_start|>user\nhi <tool> low <|im_end|>",
    " <new>  <new>\t<tool>é<tool> lower",
    "lowest the<|endoftext|> <NEW> low",
    "",
]
TRAINED = [corpus(3), "low lower lowest the é"]


def steps_of(kind: str) -> dict[str, Any]:
    """The parts of a tokenizer.json of this kind beside its vocabulary."""
    if kind == "lowercase":
        return {"normalizer": {"type": "Lowercase"}}
    if kind == "template":
        token = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        names = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [256], "tokens": ["<|endoftext|>"]}}
        return {
            "post_processor": {
                "type": "TemplateProcessing", "single": [token, text], "pair": [token, text], "special_tokens": names
            }
        }  # fmt: skip
    return {"ignore_merges": {"model": True}, "nfc": {"normalizer": {"type": "NFC"}}}.get(kind, {})


@pytest.fixture(params=["plain", "lowercase", "nfc", "ignore_merges", "template", "sentencepiece"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    if request.param == "sentencepiece":
        bpe.train_sentencepiece(TRAINED, 400).to_huggingface(path)
        return path
    bpe.train(TRAINED, 400).to_huggingface(path)
    about = json.loads(path.read_text())
    for key, value in steps_of(request.param).items():
        if key == "model":
            about["model"]["ignore_merges"] = value
        elif key == "post_processor":
            value["pair"] = [*value["single"], {"Sequence": {"id": "B", "type_id": 1}}]
            about[key] = value
        else:
            about[key] = value
    path.write_text(json.dumps(about))
    return path


def test_added_tokens_are_those_of_transformers(file: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    peer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(file))
    before = bpe.load(file)
    tokens, special = ["<new>", "<tool>", "low", "<new>"], ["<|im_start|>", "<|im_end|>"]
    assert peer.add_tokens(tokens) >= 2
    assert peer.add_special_tokens({"additional_special_tokens": special}) == 2
    ours = before.add_tokens(tokens).add_special_tokens(special)
    peer.save_pretrained(tmp_path / "saved")
    again = bpe.load(tmp_path / "saved" / "tokenizer.json")
    assert ours.special_tokens == again.special_tokens
    assert ours.data.added_tokens == again.data.added_tokens
    assert dict(ours.vocab) == dict(again.vocab)
    for text in TEXTS:
        expected = peer(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text, allowed_special="all") == expected, text
        assert ours.post_process(expected) == peer(text)["input_ids"]
        assert ours.decode(expected, skip_special_tokens=True) == again.decode(expected, skip_special_tokens=True)
    names = ["pattern", "normalizer", "ignore_merges", "lstrip", "rstrip", "single_word", "prefix", "suffix", "pair"]
    assert all(getattr(ours.data, name) == getattr(before.data, name) for name in [*names, "characters", "merges"])
    assert "<new>" not in before.data.added_tokens  # which stays as it is


def test_ids_may_be_given_and_tokens_become_special() -> None:
    tokenizer = bpe.train(TRAINED, 300)
    chat = tokenizer.add_special_tokens({"<a>": 1000, "<b>": 500})
    assert chat.encode("<a><b>", allowed_special="all") == [1000, 500]
    assert chat.add_tokens(["<c>"]).encode("<c>") == [1001]
    assert chat.add_tokens(["<a>"]).special_tokens == chat.special_tokens  # special it stays
    text = tokenizer.add_tokens(["<a>"])
    assert text.encode("<a>") == [300]
    with pytest.raises(ValueError, match="disallowed special token"):
        text.add_special_tokens(["<a>"]).encode("<a>")
    assert pickle.loads(pickle.dumps(chat)).data == chat.data
    encoding = bpe.Encoding(
        "small",
        pat_str=r"\S+|\s+",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)} | {b"lo": 256, b"low": 257},
        special_tokens={},
    ).add_special_tokens(["<a>"])
    assert isinstance(encoding, bpe.Encoding)
    assert encoding.encode("low<a>", allowed_special="all") == [257, 258]


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        ("<a>", TypeError, "got the str '<a>'"),
        ([b"<a>"], TypeError, "got b'<a>'"),
        ([""], ValueError, "is empty"),
        ({"<a>": 97}, ValueError, "the id 97 for '<a>' is that of b'a'"),
        ({"<|endoftext|>": 7}, ValueError, "has the id 256 already, not 7"),
    ],
)
def test_wrong_tokens_are_refused(tokens: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bpe.train(TRAINED, 300).add_tokens(tokens)


@pytest.mark.parametrize("tie_break", ["bytes", "huggingface", "ids"])
def test_a_cut_vocabulary_is_that_of_a_smaller_training(tie_break: str) -> None:
    special = ["<|endoftext|>", "<pad>", "a"]
    large = bpe.train(TRAINED, 420, tie_break=tie_break, special_tokens=special)
    for size in (419, 350, 300, 258):
        small = bpe.train(TRAINED, size, tie_break=tie_break, special_tokens=special)
        cut = large.with_vocab_size(size)
        assert (cut.data, cut.fingerprint) == (small.data, small.fingerprint)
        assert cut.encode(corpus(4), allowed_special="all") == small.encode(corpus(4), allowed_special="all")
    assert large.with_vocab_size(420).data == large.data
    for size in (257, 421):
        with pytest.raises(ValueError, match=r"expected vocab_size from 258 .* to 420"):
            large.with_vocab_size(size)


def test_sentencepiece_and_superwords_and_ranks_can_be_cut() -> None:
    large, small = (bpe.train_sentencepiece(TRAINED, size) for size in (420, 380))
    assert large.with_vocab_size(380).data == small.data
    superbpe = bpe.SuperBPE(transition=300)
    large, small = (bpe.train(TRAINED, size, superwords=superbpe) for size in (420, 380))
    assert large.with_vocab_size(380).data == small.data
    ranks = {token: number for number, token in bpe.train(TRAINED, 400, special_tokens=[]).vocab.items()}
    cut = bpe.Tokenizer.from_ranks(ranks, pattern="gpt2", special_tokens={"<|endoftext|>": 400}).with_vocab_size(301)
    fewer = {token: number for token, number in ranks.items() if number < 300}
    assert cut.data == bpe.Tokenizer.from_ranks(fewer, pattern="gpt2", special_tokens=["<|endoftext|>"]).data


@needs_data
@pytest.mark.parametrize("name", ["llama3_tokenizer.json", "qwen3_tokenizer.json", "deepseek_v3_tokenizer.json"])
def test_published_vocabularies_are_cut(name: str) -> None:
    tokenizer = bpe.load(vocabulary(name))
    cut = tokenizer.with_vocab_size(60_000)
    assert cut.vocab_size == 60_000
    assert set(cut.vocab) == set(range(60_000))
    text = "The cat sat on the mat, 1234 times: größer Việt Nam. 中文 <|endoftext|>\n\n  x"
    ids = cut.encode(text, disallowed_special=())
    assert cut.decode(ids) == tokenizer.decode(tokenizer.encode(text, disallowed_special=()))


def test_special_tokens_are_skipped_in_every_way_of_decoding() -> None:
    tokenizer = bpe.train(TRAINED, 300, special_tokens=["<s>", "</s>"]).add_tokens(["<tool>"])
    ids = tokenizer.encode("<s>low <tool>é</s>", allowed_special="all")
    assert tokenizer.decode(ids) == "<s>low <tool>é</s>"
    for tokens in (ids, np.array(ids), np.array(ids, dtype=np.uint16), iter(ids)):
        assert tokenizer.decode(tokens, skip_special_tokens=True) == "low <tool>é"
    assert tokenizer.decode_batch([ids, ids[:1]], skip_special_tokens=True) == ["low <tool>é", ""]
    stream = tokenizer.decode_stream(skip_special_tokens=True)
    assert "".join(map(stream.step, ids)) + stream.finish() == "low <tool>é"
    with pytest.raises(KeyError):
        tokenizer.decode([*ids, 9999], skip_special_tokens=True)


@pytest.mark.parametrize("kind", ["sentencepiece", "words"])
def test_skipping_is_that_of_tokenizers(kind: str, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    if kind == "words":
        peer = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>", unk_token="<unk>"))
        peer.pre_tokenizer, peer.decoder = tokenizers.pre_tokenizers.Whitespace(), tokenizers.decoders.BPEDecoder()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=200, special_tokens=["<s>", "</s>", "<unk>"], end_of_word_suffix="</w>", show_progress=False
        )
        peer.train_from_iterator(TRAINED, trainer)
        peer.save(str(path))
    else:
        bpe.train_sentencepiece(TRAINED, 400).to_huggingface(path)
    peer, ours = tokenizers.Tokenizer.from_file(str(path)), bpe.load(path)
    for text in ("<s>low the</s>", "<s></s>", "</s> the <s>low</s>low"):
        ids = ours.encode(text, allowed_special="all")
        assert ours.decode(ids, skip_special_tokens=True) == peer.decode(ids, skip_special_tokens=True)
        stream = ours.decode_stream(skip_special_tokens=True)
        assert "".join(map(stream.step, ids)) + stream.finish() == ours.decode(ids, skip_special_tokens=True)


def test_control_tokens_of_sentencepiece_are_skipped_as_it_does(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TRAINED * 3))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=400, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, control_symbols=["<ctl>"],
        user_defined_symbols=["<user>"], minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    peer = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    ours = bpe.Tokenizer.from_sentencepiece(tmp_path / "m.model")
    for text_of_ids in ("low the é", "<user> low", ""):
        ids = [peer.bos_id(), *peer.encode(text_of_ids), peer.piece_to_id("<ctl>"), peer.eos_id()]
        assert ours.decode(ids, skip_special_tokens=True) == peer.decode(ids)


def test_a_session_goes_on_where_it_is_unpickled() -> None:
    tokenizer = bpe.train(TRAINED, 300)
    session = tokenizer.encode_session(allowed_special={"<|endoftext|>"}, disallowed_special=())
    session.append("low low<|endoftext|>the ca\ud83d")
    again = pickle.loads(pickle.dumps(session))
    for one in (session, again):
        one.append("\ude00t lowest")
        assert one.ids.tolist() == tokenizer.encode("low low<|endoftext|>the ca😀t lowest", allowed_special="all")
