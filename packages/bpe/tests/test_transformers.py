"""accelerate(): a tokenizer of transformers gives by bpe what it gives by its own backend."""

from __future__ import annotations

import copy
import importlib
import json
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from sentencepiece_peers import KINDS, trained
from sentencepiece_samples import texts
from strategies import corpus

import bpe
from bpe.integrations.transformers import accelerate, patch_transformers, unpatch_transformers

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

TEXT = corpus(7, words=600)
TENSORS = ["np", *(["pt"] if transformers.utils.is_torch_available() else [])]


def tokenizer_file(folder: Path, **changes: Any) -> Path:
    """A tokenizer.json with special and added tokens, and a template around texts."""
    path = folder / "tokenizer.json"
    names = ["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"]
    bpe.train([TEXT], 500, pattern="o200k", special_tokens=names).to_huggingface(path)
    file = json.loads(path.read_text())
    ids = {entry["content"]: entry["id"] for entry in file["added_tokens"]}
    number = max(file["model"]["vocab"].values()) + 1
    file["added_tokens"].append({**file["added_tokens"][0], "id": number, "content": "naïve é", "special": False})
    around = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    file["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [*around, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [*around, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("<s>", "</s>")},
    }
    path.write_text(json.dumps({**file, **changes}))
    return path


def tokenizer_of(path: Path, **options: Any) -> Any:
    settings = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "model_max_length": 256, **options}
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), **settings)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_file(tmp_path_factory.mktemp("tokenizer"))


def pair_of(path: Path, **options: Any) -> tuple[Any, Any]:
    """(the tokenizer as it is, the same accelerated)."""
    return tokenizer_of(path, **options), accelerate(tokenizer_of(path, **options))


def result(tokenizer: Any, method: str, *arguments: Any, **options: Any) -> Any:
    """The result of a call, as plain values; the type of the error where it fails."""
    try:
        actual = getattr(tokenizer, method)(*arguments, **options)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of Rust, in tokenizers
            raise
        return type(error).__name__, str(error)
    return plain(actual)


def plain(value: Any) -> Any:
    if hasattr(value, "keys"):
        return [(key, plain(value[key])) for key in value.keys()]  # noqa: SIM118 (a BatchEncoding iterates otherwise)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "dtype"):
        return str(type(value)), str(value.dtype), plain(value.tolist())
    return value


def calls(choice: random.Random) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """A random call, mostly of what bpe answers."""

    def text() -> str:
        pieces = ["<s>", "</s>", "<|im_end|>", "naïve é", "é", "\ud800", "😀", "\n\n", "  ", ""]
        pieces += ["123", "Ġ", "don't"]
        words = TEXT.split(" ")
        return " ".join(
            choice.choice(words)
            if choice.random() < 0.8
            else choice.choice(pieces[: 5 if choice.random() < 0.9 else 13])
            for _ in range(choice.choice([0, 1, 3, 10, 40]))
        )

    batch = [text() for _ in range(choice.choice([1, 2, 5]))]
    inputs: Any = choice.choice(
        [batch, tuple(batch), batch[0], batch[0], []] if choice.random() < 0.2 else [batch, batch[0]]
    )
    options: dict[str, Any] = {}
    for name, values, often in (
        ("add_special_tokens", [True, False], 0.5),
        ("padding", [True, "longest", "max_length", False], 0.5),
        ("truncation", [True, "longest_first", "only_first", "only_second", False], 0.5),
        ("max_length", [1, 2, 3, 8, 20, 64], 0.6),
        ("pad_to_multiple_of", [1, 8], 0.2),
        ("padding_side", ["left", "right"], 0.2),
        ("return_tensors", TENSORS, 0.3),
        ("return_attention_mask", [True, False], 0.2),
        ("return_token_type_ids", [True, False], 0.2),
        ("return_length", [True], 0.1),
        ("return_offsets_mapping", [True], 0.3),
        ("return_special_tokens_mask", [True], 0.1),
        ("return_overflowing_tokens", [True], 0.05),
        ("stride", [0, 1], 0.1),
        ("split_special_tokens", [True, False], 0.1),
        ("is_split_into_words", [True], 0.05),
    ):
        if choice.random() < often:
            options[name] = choice.choice(values)
    if choice.random() < 0.1:
        pairs = [text() for _ in batch]
        return "__call__", (inputs, pairs if isinstance(inputs, (list, tuple)) else pairs[0]), options
    method = choice.choice(["__call__", "__call__", "__call__", "encode", "tokenize"])
    if method == "tokenize":
        return method, (text(),), {}
    if method == "encode" and not isinstance(inputs, str):
        method = "__call__"
    return method, (inputs,), options


