"""The step in C: against the uncached model, against itself in other company, and where there is no compiler."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import COMPILER, SHAPES, forget_libraries, make, needs_compiler, rounded_to_int8, some_ids
from torch import nn

from lm.commands.cli import main
from lm.device import threads
from lm.generation.decoder import Decoder
from lm.generation.sampling import Sampling
from lm.generation.scheduler import Scheduler, Sequence
from lm.generation.stream import tokens_of
from lm.model import Transformer
from lm.ops.cpu import build as building
from lm.ops.cpu.int8 import quantized


def steps(model: Transformer, ids: torch.Tensor, **how) -> torch.Tensor:
    """The logits of each place of ids (rows, seq), a token at a time, all rows together."""
    decoder = Decoder(model, rows=len(ids), **how)
    return torch.stack([decoder.step(column.tolist()).clone() for column in ids.T], 1)


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (2, 1), (3, 3), (4, 2), (5, 1)]),
    head_dim=st.integers(1, 41).map(lambda half: 2 * half),
    d_model=st.integers(1, 70),
    d_ff=st.integers(1, 70),
    rows=st.integers(1, 6),
    count=st.integers(1, 3),
    ffn=st.sampled_from(["swiglu", "gelu", "gelu_exact", "silu", "relu2"]),
    norm=st.sampled_from(["rmsnorm", "layernorm", "none"]),
    more=st.booleans(),
)
def test_any_sizes_and_any_number_of_threads(heads, head_dim, d_model, d_ff, rows, count, ffn, norm, more):
    size = {"num_heads": heads[0], "num_kv_heads": heads[1], "head_dim": head_dim, "d_model": d_model, "d_ff": d_ff}
    how = {
        "bias": more,
        "qk_norm": more,
        "norm_placement": "post" if more and norm != "none" else "pre",
        "vocab_multiple": 8,
    }
    model, ids = make(**size, ffn=ffn, norm=norm, **how), some_ids(rows, 5)
    with threads(count), torch.no_grad():
        torch.testing.assert_close(steps(model, ids, native=True), model(ids), rtol=1e-9, atol=1e-9)


@needs_compiler
@settings(max_examples=30, deadline=None)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    size=st.fixed_dictionaries({"d_model": st.integers(2, 40), "d_ff": st.integers(1, 40)}),
    cuts=st.lists(st.integers(1, 149), max_size=3, unique=True).map(sorted),
    count=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_prompt_in_parts_is_what_the_model_reads_and_the_same_bits_in_any_parts(shape, size, cuts, count, dtype):
    change = {"head_dim": 6, "num_heads": 4} | SHAPES[shape] | size
    model, ids = make(dtype=dtype, context_length=150, **change), some_ids(1, 150)[0]

    def read(cuts: list[int], **how) -> torch.Tensor:
        decoder = Decoder(model, native=True)
        parts = [decoder.read(0, part.tolist(), **how) for part in ids.tensor_split(cuts)]
        return torch.cat(parts) if how else parts[-1]

    with threads(count), torch.no_grad():
        want = model(ids[None])[0]
        near = 1e-9 if dtype == torch.float64 else 1e-4 * float(want.abs().max())
        torch.testing.assert_close(read(cuts, every=True), want, rtol=1e-9, atol=near)
        actual = read(cuts)
        torch.testing.assert_close(actual, want[-1], rtol=1e-9, atol=near)
        assert torch.equal(actual, read([]))
    with threads(1):
        assert torch.equal(actual, read(cuts))


@needs_compiler
def test_a_row_has_the_same_bits_alone_and_beside_others_and_on_any_number_of_threads():
    whole, ids = make(dtype=torch.float32, num_kv_heads=1), some_ids(13)
    for model in (whole, quantized(whole)):
        alone = torch.cat([steps(model, row[None], native=True) for row in ids])
        for count in (1, 2, 3):
            with threads(count):
                assert torch.equal(steps(model, ids, native=True), alone)


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    different=st.integers(1, 4),
    rows=st.integers(1, 6),
    count=st.integers(1, 4),
    not_a_number=st.none() | st.integers(0, 23),
)
def test_the_likeliest_is_the_first_of_the_largest_logits_of_the_vocabulary(seed, different, rows, count, not_a_number):
    """Few different rows in the head, so that many logits are equal; the padding's are the largest."""
    model, generator = make(vocab_multiple=8), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        weight = model.head.weight
        weight.copy_(
            torch.randn(different, weight.shape[1], generator=generator)[torch.arange(24) * 7 % 24 % different]
        )
        weight[19:] *= 50
        if not_a_number is not None:
            weight[not_a_number, 0] = torch.nan
    decoder = Decoder(model, rows=rows, native=True)
    with threads(count):
        for column in some_ids(rows).T:
            numbers = decoder.step(column.tolist()).numpy()
            best = decoder.likeliest
            if not_a_number is not None and not_a_number < 19:
                assert all(token < 0 for token in best)
            else:
                assert best == numbers.argmax(1).tolist()


