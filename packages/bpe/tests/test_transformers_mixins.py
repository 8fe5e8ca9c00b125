"""transformers' own tests of tokenizers, run on tokenizers as they are and accelerated by bpe.

The tests, two mixins, come with the source distribution of transformers alone. `nox -s tests_transformers` fetches the
one of the installed version and names its folder in TRANSFORMERS_SOURCE. The tokenizers are small ones of the shapes of
GPT-2, Qwen 3 and Llama 3; where GROUNDUP_DATA names a folder with the published ones, those.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from strategies import corpus

import bpe
from bpe.integrations.transformers import accelerate

SOURCE = os.environ.get("TRANSFORMERS_SOURCE", "")
if not SOURCE:
    pytest.skip("TRANSFORMERS_SOURCE names no source distribution of transformers", allow_module_level=True)
sys.path.insert(0, SOURCE)

import transformers  # noqa: E402
from tests.test_tokenization_common import TokenizerTesterMixin  # type: ignore[import-not-found] # noqa: E402
from tests.test_tokenizers_backend_mixin import (  # type: ignore[import-not-found] # noqa: E402
    TokenizersBackendTesterMixin,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own
VOCABULARIES = Path(os.environ.get("GROUNDUP_DATA", ""), "vocab")
WORDS = "Hello world this is a test of some words that come up in sentences and examples. "


def gpt2(folder: Path) -> dict[str, Any]:
    """GPT-2's tokenizer, or one of its shape; returns what its configuration says."""
    if (VOCABULARIES / "vocab.bpe").exists():
        bpe.load(VOCABULARIES / "vocab.bpe").to_huggingface(folder / "tokenizer.json")
    else:
        train(folder, "gpt2", ["<|endoftext|>"])
    end = "<|endoftext|>"
    return {"tokenizer_class": "GPT2Tokenizer", "unk_token": end, "bos_token": end, "eos_token": end, "pad_token": end}


def qwen3(folder: Path) -> dict[str, Any]:
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    published(folder, "qwen3") or train(folder, "qwen2", names)
    return {"tokenizer_class": "Qwen2Tokenizer", "eos_token": names[2], "pad_token": names[0], "unk_token": names[0]}


def llama3(folder: Path) -> dict[str, Any]:
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    published(folder, "llama3") or train(folder, "llama3", names, before=names[0])
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": names[0],
        "eos_token": names[1],
        "pad_token": names[1],
        "unk_token": names[1],
    }


def published(folder: Path, name: str) -> bool:
    """Put the published tokenizer into the folder; returns whether there is one."""
    file = VOCABULARIES / f"{name}_tokenizer.json"
    if not file.exists():
        return False
    (folder / "tokenizer.json").write_bytes(file.read_bytes())
    return True


def train(folder: Path, pattern: str, names: list[str], before: str | None = None) -> None:
    """Put a small tokenizer into the folder, which puts the token `before` before each text."""
    path = folder / "tokenizer.json"
    bpe.train([corpus(3, words=2000) + WORDS * 50], 700, pattern=pattern, special_tokens=names).to_huggingface(path)
    if before is not None:
        file = json.loads(path.read_text())
        number = next(token["id"] for token in file["added_tokens"] if token["content"] == before)
        first: list[dict[str, Any]] = [{"SpecialToken": {"id": before, "type_id": 0}}]
        first.append({"Sequence": {"id": "A", "type_id": 0}})
        file["post_processor"] = {
            "type": "TemplateProcessing",
            "single": first,
            "pair": [*first, {"SpecialToken": {"id": before, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {before: {"id": before, "ids": [number], "tokens": [before]}},
        }
        path.write_text(json.dumps(file))


class Mixins(TokenizerTesterMixin, TokenizersBackendTesterMixin):  # type: ignore[misc]
    """Both mixins, on the tokenizer that `make` puts into a folder."""

    make: Callable[[Path], dict[str, Any]]
    is_accelerated = False

    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        settings = cls.make(folder)
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 1024}))
        cls.tokenizer_class = cls.rust_tokenizer_class = getattr(transformers, settings["tokenizer_class"])
        cls.from_pretrained_id = str(folder)
        sample = Path(SOURCE, "tests", "fixtures", "sample_text.txt")  # is read, and not in the source distribution
        sample.parent.mkdir(exist_ok=True)
        sample.write_text(WORDS * 3)
        if cls.is_accelerated:
            load = vars(transformers.PreTrainedTokenizerBase)["from_pretrained"].__func__
            loads = classmethod(lambda kind, *arguments, **options: accelerate(load(kind, *arguments, **options)))
            cls.enterClassContext(mock.patch.object(transformers.PreTrainedTokenizerFast, "from_pretrained", loads))
        super().setUpClass()

    def test_it_is_accelerated_or_not(self) -> None:
        assert ("_encode_plus" in vars(self.get_tokenizer())) == self.is_accelerated


class TestGPT2(Mixins, unittest.TestCase):
    make = staticmethod(gpt2)


class TestGPT2Accelerated(TestGPT2):
    is_accelerated = True


class TestQwen3(Mixins, unittest.TestCase):
    make = staticmethod(qwen3)


class TestQwen3Accelerated(TestQwen3):
    is_accelerated = True


class TestLlama3(Mixins, unittest.TestCase):
    make = staticmethod(llama3)


class TestLlama3Accelerated(TestLlama3):
    is_accelerated = True
