"""The files of llama2.c, by their layout: models and tokenizers."""

from __future__ import annotations

import struct

import numpy as np
import pytest

WORDS = [" t", "he", " a", "nd", " the", "ll", " he", "  ", "lo", " hello", "\u00e9t"]
LETTERS = list(" thelondar.\u00e9\u6f22")


def tok_bin(words=WORDS, letters=LETTERS):
    """llama2.c's tok.bin: the longest length, then score, length and text of each token."""
    tokens = [(0.0, t) for t in ("<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{i:02X}>" for i in range(256)))]
    tokens += [(-float(i), piece) for i, piece in enumerate([*words, *letters])]
    header = struct.pack("<i", max(len(piece.encode()) for _, piece in tokens))
    return header + b"".join(struct.pack("<fi", score, len(t.encode())) + t.encode() for score, t in tokens)


def tokenizer_file(folder):
    """The tokenizer.json of the tokenizer in tok_bin(), in a folder."""
    llama2c = pytest.importorskip("llama2c")  # which needs bpe
    (folder / "tok.bin").write_bytes(tok_bin())
    llama2c.tokenizer_of(folder / "tok.bin").to_huggingface(folder / "tokenizer.json")
    return folder / "tokenizer.json"


def llama2c_file(model, version, group=8):
    """The file that llama2.c's export writes of a model, by its layout."""
    c, state = model.config, {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    kv = c.kv_heads * c.head_width
    blocks = range(c.num_layers)
    qkv = [state[f"blocks.{i}.attention.qkv.weight"] for i in blocks]
    # Each head's halves (2, half, in) as the pairs (half, 2, in) that llama2.c rotates.
    q, k = (
        [np.swapaxes(w[rows].reshape(-1, 2, c.head_width // 2, c.d_model), 1, 2).reshape(-1, c.d_model) for w in qkv]
        for rows in (slice(c.d_model), slice(c.d_model, c.d_model + kv))
    )
    up = [state[f"blocks.{i}.ffn.gate_up.weight"] for i in blocks]
    parts = {
        "wq": q,
        "wk": k,
        "wv": [w[c.d_model + kv :] for w in qkv],
        "wo": [state[f"blocks.{i}.attention.output.weight"] for i in blocks],
        "w1": [w[: c.d_ff] for w in up],
        "w2": [state[f"blocks.{i}.ffn.down.weight"] for i in blocks],
        "w3": [w[c.d_ff :] for w in up],
    }
    norms = [[state[f"blocks.{i}.{n}.weight"] for i in blocks] for n in ("attention_norm", "ffn_norm")]
    final, embedding = [state["final_norm.weight"]], [state["embedding.weight"]]
    head = [] if c.tied_embeddings else [state["head.weight"]]
    sizes = [c.d_model, c.d_ff, c.num_layers, c.num_heads, c.kv_heads, c.vocab_size, c.context_length]

    def floats(arrays):
        return b"".join(a.astype("<f4").tobytes() for a in arrays)

    if version == 0:
        sizes[5] *= 1 if c.tied_embeddings else -1
        turns = np.zeros(2 * c.context_length * c.head_width // 2, "<f4")
        order = [embedding, norms[0], parts["wq"], parts["wk"], parts["wv"], parts["wo"], norms[1]]
        order += [parts["w1"], parts["w2"], parts["w3"], final, [turns], head]
        return struct.pack("<7i", *sizes) + b"".join(map(floats, order))
    header = struct.pack("<Ii7iB", 0x616B3432, version, *sizes, c.tied_embeddings)
    header += struct.pack("<i", group) if version == 2 else b""
    matrices = [*embedding, *(w for name in parts for w in parts[name]), *head]
    data = header.ljust(256, b"\0") + floats([*norms[0], *norms[1], *final])
    if version == 1:
        return data + floats(matrices)
    for w in matrices:
        rows = w.reshape(-1, group)
        scale = np.abs(rows).max(1) / 127
        data += np.round(rows / scale[:, None]).astype(np.int8).tobytes() + floats([scale])
    return data