@needs_compiler
def test_small_weights_are_those_numbers_and_write_the_same_tokens():
    model = make(dtype=torch.float32, d_model=152, d_ff=131, tied_embeddings=True)
    small, ids = quantized(model), some_ids(2)
    whole = rounded_to_int8(model)
    with torch.no_grad():
        want = whole(ids)
    decoder = Decoder(small, rows=2, native=True)
    read = torch.stack([decoder.read(row, ids[row].tolist(), every=True) for row in range(2)])
    for actual in (read, steps(small, ids, native=True)):
        torch.testing.assert_close(actual, want, rtol=0, atol=2e-3 * float(want.std()))  # 16 bits of what they multiply
        assert torch.equal(actual.argmax(-1), want.argmax(-1))


@needs_compiler
def test_what_is_no_number_stays_none():
    model = make(dtype=torch.float32)
    with torch.no_grad():
        model.blocks[0].ffn.gate_up.weight[3, 3] = torch.nan
    assert steps(model, some_ids(1), native=True).isnan().all()
    for of in (model, quantized(model)):
        assert Decoder(of, native=True).read(0, [1, 2, 3], every=True).isnan().all()


@needs_compiler
def test_tokens_out_of_the_vocabulary_are_refused():
    decoder = Decoder(make(vocab_multiple=8), native=True)
    for token in (-1, 19):
        with pytest.raises(IndexError, match=rf"token ids \[{token}\] are not all in the vocabulary of 19"):
            decoder.step([token])
        with pytest.raises(IndexError, match=str(token)):
            decoder.read(0, [0, token])
    with pytest.raises(ValueError, match="at most 10 tokens in a row, got 11"):
        decoder.read(0, [1] * 11)


class Other(nn.Linear):
    pass


def test_what_it_is_not_written_for_is_decoded_in_torch():
    ids = some_ids(2)
    narrow, other, mixed = make(dtype=torch.bfloat16), make(dtype=torch.float32), make(dtype=torch.float32)
    other.blocks[1].ffn.down.__class__ = Other
    mixed.final_norm.double()
    for model, reason in [(narrow, "bfloat16"), (other, "there is a Other"), (mixed, "several types")]:
        decoder = Decoder(model)
        assert decoder.native is None
        if reason == "bfloat16" or COMPILER:
            assert reason in decoder.how
            with pytest.raises(ValueError, match=f"there is no step in C, because .*{reason}"):
                Decoder(model, native=True)
    with torch.no_grad():
        torch.testing.assert_close(steps(other, ids), other(ids))


