"""Read a model of llama2.c, and its tokenizer, and write them as a Hugging Face folder.

    python packages/lm/examples/llama2c.py model.bin OUT --tokenizer tok.bin

`lm import OUT --out RUN` then makes a run of it. A `.bin` is of the legacy layout (version 0), of float32 (version 1)
or of int8 in groups (version 2).

All numbers are little-endian. The header is seven int32: dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size and
max_seq_len; a legacy file begins with it, and says by a negative vocab_size that the head is a matrix of its own. The
others begin with "ak42" as a uint32 and the version, then the header, a byte that says whether the head is the
embedding, in version 2 the int32 size of the groups, and zeros up to byte 256. Version 2 has every matrix as its int8
and then a float32 for each group of them. Rotation is of the pairs (2i, 2i + 1), here of halves:
rows of queries and keys change places.
"""

from __future__ import annotations

import argparse
import functools
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import bpe
from bpe.formats import sentencepiece
from lm import to_huggingface
from lm.config import ModelConfig
from lm.interop.tensors import built, to_halves
from lm.model import Transformer
from lm.tokenizer import BYTE, CONTROL, PIECE, UNKNOWN, beginning

MAGIC = 0x616B3432
HEADER = "<7i"
PREAMBLE = 256


class Reader:
    """The numbers of a file in their order."""

    def __init__(self, path: Path, data: NDArray[np.uint8], at: int, group: int | None) -> None:
        self.path, self.data, self.at, self.group = path, data, at, group

    def floats(self, *shape: int) -> Tensor:
        """A tensor of float32."""
        return torch.from_numpy(self._take(4 * int(np.prod(shape))).view("<f4").astype(np.float32).reshape(shape))

    def matrix(self, *shape: int) -> Tensor:
        """A matrix, or one for each layer, as the version stores them."""
        if self.group is None:
            return self.floats(*shape)
        return (
            torch.stack([self._groups(*shape[1:]) for _ in range(shape[0])])
            if len(shape) == 3
            else self._groups(*shape)
        )

    def _groups(self, rows: int, columns: int) -> Tensor:
        assert self.group is not None
        small = torch.from_numpy(self._take(rows * columns).view(np.int8).astype(np.float32))
        return (small.view(-1, self.group) * self.floats(rows * columns // self.group)[:, None]).view(rows, columns)

    def _take(self, count: int) -> NDArray[np.uint8]:
        numbers = self.data[self.at : self.at + count]
        self.at += count
        if len(numbers) < count:
            raise ValueError(f"{self.path} is cut short: it has {len(self.data):,} bytes, and its header asks for more")
        return numbers


def from_llama2c(path: str | Path) -> Transformer:
    """Read the model of a llama2.c .bin file, of version 0, 1 or 2.

    Args:
        path: The file.

    Returns:
        The model, in fp32 and eval mode.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not such a file, of an unknown version, or not of the size that its header asks for.
    """
    path = Path(path)
    data = np.fromfile(path, dtype=np.uint8)
    if len(data) < struct.calcsize(HEADER):
        raise ValueError(f"{path} has {len(data)} bytes: it is not a model of llama2.c")
    preamble = data[:PREAMBLE].tobytes()
    group, version, at = None, 0, struct.calcsize(HEADER)
    if struct.unpack_from("<I", preamble)[0] == MAGIC and len(preamble) == PREAMBLE:
        version, *sizes = struct.unpack_from("<8i", preamble, 4)
        if version not in (1, 2):
            raise ValueError(f"{path} is of version {version} of llama2.c's files, and 0, 1 and 2 are supported")
        tied, at = bool(preamble[36]), PREAMBLE
        group = struct.unpack_from("<i", preamble, 37)[0] if version == 2 else None
    else:
        sizes = list(struct.unpack_from(HEADER, preamble))
        tied = sizes[5] > 0
        sizes[5] = abs(sizes[5])
    d, ff, layers, heads, kv_heads, vocab, context = sizes
    if min(sizes) < 1 or max(sizes) > 1 << 24 or d % heads or (d // heads) % 2 or heads % kv_heads:
        raise ValueError(
            f"{path} is not a model of llama2.c: its header asks for the sizes {', '.join(map(str, sizes))}"
        )
    least = 4 * d * (layers + vocab) if group is None else d * vocab  # bytes of the embedding and of one norm a layer
    if least > len(data):
        raise ValueError(f"{path} is cut short: it has {len(data):,} bytes, and its header asks for more")
    config = ModelConfig(vocab, context, layers, d, heads, ff, num_kv_heads=kv_heads, tied_embeddings=tied)
    kv = d // heads * kv_heads
    if group is not None and (group < 1 or any(size % group for size in (vocab * d, d * d, kv * d, ff * d))):
        raise ValueError(f"{path} is damaged: groups of {group} do not divide its matrices")
    r = Reader(path, data, at, group)
    if version == 0:
        embedding = r.matrix(vocab, d)
        attention_norm = r.floats(layers, d)
    else:
        attention_norm, ffn_norm, final_norm = r.floats(layers, d), r.floats(layers, d), r.floats(d)
        embedding = r.matrix(vocab, d)
    q, k, v, output = (r.matrix(layers, rows, d) for rows in (d, kv, kv, d))
    if version == 0:
        ffn_norm = r.floats(layers, d)
    gate, down, up = r.matrix(layers, ff, d), r.matrix(layers, d, ff), r.matrix(layers, ff, d)
    if version == 0:
        final_norm = r.floats(d)
        r.floats(2, context, d // heads // 2)  # cosines and sines, which are known
    head = None if tied else r.matrix(vocab, d)
    if r.at != len(data):
        raise ValueError(f"{path} has {len(data) - r.at:,} bytes more than its header asks for: it is damaged")
    state = {"embedding.weight": embedding, "final_norm.weight": final_norm}
    turned = functools.partial(to_halves, head_dim=d // heads)
    for i in range(layers):
        state |= {
            f"blocks.{i}.attention_norm.weight": attention_norm[i],
            f"blocks.{i}.attention.qkv.weight": torch.cat((turned(q[i]), turned(k[i]), v[i])),
            f"blocks.{i}.attention.output.weight": output[i],
            f"blocks.{i}.ffn_norm.weight": ffn_norm[i],
            f"blocks.{i}.ffn.gate_up.weight": torch.cat((gate[i], up[i])),
            f"blocks.{i}.ffn.down.weight": down[i],
        }
    if head is not None:
        state["head.weight"] = head
    return built(config, {name: tensor.clone() for name, tensor in state.items()})


def tokenizer_of(path: str | Path) -> Any:
    """Read the bpe.Tokenizer of a tok.bin: the longest length, then a score, a length and the text of each token.

    The best score merges first; ids 0, 1 and 2 are `<unk>`, `<s>` and `</s>`, the next 256 the bytes. ValueError: the
    file is not a tokenizer of llama2.c.
    """
    data, pieces, at = Path(path).read_bytes(), list[tuple[str, float, int]](), 4
    try:
        while at < len(data):
            score, size = struct.unpack_from("<fi", data, at)
            text = data[at + 8 : at + 8 + size]
            if size < 0 or len(text) != size:
                raise ValueError("it is cut short")
            pieces.append((text.decode().replace(" ", "▁"), score, PIECE))
            at += 8 + size
        names = [f"<0x{value:02X}>" for value in range(256)]
        if [text for text, *_ in pieces[3:259]] != names:
            raise ValueError("its tokens 3 to 258 are not the 256 bytes")
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path} is not a tokenizer of llama2.c: {error}") from None
    pieces[:3] = ("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)
    pieces[3:259] = [(name, 0.0, BYTE) for name in names]
    return beginning(bpe.Tokenizer.from_data(sentencepiece.of_pieces(pieces, True, False, path)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.BIN")
    parser.add_argument("out", metavar="OUT", help="the Hugging Face folder to write")
    parser.add_argument("--tokenizer", metavar="TOK.BIN", help="the tokenizer, for the folder")
    options = parser.parse_args(arguments)
    model = from_llama2c(options.model)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = None if options.tokenizer is None else Path(folder, "tokenizer.json")
        if tokenizer is not None:
            tokenizer_of(options.tokenizer).to_huggingface(tokenizer)
        print(to_huggingface(model, options.out, tokenizer=tokenizer))


if __name__ == "__main__":
    main()
