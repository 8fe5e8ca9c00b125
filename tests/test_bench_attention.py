"""The attention benchmark's arithmetic and drawing, which a device without CUDA can check too."""

import xml.etree.ElementTree as ElementTree

import bench_attention
import pytest
import torch
from bench_attention import WAYS, Case, measure, plot, table

import accounting


def test_flops_are_those_of_accounting():
    for causal in (True, False):
        case = Case(64, causal, 1024)
        heads, texts = bench_attention.NUMBERS // 64, bench_attention.POSITIONS // 1024
        shape = accounting.TransformerShape(64, 1024, 1, 64 * heads, heads, 64)
        counted = accounting.training_flops(shape, 1024, texts, pairs="causal" if causal else "full", recompute="fused")
        assert case.flops("forward") == counted["forward scores"]
        assert case.flops("backward") == counted["backward scores"] + counted["recomputed scores"]
        assert case.flops("both") == case.flops("forward") + case.flops("backward")


def test_peers_take_turns_and_a_refusal_is_said(monkeypatch):
    monkeypatch.setattr(bench_attention, "POSITIONS", 64)
    monkeypatch.setattr(bench_attention, "NUMBERS", 32)

    def refuse(*_):
        raise RuntimeError("no memory\nand more")

    def plain(q, k, v, causal):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    cases = [Case(16, causal, length) for causal in (True, False) for length in (16, 32)]
    results = {}
    for case in cases:
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


def test_the_page_has_a_place_for_the_table(monkeypatch, tmp_path):
    text = bench_attention.PAGE.read_text()
    copy = tmp_path / "lm.md"
    copy.write_text(text)
    monkeypatch.setattr(bench_attention, "PAGE", copy)
    for _ in range(2):
        bench_attention.write(["TFLOP/s"], "<svg/>")
    written = copy.read_text()
    before, after = text.split(bench_attention.BEGIN)[0], text.split(bench_attention.END)[1]
    assert written.startswith(before + bench_attention.BEGIN + "\nTFLOP/s\n")
    assert written.endswith(bench_attention.END + after)
    assert (tmp_path / "lm-attention.svg").read_text() == "<svg/>"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_so(capsys):
    assert bench_attention.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err
