"""Headers of GGUF files as accounting reads them, beside the package gguf and what llama.cpp printed."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="the files are written by gguf, which is not installed")
accounting = pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

from accounting.commands.parser import main as command  # noqa: E402
from accounting.models import gguf as headers  # noqa: E402
from accounting.models.defaults import tables  # noqa: E402
from accounting.models.files import find  # noqa: E402

# architecture, layers, width, heads, key heads, feed-forward width, vocabulary, type; what llama.cpp printed (that of
# llama-cpp-python 0.3.36, November 2026, on a CPU): MiB of the weights and of the cache at n_ctx 512; of Q4_0 it prints
# two buffers, as it stores that type in another order. Then MiB that it computes in at (n_ctx, n_ubatch) of CONTEXTS,
# without flash attention and with it.
CONTEXTS = ((512, 512), (2048, 512), (1024, 128), (4096, 64))
PRINTED: list[tuple[tuple[Any, ...], float | None, float, tuple[float, ...]]] = [
    (("llama", 2, 256, 4, 2, 512, 1000, "F16"), 3.23, 0.50, (8.01, 23.01, 3.25, 5.38, 4.51, 6.01, 1.25, 1.00)),
    (("llama", 3, 512, 8, 8, 1024, 2000, "Q8_0"), 10.06, 3.00, (16.01, 43.01, 6.25, 9.88, 9.51, 11.01, 2.50, 1.63)),
    (("qwen2", 2, 256, 4, 2, 768, 1000, "Q4_0"), None, 0.50, (8.01, 23.01, 3.25, 5.38, 7.01, 8.51, 1.88, 1.31)),
    (("qwen3", 2, 256, 4, 1, 512, 1500, "BF16"), 3.60, 0.25, (7.76, 22.76, 3.19, 5.34, 4.51, 6.01, 1.61, 1.00)),
    (("llama", 4, 256, 8, 4, 512, 1000, "Q5_1"), 2.06, 1.00, (12.01, 39.01, 5.25, 9.38, 5.01, 6.51, 1.38, 1.06)),
    (("qwen3", 3, 512, 8, 2, 1024, 3000, "F32"), 37.23, 0.75, (14.51, 41.51, 5.88, 9.69, 9.51, 11.01, 2.72, 1.63)),
    (
        ("llama", 1, 1024, 16, 4, 2048, 4000, "Q5_0"),
        11.23,
        0.50,
        (28.01, 79.01, 11.25, 18.38, 18.51, 17.83, 4.75, 2.25),
    ),
    (("llama", 2, 256, 2, 2, 4096, 1000, "F16"), 13.98, 1.00, (27.51, 30.51, 7.13, 4.31, 26.51, 28.01, 6.75, 3.75)),
    (("llama", 2, 512, 4, 2, 8192, 1000, "F16"), 52.96, 1.00, (53.01, 56.01, 13.50, 7.50, 52.51, 54.01, 13.25, 7.00)),
    (("qwen3", 2, 512, 16, 2, 640, 1000, "Q8_0"), 4.24, 0.25, (22.26, 73.26, 9.81, 17.66, 7.01, 8.51, 1.88, 1.31)),
]


def write(path: Path, sizes: tuple[Any, ...]) -> None:
    kind, layers, width, heads, key_heads, inner, rows, name = sizes
    quantised, each = gguf.GGMLQuantizationType[name], width // heads
    writer = gguf.GGUFWriter(path, kind)
    for key, value in (
        *(("block_count", layers), ("embedding_length", width), ("feed_forward_length", inner)),
        *(("attention.head_count", heads), ("attention.head_count_kv", key_heads), ("context_length", 2048)),
    ):
        writer.add_uint32(f"{kind}.{key}", value)
    writer.add_array("tokenizer.ggml.tokens", [f"token {at}" for at in range(rows)])

    def tensor(label: str, *shape: int) -> None:
        numbers = np.zeros(shape, np.float32)
        plain = len(shape) == 1
        stored = numbers if plain else gguf.quants.quantize(numbers, quantised)
        writer.add_tensor(label, stored, raw_dtype=None if plain else quantised)

    for label in ("token_embd", "output"):
        tensor(f"{label}.weight", rows, width)
    tensor("output_norm.weight", width)
    tensor("rope_freqs.weight", each // 2)
    for at in range(layers):
        for label, *shape in (
            *(("attn_norm", width), ("ffn_norm", width), ("attn_q", width, width), ("attn_output", width, width)),
            *(("attn_k", key_heads * each, width), ("attn_v", key_heads * each, width)),
            *(("ffn_gate", inner, width), ("ffn_up", inner, width), ("ffn_down", width, inner)),
            *([("attn_q_norm", each), ("attn_k_norm", each)] if kind == "qwen3" else []),
        ):
            tensor(f"blk.{at}.{label}.weight", *shape)
        if kind == "qwen2":
            for label, size in (("q", width), ("k", key_heads * each), ("v", key_heads * each)):
                tensor(f"blk.{at}.attn_{label}.bias", size)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()


@pytest.mark.parametrize(("sizes", "weights", "cache", "buffers"), PRINTED)
def test_weights_cache_and_buffers_are_those_that_llama_cpp_prints(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    sizes: tuple[Any, ...],
    weights: float | None,
    cache: float,
    buffers: tuple[float, ...],
) -> None:
    path = tmp_path / "model.gguf"
    write(path, sizes)
    shape = find(str(path))
    parts = headers.stored(str(path), int(accounting.parameters(shape).total))
    tensors = gguf.GGUFReader(path).tensors
    assert sum(parts.values()) == sum(int(one.n_bytes) for one in tensors)
    if weights is not None:
        table = 4 * (shape.head_width // 2)  # of rotations, which the files that llama.cpp loaded did not have
        assert round((sum(parts.values()) - table) / 2**20, 2) == weights
    assert int(accounting.kv_cache(shape, 1, 512, dtype="fp16").total) == cache * 2**20
    settings = [(*sizes, flash) for flash in (False, True) for sizes in CONTEXTS]
    for (context, micro_batch, flash), printed in zip(settings, buffers, strict=True):
        buffer = headers.compute_buffer(shape, context, micro_batch, flash=flash)
        assert buffer is not None
        assert abs(buffer / 2**20 - printed) < 0.0051
    assert command(["infer", str(path), "--device", "h100", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[-1]
    assert row["weights"] == "file"
    assert row["bytes of tensors"] == sum(parts.values())


# wider heads than d_model has room for, vocabularies whose logits need most, contexts that are not of whole 256
# positions, gaps that no tensor fits into: layers, d_model, heads, key heads, width of a head, d_ff, vocabulary;
# n_ctx, n_ubatch, flash attention, MiB that llama.cpp printed
WIDE = [
    ((2, 256, 4, 2, 128, 512, 1000), 512, 512, False, 9.51),
    ((2, 512, 8, 4, 128, 1024, 1000), 2048, 512, False, 45.01),
    ((2, 512, 8, 8, 32, 1024, 1000), 4096, 512, False, 78.01),
    ((2, 256, 8, 2, 64, 4096, 1000), 512, 512, False, 27.01),
    ((2, 256, 4, 2, 64, 512, 32000), 512, 512, False, 64.00),
    ((2, 512, 4, 2, 64, 512, 30000), 4096, 512, False, 61.60),
    ((3, 256, 3, 3, 96, 640, 1000), 300, 1024, False, 4.55),
    ((2, 256, 4, 2, 64, 64, 30000), 8192, 8192, True, 969.53),
    ((2, 1024, 4, 4, 64, 64, 100), 8192, 8192, True, 248.22),
    ((1, 256, 4, 2, 64, 2048, 100), 8192, 8192, True, 216.03),
    ((3, 256, 4, 2, 64, 2048, 100), 8192, 8192, True, 352.22),
    ((1, 1024, 3, 3, 128, 256, 100), 300, 32, True, 0.58),
    ((5, 512, 4, 4, 32, 1312, 1000), 300, 100, True, 2.24),
    ((5, 320, 12, 4, 128, 2144, 1000), 1000, 1024, True, 36.04),
]


@pytest.mark.parametrize(("sizes", "context", "micro_batch", "flash", "printed"), WIDE)
def test_buffers_of_wide_heads_vocabularies_and_gaps(
    sizes: tuple[int, ...], context: int, micro_batch: int, flash: bool, printed: float
) -> None:
    layers, width, heads, key_heads, head, inner, rows = sizes
    shape = accounting.TransformerShape(rows, 8192, layers, width, heads, inner, num_kv_heads=key_heads, head_dim=head)
    buffer = headers.compute_buffer(shape, context, micro_batch, flash=flash)
    assert buffer is not None
    assert abs(buffer / 2**20 - printed) < 0.0051
    assert headers.compute_buffer(accounting.SHAPES["gpt-oss-20b"], context) is None


def test_types_are_those_of_gguf() -> None:
    for number, (name, block, size) in tables()["gguf types"].items():
        kind = gguf.GGMLQuantizationType(int(number))
        assert (kind.name, gguf.GGML_QUANT_SIZES[kind]) == (name, (block, size))


def test_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path, PRINTED[0][0])
    whole = path.read_bytes()
    header = whole[: whole.index(b"rope_freqs") + 60]
    huge = struct.pack("<Q", 1 << 60)
    for at, contents in enumerate([b"", b"GGML" + whole[4:], whole[:30], header[:-40], whole[:8] + huge + whole[16:]]):
        broken = tmp_path / f"{at}.gguf"
        broken.write_bytes(contents)
        with pytest.raises(ValueError, match=f"{at}.gguf is no GGUF file"):
            find(str(broken))
    with pytest.raises(ValueError, match="expected the 7 parameters"):
        headers.stored(str(path), 7)
