"""Counting within a limit of memory: the same counts through files that are sorted and added up."""

import errno
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alarms import needs_alarms, rings_after
from hypothesis import given
from hypothesis import strategies as st
from strategies import DATA, corpus

import bpe
from bpe import patterns, reference
from bpe.counting import count as counting
from bpe.counting import spill
from bpe.counting.count import CHUNK, Plan, plan
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import (
    add_sorted,
    approximate_kth_largest_count,
    items,
    number_of_records,
    pack_table,
    sorted_blocks,
    total_size,
)
from bpe.native import lazy_imports
from bpe.patterns import scanner_of
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.special_tokens import SpecialTokens

SPECIAL = SpecialTokens(["<|endoftext|>"])


def count(texts: list[bytes], limit: int | None, num_threads: int = 2, pattern: str = "gpt2") -> dict[bytes, int]:
    records = counting.count_source(texts, patterns.resolve(pattern), SPECIAL, num_threads, lambda *_: None, limit)
    actual = list(items(records))
    assert len(dict(actual)) == len(actual)
    if limit is not None:
        assert [word for word, _ in actual] == sorted(word for word, _ in actual)
    return dict(actual)


@given(st.lists(DATA, max_size=8), st.integers(1, 3))
def test_any_text_within_any_limit(texts: list[bytes], num_threads: int) -> None:
    expected = reference.count_pretokens(texts, "gpt2", ["<|endoftext|>"])
    assert count(texts, None, num_threads) == expected
    assert count(texts, 1, num_threads) == expected


def test_files_are_added_up_in_several_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "FAN_IN", 3)
    monkeypatch.setattr(counting, "SMALLEST_CHUNK", 200)
    texts = [corpus(seed).encode() for seed in range(4)]
    expected = reference.count_pretokens(texts, "gpt2", ["<|endoftext|>"])
    for limit in (1, 10_000, 1_000_000, None):
        assert count(texts, limit) == expected
    with pytest.warns(UserWarning, match="no compiled scanner"):
        slow = count(texts[:1], 1, pattern="(?<!x)[a-z]+|[^a-z]+")
    assert slow == reference.count_pretokens(texts[:1], "(?<!x)[a-z]+|[^a-z]+", ["<|endoftext|>"])


