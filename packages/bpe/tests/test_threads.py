"""Threads that share what this package says may be shared: the same results as one thread after another.

On an interpreter without a GIL these tests, and the whole suite by `nox -s tests_free_threaded`, run the threads side
by side; with one, threads are switched as often as Python can.
"""

from __future__ import annotations

import ast
import contextlib
import os
import random
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import words_of

import bpe
from bpe import patterns
from bpe.encoding.text_encoder import THREAD_TEXT, TextEncoder
from bpe.native.once import made_once
from bpe.native.parallel import map_in_threads

THREADS = 6
pytestmark = pytest.mark.thread_unsafe(reason="these tests have threads of their own, which are switched often")
WORDS = [
    f"{begin}{end}" for begin in ("th", "wo", "é", "中", "12", "x" * 70) for end in ("e", "rd's", "ing", "文", "34")
]
TEXTS = [" ".join(WORDS[(i * k) % len(WORDS)] for i in range(200 * k)) for k in range(1, 8)]
SPECIAL = "<|endoftext|>"


@pytest.fixture(autouse=True)
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*works: Callable[[], object], times: int = 1) -> list[Any]:
    """The results of the works, all begun at once, in threads."""
    begin = threading.Barrier(len(works) * times)
    results: list[Any] = [None] * (len(works) * times)
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            begin.wait()
            results[place] = works[place % len(works)]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def used(tokenizer: bpe.Tokenizer, path: Path) -> list[Any]:
    """The results of the methods of a tokenizer that encode, decode, count and save."""
    actual: list[Any] = []
    for text in TEXTS:
        ids = tokenizer.encode(text)
        actual += [ids, tokenizer.decode(ids), tokenizer.decode_bytes(np.array(ids)), tokenizer.count_tokens(text)]
        actual += [tokenizer.encode_to_numpy(text.encode()).tolist(), tokenizer.decode_with_offsets(ids)]
        actual += [tokenizer.encode(text + SPECIAL, allowed_special={SPECIAL}), tokenizer.decode_tokens_bytes(ids)]
    actual += [tokenizer.encode_batch(TEXTS), list(tokenizer.encode_iterable(TEXTS))]
    actual += [[ids.tolist() for ids in tokenizer.encode_batch_to_numpy(TEXTS, num_threads=2)], tokenizer.fingerprint]
    actual += [tokenizer.encode_single_token("e"), tokenizer.token_byte_values(), tokenizer.merges]
    tokenizer.save(path)
    return [*actual, path.read_bytes()]


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20, 64 << 20])
def test_one_tokenizer_serves_all_from_its_first_use_on(cache_bytes: int, tmp_path: Path) -> None:
    trained = bpe.train([" ".join(TEXTS)], 300, special_tokens=[SPECIAL])
    expected = used(trained, tmp_path / "alone.json")
    for _ in range(5):
        shared = bpe.Tokenizer.from_data(trained.data, cache_bytes=cache_bytes)
        for actual in together(lambda: used(shared, tmp_path / f"{threading.get_ident()}.json"), times=THREADS):  # noqa: B023
            assert actual == expected


@pytest.mark.parametrize("kind", [str.encode, str], ids=["bytes", "str"])
def test_caches_go_from_thread_to_thread(kind: Callable[[str], Any]) -> None:
    """Texts so short that threads take caches and give them back all the time."""
    tokenizer = bpe.train([" ".join(TEXTS)], 300)
    texts = [kind(f"{word} {word}s") for word in WORDS]
    expected = [tokenizer.encode(text) for text in texts]

    def work() -> None:
        for _ in range(300):
            assert [tokenizer.encode(text) for text in texts] == expected

    together(work, times=THREADS)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 18, 1 << 20, 64 << 20])
