"""One thread: the matrices here are too small for two, and waiting for the second takes milliseconds."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import interpreter  # noqa: F401 (before whatever imports triton)
import pytest
import torch
from models import forget_libraries, random_model
from runs import run, some_tokens
from talks import tokenizer as of_bytes

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

    return random_model(259, 1024, 1, 32, 2, 32)


@pytest.fixture(scope="module")
def tokenizer():
    """Its tokenizer: a token for each byte, and the marks of a chat."""
    return of_bytes()


@pytest.fixture(scope="module")
def client(server):
    """OpenAI's own client of the server of a file: its address, or that and more."""
    openai = pytest.importorskip("openai")
    address = server if isinstance(server, str) else server[0]
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def tok(tmp_path):
    """A small tokenizer, which is in tmp_path / "tok.json" too."""
    from corpora import tokenizer as small_tokenizer

    small = small_tokenizer()
    small.save(tmp_path / "tok.json")
    return small


@pytest.fixture
def afresh(monkeypatch, tmp_path):
    """A cache folder of its own for what is compiled, and nothing known yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget_libraries()
    yield tmp_path / "groundup"
    forget_libraries()
