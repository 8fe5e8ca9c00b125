"""SentencePiece-style BPE: ids and texts beside tokenizers and sentencepiece, from files of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from sentencepiece_peers import KINDS, trained
from sentencepiece_samples import texts

import bpe
from bpe import Tokenizer, load
from bpe.formats import reading, sentencepiece


@pytest.fixture(scope="module", params=KINDS)
def pair(request: Any, tmp_path_factory: Any) -> tuple[tokenizers.Tokenizer, Tokenizer, Path]:
    peer = trained(request.param)
    path = tmp_path_factory.mktemp("sentencepiece") / "tokenizer.json"
    peer.save(str(path))
    return peer, Tokenizer.from_huggingface(path), path


def test_ids_are_those_of_tokenizers(pair: tuple[tokenizers.Tokenizer, Tokenizer, Path]) -> None:
    peer, ours, _ = pair
    for text in texts(1, 600):
        assert ours.encode(text, allowed_special="all") == peer.encode(text, add_special_tokens=False).ids, text


def test_texts_come_back(pair: tuple[tokenizers.Tokenizer, Tokenizer, Path]) -> None:
    peer, ours, _ = pair
    for text in texts(2, 300):
        ids = ours.encode(text, allowed_special="all")
        assert ours.decode(ids) == peer.decode(ids, skip_special_tokens=False), text
        stream = ours.decode_stream()
        assert "".join(map(stream.step, ids)) + stream.finish() == ours.decode(ids)


def test_streams_give_the_same_ids(pair: tuple[tokenizers.Tokenizer, Tokenizer, Path]) -> None:
    _, ours, _ = pair
    text = "".join(texts(3, 4000))
    rules = ours._text_encoder.policy.rules("all", ())
    expected = ours.encode(text, allowed_special="all")
    pieces = [text[at : at + 700] for at in range(0, len(text), 700)]
    assert [i for array in ours._text_encoder.chunks(pieces, rules, 4096) for i in array.tolist()] == expected
    assert list(ours.encode_iterable(pieces, allowed_special="all")) == expected
    session = ours.encode_session(allowed_special="all")
    for size, piece in enumerate(pieces, 1):
        session.append(piece)
        assert session.ids.tolist() == ours.encode(text[: 700 * size], allowed_special="all")


def test_there_and_back(pair: tuple[tokenizers.Tokenizer, Tokenizer, Path], tmp_path: Path) -> None:
    peer, ours, _ = pair
    ours.to_huggingface(tmp_path / "again.json")
    assert reading.read(tmp_path / "again.json", "huggingface").data == ours.data
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "again.json"))
    ours.save(tmp_path / "native")
    assert load(tmp_path / "native").data == ours.data
    for text in texts(4, 100):
        assert again.encode(text).ids == peer.encode(text).ids
    for refused in (ours.to_tiktoken, ours.to_gpt2):
        with pytest.raises(ValueError, match="cannot say that tokens are merged from characters"):
            refused(tmp_path / "other")


def test_a_long_text_is_split_where_nothing_is_merged(pair: tuple[tokenizers.Tokenizer, Tokenizer, Path]) -> None:
    _, ours, _ = pair
    assert ours._text_encoder._scanner > 0  # and not that of a whole text


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("model", "type"), "Unigram", "use tokenizers or sentencepiece for it"),
        (("model", "type"), "WordPiece", "use tokenizers for it"),
        (("model", "byte_fallback"), False, "is not supported for a vocabulary of words"),
        (("model", "ignore_merges"), True, '"ignore_merges" beside "byte_fallback"'),
        (("model", "vocab", "<0x00>"), None, "<0x00>"),
        (("model", "vocab", "a b"), 9999, "a space that is not written"),
        (("model", "merges", 0), "a", "merge 0: not two tokens"),
        (("model", "merges", 0), ["q", "☃"], "is not in the vocabulary"),
        (("pre_tokenizer",), {"type": "Whitespace"}, "the pre-tokenizer 'Whitespace'"),
        (("decoder",), {"type": "ByteLevel"}, "the decoder ByteLevel"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, place: tuple[Any, ...], value: Any, reason: str
) -> None:
    file = json.loads(trained("llama-2").to_str())
    holder = file
    for key in place[:-1]:
        holder = holder[key]
    if value is None and place[-1] == "<0x00>":
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json: ") as caught:
        reading.read(path, "huggingface")
    assert reason in str(caught.value)


# `sentencepiece` model files


def model_of(folder: Path, **settings: Any) -> tuple[Any, Path]:
    """A model trained by sentencepiece, and its file."""
    spm = pytest.importorskip("sentencepiece", reason="trains the models that are read")
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(texts(5, 400)).replace("\x00", ""), encoding="utf-8")
    inputs = {"model_type": "bpe", "vocab_size": 335, "byte_fallback": True, "normalization_rule_name": "identity"}
    spm.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / "spm"), minloglevel=2, character_coverage=0.98, **inputs | settings
    )
    return spm.SentencePieceProcessor(model_file=str(folder / "spm.model")), folder / "spm.model"


@pytest.mark.parametrize("settings", [{}, {"remove_extra_whitespaces": False}, {"add_dummy_prefix": False}])
def test_ids_are_those_of_sentencepiece(tmp_path: Path, settings: dict[str, Any]) -> None:
    peer, path = model_of(tmp_path, **settings)
    ours = load(path)
    for text in texts(6, 400):
        text = text.replace("\x00", "")
        assert ours.encode(text, disallowed_special=()) == peer.encode(text), text
        ids = peer.encode(text.lstrip("▁ "))  # of several spaces at the beginning, sentencepiece may give back none
        assert ours.decode(ids) == peer.decode(ids), text


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model_type": "unigram"}, "a Unigram model of sentencepiece, which is not supported"),
        ({"byte_fallback": False}, "a model without byte_fallback"),
        ({"normalization_rule_name": "nmt_nfkc"}, "the normalizer 'nmt_nfkc' is not supported"),
    ],
)
def test_other_models_of_sentencepiece_are_refused_by_name(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    _, path = model_of(tmp_path, **settings)
    with pytest.raises(ValueError, match=r"spm\.model: ") as caught:
        reading.read(path, "sentencepiece")
    assert reason in str(caught.value)


@pytest.mark.parametrize("data", [b"\n", b"\n\x05abc", b"\x0b", b"\n\x03\n\x01\xff", b"\xff" * 20])
def test_a_damaged_model_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"spm\.model: "):
        sentencepiece.parse(data, tmp_path / "spm.model")


def peer_of_model(path: Path) -> Any:
    sentencepiece = pytest.importorskip("sentencepiece")
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def test_a_model_that_is_written_encodes_as_in_sentencepiece(tmp_path: Path) -> None:
    corpus = ["the cat sat on the mat, low lower lowest ünïcode 日本語  a  b"] * 9
    tokenizer = bpe.train_sentencepiece(
        corpus, 310, special_tokens=["<unk>", "<s>", "</s>", "<pad>"], add_prefix_space=False
    )
    tokenizer.to_sentencepiece(tmp_path / "tok.model")
    peer, again = peer_of_model(tmp_path / "tok.model"), bpe.load(tmp_path / "tok.model")
    for text in ("the  lowest\n", " 日本x é", "", "  ", "<s> the", "lower\x00 ünï \U0001f600"):
        ids = tokenizer.encode(text, disallowed_special=())
        assert peer.encode(text) == ids == again.encode(text, disallowed_special=()), text
    assert [peer.unk_id(), peer.bos_id(), peer.eos_id(), peer.pad_id()] == [
        tokenizer.special_tokens[name] for name in ("<unk>", "<s>", "</s>", "<pad>")
    ]
    again.to_sentencepiece(tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == (tmp_path / "tok.model").read_bytes()


def test_what_a_model_cannot_say_is_refused(tmp_path: Path) -> None:
    byte_level = bpe.train(["the cat"] * 3, 258)
    with pytest.raises(ValueError, match="needs tokens of characters"):
        byte_level.to_sentencepiece(tmp_path / "no.model")
    tokenizer = bpe.train_sentencepiece(["the cat"] * 3, 268, special_tokens=["<unk>"])
    for data, reason in [
        (tokenizer.data._replace(special_tokens={}), "<unk>"),
        (tokenizer.data._replace(normalizer="NFC"), "cannot express all settings"),
        (tokenizer.data._replace(merges=list(tokenizer.merges)[1:]), "joins all pairs"),
        (tokenizer.data._replace(vocab=dict(tokenizer.vocab) | {999: b"xyz"}), "the ids of a model"),
    ]:
        with pytest.raises(ValueError, match=reason):
            bpe.Tokenizer.from_data(data).to_sentencepiece(tmp_path / "no.model")
    assert not (tmp_path / "no.model").exists()
