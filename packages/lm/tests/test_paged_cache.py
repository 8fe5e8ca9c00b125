"""The cache of pages: whatever runs beside a text, it has the tokens that it has alone, and no page is lost."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import needs_compiler, random_model

import lm
from lm.generation.decoder import NoPages
from lm.generation.kv_cache import HUGE, PAGE, Cache, bytes_of_page
from lm.generation.sampling import Sampling
from lm.generation.scheduler import Scheduler
from lm.generation.stream import generate

CONTEXT = 6 * PAGE


@pytest.fixture(scope="module")
def model():
    return random_model(61, CONTEXT, 2, 32, 4, 32, num_kv_heads=2, seed=3)


def prompt(kind: int, length: int) -> list[int]:
    """Texts of one kind begin alike."""
    return torch.randint(0, 61, (length,), generator=torch.Generator().manual_seed(kind)).tolist()


def check(batch: Scheduler) -> None:
    """Every page is free, or has as many users as rows and kept chunks hold it."""
    cache = batch.cache
    pages_in_use = [page for row in range(cache.rows) for page in cache.pages_of(row)]
    pages_in_use += [page for chunk in batch.prefixes.chunks.values() for page in chunk.pages]
    assert cache.users == [pages_in_use.count(page) for page in range(cache.pages)]
    assert sorted(cache.free) == [page for page in range(cache.pages) if not cache.users[page]]


@needs_compiler
@settings(max_examples=15, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.integers(0, 1),  # the kind of its prompt
            st.integers(1, CONTEXT - 1),
            st.integers(1, 2 * PAGE),
            st.integers(0, 9),  # steps before it comes
            st.none() | st.integers(1, 60),  # the step at which it is cancelled
        ),
        min_size=1,
        max_size=8,
    ),
    pages=st.integers(6, 20),
    rows=st.integers(1, 5),
    temperature=st.sampled_from([0.0, 0.9]),
)
def test_a_text_has_the_tokens_that_it_has_alone_whatever_else_runs(model, requests, pages, rows, temperature):
    batch = Scheduler(model, rows=rows, memory=pages * bytes_of_page(model))
    assert batch.cache.pages == min(pages, rows * 6)
    waiting, running, step = list(enumerate(requests)), [], 0
    while waiting or batch.sequences:
        while waiting and batch.room and waiting[0][1][3] <= step:
            number, (kind, length, most, _, cancelled) = waiting.pop(0)
            text = batch.add(
                prompt(kind, length), max_new_tokens=most, sampling=Sampling(temperature), seed=number, when_full="end"
            )
            running.append((text, number, most, None if cancelled is None else step + cancelled))
        batch.step()
        step += 1
        for text, _, _, end in running:
            if end == step:
                batch.cancel(text)
        check(batch)
    for text, number, most, _ in running:
        alone = generate(model, text.prompt, max_new_tokens=most, temperature=temperature, seed=number, when_full="end")
        assert text.tokens == (alone[: len(text.tokens)] if text.ended == "cancelled" else alone)


@needs_compiler
def test_texts_that_gave_their_pages_to_older_ones_go_on_as_if_they_had_not(model):
    batch = Scheduler(model, rows=4, memory=9 * bytes_of_page(model))
    texts = [
        batch.add(prompt(n, 100), max_new_tokens=180, sampling=Sampling(0.8), seed=n, when_full="end") for n in range(4)
    ]
    waited = set()
    while batch.sequences:
        batch.step()
        check(batch)
        waited |= {n for n, text in enumerate(texts) if text.preempted}
    assert waited
    assert 0 not in waited
    for n, text in enumerate(texts):
        assert text.tokens == generate(model, prompt(n, 100), max_new_tokens=180, temperature=0.8, seed=n)


def test_what_texts_have_in_common_is_read_once(model):
    batch = Scheduler(model, rows=4)
    same = prompt(0, 300)
    texts = [batch.add([*same, n], max_new_tokens=3, seed=n) for n in range(4)]
    while batch.sequences:
        batch.step()
    assert batch.tokens_read == 256 + 4 * 45  # whole chunks of 128 once, the rest by each
    later = batch.add([*same, 9], max_new_tokens=1)
    while batch.sequences:
        batch.step()
    assert (later.cached, sum(text.cached for text in texts)) == (256, 3 * 256)
    assert batch.tokens_read == 256 + 5 * 45


def test_a_step_reads_a_chunk_at_most_and_gives_every_stream_a_token_whatever_has_been_asked_for(model):
    batch = Scheduler(model, rows=24)
    streams = [batch.add([n], max_new_tokens=200, seed=n) for n in range(8)]
    while not all(text.tokens for text in streams):
        batch.step()
    lengths = (380, 3, 129, 128, 60, 380, 300, 5, 250, 40, 380, 127, 90, 70, 1, 256)
    sequences = [batch.add(prompt(n, length), max_new_tokens=2, seed=n) for n, length in enumerate(lengths)]
    while any(text.ended is None for text in sequences):
        read, counts = batch.tokens_read, [len(text.tokens) for text in streams]
        batch.step()
        assert 0 <= batch.tokens_read - read <= batch.chunk_size == 128
        assert [len(text.tokens) for text in streams] == [before + 1 for before in counts]
    assert batch.tokens_read == 8 + sum(lengths)


@pytest.mark.parametrize("layers", [1, 6, 32])
def test_tokens_of_all_heads_begin_new_huge_pages_in_turns(layers):
    config = lm.ModelConfig(64, 32_768, layers, 256, 4, 64, num_kv_heads=4)
    store = Cache(lm.Transformer(config).eval(), rows=2).store
    of_head, of_page = store.stride(2) * store.element_size(), PAGE * store.stride(3) * store.element_size()
    assert store.stride(0) == 2 * store.stride(1) == 8 * store.stride(2)
    heads, of_huge = layers * 8, HUGE // of_page
    begun, most = set(), -(-heads // of_huge) + 1
    for page in range(store.shape[3] // PAGE):
        ends = {(head * of_head + page * of_page, head * of_head + (page + 1) * of_page - 1) for head in range(heads)}
        new = {byte // HUGE for both in ends for byte in both} - begun
        begun |= new
        assert len(new) <= most or page == 0
    assert store.untyped_storage().nbytes() <= store.nbytes + heads * HUGE


def test_a_cancelled_text_is_gone_between_the_parts_of_its_prompt(model):
    batch = Scheduler(model, rows=1)
    long = batch.add(prompt(1, 380), max_new_tokens=2)
    batch.step()
    batch.cancel(long)
    assert batch.room == 1
    next_one = batch.add([5], max_new_tokens=2, seed=1)
    while batch.sequences:
        batch.step()
    assert next_one.tokens == generate(model, [5], max_new_tokens=2, seed=1)
    assert batch.tokens_read == 128 + 1


def test_a_text_that_memory_cannot_hold_is_refused_by_name(model):
    batch = Scheduler(model, rows=1, memory=2 * bytes_of_page(model))
    batch.add(prompt(0, 2 * PAGE), max_new_tokens=2)
    batch.step()
    with pytest.raises(NoPages, match="129 tokens have no room in the cache of 128"):
        batch.step()
    with pytest.raises(ValueError, match=r"a page of 64 tokens is 16,384 bytes, and memory is 100: raise it"):
        Scheduler(model, memory=100)


@needs_compiler
def test_many_texts_are_stepped_in_groups_with_the_same_bits(model):
    batch = Scheduler(model, rows=40)
    texts = [batch.add([n], max_new_tokens=4, sampling=Sampling(0.0 if n % 2 else 0.7), seed=n) for n in range(40)]
    while batch.sequences:
        batch.step()
    for n, text in enumerate(texts):
        assert text.tokens == generate(model, [n], max_new_tokens=4, temperature=0.0 if n % 2 else 0.7, seed=n)


def test_a_cache_for_131_072_tokens_takes_no_memory_before_it_is_written_to():
    config = lm.ModelConfig(64, 131_072, 4, 256, 4, 64, num_kv_heads=4)
    model = lm.Transformer(config).eval()

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = resident()
    cache = Cache(model, rows=4, memory=4 << 30)
    assert cache.store.nbytes == 4 * 131_072 * 4 * 2 * 256 * 4
    assert resident() - before < cache.store.nbytes // 100