SETTINGS: list[dict[str, Any]] = [{}, {"padding_side": "left", "truncation_side": "left"}, {"pad_token": None}]


def compare_calls(path: Path, settings: dict[str, Any], count: int, seed: str) -> None:
    """Make random calls of a tokenizer and of the same accelerated, and compare results, errors and backends."""
    plainly, fast = pair_of(path, **settings)
    choice = random.Random(seed)
    for _ in range(count):
        method, arguments, options = calls(choice)
        expected = result(plainly, method, *arguments, **options)
        assert result(fast, method, *arguments, **options) == expected, (method, arguments, options)
        assert fast.backend_tokenizer.padding == plainly.backend_tokenizer.padding
        assert fast.backend_tokenizer.truncation == plainly.backend_tokenizer.truncation


@pytest.mark.parametrize("settings", SETTINGS)
def test_random_calls_give_what_they_gave(path: Path, settings: dict[str, Any]) -> None:
    compare_calls(path, settings, 120, str(settings))


@pytest.mark.soak
@pytest.mark.parametrize("settings", SETTINGS)
def test_ten_thousand_random_calls_give_what_they_gave(path: Path, settings: dict[str, Any]) -> None:
    compare_calls(path, settings, 10_000, f"soak {settings}")


def test_random_ids_decode_to_what_they_did(path: Path) -> None:
    plainly, fast = pair_of(path)
    choice = random.Random(5)
    for _ in range(400):
        ids = [choice.randrange(510 if choice.random() < 0.05 else 501) for _ in range(choice.randrange(30))]
        inputs: Any = choice.choice([ids, ids[0] if ids else 0, [ids, ids[:3]]])
        options = {"skip_special_tokens": choice.random() < 0.5}
        if choice.random() < 0.2:
            options["clean_up_tokenization_spaces"] = choice.random() < 0.5
        method = "batch_decode" if isinstance(inputs, list) and inputs and isinstance(inputs[0], list) else "decode"
        assert result(fast, method, inputs, **options) == result(plainly, method, inputs, **options)
    assert result(fast, "decode", [-1]) == result(plainly, "decode", [-1])


