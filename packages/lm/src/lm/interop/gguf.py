"""GGUF, the file of llama.cpp: weights, sizes and tokenizer in one."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Literal

from lm.config import one_of
from lm.extras import need
from lm.files import atomic_path, atomic_write, read_json, reason
from lm.interop import gguf_models, k_quants
from lm.interop.exporting import source_of, special_ids
from lm.interop.loading import ModelText
from lm.interop.ollama import HEADING, modelfile
from lm.interop.shapes import as_family
from lm.model import Transformer
from lm.tokenizer import BEGINS, BYTE, CONTROL, PIECE, TURN_ENDS, UNKNOWN, UNUSED

DTYPES = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_k_m": "Q4_K_M"}
IN_FP32 = ("ffn_gate_inp.weight", "_exps.bias")  # routers and biases of experts, which llama.cpp adds in fp32
BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
Q8_BLOCK = 32  # elements of a block; a row that is not whole blocks stays in fp16


def to_gguf(
    model_or_run_dir: Transformer | str | Path,
    path: str | Path,
    *,
    dtype: str = "fp16",
    tokenizer: str | Path | None = None,
    step: int | Literal["best", "average"] | None = None,
) -> Path:
    """Write a model and its tokenizer as a .gguf file, whole or not at all; beside it, of a model with a chat template,
    Ollama's FILE.Modelfile.

    Args:
        model_or_run_dir: A model in memory, or a run or another program's model, as for lm.load.
        path: The file to write.
        dtype: Of the matrices: "fp32", "fp16", "bf16", "q8_0" or "q4_k_m". Vectors stay in fp32.
        tokenizer: A tokenizer file (default: the run's own). Without one llama.cpp reads ids only.
        step: For a run, the checkpoint of this step, or "best" (default: the newest).

    Returns:
        The path of the file.

    Raises:
        ValueError: llama.cpp has no such model or tokenizer; the message names the setting.
        MissingExtra: The package gguf is not installed.
        FileExistsError: Something other than a .gguf is at `path`.
    """
    gguf = need("gguf", "GGUF", "groundup-lm[gguf]")
    path = Path(path)
    one_of("dtype", dtype, tuple(DTYPES))
    if path.suffix != ".gguf":
        raise ValueError(f"{path} does not end in .gguf: rename it")
    if path.exists() and (not path.is_file() or path.read_bytes()[:4] != b"GGUF"):
        raise FileExistsError(f"{path} is there already, and is not a GGUF file: choose another name")
    # A model that llama.cpp does not have is refused before anything is written.
    run, model, text = source_of(model_or_run_dir, tokenizer, step)
    template, beside = None if text is None else text.kept_template, path.with_suffix(".Modelfile")
    if template is not None and beside.exists() and not beside.read_bytes().startswith(HEADING[:20].encode()):
        raise FileExistsError(f"{beside} is there already, and no export of this program: choose another name")
    config = as_family(model.config)
    kind = gguf_models.kind_of(config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            writer = gguf.GGUFWriter(temporary, kind.architecture)
            gguf_models.describe(writer, config, gguf)
            writer.add_name("groundup" if run is None else run.resolve().name)
            most = "ALL" if dtype == "fp32" else "MOSTLY"
            writer.add_file_type(gguf.LlamaFileType[f"{most}_{DTYPES[dtype]}"])
            if text is None:
                writer.add_tokenizer_model("none")
            else:
                add_tokenizer(writer, text, model.config.vocab_size, tokenizer or run)
                if template is not None:
                    writer.add_chat_template(template.source)
            add_weights(writer, gguf, model, dtype)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
        if template is not None:
            atomic_write(beside, modelfile(path, template))
    except OSError as error:
        raise OSError(f"{path} cannot be written: {reason(error, path.parent)}") from error
    return path


def add_weights(writer: Any, gguf: Any, model: Transformer, dtype: str) -> None:
    """The tensors: matrices in the dtype, vectors and positions in fp32."""
    kinds = gguf.GGMLQuantizationType
    for name, tensor in gguf_models.tensors(model, gguf):
        array = tensor.detach().cpu().float().numpy()
        kind = DTYPES[dtype]
        if array.ndim < 2 or name == "position_embd.weight" or name.endswith(IN_FP32):
            kind = "F32"
        elif kind == "Q4_K_M":
            is_head = name == "output.weight" or (model.head is None and name == "token_embd.weight")
            kind = k_quants.kind_of(name, array.shape[-1], model.config.num_layers, is_head=is_head)
        elif kind == "Q8_0" and array.shape[-1] % Q8_BLOCK:
            kind = "F16"
        is_own = kind.endswith("_K")  # the package gguf reads K-quants, and does not write them
        data = k_quants.quantize(array, kind) if is_own else gguf.quants.quantize(array, kinds[kind])
        writer.add_tensor(name, data, raw_dtype=kinds[kind])


def add_tokenizer(writer: Any, text: ModelText, vocab_size: int, source: object) -> None:
    """Tokens, kinds, and merges or scores. ValueError: a tokenizer that llama.cpp would encode otherwise with."""
    from bpe.formats.gguf import pattern_name
    from bpe.formats.vocabularies import to_printable

    tokenizer = text.tokenizer
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.to_huggingface(Path(folder, "tokenizer.json"))
        file = read_json(Path(folder, "tokenizer.json"))
    special, merges = tokenizer.special_tokens, [tuple(pair) for pair in file["model"]["merges"]]
    is_pieces = bool(file["model"].get("byte_fallback"))  # of SentencePiece's kind; else of bytes
    ids = file["model"]["vocab"] if is_pieces else {to_printable(one): i for i, one in tokenizer.vocab.items()}
    # Ids that the model has beyond the tokenizer's, and those between that have no token, are never used.
    texts, kinds = [f"[PAD{number}]" for number in range(vocab_size)], [UNUSED] * vocab_size
    for name, number in ids.items():
        texts[number], kinds[number] = name, BYTE if is_pieces and BYTE_PIECE.fullmatch(name) else PIECE
    for name, number in special.items():
        texts[number], kinds[number] = name, UNKNOWN if is_pieces and name == "<unk>" else CONTROL
    if is_pieces:
        ranks: dict[str, int] = {}
        for rank, (left, right) in enumerate(merges):
            ranks.setdefault(left + right, rank)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_scores([-float(ranks.get(name, len(ranks))) for name in texts])
        writer.add_add_space_prefix(puts_space_in_front(file, source))
    else:
        pre = pattern_name(tokenizer.data.pattern)
        if pre is None:
            raise ValueError(f"{source}: llama.cpp has no split pattern {tokenizer.pattern!r}: it would give other ids")
        if not merges:
            raise ValueError(f"{source} has no merges, and llama.cpp reads no such tokenizer: train one with some")
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    # The tokens that begin a text and end it, and another that ends a turn, if the template has one.
    begin, end = special_ids(text).values()
    if begin is not None or end is not None:
        writer.add_bos_token_id(begin if begin is not None else end)
    if end is not None:
        writer.add_eos_token_id(end)
    template = text.kept_template
    answers_end = text.config.eos_ids if template is None else template.stop_tokens
    stops = [number for number in answers_end if number != end]
    if stops:  # llama.cpp ends an answer at the token that ends a turn, too
        ends = [number for number in stops if number in {special.get(name) for name in TURN_ENDS}]
        writer.add_eot_token_id((ends or stops)[0])
    writer.add_add_bos_token(any(name in special for name in BEGINS))


def puts_space_in_front(file: dict[str, Any], source: object) -> bool:
    """True for every text, False for none. ValueError: for some, which llama.cpp does not do."""
    steps = file["normalizer"] or {}
    if any(step["type"] == "Prepend" for step in [steps, *steps.get("normalizers", ())] if step):
        return True
    scheme = (file["pre_tokenizer"] or {}).get("prepend_scheme", "never")
    if scheme != "never":
        raise ValueError(f"{source}: llama.cpp puts a space before every text or none, and this puts it by {scheme!r}")
    return False
