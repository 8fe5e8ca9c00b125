"""Training by tokenizers' names: merges, vocabulary and files beside tokenizers 0.23's own trainer."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tokenizers
from strategies import corpus

import bpe
from bpe import trainers as ours

pytest.importorskip("tokenizers.trainers", reason="tokenizers 1.0 has no trainers to compare with")
import tokenizers.decoders
import tokenizers.models
import tokenizers.normalizers
import tokenizers.pre_tokenizers
import tokenizers.processors

MIXED = "Ünïcode ﬁx 日本語の文章 ไทยแลนด์ שלום 123 4567 e\u0301 👩\u200d👩\u200d👧 don't  stop!\r\n\tA_b c-d\u3000x "
TEXTS = {
    "words": [corpus(3, 700)],
    "lines": corpus(4, 500).replace(" th", "\nth").splitlines(keepends=True),
    "mixed": [MIXED * 2, "", MIXED[::-1], " " + MIXED[5:]] * 3,
    "runs": ["aaaa" * 40 + " " * 30 + "ab" * 50, "\n" * 9, "=" * 50, "baab " * 20],
    "letters": ["abacabad abacaba " * 30, "x"],
}
PRE_TOKENIZERS: dict[str, Any] = {
    "byte level": lambda m: m.pre_tokenizers.ByteLevel(add_prefix_space=False),
    "byte level, space before": lambda m: m.pre_tokenizers.ByteLevel(),
    "split, byte level": lambda m: m.pre_tokenizers.Sequence(
        [
            m.pre_tokenizers.Split(m.Regex(r"\p{N}{1,3}|[^\p{N}\s]+|\s+"), "isolated"),
            m.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
    "whitespace": lambda m: m.pre_tokenizers.Whitespace(),
    "words and digits": lambda m: m.pre_tokenizers.Sequence(
        [m.pre_tokenizers.WhitespaceSplit(), m.pre_tokenizers.Digits(True), m.pre_tokenizers.Punctuation()]
    ),
    "bert": lambda m: m.pre_tokenizers.BertPreTokenizer(),
    "metaspace": lambda m: m.pre_tokenizers.Metaspace(),
    "metaspace, whole": lambda m: m.pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
    "merged with next": lambda m: m.pre_tokenizers.Split(" ", "merged_with_next"),
    # As tutorials have it: each word is given a space.
    "words, byte level": lambda m: m.pre_tokenizers.Sequence(
        [m.pre_tokenizers.Whitespace(), m.pre_tokenizers.ByteLevel()]
    ),
    "byte level, words": lambda m: m.pre_tokenizers.Sequence(
        [m.pre_tokenizers.ByteLevel(add_prefix_space=False), m.pre_tokenizers.Whitespace()]
    ),
    # As Falcon has it: digits and scripts are looked for among the characters that stand for bytes.
    "byte level, digits": lambda m: m.pre_tokenizers.Sequence(
        [
            m.pre_tokenizers.Punctuation("contiguous"),
            m.pre_tokenizers.ByteLevel(add_prefix_space=False),
            m.pre_tokenizers.Digits(individual_digits=False),
            m.pre_tokenizers.Split(m.Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
    "byte level, a delimiter of bytes": lambda m: m.pre_tokenizers.Sequence(
        [m.pre_tokenizers.ByteLevel(add_prefix_space=False), m.pre_tokenizers.CharDelimiterSplit("Ġ")]
    ),
    "delimiter": lambda m: m.pre_tokenizers.CharDelimiterSplit("a"),
}
NORMALIZERS: dict[str, Any] = {
    "none": lambda m: None,
    "folded": lambda m: m.normalizers.Sequence(
        [m.normalizers.NFD(), m.normalizers.StripAccents(), m.normalizers.Lowercase()]
    ),
    "NFKC": lambda m: m.normalizers.NFKC(),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "small": {"vocab_size": 120, "special_tokens": ["<unk>", "<|end|>", " "]},
    "bounded": {"vocab_size": 300, "min_frequency": 3, "max_token_length": 5, "initial_alphabet": ["xyz", "ß"]},
}


def pipeline(module: ModuleType, pre_tokenizer: str, normalizer: str) -> Any:
    tokenizer = module.Tokenizer(module.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre_tokenizer](module)
    if (part := NORMALIZERS[normalizer](module)) is not None:
        tokenizer.normalizer = part
    return tokenizer


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS)
def test_as_tokenizers_trains(pre_tokenizer: str, setting: str) -> None:
    normalizer = list(NORMALIZERS)[(list(PRE_TOKENIZERS).index(pre_tokenizer) + len(setting)) % 3]
    for name, texts in TEXTS.items():
        files = []
        for module in (tokenizers, ours):
            tokenizer = pipeline(module, pre_tokenizer, normalizer)
            trainer = module.trainers.BpeTrainer(show_progress=False, **SETTINGS[setting])
            tokenizer.train_from_iterator(texts, trainer)
            files.append(json.loads(tokenizer.to_str()))
        assert files[1] == files[0], (name, normalizer)


def test_rare_characters_are_dropped_and_what_is_beside_them_is_merged() -> None:
    texts = ["ab" * 50, "aXb" * 20, "aYb cYd" * 7, "cd" * 40]  # no two characters are equally common at the bound
    vocabularies = []
    for module in (tokenizers, ours):
        tokenizer = pipeline(module, "byte level", "none")
        trainer = module.trainers.BpeTrainer(show_progress=False, limit_alphabet=5, vocab_size=40)
        tokenizer.train_from_iterator([texts[:2], texts[2:]], trainer, length=4)
        vocabularies.append((tokenizer.get_vocab(), json.loads(tokenizer.to_str())["model"]["merges"]))
    assert vocabularies[1] == vocabularies[0]
    assert "Ġ" not in vocabularies[1][0]


def test_a_special_token_that_merging_makes_is_no_new_token() -> None:
    sizes = []
    for module in (tokenizers, ours):
        tokenizer = pipeline(module, "whitespace", "none")
        trainer = module.trainers.BpeTrainer(show_progress=False, vocab_size=14, special_tokens=["the"])
        tokenizer.train_from_iterator(["the then them other"] * 3, trainer)
        sizes.append((tokenizer.get_vocab_size(), tokenizer.token_to_id("the"), len(tokenizer.get_vocab())))
    assert sizes[1] == sizes[0]


SCRIPT = """
tokenizer = Tokenizer(models.BPE())
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=400,
    special_tokens=["<s>", AddedToken("<mask>", lstrip=True)],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
)
tokenizer.train([corpus], trainer)
ids = [("<s>", tokenizer.token_to_id("<s>")), ("<mask>", tokenizer.token_to_id("<mask>"))]
tokenizer.post_processor = processors.Sequence(
    [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing("<s> $A", "<s> $A <mask>:1 $B:1", ids)]
)
tokenizer.save(out)
encoded = tokenizer.encode("the cat é <mask> sat")
result = encoded.ids, encoded.tokens, tokenizer.decode(encoded.ids)
"""


def test_a_script_runs_with_its_import_changed(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes(("\n".join(corpus(7, 900).split(" the ")) + "é\r\nlast").encode())
    names = "Tokenizer, AddedToken, models, normalizers, pre_tokenizers, decoders, processors, trainers"
    results = []
    for module in ("tokenizers", "bpe.trainers"):
        space: dict[str, Any] = {"corpus": str(path), "out": str(tmp_path / f"{module}.json")}
        exec(f"from {module} import {names}\n{SCRIPT}", space)
        results.append((space["result"], json.loads(Path(space["out"]).read_bytes())))
    assert results[1] == results[0]
    loaded = bpe.load(tmp_path / "bpe.trainers.json")
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizers.json"))
    assert loaded.encode(MIXED) == peer.encode(MIXED, add_special_tokens=False).ids


def test_what_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="continuing_subword_prefix"):
        ours.BpeTrainer(continuing_subword_prefix="##")
    with pytest.raises(ValueError, match="end_of_word_suffix"):
        ours.Tokenizer(ours.models.BPE(end_of_word_suffix="</w>"))
    with pytest.raises(ValueError, match="min_frequency"):
        ours.BpeTrainer(min_frequency=-1)
    with pytest.raises(TypeError, match="behavio"):
        ours.pre_tokenizers.Split(" ", "removed", behaviour=1)
    tokenizer = ours.Tokenizer(ours.models.BPE())
    with pytest.raises(TypeError, match="3"):
        tokenizer.train_from_iterator([["a", 3]])
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(UnicodeDecodeError):
        tokenizer.train(tmp_path / "latin")


def test_nothing_to_train_on() -> None:
    tokenizer = ours.Tokenizer(ours.models.BPE())
    tokenizer.train_from_iterator([])
    assert tokenizer.get_vocab() == {}
    assert tokenizer.id_to_token(0) is None
