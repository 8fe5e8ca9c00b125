"""The encoder against the reference, whatever the vocabulary, the text and the state of the cache."""

import gc
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from alarms import needs_alarms, rings_after
from hypothesis import given
from hypothesis import strategies as st
from strategies import DATA, PIECES, TEXTS, words_of

import bpe
from bpe import reference
from bpe.encoding.encoder import Batch, Encoder
from bpe.merging.merger import Merger
from bpe.native.parallel import run_together
from bpe.scanning.special_tokens import Rules
from bpe.tokenizer import Tokenizer

BYTES = {i: bytes([i]) for i in range(256)}
WORDS = st.lists(st.text(alphabet="ab' ", min_size=1, max_size=10), min_size=1, max_size=20)


def trained(words: list[str], extra: int, **settings: object) -> Tokenizer:
    counts = reference.count_pretokens([word.encode() for word in words], "gpt2", [])
    vocab, merges = reference.train(counts, 256 + extra, special_tokens=[])
    return Tokenizer(vocab, merges, **settings)


def expected_by_merges(tokenizer: Tokenizer, data: bytes) -> list[int]:
    ids = {token: number for number, token in reversed(tokenizer.vocab.items())}
    encode = partial(reference.encode_pretoken_by_merges, merges=reference.rank_merges(tokenizer.merges), ids=ids)
    return reference.encode(data, encode, pattern=tokenizer.pattern, special_tokens=tokenizer.special_tokens)


@given(words=WORDS, extra=st.integers(0, 30), texts=st.lists(DATA, max_size=4))
def test_encodes_as_the_reference(words: list[str], extra: int, texts: list[bytes]) -> None:
    tokenizer = trained(words, extra, special_tokens=["<|endoftext|>", "<|"])
    for data in [*texts, *(word.encode() for word in words), b"".join(texts)]:
        assert tokenizer.encode(data, allowed_special="all") == expected_by_merges(tokenizer, data)


def test_the_cache_changes_nothing() -> None:
    words = [f"w{i}ord{i % 7}" for i in range(300)]
    small, large = trained(words, 60, cache_bytes=0), trained(words, 60)
    text = " ".join(words[i % 300] + "x" * (i % 17) for i in range(20_000))  # more than a small cache holds
    once = small.encode(text)
    assert once == small.encode(text) == large.encode(text) == large.encode(text)
    assert once == expected_by_merges(large, text.encode())