def test_it_is_bpe_that_encodes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above would compare the backend with itself."""
    _, fast = pair_of(path)

    def never(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the backend was asked")

    monkeypatch.setattr(transformers.PreTrainedTokenizerFast, "_encode_plus", never)
    monkeypatch.setattr(transformers.PreTrainedTokenizerFast, "_decode", never)
    actual = fast(["low lower", TEXT], padding=True, truncation=True, max_length=50, return_tensors="np")
    assert actual["input_ids"].shape == (2, 50)
    assert fast.decode(fast.encode("low é"), skip_special_tokens=True) == "low é"
    with pytest.raises(AssertionError, match="the backend was asked"):
        fast("low", return_special_tokens_mask=True)


def test_what_the_encodings_hold_is_made_when_it_is_asked_for(path: Path) -> None:
    plainly, fast = pair_of(path)
    texts = ["low lower", "naïve é </s> text"]
    expected, actual = plainly(texts, padding=True), fast(texts, padding=True)
    assert actual.is_fast
    assert actual.n_sequences == expected.n_sequences == 1
    for number in range(2):
        assert actual.tokens(number) == expected.tokens(number)
        assert actual.word_ids(number) == expected.word_ids(number)
        assert actual.encodings[number].offsets == expected.encodings[number].offsets
        assert actual.char_to_token(number, 2) == expected.char_to_token(number, 2)
    again = pickle.loads(pickle.dumps(actual))
    assert again.tokens(1) == expected.tokens(1)
    assert dict(copy.deepcopy(actual)) == dict(expected)


def test_tokens_that_are_added_are_known(path: Path) -> None:
    plainly, fast = pair_of(path)
    text = "low<new> <|extra|>lower <late>"
    assert fast.encode(text) == plainly.encode(text)
    for tokenizer in (plainly, fast):
        tokenizer.add_tokens(["<new>"])
    assert fast.encode(text) == plainly.encode(text)
    for tokenizer in (plainly, fast):
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|extra|>"]})
    assert fast.encode(text) == plainly.encode(text)
    for tokenizer in (plainly, fast):
        tokenizer.backend_tokenizer.add_tokens(["<late>"])  # behind the tokenizer's back
    ids = plainly.encode(text)
    assert fast.encode(text) == ids
    assert fast.decode(ids, skip_special_tokens=True) == plainly.decode(ids, skip_special_tokens=True)
    assert len(fast) == len(plainly)


def test_a_backend_that_is_changed_is_what_encodes(path: Path) -> None:
    from tokenizers import normalizers, pre_tokenizers

    plainly, fast = pair_of(path)
    for change in (
        lambda backend: setattr(backend, "normalizer", normalizers.NFC()),
        lambda backend: setattr(backend, "normalizer", normalizers.Lowercase()),  # bpe has none
        lambda backend: setattr(backend, "normalizer", None),
        lambda backend: setattr(backend, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
        lambda backend: setattr(backend, "post_processor", None),
    ):
        for tokenizer in (plainly, fast):
            change(tokenizer.backend_tokenizer)
        text = "LOW e\u0301 lower</s>"
        assert fast.encode(text) == plainly.encode(text)
        assert fast.decode(fast.encode(text)) == plainly.decode(plainly.encode(text))


def test_copies_pickles_and_saved_ones(path: Path, tmp_path: Path) -> None:
    plainly, fast = pair_of(path)
    expected = plainly(["low lower", "é"], padding=True)
    for same in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert type(same) is type(plainly)
        assert dict(same(["low lower", "é"], padding=True)) == dict(expected)
        assert same._encode_plus.__self__.tokenizer is same
        same.add_tokens(["lower"])
        assert same.encode("lower") != fast.encode("lower") == plainly.encode("lower")
    fast.save_pretrained(tmp_path / "fast")
    plainly.save_pretrained(tmp_path / "plain")
    for file in (tmp_path / "plain").iterdir():
        assert (tmp_path / "fast" / file.name).read_bytes() == file.read_bytes()
    shallow = copy.copy(fast)
    shallow.padding_side = "left"
    assert shallow._encode_plus.__self__.tokenizer is shallow
    assert (
        dict(fast(["low lower", "é"], padding=True))
        == dict(expected)
        != dict(shallow(["low lower", "é"], padding=True))
    )


def test_chat_templates(path: Path) -> None:
    pytest.importorskip("jinja2")
    plainly, fast = pair_of(path)
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    talk = [{"role": "user", "content": "low lower?"}, {"role": "assistant", "content": "naïve é."}]
    for options in ({}, {"add_generation_prompt": True}, {"return_dict": True, "padding": True}, {"tokenize": False}):
        for inputs in (talk, [talk, talk[:1]]):
            expected = result(plainly, "apply_chat_template", inputs, chat_template=template, **options)
            assert result(fast, "apply_chat_template", inputs, chat_template=template, **options) == expected


def test_what_is_not_supported_is_refused_and_left_as_it_was(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="is accelerated, not str"):
        accelerate("gpt2")
    file = json.loads(path.read_text())
    file["model"]["dropout"] = 0.1
    (tmp_path / "other.json").write_text(json.dumps(file))
    other = tokenizer_of(tmp_path / "other.json")
    with pytest.raises(ValueError, match="dropout"):
        accelerate(other)
    assert "_encode_plus" not in vars(other)

    class Own(transformers.PreTrainedTokenizerFast):  # type: ignore[name-defined]
        def _decode(self, *arguments: Any, **options: Any) -> str:
            return "own"

    with pytest.raises(TypeError, match=r"has a _decode\(\) of its own"):
        accelerate(Own(tokenizer_file=str(path)))


@pytest.mark.parametrize("name", ["llama3", "qwen3", "deepseek_v3"])
def test_published_tokenizers(name: str) -> None:
    file = Path(os.environ.get("GROUNDUP_DATA", ""), "vocab", f"{name}_tokenizer.json")
    if not file.exists():
        pytest.skip("GROUNDUP_DATA names no folder with it")
    settings = {"bos_token": None, "eos_token": None, "pad_token": None}
    plainly, fast = pair_of(file, **settings)
    texts = [TEXT, "  é\n\n123456 <|im_start|>user\n<|begin_of_text|>don't", ""]
    assert dict(fast(texts)) == dict(plainly(texts))
    assert plain(fast(texts, return_offsets_mapping=True)) == plain(plainly(texts, return_offsets_mapping=True))
    ids = plainly(texts)["input_ids"]
    for skip in (False, True):
        assert fast.batch_decode(ids, skip_special_tokens=skip) == plainly.batch_decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_of_characters(kind: str, tmp_path: Path) -> None:
    """As Llama 2's and Gemma's are."""
    trained(kind).save(str(tmp_path / "tokenizer.json"))
    settings = {"eos_token": "</s>", "pad_token": "<unk>"}
    compare_calls(tmp_path / "tokenizer.json", settings, 80, kind)
    plainly, fast = pair_of(tmp_path / "tokenizer.json", **settings)
    assert fast._encode_plus.__self__.current() is not None
    for text in texts(3, 200):
        ids = plainly(text)["input_ids"]
        assert fast(text)["input_ids"] == ids
        assert fast.decode(ids) == plainly.decode(ids)


SAME = """
import hashlib, pickle, sys, bpe
tokenizer = bpe.load(sys.argv[1])
if len(sys.argv) > 2:
    tokenizer.encode("low lower"), tokenizer.merges, tokenizer.fingerprint, tokenizer.decode([258])
