"""The names that `import bpe` brings: every public name, and only what is used of the modules behind them."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
import typing
from importlib import import_module
from pathlib import Path

import pytest
from format_samples import sample

import bpe


def loaded_by(program: str) -> set[str]:
    """The modules that a process has once it has run a program."""
    program = f"import sys\nsys.path[:0] = {sys.path!r}\n{textwrap.dedent(program)}\nprint(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )


def test_public_names() -> None:
    for name in bpe.__all__:
        assert name in ("Progress", "Source") or getattr(bpe, name).__module__.startswith("bpe.")
        assert name in dir(bpe)
    assert bpe.patterns.resolve("gpt2").name == "gpt2"  # type: ignore[attr-defined]  # a module of the package
    with pytest.raises(AttributeError, match="'bpe' has no attribute 'Tokeniser'"):
        _ = bpe.Tokeniser  # type: ignore[attr-defined]


def test_importing_loads_nothing_that_trains_or_reads_files() -> None:
    loaded = loaded_by("import bpe")
    own = {name for name in loaded if name.startswith("bpe.")}
    own -= {"bpe.counting", "bpe.counting.pretoken_counts"}  # whose class the encoder's counts of symbols extend
    assert not {name for name in own if name.startswith(("bpe.counting", "bpe.merging", "bpe.outputs."))}
    unneeded = {"training", "counts", "corpus.sources", "merging.conventions", "published", "loading"}
    assert not own & {f"bpe.{name}" for name in unneeded}


def test_training_has_the_memory_to_itself() -> None:
    """Nothing that only files, checkpoints and decoding need is there while it counts and merges."""
    loaded = loaded_by("""
        import bpe
        there = set()
        bpe.train(["some text, some more text"], 258, progress=lambda *_: there.update(sys.modules))
        sys.modules = dict.fromkeys(there)
    """)
    assert "bpe.merging.merger" in loaded
    unused = ["numpy", "regex", "inspect", "pathlib", "json", "zlib", "lzma", "hashlib", "tempfile", "math"]
    modules = ["counting.checkpoint", "published", "encoding.decoder", "formats.vocabularies"]
    assert not loaded.intersection([*unused, *(f"bpe.{name}" for name in modules)])


def test_training_imports_nothing_but_threads_of_its_own() -> None:
    """A call of train() is not slower because it is the first, once the name `train` has been asked for."""
    loaded = loaded_by("""
        from bpe import train
        before = set(sys.modules)
        train(["some text, some more text"], 258)
        sys.modules = dict.fromkeys(set(sys.modules) - before)
    """)
    assert loaded <= {"queue", "_queue", "heapq", "_heapq"}


def test_encoding_loads_nothing_that_it_does_not_use() -> None:
    loaded = loaded_by("""
        import bpe
        bpe.Tokenizer({i: bytes([i]) for i in range(256)}, []).encode("text")
    """)
    assert "bpe.encoding.encoder" in loaded
    modules = ["counting.checkpoint", "encoding.decoder", "encoding.preparing", "published"]
    unused = {"regex", "pathlib", *(f"bpe.{name}" for name in modules)} - loaded_by("import numpy")  # 1.26 has pathlib
    assert not loaded & unused


@pytest.mark.parametrize("text", ["plain text", "nai\u0308ve, \u65e5\u672c", "nai\u0308ve, \u65e5\u672c".encode()])
def test_a_first_call_of_encode_visits_four_python_files(tmp_path: Path, text: str | bytes) -> None:
    """With a tokenizer.json of Qwen 3's steps: NFC, an expression, bytes. Compiled files have no frames to count."""
    path, sources = tmp_path / "tokenizer.json", Path(bpe.__file__).parent
    data = sample(normalizer="NFC", pattern=bpe.patterns.resolve("qwen2"))  # type: ignore[attr-defined]
    bpe.Tokenizer.from_data(data).to_huggingface(path)
    tokenizer, files = bpe.load(path), set()
    sys.setprofile(lambda frame, event, argument: files.add(Path(frame.f_code.co_filename)))
    try:
        tokenizer.encode(text)
    finally:
        sys.setprofile(None)
    files = {str(file.relative_to(sources)) for file in files if file.is_relative_to(sources)}
    assert "encoding/text_encoder.py" in files
    assert len(files) <= 4, sorted(files)


def test_annotations_of_every_public_callable_are_evaluated() -> None:
    """typing.get_type_hints() serves pydantic, typer and beartype, which read signatures."""
    modules = [
        import_module(f"bpe.{name}") for name in ("cluster", "trainers", "reference", "integrations.transformers")
    ]
    public = [getattr(bpe, name) for name in bpe.__all__]
    for module in modules:
        public += [
            value
            for name, value in vars(module).items()
            if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith(module.__name__)
        ]
    callables = [value for value in public if inspect.isfunction(value)]
    for kind in filter(inspect.isclass, public):
        callables += [value for name, value in inspect.getmembers(kind, inspect.isroutine) if not name.startswith("_")]
    callables = [value for value in callables if callable(value)]  # a cached_property is a routine from 3.14 on
    own = [value for value in callables if str(getattr(value, "__module__", None)).startswith("bpe.")]
    assert len(own) > 80
    for value in own:
        typing.get_type_hints(value)