def test_without_a_compiler_it_says_so_and_torch_decodes(afresh, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    decoder = Decoder(make())
    assert (decoder.native, decoder.how) == (None, "in PyTorch, because there is no C compiler 'no-such-compiler'")
    assert not afresh.exists()


@needs_compiler
def test_a_compiler_that_fails_and_a_folder_that_cannot_be_are_said(afresh, monkeypatch, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'cc: fatal error: no space' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert Decoder(make()).how == "in PyTorch, because compiling failed (cc: fatal error: no space)"
    assert list(afresh.iterdir()) == []
    afresh.rmdir()
    afresh.write_text("in the way")
    forget_libraries()
    assert "File exists" in Decoder(make()).how


@needs_compiler
def test_libraries_compiled_ahead_serve_where_there_is_no_compiler(afresh, monkeypatch, tmp_path):
    """The widest level that the processor has; those of another source are not used."""
    monkeypatch.setattr(building, "FLAGS", ("-O0", *building.FLAGS[1:]))  # twenty libraries
    assert main(["compile", "--to", str(tmp_path / "ahead")]) == 0
    files = sorted(path.name for path in (tmp_path / "ahead").iterdir())
    levels = building.LEVELS[platform.machine()]
    assert len(files) == 5 * len(levels)
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("LM_LIBRARIES", str(tmp_path / "ahead"))
    for level, (_, needs) in levels.items():
        monkeypatch.setattr(building, "cpuinfo", lambda needs=needs: {"flags": f"fpu {needs}"})
        assert building.library("forward", "float").name.split("-")[2] == level
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("LM_LIBRARIES", str(tmp_path / "ahead"))
    building.built.cache_clear()
    assert not isinstance(building.built("forward", torch.float32), building.Unavailable)
    monkeypatch.setattr(building, "source", lambda name: b"int other;")
    with pytest.raises(building.Unavailable, match="no C compiler"):
        building.library("forward", "float")
    assert main(["compile", "--to", str(tmp_path / "more")]) == 2


def test_it_is_compiled_once_and_only_what_this_user_wrote_is_run(afresh, monkeypatch):
    monkeypatch.setattr(building, "FLAGS", ("-O0", *building.FLAGS[1:]))
    path = building.library("forward", "double")
    status = path.stat()
    assert path.parent == afresh
    assert not status.st_mode & 0o022
    assert building.library("forward", "double").stat().st_ino == status.st_ino
    path.chmod(0o722)
    assert building.library("forward", "double").stat().st_ino != status.st_ino
    path.unlink()
    path.symlink_to(Path("/bin/sh"))
    assert not building.library("forward", "double").is_symlink()
    assert sorted(afresh.iterdir()) == [path]


@needs_compiler
def test_a_library_that_computes_something_else_is_not_used(afresh, monkeypatch):
    monkeypatch.setattr(building, "FLAGS", ("-O1", *building.FLAGS[1:]))
    text = building.source("forward").replace(b"begin] / total", b"begin]")
    monkeypatch.setattr(building, "source", lambda name: text)
    assert Decoder(make()).how == "in PyTorch, because what was compiled does not compute what it should"


@needs_compiler
@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0},
        {"temperature": 0.8},
        {"top_k": 5},
        {"top_k": 1},
        {"top_p": 0.7, "temperature": 1.5},
        {"min_p": 0.2},
        {"top_k": 20, "top_p": 0.9, "min_p": 0.1},
    ],
)
@pytest.mark.parametrize("when_full", ["slide", "end"])
@pytest.mark.parametrize("stop", [(), (3, 17)])
def test_a_loop_in_c_writes_what_single_steps_write(settings, when_full, stop):
    model = make(context_length=40)
    texts = []
    for native in (True, False):
        request = {"max_new_tokens": 90, "seed": 5, "stop_tokens": stop, "when_full": when_full}
        scheduler = Scheduler(model, rows=1, native=native)
        sequence = scheduler.add([1, 2, 3], sampling=Sampling(**settings), **request)
        assert scheduler.decoder.has_loop == native
        texts.append((list(tokens_of(scheduler)), sequence.ended))
    assert texts[0] == texts[1]
    assert stop or len(texts[0][0]) == (90 if when_full == "slide" else 37)