print(hashlib.sha256(pickle.dumps(tokenizer)).hexdigest())
"""


def test_a_tokenizer_pickles_to_the_same_bytes_in_every_process(path: Path, tmp_path: Path) -> None:
    """So that what datasets caches by the pickle of a function is found again."""
    names = [f"<{number}>" for number in range(20)]
    output = bpe.train([TEXT], 400, special_tokens=names)
    output = bpe.Tokenizer.from_data(output.data._replace(lstrip=frozenset(names[:9]), normalized=frozenset(names[5:])))
    output.save(tmp_path / "tokenizer.bpe")
    actual = set()
    for seed, used in (("1", ()), ("2", ("used",)), ("3", ())):
        command = [sys.executable, "-c", SAME, str(tmp_path / "tokenizer.bpe"), *used]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        actual.add(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
    assert len(actual) == 1
    assert pickle.dumps(pickle.loads(pickle.dumps(output))) == pickle.dumps(output)
    again = pickle.loads(pickle.dumps(output))
    assert again.data == output.data
    assert again.encode("low <3> lower", allowed_special="all") == output.encode("low <3> lower", allowed_special="all")


def saved(path: Path, folder: Path) -> str:
    tokenizer_of(path).save_pretrained(folder)
    return str(folder)


def test_a_whole_process_is_patched_and_unpatched(path: Path, tmp_path: Path) -> None:
    folder, original = saved(path, tmp_path), transformers.AutoTokenizer.from_pretrained
    try:
        patch_transformers()
        patch_transformers()
        fast = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
        assert "_encode_plus" in vars(fast)
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
        transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "words")
        assert "_encode_plus" not in vars(transformers.AutoTokenizer.from_pretrained(tmp_path / "words"))  # no BPE
        with pytest.raises(OSError, match="absent"):
            transformers.AutoTokenizer.from_pretrained(str(tmp_path / "absent"))
    finally:
        unpatch_transformers()
    unpatch_transformers()
    assert transformers.AutoTokenizer.from_pretrained == original
    plainly = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    assert "_encode_plus" not in vars(plainly)
    assert type(fast) is type(plainly)
    batch = ["the cat<|im_end|>", "naïve é"]
    assert plain(fast(batch, padding=True)) == plain(plainly(batch, padding=True))


def test_a_mode_of_vllm(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As vLLM uses it: its registry is told a module and a class, whose tokenizer it copies and gives another class."""
    modes: dict[str, tuple[str, str]] = {}

    class CachedHfTokenizer:
        @staticmethod
        def from_pretrained(*arguments: Any, **options: Any) -> Any:
            inner = transformers.AutoTokenizer.from_pretrained(*arguments, **options)
            cached = copy.copy(inner)
            cached.__class__ = type("Cached", (type(inner),), {"__len__": lambda self: 7})
            return cached

    registry = SimpleNamespace(register=lambda mode, module, name: modes.update({mode: (module, name)}))
    for name, content in {
        "vllm": {},
        "vllm.tokenizers": {"TokenizerRegistry": registry},
        "vllm.tokenizers.hf": {"CachedHfTokenizer": CachedHfTokenizer},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    importlib.import_module("bpe.integrations.vllm").register()
    module_name, class_name = modes["bpe"]
    try:
        tokenizer = getattr(importlib.import_module(module_name), class_name).from_pretrained(saved(path, tmp_path))
    finally:
        unpatch_transformers()
    tokenizer.padding_side = "left"
    theirs = tokenizer_of(path, padding_side="left")
    batch = ["the cat<|im_end|>", "naïve é"]
    assert "_encode_plus" in vars(tokenizer)
    assert len(tokenizer) == 7
    assert plain(tokenizer(batch, padding=True)["input_ids"]) == plain(theirs(batch, padding=True)["input_ids"])
    assert tokenizer.decode(tokenizer.encode(batch[0])) == theirs.decode(theirs.encode(batch[0]))