def test_threads_fill_one_cache_while_it_grows_and_forgets(cache_bytes: int) -> None:
    """Words short and long, of few ids and of many: in slots and in the ring, both overwritten where it is small."""
    words = words_of("abcdef", random.Random(cache_bytes).choices(range(1, 40), k=12_000), cache_bytes)
    trained = bpe.train([" ".join(words[:2_000])], 400)
    texts = [" ".join(words[begin : begin + 3_000]) for begin in (0, 1_500, 3_000, 6_000, 9_000, 500)]
    expected = [trained.encode_to_numpy(text) for text in texts]
    tokenizer = bpe.Tokenizer.from_data(trained.data, cache_bytes=cache_bytes)

    def encode_from(first: int) -> Callable[[], None]:
        def encode() -> None:
            for turn in range(6):
                number = (first + turn) % len(texts)
                assert np.array_equal(tokenizer.encode_to_numpy(texts[number]), expected[number])

        return encode

    together(*map(encode_from, range(THREADS)))
    assert tokenizer.encode_batch_to_numpy(texts, num_threads=2)[3].tolist() == expected[3].tolist()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_other_threads_encode_leaves_a_child_that_can() -> None:
    tokenizer = bpe.train([" ".join(TEXTS)], 300)
    texts = [" ".join(f"{word:x}" for word in range(begin, begin + 30_000)) for begin in (0, 20_000)]
    expected = [tokenizer.encode(text) for text in texts]
    for _ in range(4):
        fresh = bpe.Tokenizer.from_data(tokenizer.data)
        thread = threading.Thread(target=lambda: fresh.encode(texts[0]))  # noqa: B023
        thread.start()
        child = os.fork()
        if child == 0:
            os._exit(0 if [fresh.encode(text) for text in texts] == expected else 1)
        thread.join()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def test_ids_of_long_texts_belong_to_one_thread() -> None:
    tokenizer = bpe.train([" ".join(TEXTS)], 300)
    texts = [f" {word}" * (1_500_000 // len(word.encode())) for word in ("the", "wording", "1234")]
    expected = [tokenizer.encode_to_numpy(text) for text in texts]

    def work(i: int) -> Callable[[], None]:
        def encode() -> None:
            for _ in range(12):
                assert np.array_equal(tokenizer.encode_to_numpy(texts[i]), expected[i])

        return encode

    together(*map(work, range(len(texts))), times=2)


def test_training_in_two_threads(tmp_path: Path) -> None:
    """Of one source and with one pattern, which is compiled at the first use."""
    (tmp_path / "corpus.txt").write_text(" ".join(TEXTS) * 20)
    pattern = patterns.resolve(r"\p{L}{1,7}|\P{L}{1,3}", "fancy-regex")
    for settings in ({"pattern": "gpt2", "num_threads": 2}, {"pattern": pattern}, {"memory_limit": 1 << 20}):

        def train() -> bpe.Tokenizer:
            return bpe.train(tmp_path / "corpus.txt", 290, **settings)  # type: ignore[arg-type]  # noqa: B023

        expected = train().data
        assert all(actual.data == expected for actual in together(train, times=3))


def test_reading_files_in_threads(tmp_path: Path) -> None:
    tokenizer = bpe.train([" ".join(TEXTS)], 300, special_tokens=[SPECIAL])
    tokenizer.save(tmp_path / "tokenizer.bpe.json")
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")

    def load(name: str) -> Callable[[], list[int]]:
        return lambda: bpe.load(tmp_path / name).encode(TEXTS[0])

    actual = together(load("tokenizer.bpe.json"), load("tokenizer.json"), times=3)
    assert actual == [tokenizer.encode(TEXTS[0])] * 6


def test_tables_are_made_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes meanwhile waits for them, or each of a server's threads would take as much time and memory."""
    tokenizer = bpe.train([" ".join(TEXTS)], 300)
    result: list[object] = []
    make = TextEncoder._make_encoder

    def slow(self: TextEncoder, *arguments: Any) -> Any:
        result.append(None)
        time.sleep(0.05)
        return make(self, *arguments)

    monkeypatch.setattr(TextEncoder, "_make_encoder", slow)
    actual = together(lambda: tokenizer.encode("the word"), lambda: tokenizer.encode_batch(["the word"])[0], times=3)
    assert actual == [actual[0]] * 6
    assert len(result) == 1


def test_items_are_each_worked_on_once() -> None:
    for _ in range(200):
        done: list[int] = []
        assert map_in_threads(lambda item: done.append(item) or item, range(64), 2) == list(range(64))  # noqa: B023
        assert sorted(done) == list(range(64))


def test_a_pattern_is_compiled_by_one_thread() -> None:
    pattern = patterns.resolve(r"\p{L}{1,6}|\P{L}{1,2}", "fancy-regex")
    assert len(set(together(lambda: patterns.scanner_of(pattern), times=THREADS))) == 1


def test_what_is_made_once_can_be_made_anew() -> None:
    calls: list[int] = []

    @made_once
    def square(number: int) -> int:
        calls.append(number)
        time.sleep(0.01)
        return number * number

    assert together(lambda: square(3), lambda: square(4), times=3) == [9, 16] * 3
    assert sorted(calls) == [3, 4]
    square.cache_clear()
    assert (square(3), sorted(calls)) == (9, [3, 3, 4])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_tables_are_made_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = bpe.train([" ".join(TEXTS)], 300)
    begun, go_on = threading.Event(), threading.Event()
    make = TextEncoder._make_encoder

    def slow(self: TextEncoder, *arguments: Any) -> Any:
        begun.set()
        go_on.wait()
        return make(self, *arguments)

    monkeypatch.setattr(TextEncoder, "_make_encoder", slow)
    first = threading.Thread(target=lambda: tokenizer.encode("the word"))
    first.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        monkeypatch.undo()
        os._exit(0 if tokenizer.decode(tokenizer.encode("the word")) == "the word" else 1)
    go_on.set()
    first.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


FORK_DURING_IMPORT = """
import importlib.abc, os, signal, sys, threading, time
import bpe

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            importing.set()
            time.sleep(0.2)  # so that the fork below comes while this thread has the module's import lock

importing = threading.Event()
sys.meta_path.insert(0, Slow())
vocab = {i: bytes([i]) for i in range(256)}
tokenizer = bpe.Tokenizer.from_data(bpe.TokenizerData(vocab, [], {}, bpe.patterns.resolve("gpt2")))
assert not {"numpy", sys.argv[1]} & {*sys.modules}

def use():
    tokenizer.save(sys.argv[2])
    assert bpe.Counts.from_mapping(dict(bpe.count(["a"]).items()))
    assert bpe.patterns.scanner_of(bpe.patterns.resolve(r"[a-z]+|[^a-z]+", "fancy-regex")) >= 0
    assert tokenizer.encode("a") == tokenizer.encode_batch(["a"])[0] == list(tokenizer.encode_iterable(["a"])) == [97]
    assert tokenizer.decode(tokenizer.encode_to_numpy("a")) == "a"

first = threading.Thread(target=use)
first.start()
importing.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)  # kills a child that hangs
    use()
    os._exit(0)
first.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "module",
    ["numpy", "hashlib", "queue", "bpe.encoding.streaming", "bpe.encoding.decoder", "bpe.expressions.automaton"],
)
def test_a_fork_while_another_thread_imports_a_module_leaves_a_child_that_can(module: str, tmp_path: Path) -> None:
    program = (sys.executable, "-W", "ignore", "-c", FORK_DURING_IMPORT, module, str(tmp_path / "tokenizer.bpe"))
    assert subprocess.run(program, env=os.environ | {"BPE_CACHE_DIR": ""}).returncode == 0


def imports_of_functions(node: ast.AST, function: bool = False, lock: bool = False) -> Iterator[bool]:
    """For each import statement in the functions of a syntax tree: is it under import_lock?"""
    if isinstance(node, ast.Import | ast.ImportFrom) and function:
        yield lock
    function |= isinstance(node, ast.FunctionDef)
    lock |= isinstance(node, ast.With) and ast.unparse(node.items[0]) == "import_lock"
    for child in ast.iter_child_nodes(node):
        yield from imports_of_functions(child, function, lock)


def test_what_a_function_imports_is_under_the_lock_that_a_fork_waits_for() -> None:
    """But for importlib, which is there, the command line, and what runs code of others when it is imported."""
    imports, folder = {}, Path(bpe.__file__).parent
    for file in folder.rglob("*.py"):
        name = file.relative_to(folder).as_posix()
        if not name.startswith(("commands/", "cluster/", "integrations/")):
            imports[name] = [*imports_of_functions(ast.parse(file.read_text(encoding="utf-8")))]
    assert sum(map(any, imports.values())) > 12
    assert [name for name, locks in imports.items() if not all(locks)] == ["__init__.py"]


EVERY_MODULE = """
import importlib, pkgutil, sys, bpe
for module in pkgutil.walk_packages(bpe.__path__, "bpe."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # of an extra that is not installed
            assert not error.name.startswith("bpe"), error
"""
IMPORT_LOCK_HELD = """
import faulthandler, threading
import bpe
from bpe.native.lazy_imports import import_lock

def hold():
    with import_lock:
        held.set()
        threading.Event().wait()

held = threading.Event()
threading.Thread(target=hold, daemon=True).start()
held.wait()
faulthandler.dump_traceback_later(300, exit=True)  # ends a process that hangs
"""


def test_an_import_never_waits_for_a_thread_that_waits_for_an_import() -> None:
    """A thread that has import_lock may wait for any module, so one that is importing a module must do without."""
    subprocess.run([sys.executable, "-c", IMPORT_LOCK_HELD + EVERY_MODULE], check=True, stdout=subprocess.DEVNULL)


FORK_DURING_FIRST_SCAN = """
import os, signal, sys, threading
import bpe

patterns = ("gpt2", "cl100k", "qwen3.5", "o200k", "deepseek-v3")
tokenizers = [bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], pattern=pattern) for pattern in patterns]
text = "é a" * 3000  # long enough to be scanned without the GIL
for tokenizer in tokenizers:
    tokenizer._text_encoder.encoder  # what is made before the first scan
threads = [threading.Thread(target=tokenizer.encode, args=(text,)) for tokenizer in tokenizers]
children = []
sys.setswitchinterval(1e-6)
for thread in threads:
    thread.start()
    while thread.is_alive():
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # kills a child that waits for a table of classes which nobody fills
            assert all(tokenizer.encode("é a") == [195, 169, 32, 97] for tokenizer in tokenizers)
            os._exit(0)
        children.append(child)
sys.exit(max((abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in children), default=0))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_fills_a_table_of_classes_leaves_a_child_that_can() -> None:
    for _ in range(6):  # the moment is a fraction of a millisecond, which one process may miss
        program = (sys.executable, "-W", "ignore", "-c", FORK_DURING_FIRST_SCAN)
        assert subprocess.run(program, env=os.environ | {"BPE_CACHE_DIR": ""}).returncode == 0


def test_a_list_that_another_thread_changes() -> None:
    """It gives the ids that it had at some time, or an error; never what is no id of it."""
    tokenizer = bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [])
    ids = [97] * 500
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            ids[:] = [97] * 700
            del ids[:]
            ids.extend(98 for _ in range(600))

    def read() -> None:
        try:
            for _ in range(3000):
                with contextlib.suppress(RuntimeError):
                    assert set(tokenizer.decode_bytes(ids)) <= {97, 98}
        finally:
            stop.set()

    together(change, read)