@needs_compiler
@pytest.mark.parametrize("spread", [0.1, 4.0])
@pytest.mark.parametrize("vocab_size", [3000, 7])
def test_tokens_chosen_in_c_are_those_of_the_plain_model(spread, vocab_size):
    model = make(vocab_size=vocab_size)
    decoder = Decoder(model)
    cuts = [{"top_k": 1000}, {"top_k": 3}, {"top_p": 0.3}, {"top_p": 0.97}, {"min_p": 0.5}]
    cuts += [{}, {"top_k": 50, "top_p": 0.9, "min_p": 0.05}, {"top_k": 5000, "min_p": 0.3}]
    for number, cut in enumerate(cuts):
        generator = torch.Generator().manual_seed(number)
        sampling = Sampling(0.7, **cut)
        text = Sequence(model.config, [1], max_new_tokens=1, sampling=sampling, seed=number)
        plain = torch.Generator().manual_seed(number)
        for _ in range(20):
            logits = (spread * torch.randn(vocab_size, generator=generator)).to(decoder.dtype)
            logits[::4] = -torch.inf
            assert decoder.choose(logits, text) == sampling.choose(logits, generator=plain), cut


@needs_compiler
@pytest.mark.parametrize("rows", [6, 40])
def test_steps_of_several_texts_in_one_call_write_what_single_steps_write(rows):
    model = make(context_length=40)
    written = []
    for seconds in (0.0, 60.0):
        scheduler, texts = Scheduler(model, rows=rows), []
        for row in range(rows):
            sampling = Sampling([0.0, 1.0, 0.9, 1.2][row % 4], top_p=[None, 0.9][row % 2], top_k=[None, 9, 4][row % 3])
            request = {"sampling": sampling, "seed": row, "when_full": ["slide", "end"][row // 2 % 2]}
            texts.append(
                scheduler.add([1, 2, row % 19], max_new_tokens=50 + row, stop_tokens=[[], [17]][row % 2], **request)
            )
        calls = 0
        while scheduler.sequences:
            scheduler.step(seconds)
            calls += 1
        written.append([(text.tokens, text.ended) for text in texts])
    assert written[0] == written[1]
    assert {ended for _, ended in written[0]} == {"stop", "length"}
    assert calls < 40 + rows


@needs_compiler
@pytest.mark.parametrize("rows", [3, 40])
def test_a_text_with_logprobs_leaves_the_loop_to_its_neighbours(rows, monkeypatch):
    model, written = make(context_length=60), []
    for seconds, logprobs in ((60.0, 2), (0.0, 2), (60.0, None)):
        scheduler = Scheduler(model, rows=rows)
        with monkeypatch.context() as patch:
            patch.setattr(scheduler.decoder, "step", lambda *_: pytest.fail("a step by itself"))
            texts = [
                scheduler.add([1, 2, row % 19], max_new_tokens=30, seed=row, top_logprobs=None if row else logprobs)
                for row in range(rows)
            ]
            while scheduler.sequences:
                scheduler.step(seconds)
        written.append(([text.tokens for text in texts], texts[0].logprobs))
    assert written[0] == written[1]
    assert written[0][0] == written[2][0]
    plain = Scheduler(model, rows=1, native=False)
    alone = plain.add([1, 2, 0], max_new_tokens=30, seed=0, top_logprobs=2)
    while plain.sequences:
        plain.step()
    assert [one.token for one in written[0][1]] == [one.token for one in alone.logprobs] == alone.tokens
    for one, other in zip(written[0][1], alone.logprobs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)


@needs_compiler
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_loop_in_c_refuses_logits_that_are_not_numbers(temperature):
    model = make()
    with torch.no_grad():
        model.head.weight[5] = torch.nan
    sequence = Sequence(model.config, [1], max_new_tokens=3, sampling=Sampling(temperature))
    ((token,),), _ = Decoder(model).continue_texts([1], [0], [sequence], 3)
    with pytest.raises(ValueError, match="not numbers"):
        sequence.append(None, token)
