"""Weights in the types of their file: multiplied in C as the plain model does, and read from GGUF files and folders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models import LEVELS, compiled_for, needs_compiler, some_ids

import lm
from lm import to_gguf, to_huggingface
from lm.commands.cli import main
from lm.config import ModelConfig
from lm.device import threads
from lm.generation.decoder import Decoder
from lm.interop.k_quants import quantize
from lm.model import Transformer
from lm.ops.cpu.describe import KINDS
from lm.ops.cpu.stored import BLOCKS, FLOATS, Rows, StoredEmbedding, StoredLinear

gguf = pytest.importorskip("gguf")
STORED = [kind for kind in KINDS if kind != "INT8"]
SCALES = {"Q8_0": (0,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}  # places of float16 in a block


def rows_of(kind, count, columns, byte=None):
    """Random rows, of any bytes but for the scales of blocks; or of one byte."""
    generator = np.random.default_rng(count + columns)
    if kind in FLOATS:
        return Rows(kind, torch.from_numpy(generator.normal(0, 0.1, (count, columns))).to(FLOATS[kind]))
    weights, size = BLOCKS[kind]
    data = generator.integers(0, 256, (count, columns // weights, size), dtype=np.uint8)
    if byte is not None:
        data[:] = byte
    for place in SCALES[kind]:
        scale = generator.uniform(-1e-4, 1e-4, data.shape[:2]) * (10 if kind in ("Q8_0", "Q4_K") else 1)
        data[:, :, place : place + 2] = scale.astype(np.float16)[:, :, None].view(np.uint8)
    return Rows(kind, torch.from_numpy(data.reshape(count, -1)))


def model_of(kind, other, d_model, d_ff):
    """Parts of two kinds; all else random."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(300, 150, 1, d_model, 4, d_ff, num_kv_heads=2, tied_embeddings=True)).eval()
    (block,) = model.blocks
    sizes = (d_model, d_model // 2, d_model // 2)
    kinds = (kind, other, kind)
    parts = [rows_of(one, size, d_model) for one, size in zip(kinds, sizes, strict=True)]
    block.attention.qkv = StoredLinear(parts, torch.randn(sum(sizes)))
    block.attention.output = StoredLinear([rows_of(kind, d_model, d_model)])
    block.ffn.gate_up = StoredLinear([rows_of(one, d_ff, d_model) for one in (other, kind)])
    block.ffn.down = StoredLinear([rows_of(kind, d_model, d_ff)])
    model.embedding = StoredEmbedding([rows_of(kind, 300, d_model)], 8.0)
    return model


@needs_compiler
@pytest.mark.parametrize("level", [None, *LEVELS])
def test_every_kind_is_the_plain_model_at_every_level(level, tmp_path_factory):
    """One text, several in blocks and rest, and a prompt in parts, or whole on two threads with the same bits."""
    with compiled_for(level, tmp_path_factory):
        for kind, other in zip(STORED, [*STORED[1:], "F32"], strict=True):
            wide = BLOCKS.get(kind, (1,))[0] == 256 or BLOCKS.get(other, (1,))[0] == 256
            model, ids = model_of(kind, other, *((256, 512) if wide else (96, 160))), some_ids(6, 70, 300)
            with torch.no_grad():
                expected = model(ids)
                near = (1e-5 if KINDS[kind] < KINDS["INT8"] and KINDS[other] < KINDS["INT8"] else 2e-3) * expected.std()
            for rows in (1, 6):
                decoder = Decoder(model, rows=rows, native=True)
                steps = torch.stack([decoder.step(column.tolist()).clone() for column in ids[:rows, :4].T], 1)
                torch.testing.assert_close(steps, expected[:rows, :4], rtol=0, atol=float(near))
            decoder = Decoder(model, native=True)
            (*_, read) = [decoder.read(0, part.tolist()).clone() for part in ids[0].tensor_split([1, 9])]
            torch.testing.assert_close(read, expected[0, -1], rtol=0, atol=float(near))
            with threads(2):
                assert torch.equal(Decoder(model, native=True).read(0, ids[0].tolist()), read)


def probe(embedding, head):
    """A model whose layer adds nothing: its logits are the head's products with rows of the embedding."""
    width = embedding.columns
    config = ModelConfig(len(embedding.data), 80, 1, width, 1, 8, norm="none", position="none", ffn="silu")
    model = Transformer(config).eval()
    with torch.no_grad():
        for matrix in (model.blocks[0].attention.output, model.blocks[0].ffn.down):
            matrix.weight.zero_()
    model.embedding, model.head = StoredEmbedding([embedding]), StoredLinear([head])
    return model


@needs_compiler
@pytest.mark.parametrize("kind", list(BLOCKS))
def test_weights_are_those_of_gguf_bit_for_bit(kind):
    rows = rows_of(kind, 256, 256)
    model = probe(rows, Rows("F32", torch.eye(256)))
    expected = gguf.quants.dequantize(rows.data.numpy(), gguf.GGMLQuantizationType[kind])
    read = Decoder(model, native=True).read(0, list(range(70)), every=True)
    assert np.array_equal(read.numpy(), expected[:70])


@needs_compiler
@pytest.mark.parametrize("kind", list(BLOCKS))
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_the_largest_integers_do_not_overflow(kind, byte):
    """All of x and of the weights have one sign, and their largest size."""
    rows, embedding = rows_of(kind, 256, 512, byte), Rows("F32", torch.ones(256, 512))
    decoder = Decoder(probe(embedding, rows), rows=4, native=True)
    expected = rows.dequantized().double().sum(1).float()
    near = 1e-5 * float(rows.dequantized().abs().sum(1).max())
    for logits in (decoder.step([0])[0], decoder.step([0] * 4)[3], decoder.read(0, [0, 1])):
        torch.testing.assert_close(logits, expected, rtol=0, atol=near)


SHAPES: dict[str, dict] = {
    "llama": {},
    "tied": {"num_kv_heads": 1, "tied_embeddings": True},
    "normed": {"qk_norm": True, "head_dim": 32},
    "gpt2": {"ffn": "gelu", "norm": "layernorm", "position": "learned", "tied_embeddings": True, "bias": True},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_gguf_file_computes_as_it_is(tmp_path, shape):
    torch.manual_seed(0)
    model, ids = Transformer(ModelConfig(300, 64, 2, 64, 2, 96, **SHAPES[shape])).eval(), some_ids(1, 40, 300)
    for dtype in ("fp32", "fp16", "bf16", "q8_0"):
        path = to_gguf(model, tmp_path / "model.gguf", dtype=dtype)
        plain, stored = lm.load(path), lm.load(path, dtype="file")
        kinds = {part.kind for layer in stored.modules() for part in getattr(layer, "parts", ())}
        assert kinds == {{"fp32": "F32", "fp16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}[dtype]}
        with torch.no_grad():
            assert torch.equal(stored(ids), plain(ids))
        texts = [lm.generate(one, [1, 2, 3], max_new_tokens=20, temperature=0) for one in (plain, stored)]
        assert texts[0] == texts[1]


@needs_compiler
def test_q4_k_m_is_written_by_llama_cpps_mix_near_the_weights_and_computed_as_it_is(tmp_path):
    torch.manual_seed(0)
    config = ModelConfig(300, 64, 8, 256, 2, 512, num_kv_heads=1, tied_embeddings=True)
    model, ids = Transformer(config).eval(), some_ids(1, 40, 300)
    path = to_gguf(model, tmp_path / "model.gguf", dtype="q4_k_m")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors}
    assert kinds["token_embd.weight"] == "Q6_K"
    assert [layer for layer in range(8) if kinds[f"blk.{layer}.attn_v.weight"] == "Q6_K"] == [0, 3, 6, 7]
    assert [layer for layer in range(8) if kinds[f"blk.{layer}.ffn_down.weight"] == "Q6_K"] == [0, 3, 6, 7]
    assert {kinds[f"blk.{layer}.{part}.weight"] for layer in range(8) for part in ("attn_q", "ffn_up")} == {"Q4_K"}
    plain, stored = lm.load(path), lm.load(path, dtype="file")
    with torch.no_grad():
        expected = plain(ids)
        torch.testing.assert_close(stored(ids), expected, rtol=0, atol=1e-5)
        read = Decoder(stored, native=True).read(0, ids[0].tolist(), every=True)
        torch.testing.assert_close(read, expected[0], rtol=0, atol=2e-3 * float(expected.std()))
    texts = [lm.generate(one, [1, 2, 3], max_new_tokens=20, temperature=0) for one in (plain, stored)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("kind", "bound"), [("Q4_K", 0.0725), ("Q5_K", 0.037), ("Q6_K", 0.0183)])
def test_k_quants_are_as_near_as_llama_cpps(kind, bound):
    """Its own quantize_row_q4_K_ref has 0.0711 of the spread of such weights, q5_K 0.0361, q6_K 0.0178."""
    x = np.random.default_rng(0).normal(0, 0.02, (32, 1024)).astype(np.float32)
    x[0], x[1], x[2] = 0, 0.01, np.abs(x[2])
    there = gguf.quants.dequantize(quantize(x, kind), gguf.GGMLQuantizationType[kind])
    assert np.sqrt(np.square(there - x)[3:].mean()) < bound * x[3:].std()
    assert not there[0].any()
    assert np.abs(there[1] - 0.01).max() < 1e-4


@pytest.mark.parametrize("dtype", ["q8_0", "q4_k_m"])
def test_a_damaged_file_is_refused_before_c_reads_it(tmp_path, dtype):
    """C computes with the mapped file: what its header promises has to be there, and its texts in UTF-8."""
    path = to_gguf(Transformer(ModelConfig(256, 64, 1, 256, 4, 256)), tmp_path / "model.gguf", dtype=dtype)
    whole = path.read_bytes()
    short = [whole[:-missing] for missing in (1, 2000, len(whole) // 2)]
    for content in (*short, whole.replace(b"llama", b"ll\xffma", 1)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="damaged or cut short"):
            lm.load(path, dtype="file")


def test_a_folder_in_bfloat16_computes_as_it_is(tmp_path, capsys):
    model = Transformer(ModelConfig(300, 64, 2, 64, 2, 96)).eval()
    folder = to_huggingface(model, tmp_path / "model", dtype="bf16")
    plain, stored = lm.load(folder), lm.load(folder, dtype="file")
    assert {part.kind for layer in stored.modules() for part in getattr(layer, "parts", ())} == {"BF16"}
    texts = [lm.generate(one, [1, 2, 3], max_new_tokens=20, temperature=0) for one in (plain, stored)]
    assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="dtype 'file' is for a CPU, and the device is meta"):
        lm.load(folder, dtype="file", device="meta")
    assert main(["generate", str(folder), "--prompt", "a", "--int8", "--dtype", "file"])
    assert "leave one out" in capsys.readouterr().err
