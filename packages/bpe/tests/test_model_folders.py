"""Folders of Hugging Face models without a tokenizer.json, against transformers: the class that is named decides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sentencepiece_samples import texts
from test_published_formats import BYTE_RANKS, model_of, pieces_with_runs

import bpe
from bpe.formats import folder

tokenizers = pytest.importorskip("tokenizers", reason="makes the samples")
pytest.importorskip("tokenizers.trainers", reason="tokenizers 1.0 has no trainers")

CORPUS = ["the other weather, then another! I'M low lower lowest 2024 12", "naïve l'été 人人生而自由 12 123\n\n  x"] * 3
TEXTS = [*texts(4, 40), "I'M 2024, that's 中文12345\n\n  x", "e\u0301 <mask>  a <s>x</s>", "  Photo of a CAT, 4k  ", ""]
SPECIAL = {
    "WhisperTokenizer": ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"],
    "CLIPTokenizer": ["<|startoftext|>", "<|endoftext|>"],
    "OpenAIGPTTokenizer": ["<unk>"],
    "DebertaTokenizer": ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"],
    "RobertaTokenizer": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "BlenderbotTokenizer": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
}
CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("GPT2Tokenizer", {}),
    ("GPT2TokenizerFast", {"add_prefix_space": True, "add_bos_token": True, "bos_token": "<s>"}),
    ("RobertaTokenizer", {"mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True}}),
    ("BlenderbotTokenizer", {}),
    ("DebertaTokenizer", {}),
    ("WhisperTokenizer", {"additional_special_tokens": ["<|startoftranscript|>", "<|notimestamps|>"]}),
    ("GPTNeoXTokenizer", {}),
    ("Qwen2Tokenizer", {"additional_special_tokens": ["<|im_start|>"]}),
    ("CLIPTokenizer", {}),
    ("CLIPTokenizerFast", {"pad_token": "!", "do_lower_case": True}),
    ("OpenAIGPTTokenizer", {}),
]


def pair_of(place: Path, name: str, config: dict[str, Any], added: dict[str, int] | None = None) -> Path:
    """A folder as transformers saved it before it wrote tokenizer.json files."""
    row = folder._CLASS_OF[name.removesuffix("Fast")]
    special = SPECIAL.get(name.removesuffix("Fast"), ["<|endoftext|>"])
    model = tokenizers.models.BPE(unk_token=special[0] if row.suffix else None, end_of_word_suffix=row.suffix)
    peer = tokenizers.Tokenizer(model)
    steps = [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    peer.pre_tokenizer = steps[0] if row.byte_level else tokenizers.pre_tokenizers.BertPreTokenizer()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet() if row.byte_level else []
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        show_progress=False,
        special_tokens=special,
        initial_alphabet=alphabet,
        end_of_word_suffix=row.suffix,
    )
    peer.train_from_iterator(CORPUS, trainer)
    place.mkdir()
    peer.model.save(str(place))
    (place / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **config}))
    if added is not None:
        size = peer.get_vocab_size()
        numbered = {text: size + number for text, number in added.items()}
        (place / "added_tokens.json").write_text(json.dumps(numbered))
    return place


@pytest.mark.parametrize(("name", "config"), CONFIGS, ids=[f"{name}-{len(config)}" for name, config in CONFIGS])
def test_ids_and_templates_are_those_of_the_class_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, config: dict[str, Any]
) -> None:
    transformers = pytest.importorskip("transformers", "5.23")  # older ones make other tokenizers of two classes
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = pair_of(tmp_path / "model", name, config, {"        ": 0, "<|tool|>": 1})
    tokenizer, peer = bpe.load(place), transformers.AutoTokenizer.from_pretrained(place)
    assert tokenizer.n_vocab == len(peer)
    for text in [*TEXTS, "if a:\n        return <|tool|> 1"]:
        ids = tokenizer.encode(text, allowed_special="all")
        assert ids == peer(text, add_special_tokens=False)["input_ids"], text
        assert tokenizer.post_process(ids) == peer(text)["input_ids"], text
        if tokenizer.data.added_tokens["        "] not in ids:  # which CLIP's normalizer makes one space
            assert tokenizer.decode(ids) == peer.decode(ids, clean_up_tokenization_spaces=False), text
    for again in ("saved.bpe", "tokenizer.json"):
        (tokenizer.save if again == "saved.bpe" else tokenizer.to_huggingface)(tmp_path / again)
        assert bpe.load(tmp_path / again).data == tokenizer.data


def test_what_no_file_says_is_not_guessed_in_silence(tmp_path: Path) -> None:
    place = pair_of(tmp_path / "gpt2", "GPT2Tokenizer", {})
    (place / "tokenizer_config.json").unlink()
    with pytest.warns(UserWarning, match="read as GPT-2's"):
        tokenizer = bpe.load(place)
    assert tokenizer.pattern == "gpt2"
    (place / "config.json").write_text('{"model_type": "qwen2"}')
    assert bpe.load(place / "merges.txt").pattern == "qwen2"
    assert bpe.load(place, pattern="llama3", special_tokens=["<x>"]).special_tokens == {"<x>": tokenizer.n_vocab}
    (place / "tokenizer_config.json").write_text('{"tokenizer_class": "LukeTokenizer"}')
    with pytest.raises(ValueError, match="'LukeTokenizer'"):
        bpe.load(place)
    assert bpe.load(place, pattern="gpt2").encode("the") == tokenizer.encode("the")

    clip = pair_of(tmp_path / "clip", "CLIPTokenizer", {})
    for config in ("{}", '{"tokenizer_class": "GPT2Tokenizer"}'):
        (clip / "tokenizer_config.json").write_text(config)
        with pytest.raises(ValueError, match="</w>"):
            bpe.load(clip)
        with pytest.raises(ValueError, match="</w>"):
            bpe.load(clip / "vocab.json", pattern="gpt2")


def test_a_token_of_no_characters_is_read_and_kept(tmp_path: Path) -> None:
    """Whisper's vocabulary has one."""
    place = pair_of(tmp_path / "model", "GPT2Tokenizer", {})
    vocab = json.loads((place / "vocab.json").read_text())
    vocab[""] = len(vocab)
    (place / "vocab.json").write_text(json.dumps(vocab))
    loaded = {"pair": bpe.load(place)}
    loaded["gpt2"] = bpe.Tokenizer.from_gpt2(place / "vocab.json", place / "merges.txt")
    loaded["pair"].save(tmp_path / "saved.bpe")
    loaded["pair"].to_huggingface(tmp_path / "tokenizer.json")
    loaded["pair"].to_gpt2(tmp_path / "written")
    loaded |= {name: bpe.load(tmp_path / name) for name in ("saved.bpe", "tokenizer.json")}
    loaded["written"] = bpe.load(tmp_path / "written", pattern="gpt2")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for tokenizer in loaded.values():
        for text in TEXTS:
            ids = tokenizer.encode(text, disallowed_special=())
            assert ids == peer.encode(text, add_special_tokens=False).ids
            assert tokenizer.decode([*ids, vocab[""], *ids]) == text * 2 == peer.decode([*ids, vocab[""], *ids])


