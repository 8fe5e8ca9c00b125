"""One thread: the matrices here are too small for two, and on a busy machine waiting for the second takes
milliseconds."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import interpreter  # noqa: F401 (before whatever imports triton)
import pytest
import torch
from runs import run, some_tokens
from served import MARKS

from lm.data import write_tokens

torch.set_num_threads(1)
sys.path.append(str(Path(__file__).parent.parent / "examples"))

# A shell that starts the tests in the background has them, and what they start and stop by Ctrl-C, ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is compiled and measured on the way is kept for these tests alone, for the processes that they start, and for
# xdist's workers, which inherit the folder and would compile everything again.
if not Path(os.environ.get("XDG_CACHE_HOME", "")).name.startswith("lm-tests-"):
    _cache = tempfile.TemporaryDirectory(prefix="lm-tests-")
    os.environ["XDG_CACHE_HOME"] = _cache.name


def write_data(folder, **more):
    write_tokens(folder / "train.npy", some_tokens(3000), text_bytes=9000, tokenizer="t", **more)
    write_tokens(folder / "heldout.npy", some_tokens(500, 1), text_bytes=1500, tokenizer="t", **more)
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder of tokens to learn from."""
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def with_ends(tmp_path_factory):
    """The same, where token 3 ends a text."""
    return write_data(tmp_path_factory.mktemp("with_ends"), end_of_text=3)


@pytest.fixture(scope="session")
def base(data, tmp_path_factory):
    """A run whose weights others begin with."""
    folder = tmp_path_factory.mktemp("base")
    run(data, folder)
    return folder


@pytest.fixture(scope="module")
def model():
    """The model that the tests of serving ask; other files have models of their own."""
    import lm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return lm.Transformer(lm.ModelConfig(259, 1024, 1, 32, 2, 32)).eval()


@pytest.fixture(scope="module")
def tokenizer():
    """Its tokenizer: a token for each byte, and the marks of a chat."""
    import bpe

    return bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=MARKS)
