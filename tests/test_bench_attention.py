"""The attention benchmark's arithmetic, tables and drawing, which a device without CUDA can check too."""

import collections
import inspect
import multiprocessing
import pickle
import types
import xml.etree.ElementTree as ElementTree

import bench_attention
import bench_attention_cases as cases
import interpreter  # type: ignore[import-not-found]  # before whatever imports triton
import pytest
import torch
from bench_attention import TABLES, Case, measure, plot, table
from bench_attention_cases import ERRORS_OF, MASKS, WAYS, DecodeCase, MaskCase

import accounting
from lm.ops import triton as kernels

needs_kernels = pytest.mark.skipif(
    kernels.lacking() is not None or interpreter.LATE, reason="Triton's interpreter cannot run the kernels here"
)
SMALL = {
    "POSITIONS": 16,
    "NUMBERS": 16,
    "MASK_LENGTH": 40,
    "MASK_HEADS": 2,
    "MASK_KV_HEADS": 1,
    "WINDOW": 20,
    "DOCUMENTS": 3,
    "DECODE_SHAPES": ((4, 2, 16), (2, 2, 16)),
    "DECODE_CACHES": ((1, 24), (2, 40)),
    "DRAWN_BATCH": 2,
    "DRAWN_KEYS": 40,
    "DRAWN_LEAST": 8,
    "GRAPHED_CALLS": 2,
    "EAGER_CALLS": 2,
    "ERROR_SHAPE": (1, 2, 40),
    "AIM_SHAPE": (1, 2, 32, 16),
    "AIM_ROUNDS": 2,
}