def test_bytes_that_no_text_has_may_be_missing_from_a_pair(tmp_path: Path) -> None:
    """The vocabularies of SuperBPE's authors lack them."""
    place = pair_of(tmp_path / "model", "GPT2Tokenizer", {})
    vocab = json.loads((place / "vocab.json").read_text())
    never = [bytes([byte]) for byte in range(256) if byte not in bpe.formats.UTF8_BYTES]
    for token in never:
        del vocab[bpe.formats.vocabularies.to_printable(token)]
    (place / "vocab.json").write_text(json.dumps(vocab))
    tokenizer = bpe.Tokenizer.from_gpt2(place / "vocab.json", place / "merges.txt")
    model = tokenizers.models.BPE.from_file(str(place / "vocab.json"), str(place / "merges.txt"))
    peer = tokenizers.Tokenizer(model)
    peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in TEXTS:
        assert tokenizer.encode(text) == peer.encode(text).ids == bpe.load(place).encode(text)
    assert tokenizer.encode(b"a\xff") == tokenizer.encode("a")
    del vocab[bpe.formats.vocabularies.to_printable(b"\x01")]
    (place / "vocab.json").write_text(json.dumps(vocab))
    with pytest.raises(ValueError, match="no token for byte 0x01"):
        bpe.Tokenizer.from_gpt2(place / "vocab.json", place / "merges.txt")