def test_a_short_file_has_a_thread_for_every_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "text.txt"
    path.write_text(corpus(7), encoding="utf-8")
    text = path.read_bytes()
    expected = reference.count_pretokens([text], "gpt2", ["<|endoftext|>"])
    tables: list[int] = []
    stream = counting.stream
    monkeypatch.setattr(counting, "stream", lambda *given, **how: tables.append(given[2]) or stream(*given, **how))
    for thread_bytes in (len(text) + 1, len(text) // 2, 1):
        monkeypatch.setattr(counting, "THREAD_BYTES", thread_bytes)
        records = counting.count_source(path, patterns.resolve("gpt2"), SPECIAL, 4, lambda *_: None)
        assert dict(items(records)) == expected
    assert tables == [2, 4]  # the shortest is counted in the calling thread


@given(st.lists(st.dictionaries(st.binary(min_size=1, max_size=20), st.integers(1, 2**52), max_size=20), max_size=6))
def test_sorted_records_add_up(tables: list[dict[bytes, int]]) -> None:
    files = []
    expected: Counter[bytes] = Counter()
    for counts in tables:
        table = PretokenCounts()
        for word, number in counts.items():
            table.add_count(word, number % 2**58)
            if number % 2**58:
                expected[word] += number % 2**58
        files.append(tempfile.TemporaryFile())  # noqa: SIM115
        files[-1].write(b"".join(sorted_blocks(pack_table(table))))
        files[-1].seek(0)
    records = b"".join(add_sorted(files))
    assert list(items(records)) == sorted(expected.items())
    assert number_of_records(records) == len(expected)
    assert total_size(records) == sum(number * len(word) for word, number in expected.items())
    for rank, number in enumerate(sorted(expected.values(), reverse=True)):
        assert number * 16 // 17 <= approximate_kth_largest_count(records, rank + 1) <= number
    assert approximate_kth_largest_count(records, len(expected) + 1) == 1
    for file in files:
        file.close()


def test_counts_of_any_size_have_a_rank() -> None:
    for power in range(64):
        for count in {1 << power, (1 << power) * 31 // 16, (2 << power) - 1}:
            table = PretokenCounts()
            table.add_count(b"word", count)
            assert count - count // 16 - 1 <= approximate_kth_largest_count(pack_table(table), 1) <= count


def test_long_pretokens_cross_blocks() -> None:
    words = [bytes([65 + i]) * (700_000 + i) for i in range(4)]
    table = PretokenCounts()
    table.count_pieces(words)
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as two:
        for file in (one, two):
            file.write(b"".join(sorted_blocks(pack_table(table))))
            file.seek(0)
        assert list(items(b"".join(add_sorted([one, two])))) == [(word, 2) for word in words]


class CountedReads(io.BytesIO):
    """A file that counts how often it is read."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read(size)


def test_a_long_pretoken_is_read_in_one_piece() -> None:
    table = PretokenCounts()
    table.count_pieces([b"x" * (16 << 20)])
    file = CountedReads(b"".join(sorted_blocks(pack_table(table))))
    assert sum(map(len, add_sorted([file]))) == len(file.getvalue())
    assert file.reads <= 4  # a read for each block would copy what there is of it each time


def test_a_file_of_counts_that_is_cut_short_is_refused() -> None:
    table = PretokenCounts()
    table.count_pieces([b"x" * (2 << 20), b"y"])
    records = b"".join(sorted_blocks(pack_table(table)))
    for size in (5, 1000, 1 << 20, len(records) - 1):
        with pytest.raises(ValueError, match="cut short"):
            list(add_sorted([io.BytesIO(records[:size])]))


MIB = 1 << 20


@pytest.mark.parametrize(
    ("total", "num_threads", "limit", "expected"),
    [
        (0, 8, None, Plan(1, True, CHUNK, None)),  # nothing to count
        (3 * MIB, 8, None, Plan(1, True, CHUNK, None)),  # short: by the caller
        (4 * MIB, 8, None, Plan(2, False, CHUNK, None)),  # two megabytes for each thread
        (1 << 40, 8, None, Plan(8, False, CHUNK, None)),
        (None, 8, None, Plan(8, False, CHUNK, None)),  # a stream may be long
        (1 << 40, 2, 288 * MIB, Plan(2, False, CHUNK, 144 * MIB)),  # a share for each thread
        (1 << 40, 2, 36 * MIB, Plan(2, False, MIB // 8, 18 * MIB)),  # a chunk cannot exceed a share
        (1 << 40, 4, 1, Plan(4, False, 4 << 10, 0)),
    ],
)
def test_plan(total: int | None, num_threads: int, limit: int | None, expected: Plan) -> None:
    assert plan(total, num_threads, limit) == expected


@pytest.mark.parametrize("fails", ["write", "seek"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    real: Callable[[], Any] = tempfile.TemporaryFile

    class Full:
        def __init__(self) -> None:
            self.file = real()

        def __getattr__(self, name: str) -> Any:
            if name == fails:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return getattr(self.file, name)

    monkeypatch.setattr(lazy_imports.tempfile, "TemporaryFile", Full)
    with pytest.raises(OSError, match="No space left on device: no room for the counts") as caught:
        bpe.train([corpus(1)], 300, memory_limit=1000)
    assert caught.value.filename == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_does_not_wait_for_a_table_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    interrupted = threading.Event()

    def slowly(table: PretokenCounts) -> bytes:
        order.append("a thread writes")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        interrupted.wait(20)  # for ever, but that a test which fails should end
        order.append("it goes on")
        return pack_table(table)

    monkeypatch.setattr(spill, "pack_table", slowly)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        count([corpus(1).encode()] * 20, 1000, num_threads=1)
    order.append("stopped")
    interrupted.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert order == ["a thread writes", "stopped", "it goes on"]


MEMORY = """
import sys
from pathlib import Path
import bpe

class Stream:
    left = int(sys.argv[1])
    block = Path(sys.argv[2]).read_bytes()

    def read(self, size):
        self.left -= 1
        return self.block if self.left >= 0 else b""

bpe.train(Stream(), 400, num_threads=2)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the most memory held is read in /proc")
def test_memory_follows_the_distinct_pretokens_and_not_the_text(tmp_path: Path) -> None:
    path = tmp_path / "block.txt"
    path.write_text(corpus(1, words=200_000))
    size = path.stat().st_size
    most = [
        int(
            subprocess.run(
                [sys.executable, "-c", MEMORY, str(times), str(path)], capture_output=True, check=True
            ).stdout
        )
        for times in (-(-16_000_000 // size), -(-80_000_000 // size))
    ]
    assert most[1] < most[0] + 10_000  # kB: the longer text is 64 MB longer
    assert most[1] < 120_000


PART = 1 << 24  # bytes that are searched for a cut between two looks for a signal


@pytest.mark.parametrize("pattern", ["gpt2", "o200k", None])
def test_a_cut_is_found_where_two_parts_of_the_search_meet(pattern: str | None) -> None:
    special = SpecialTokens(["<|endoftext|>"])
    scanner = scanner_of(patterns.resolve(pattern))
    for before in range(PART - 3, PART + 18, 3):
        end = "<|endoftext|>" if pattern is None else "\u3000b"
        text = b"a" * before + end.encode() + b"b" * 20
        assert safe_cut(text, 1, scanner, special) == before


@needs_alarms
@pytest.mark.parametrize("pattern", ["gpt2", None])
def test_a_search_for_a_cut_can_be_interrupted(pattern: str | None) -> None:
    text, special = b"<" * (8 * PART), SpecialTokens(["<|endoftext|>", "a|"])
    actual: list[int] = []
    search = map(safe_cut, [text], [1], [scanner_of(patterns.resolve(pattern))], [special])
    with rings_after(0.002):
        actual.extend(search)  # no bytecode between the call's end and the list
    assert actual == [], "it was heard before the end"
