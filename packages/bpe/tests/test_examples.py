"""The examples in docstrings, run."""

import doctest
import importlib
import pkgutil

import pytest

import bpe

MODULES = [
    module.name for module in pkgutil.walk_packages(bpe.__path__, "bpe.") if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    known = {"bpe": bpe, "Tokenizer": bpe.Tokenizer}
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, extraglobs=known, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert not failed, f"what was printed shows the examples of {name} that fail"


def test_what_users_call_has_an_example() -> None:
    for function in (bpe.train, bpe.train_from_counts, bpe.extend, bpe.count, bpe.Counts.from_mapping):
        assert ">>>" in (function.__doc__ or ""), function