def test_added_tokens_beside_a_model_of_sentencepiece(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(model_of(pieces_with_runs([2, 4])))
    size = bpe.load(tmp_path).n_vocab
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    tokens = {
        "0": {"content": "<unk>", "special": True, **flags},
        str(size): {"content": "<|im_start|>", "special": True, **flags},
        str(size + 1): {"content": "[tool]", "special": False, **flags, "rstrip": True},
    }
    config = {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": tokens}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = bpe.load(tmp_path)
    assert tokenizer.special_tokens["<|im_start|>"] == size
    assert tokenizer.data.added_tokens == {"[tool]": size + 1}
    ids = tokenizer.encode("<|im_start|>the [tool]  the", allowed_special="all")
    assert ids == [size, *tokenizer.encode("the "), size + 1, *tokenizer.encode("the")]
    assert tokenizer.decode(ids) == "<|im_start|> the [tool] the"
    tokens["5"] = {"content": "<else>", "special": True, **flags}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="'<else>' has the id 5"):
        bpe.load(tmp_path)


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json"])
@pytest.mark.parametrize("token", [{"special": True}, {"content": 5}, 7])
def test_an_added_token_of_a_configuration_without_content_is_refused(tmp_path: Path, file: str, token: Any) -> None:
    tokenizer = bpe.Tokenizer.from_ranks(BYTE_RANKS, pattern="gpt2")
    if file == "tokenizer.model":
        (tmp_path / file).write_bytes(model_of(pieces_with_runs([2])))
    elif file == "vocab.json":
        tokenizer.to_gpt2(tmp_path)
    else:
        (tokenizer.to_huggingface if file == "tokenizer.json" else tokenizer.to_tiktoken)(tmp_path / file)
    name = "TikTokenTokenizer" if file == "tiktoken.model" else "GPT2Tokenizer"
    config = {"tokenizer_class": name, "added_tokens_decoder": {"300": token}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="added_tokens_decoder"):
        bpe.load(tmp_path)
    if file == "vocab.json":
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"additional_special_tokens": token}))
        with pytest.raises(ValueError, match="special token"):
            bpe.load(tmp_path)


def test_ranks_in_a_folder_have_the_pattern_and_the_special_tokens_of_the_class(tmp_path: Path) -> None:
    bpe.Tokenizer.from_ranks(BYTE_RANKS, pattern="gpt2").to_tiktoken(tmp_path / "tiktoken.model")
    tokens = {"260": {"content": "[EOS]", "special": True}}
    config = {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": tokens}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    kimi = bpe.load(tmp_path)
    assert kimi.special_tokens == {"<|reserved_token_259|>": 259, "[EOS]": 260}
    assert kimi.encode("the 中文") == bpe.load(tmp_path, pattern=bpe.formats.gguf.KIMI).encode("the 中文")
    shutil.move(tmp_path / "tiktoken.model", tmp_path / "qwen.tiktoken")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "QWenTokenizer"}')
    qwen = bpe.load(tmp_path)
    assert (qwen.pattern, qwen.special_tokens["<|im_end|>"], qwen.n_vocab) == ("qwen2", 261, 259 + 208)
    assert qwen.encode("e\u0301") == qwen.encode("é")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="give its pattern"):
        bpe.load(tmp_path)


@pytest.mark.parametrize(("name", "reason"), [("vocab.txt", "WordPiece"), ("spiece.model", "Unigram")])
def test_folders_of_other_models_say_what_reads_them(tmp_path: Path, name: str, reason: str) -> None:
    pieces = b"".join(model_of([("a", 0.0, 1)]).rsplit(b"\x12", 1)[:1])  # no trainer's settings: Unigram is the default
    (tmp_path / name).write_bytes(b"[PAD]\n[UNK]\n" if name == "vocab.txt" else pieces)
    with pytest.raises(ValueError, match=rf"{reason}.*use "):
        bpe.load(tmp_path)
