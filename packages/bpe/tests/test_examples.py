"""The examples in docstrings, run."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import bpe

NEEDS = {"bpe.integrations.datatrove": "datatrove"}  # modules that need another package to be imported
MODULES = [
    module.name
    for module in pkgutil.walk_packages(bpe.__path__, "bpe.")
    if not module.name.endswith("__main__") and importlib.util.find_spec(NEEDS.get(module.name, "bpe"))
]
# Whose arguments are files of other programs; the guides have examples of them.
OF_FILES = {
    "from_tiktoken",
    "from_gpt2",
    "from_huggingface",
    "from_sentencepiece",
    "load",
    "to_tiktoken",
    "to_gpt2",
    "to_huggingface",
    "to_sentencepiece",
}
OPTIONAL = {"pandas", "polars", "pyarrow", "tokenizers", "transformers"}  # packages that an example may need
PLAIN = {"is_special_token", "token_byte_values", "from_data"}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where examples write their files
    tokenizer = bpe.train(["low lower lowest"], 262)  # as the docstring of Tokenizer says
    expected = {"bpe": bpe, "Tokenizer": bpe.Tokenizer, "tokenizer": tokenizer}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for examples in doctest.DocTestFinder().find(importlib.import_module(name), extraglobs=expected):
        if all(map(importlib.util.find_spec, OPTIONAL & set(re.findall(r"\w+", examples.docstring)))):
            runner.run(examples)
    assert not runner.failures, f"what was printed shows the examples of {name} that fail"


def test_what_users_call_has_an_example() -> None:
    functions = [bpe.train, bpe.train_from_counts, bpe.extend, bpe.count, bpe.load, bpe.Counts.from_mapping]
    functions += [bpe.encoding_for_model, bpe.encoding_name_for_model, bpe.get_encoding, bpe.list_encoding_names]
    for kind in (bpe.Encoding, bpe.Tokenizer, bpe.DecodeStream):
        names = [name for name in dir(kind) if not name.startswith("_") and name not in OF_FILES | PLAIN]
        methods = [inspect.getattr_static(kind, name) for name in names]
        functions += [getattr(one, "__func__", one) for one in methods if callable(one) or isinstance(one, classmethod)]
    for function in functions:
        assert ">>>" in (inspect.getdoc(function) or ""), function