@pytest.fixture
def small(monkeypatch):
    """Cases for Triton's interpreter, and FlexAttention as it is without a compiler."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    for name, value in SMALL.items():
        monkeypatch.setattr(cases, name, value)
    monkeypatch.setattr(cases, "flex_parts", lambda: (flex_attention, create_block_mask))


def options(*arguments):
    return bench_attention.parse(["--rounds", "1", "--head-dims", "16", *arguments])


def cells(row):
    return [cell.strip() for cell in row.split("|")[1:-1]]


def body(lines):
    """The cells of rows that have numbers."""
    return [cells(row) for row in lines if row.startswith("|") and not row.startswith("|---") and "head dim" not in row]


def test_flops_are_those_of_accounting():
    for causal in (True, False):
        case = Case(64, causal, 1024)
        heads, texts = cases.NUMBERS // 64, cases.POSITIONS // 1024
        shape = accounting.TransformerShape(64, 1024, 1, 64 * heads, heads, 64)
        counted = accounting.training_flops(shape, 1024, texts, pairs="causal" if causal else "full", recompute="fused")
        assert case.flops("forward") == counted["forward scores"]
        assert case.flops("backward") == counted["backward scores"] + counted["recomputed scores"]
        assert case.flops("both") == case.flops("forward") + case.flops("backward")


def test_peers_take_turns_and_a_refusal_is_said(monkeypatch):
    monkeypatch.setattr(cases, "POSITIONS", 64)
    monkeypatch.setattr(cases, "NUMBERS", 32)

    def refuse(*_):
        raise RuntimeError("no memory\nand more")

    def plain(q, k, v, causal):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    results = {}
    for case in [Case(16, causal, length) for causal in (True, False) for length in (16, 32)]:
        results[case], refused = measure(case, {"plain": plain, "broken": refuse}, "cpu", torch.float32, rounds=2)
        assert set(results[case]) == {("plain", way) for way in WAYS}
        assert refused == {"broken": "no memory"}
    header, rule, *rows = table(results, ["plain", "broken"], "both")
    assert header == "| both: head dim, mask, length | plain | broken |"
    assert rule == "|---|---:|---:|"
    assert [row.split("|")[1].strip() for row in rows] == [
        "16, causal, 16",
        "16, causal, 32",
        "16, full, 16",
        "16, full, 32",
    ]
    assert all(row.endswith(" – |") for row in rows)
    drawing = ElementTree.fromstring(plot(results, ["plain", "broken"], "TFLOP/s"))
    styles = [path.attrib.get("style", "") for path in drawing.iter("{http://www.w3.org/2000/svg}path")]
    drawn = [sum(style.startswith(f"fill: none; stroke: {c}") for style in styles) for c in bench_attention.COLOURS]
    assert drawn[:2] == [2 * len(WAYS) + 1, 1]  # one peer, two masks; and the legend names both


def test_a_call_that_fails_later_is_a_refusal_too():
    calls = {("good", "both"): lambda: None, ("bad", "both"): lambda: 1 / 0}
    seconds, refused = cases.take_turns(calls, "cpu", 2)
    assert set(seconds) == {("good", "both")}
    assert refused == {"bad": "division by zero"}


def test_long_calls_have_fewer_rounds():
    assert [cases.rounds_for(seconds, 10) for seconds in (0.01, 0.06, 0.2)] == [10, 5, 3]
    assert cases.rounds_for(0.06, 4) == 4


@needs_kernels
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_peers_agree_on_masks(small, mask):
    case = MaskCase(16, mask)
    q, k, v, _ = case.tensors("cpu", torch.float32)
    outputs = {name: make(case, q, k, v)() for name, make in cases.MASK_PEERS.items() if name != "SDPA cuDNN"}
    for other in ("FlexAttention", "SDPA with a mask"):
        torch.testing.assert_close(outputs["ours"], outputs[other], rtol=1e-4, atol=1e-5)


def test_documents_are_of_unequal_lengths():
    ids = MaskCase(64, "documents").document_ids("cpu")
    assert ids.shape == (cases.MASK_BATCH, cases.MASK_LENGTH)
    for text in ids:
        counts = text.bincount()
        assert len(counts) == len(set(counts.tolist())) == cases.DOCUMENTS


def test_bytes_of_a_cache():
    assert DecodeCase(32, 8, 128, 16, 4096).bytes_read(torch.bfloat16) == 2 * 16 * 8 * 4096 * 128 * 2
    drawn = DecodeCase(32, 8, 128, 16, 4096, own_lengths=True)
    assert drawn.bytes_read(torch.bfloat16) == 2 * int(drawn.lengths().sum()) * 8 * 128 * 2


@needs_kernels
def test_table_of_lengths(small):
    selection = options("--lengths", "8", "16", "--dtypes", "bf16", "fp16", "--peers", "ours", "SDPA flash", "--readme")
    parts = list(TABLES["lengths"](selection, "cpu"))
    assert [part.done for part in parts] == list(range(1, parts[-1].rows + 1))
    rows = body(parts[-1].lines)
    assert len(rows) == 2 * len(WAYS) * 2 * 2  # dtypes, masks, lengths
    assert all(row[1] != "–" for row in rows)
    assert [part.drawing is not None for part in parts] == [False, True] * 4


@needs_kernels
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_table_of_masks(small):
    *_, part = TABLES["masks"](options(), "cpu")
    rows = body(part.lines)
    assert [row[0] for row in rows[:4]] == [
        "16, causal",
        "16, a window of 20",
        "16, 3 documents",
        "16, causal, 1 key heads",
    ]
    assert len(rows) == 8
    assert all(float(row[i]) > 0 for row in rows for i in (1, 3))
    assert all(row[2] == row[4] == "–" for row in rows)  # FlexAttention has no gradient on the CPU
    assert any(text.startswith("- FlexAttention (16, causal; ") for text in part.lines)
    assert "- SDPA cuDNN (16, a window of 20; 16, 3 documents): SDPA has no such mask but as a tensor" in part.lines


@needs_kernels
def test_table_of_decoding(small):
    *_, part = TABLES["decode"](options(), "cpu")
    rows = body(part.lines)
    assert [row[0] for row in rows[:2]] == ["4, 2, 16; 1 × 24", "4, 2, 16; 2 × 40"]
    assert rows[-1][0] == "4, 2, 16; 2 × 8 to 40"
    assert len(rows) == part.done == part.rows == 5
    assert all("–" not in row for row in rows[:-1])
    assert "–" not in rows[-1][:4]
    assert rows[-1][4:] == ["–"] * 3


@needs_kernels
def test_table_of_errors(small):
    *_, part = TABLES["errors"](options("--peers", "ours", "SDPA flash"), "cpu")
    rows = body(part.lines)
    assert [row[0] for row in rows] == [f"{dtype}, 16, {what}" for dtype in ("bf16", "fp16") for what in ERRORS_OF]
    assert all(1e-4 < float(cell) < 1e-2 for row in rows[:4] for cell in row[1:])
    assert all(1e-5 < float(row[1]) < 2e-3 for row in rows[4:])
    assert part.lines[-1].startswith(
        "2 heads × dim 16 × 32, causal, batch 1, bf16, forward and backward, median of 2: ours"
    )
    assert part.lines[-1].endswith("the aim is 5.36 ms.")


def test_a_case_that_fails_whole_does_not_end_a_table(small, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no memory")

    for name in ("measure_mask", "measure_decode", "relative_errors", "measure_aim"):
        monkeypatch.setattr(cases, name, fail)
    monkeypatch.setattr(bench_attention, "measure", fail)
    for name, rows_of in TABLES.items():
        *_, part = rows_of(options("--lengths", "16"), "cpu")
        assert part.done == part.rows, name
        assert all(set(row[1:]) == {"–"} for row in body(part.lines))
        assert any("no memory" in text for text in part.lines)


def test_the_page_has_a_place_for_the_tables(monkeypatch, tmp_path, capsys):
    text = bench_attention.PAGE.read_text()
    copy = tmp_path / "lm.md"
    copy.write_text(text)
    monkeypatch.setattr(bench_attention, "PAGE", copy)
    monkeypatch.setattr(bench_attention, "device_line", lambda device: "a device")
    part = bench_attention.Part

    def decode(*_):
        yield part(["| one |"], "one", 1, 2)
        raise RuntimeError("the device is gone")

    def lengths(*_):
        yield part(["| fast |"], "fast", 1, 1, "<svg/>")

    monkeypatch.setitem(TABLES, "decode", decode)
    monkeypatch.setitem(TABLES, "lengths", lengths)
    for names in (["decode", "lengths"], ["lengths"], ["decode"]):
        bench_attention.produce(names, options("--readme"), "cpu", "python packages/lm/benchmarks/bench_attention.py")
    assert "the device is gone" in capsys.readouterr().err
    before, after = text.split(bench_attention.BEGIN)[0], text.split(bench_attention.END)[1]
    page = copy.read_text()
    assert page.startswith(before + bench_attention.BEGIN)
    assert page.endswith(bench_attention.END + after)
    lines = page[len(before) : -len(after)].splitlines()
    assert lines[1] == "<!-- table lengths -->"
    assert lines[2].startswith("**Attention over length**: a device, 20")
    assert lines[2].endswith("`python packages/lm/benchmarks/bench_attention.py`.")
    assert lines[3:7] == ["", "| fast |", "", "![TFLOP/s over length](lm-attention.svg)"]
    assert lines[7:9] == ["", "<!-- table decode -->"]
    assert lines[9].endswith("(1 of 2 rows: it was stopped).")
    assert lines[10:] == ["", "| one |", bench_attention.END]
    assert (tmp_path / "lm-attention.svg").read_text() == "<svg/>"


@needs_kernels
def test_what_is_compiled_ahead(monkeypatch):
    jobs = []

    class Process:
        def __init__(self, target, args, daemon):
            jobs.append(pickle.loads(pickle.dumps((target, args))))

        def start(self):
            """Not here: there is no device."""

        join = kill = lambda self, *_: None

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: types.SimpleNamespace(Process=Process))
    for name in ("TORCHINDUCTOR_COMPILE_THREADS", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that it is put back
    bench_attention.compile_ahead(list(TABLES), bench_attention.parse([]), "cuda")
    for target, arguments in jobs:
        inspect.signature(target).bind(*arguments)
    counts = collections.Counter(target.__name__ for target, _ in jobs)
    assert counts == {"measure": 4, "relative_errors": 4, "measure_mask": 8, "compile_decode": 2}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys):
    assert bench_attention.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err