GIL_ENABLED = """
bpe.Tokenizer({i: bytes([i]) for i in range(256)}, []).encode_to_numpy("text")
print(len([name for name in sys.modules if name.startswith("bpe.")]), sys._is_gil_enabled())
"""


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has a GIL")
def test_no_module_switches_the_gil_on() -> None:
    settings = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    program = f"import sys\nsys.path[:0] = {sys.path!r}\n{EVERY_MODULE}{GIL_ENABLED}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=settings)
    count, enabled = done.stdout.split()
    assert (enabled, done.stderr) == ("False", "")
    assert int(count) > 80


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("width", [1, 2])  # bytes a character, about
def test_texts_below_the_size_that_is_worth_a_thread_stay_in_the_calling_thread(more: int, width: int) -> None:
    tokenizer = bpe.train(["".join(TEXTS)], 300, special_tokens=[])
    encoder, text = tokenizer._text_encoder, " ".join(WORDS) if width == 2 else "the word's ending "
    size = THREAD_TEXT // width + more
    texts = [(text * 8192)[at : min(at + 4096, size)] for at in range(0, size, 4096)]
    expected = [tokenizer.encode(one) for one in texts]
    for threads in (1, 2, 5):
        batch = encoder.run_batch(texts, encoder.policy.rules((), ()), threads)
        assert batch.threads == min(threads, 1 + (more >= 0))
        assert batch.lists() == expected
        assert tokenizer.encode_batch(texts, num_threads=threads) == expected