def test_memory_of_ids_is_used_again_once_nobody_looks_at_them() -> None:
    tokenizer = trained(["the", " cat", " sat", " on", " a", " mat"], 10)
    texts = [word * 300_000 for word in ("the cat ", "sat on ", "日本 ", " a mat, the mat.")]
    rest: list[tuple[np.ndarray, np.ndarray]] = []
    for text in texts * 2:
        ids = tokenizer.encode_to_numpy(text)
        assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode_batch([text])[0]) == text
        part = ids[len(ids) // 2 :]  # which keeps all of it
        rest.append((part, part.copy()))
        del ids, part
        if len(rest) == 3:
            del rest[1]  # whose memory the next text takes
    for part, copy in rest:
        assert np.array_equal(part, copy)


GROWTH = """
import bpe, numpy, sys

def memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

tokenizer = bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], cache_bytes=int(sys.argv[1]))
letters = numpy.random.default_rng(1).integers(97, 123, (40, 1 << 20), dtype=numpy.uint8)
letters[:, ::9] = 32
tokenizer.encode_to_numpy(letters[0].tobytes())
before = memory()
for text in letters:
    tokenizer.encode_to_numpy(text.tobytes())
print(memory() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process its memory")
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers keep what is freed in memory")
def test_the_cache_is_bounded() -> None:
    """Words that never come back fill whatever a cache may take, and no more."""
    grown = {
        bound: int(subprocess.run([sys.executable, "-c", GROWTH, str(bound)], capture_output=True, check=True).stdout)
        for bound in (1 << 20, 64 << 20)
    }
    slack = 6 << 20  # what else the process takes and gives back
    assert all(growth < bound + slack for bound, growth in grown.items()), grown
    assert grown[64 << 20] > 24 << 20, f"the texts do not fill the cache, so that they show nothing: {grown}"


@pytest.mark.parametrize("unit", ["a", " ", "^", "中", "ab", "\n", "aGVsbG8gd29ybGQ"])
def test_a_long_run_is_encoded_whole(unit: str) -> None:
    tokenizer = trained(["aaaaaaaa", "abab", "        ", "中中"], 12)
    text = unit * (200_000 // len(unit))
    ids = tokenizer.encode_to_numpy(text)
    assert tokenizer.decode_bytes(ids) == text.encode()
    short = unit * 60
    assert tokenizer.encode(short) == expected_by_merges(tokenizer, short.encode())


@given(TEXTS)
def test_lists_and_arrays_are_equal_and_come_back(text: str) -> None:
    tokenizer = trained(["abab", "a b", "'s"], 6)
    ids = tokenizer.encode(text, disallowed_special=())
    array = tokenizer.encode_to_numpy(text, disallowed_special=())
    assert array.dtype == np.uint32
    assert array.tolist() == ids
    assert tokenizer.decode(ids) == text


def test_a_byte_without_a_token_is_named() -> None:
    tokenizer = Tokenizer({0: b"a", 1: b"b"}, [])
    assert tokenizer.encode("abba") == [0, 1, 1, 0]
    with pytest.raises(KeyError, match="byte 0x63 has no token"):
        tokenizer.encode("abc")
    assert tokenizer.encode("ab") == [0, 1], "the tokenizer is as good as before"


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="must be the 256 bytes"):
        Merger(np.empty(0, np.uint8), tokens=[b"a"], by_bytes=True, most=1, min_count=1, max_token_bytes=0, floor=1)
    with pytest.raises(TypeError):
        Encoder()
    with pytest.raises(TypeError):
        bpe.Tokenizer(BYTES, []).encode(3)


@pytest.mark.parametrize("pattern", ["gpt2", "o200k", None])
def test_a_batch_of_arrays_is_each_text_encoded_whole(pattern: str | None) -> None:
    tokenizer = trained(["word", " word", "ab"], 9, pattern=pattern, special_tokens=["<|endoftext|>"])
    long = "word ab<|endoftext|>wordé\n" * 30_000  # encoded in blocks, with many places where it could go wrong
    texts = ["", "a", long, long.replace("é", "e"), long.encode()]
    for threads in (None, 1, 2, 3):
        actual = tokenizer.encode_batch_to_numpy(texts, num_threads=threads, allowed_special="all")
        for text, ids in zip(texts, actual, strict=True):
            assert np.array_equal(ids, tokenizer.encode_to_numpy(text, allowed_special="all"))
    assert tokenizer.encode_batch_to_numpy([]) == []
    with pytest.raises(ValueError, match="num_threads is 0"):
        tokenizer.encode_batch_to_numpy(["a"], num_threads=0)
    with pytest.raises(ValueError, match="special token"):
        tokenizer.encode_batch_to_numpy(["a", "<|endoftext|>"])


@pytest.mark.parametrize("unit", ["abab ", "x\0y ", "é中😀 ", "é ", "é中 "])
def test_a_str_of_every_width_and_length_is_encoded_as_its_bytes(unit: str) -> None:
    tokenizer = trained(["abab", "a b"], 3)
    for times in (1, 1000, 80_000):  # on the stack, in one block, in several
        text = unit * times
        assert tokenizer.encode(text) == tokenizer.encode(text.encode()) == tokenizer.encode_to_numpy(text).tolist()
        for lone, replaced in ((text + "\ud800", text + "\ufffd"), ("\udc00" + text, "\ufffd" + text)):
            assert tokenizer.encode(lone) == tokenizer.encode(replaced)
            with pytest.raises(UnicodeEncodeError):
                tokenizer.encode_to_numpy(lone)
            with pytest.raises(UnicodeEncodeError):
                tokenizer.encode_batch_to_numpy([lone], num_threads=2)


def outcome(encode: Callable[..., object], *arguments: object) -> object:
    """The value of a call, or the error that it raises."""
    try:
        return encode(*arguments)
    except ValueError as error:
        return type(error), str(error)


def listed(encoder: Encoder, text: str | bytes, rules: Rules) -> list[int]:
    ids: list[int] = encoder.encode_array(text, rules).tolist()
    return ids


def shared_ids(tokenizer: Tokenizer, text: str | bytes, rules: Rules, block: int, num_threads: int) -> list[int]:
    batch = Batch(tokenizer._text_encoder.encoder, [text], rules, longest=0, block=block)
    threads = [threading.Thread(target=batch.work) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in batch.failures.values():
        raise error
    return batch.arrays()[0].tolist()


@given(
    text=TEXTS,
    block=st.integers(1, 64),
    num_threads=st.integers(1, 3),
    pattern=st.sampled_from(["gpt2", "cl100k", "o200k", "deepseek-v3", None]),
)
def test_blocks_give_the_ids_of_the_text(text: str, block: int, num_threads: int, pattern: str | None) -> None:
    tokenizer = trained(["ab", "the cat", "é"], 9, pattern=pattern, special_tokens=["<|endoftext|>", "<|", "a<"])
    encoder, policy = tokenizer._text_encoder.encoder, tokenizer._text_encoder.policy
    for rules in (policy.rules("all", ()), policy.rules({"a<"}, "all")):
        for form in (text.encode("utf-8", "replace"), text):
            expected = outcome(listed, encoder, form, rules)
            assert outcome(shared_ids, tokenizer, form, rules, block, num_threads) == expected


@given(st.lists(TEXTS | TEXTS.map(lambda text: text.encode("utf-8", "replace")), max_size=30), st.integers(1, 3))
def test_a_batch_is_each_text_by_itself(texts: list[str | bytes], num_threads: int) -> None:
    tokenizer = trained(["ab", "the cat", "é"], 9, special_tokens=["<|endoftext|>", "<|"])
    encoder, policy = tokenizer._text_encoder.encoder, tokenizer._text_encoder.policy
    for rules in (policy.rules("all", ()), policy.rules(frozenset(), "all")):
        batch = Batch(encoder, texts, rules)
        threads = [threading.Thread(target=batch.work) for _ in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = [outcome(listed, encoder, text, rules) for text in texts]
        failures = {i: (type(error), str(error)) for i, error in batch.failures.items()}
        assert [failures.get(i, ids) for i, ids in enumerate(batch.lists())] == expected
        arrays = batch.arrays()
        del batch
        actual = [None if ids is None else ids.tolist() for ids in arrays]
        assert [failures.get(i, ids) for i, ids in enumerate(actual)] == expected, "they outlive the batch"


def test_a_large_batch_goes_to_threads() -> None:
    tokenizer = trained(["word", "é"], 9)
    texts = [f"word é {i} " * (i % 50) for i in range(3000)]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([*texts, "\ud800"])[-1] == tokenizer.encode("\ufffd")
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode_batch_to_numpy([*texts, "\ud800"])
    for encode in (tokenizer.encode_batch, tokenizer.encode_batch_to_numpy):
        with pytest.raises(TypeError, match="not int"):
            encode(["a", 1])  # type: ignore[list-item]
    few = bpe.Tokenizer({i: bytes([i]) for i in range(128)}, [])
    with pytest.raises(KeyError, match="byte 0xff has no token"):
        few.encode_batch([b"ab " * 100_000, b"\xff", b"ab " * 100_000], num_threads=2)


def test_a_thread_that_fails_stops_the_others() -> None:
    tokenizer = bpe.Tokenizer({i: bytes([i]) for i in range(128)}, [])
    text = b"ab " * 500_000 + b"\xff" + b"ab " * 500_000
    with pytest.raises(KeyError, match="byte 0xff has no token"):
        tokenizer.encode_batch_to_numpy([text], num_threads=2)
    assert tokenizer.encode_batch_to_numpy([text[:1_200_000]], num_threads=2)[0].size == 1_200_000


@needs_alarms
@pytest.mark.parametrize("threads", [1, 2])
def test_a_signal_ends_the_work_of_every_thread(threads: int) -> None:
    tokenizer = trained(["word"], 9)
    rules = tokenizer._text_encoder.policy.rules("all", ())
    encoder = tokenizer._text_encoder.encoder
    long = Batch(encoder, ["word " * 2_000_000], rules, threads=threads, longest=0, block=1)
    batch = Batch(encoder, ["word " * 2_000] * 50_000, rules, threads=threads)
    running = threading.active_count()
    for work in (long.work, batch.work):
        with rings_after(0.01):
            run_together(work, threads)
        assert threading.active_count() == running, "nobody goes on"
    assert tokenizer.encode_batch(["word"], num_threads=threads) == [tokenizer.encode("word")]


@needs_alarms
@pytest.mark.parametrize(
    "text", [b"word " * 8_000_000, "word " * 8_000_000, "wörd " * 8_000_000], ids=["bytes", "ASCII", "str"]
)
def test_one_long_text_can_be_interrupted(text: str | bytes) -> None:
    tokenizer = trained(["word"], 9)
    expected = tokenizer.encode("word wörd")
    actual: list[object] = []
    with rings_after(0.002):
        actual.extend(map(tokenizer.encode_to_numpy, [text]))  # no bytecode between the call's end and the list
    assert actual == [], "it was heard before the end"
    assert tokenizer.encode("word wörd") == expected


def test_the_first_error_of_threads_side_by_side_is_raised() -> None:
    here = threading.current_thread()
    failed = threading.Event()

    def work() -> None:
        if threading.current_thread() is here:
            failed.wait()
        else:
            failed.set()
            raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        run_together(work, 2)
    assert run_together(failed.wait, 3) is None


def test_long_texts_of_a_batch_are_shared_out_and_come_in_their_places() -> None:
    tokenizer = trained(["word", "é"], 9, special_tokens=["<|endoftext|>"])
    long = "word é " * 200_000
    texts = ["a", long, bytearray(b"word"), "", long.encode(), b"\xff", long + "\ud800", "\ud800"]
    for threads in (1, 2):
        actual = tokenizer.encode_batch(texts, num_threads=threads)
        assert actual == [tokenizer.encode(text) for text in texts]
        arrays = tokenizer.encode_batch_to_numpy(texts[:6], num_threads=threads)
        assert [ids.tolist() for ids in arrays] == actual[:6]
        with pytest.raises(ValueError, match="special token"):
            tokenizer.encode_batch([*texts, long + "<|endoftext|>"], num_threads=threads)
        with pytest.raises(UnicodeEncodeError):
            tokenizer.encode_batch_to_numpy(texts, num_threads=threads)
        with pytest.raises(ValueError, match="special token"):  # as tiktoken has it: before the surrogate
            tokenizer.encode_batch_to_numpy([long + "\ud800<|endoftext|>"], num_threads=threads)
    batch = Batch(tokenizer._text_encoder.encoder, texts[:4], tokenizer._text_encoder.policy.rules("all", ()))
    batch.work()
    assert [None if ids is None else ids.tolist() for ids in batch.arrays()] == actual[:4]
    assert batch.arrays() == [None] * 4, "once"


def test_making_lists_leaves_the_collector_as_it_was() -> None:
    tokenizer = trained(["word"], 9)
    try:
        for switch in (gc.disable, gc.enable):
            switch()
            tokenizer.encode_batch(["word word"] * 10)
            assert gc.isenabled() == (switch is gc.enable)
    finally:
        gc.enable()


@pytest.mark.parametrize("pattern", ["gpt2", "qwen2", "o200k", "deepseek-v3", "[a-z]+|\\s|.", None, "sentencepiece"])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_texts_that_come_again_beside_others_of_the_same_key(pattern: str | None, num_threads: int) -> None:
    rng = random.Random(0)
    words = ["word é中文 12", "ab" * 9]
    if pattern == "sentencepiece":
        data = bpe.train_sentencepiece(words, 280).data
        plain, tokenizer = (Tokenizer.from_data(data, cache_bytes=size) for size in (0, 1 << 24))
    else:
        plain, tokenizer = (trained(words, 9, pattern=pattern, cache_bytes=size) for size in (0, 1 << 24))
    texts = []
    for pieces in (200, 400, 900, 3000):  # a part of a stretch that is kept, one stretch, and several
        begin, end = ("".join(rng.choices(PIECES, k=pieces)) for _ in range(2))
        # Where the changed places are far from both ends of a stretch, its key stays.
        texts += [begin + change + end for change in ("a1b", "a\nb", "1 b", "\u4e2d")]
    expected = [ids.tolist() for ids in plain.encode_batch_to_numpy(texts, disallowed_special=())]
    for turn in range(4):
        order = list(range(len(texts))) * (1 + turn % 2)
        actual = tokenizer.encode_batch_to_numpy(
            [texts[i] for i in order], num_threads=num_threads, disallowed_special=()
        )
        assert [ids.tolist() for ids in actual] == [expected[i] for i in order]
        assert [tokenizer.encode_ordinary(text) for text in texts] == expected


def test_a_cache_that_is_full_serves_threads_that_come_later() -> None:
    tokenizer = trained(["abab", "ba"], 3, cache_bytes=1 << 20)
    words = [" ".join(f"{word:x}" for word in range(begin, begin + 200_000)) for begin in (0, 100_000)]
    expected = [tokenizer.encode(text) for text in words]
    assert [ids.tolist() for ids in tokenizer.encode_batch_to_numpy(words, num_threads=2)] == expected
    assert [tokenizer.encode(text) for text in words] == expected


def test_a_cache_grows_and_forgets_without_a_trace() -> None:
    small, large = trained(["abab", "ba"], 3, cache_bytes=1 << 20), trained(["abab", "ba"], 3, cache_bytes=1 << 27)
    for seed in range(3):  # far more distinct pretokens than the small one holds, short and long, of few ids and many
        text = " ".join(words_of("abcdef", random.Random(seed).choices(range(1, 40), k=30_000), seed))
        once = small.encode_to_numpy(text)
        assert np.array_equal(once, large.encode_to_numpy(text))
        assert np.array_equal(once, large.encode_to_numpy(text)), "and from the cache"
        assert large.decode(once) == text


def test_what_is_mostly_new_is_noted_before_it_is_kept() -> None:
    tokenizer = trained(["ab"], 1)
    # ids in a slot, beside it and in the ring; a word of over 64 bytes is merged by itself
    sizes = random.Random(0).choices([1, 2, 3, 9, 15, 16, 17, 30, 64, 70, 100], k=40_000)
    words = words_of("abc", sizes, 0)
    new, other, expected = " ".join(words[:20_000]), " ".join(words[20_000:]), "ab ba cab " * 10_000
    for text in (new, expected, other, new, new, new + expected + other, other):
        ids = [256 if actual == "ab" else ord(actual) for actual in re.findall("ab|.", text)]
        assert tokenizer.encode_to_numpy(text).tolist() == ids


def test_a_cache_grows_as_the_text_needs_it() -> None:
    # new words first, none at all, and new ones only at the end
    expected, new = "ab ba " * 60_000, " ".join(f"{word:x}" for word in range(60_000))
    plain = trained(["abab", "ba"], 3, cache_bytes=0)
    for text in (new, expected + new, new + expected, (expected + new) * 2):
        tokenizer = trained(["abab", "ba"], 3)
        for _ in range(2):
            assert np.array_equal(tokenizer.encode_to_numpy(text), plain.encode_to_numpy(text))
