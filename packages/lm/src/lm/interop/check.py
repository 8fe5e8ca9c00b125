"""An export read again and compared with what it was made of."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from lm.generation.stream import generate
from lm.interop.exporting import source_of
from lm.interop.loading import load, model_text
from lm.interop.tensors import exported
from lm.model import Transformer

TOKENS, GREEDY = 48, 16  # of the prompt whose logits are compared, and of the greedy text that is
BY_TABLE = 2e-2  # the most of llama.cpp, which looks up GELU in a table of fp16
EXACT = 1e-4  # the most that logits of the same weights differ by, of the largest, as sums have another order
# The most that the rounding of a dtype changes a tensor by, as a share of its norm.
ROUNDING = {"fp32": EXACT, "bf16": 2**-8, "fp16": 2**-10, "q8_0": 2**-5, "q4_k_m": 2**-2}
Logits = Callable[[list[int]], Tensor]
TEXT = "The  quick brown\n\tfox — 12,345 déjà vu 東京 😀 <|im_end|>"


def check_export(
    source: str | Path,
    target: str | Path,
    *,
    dtype: str,
    tokenizer: str | Path | None = None,
    step: int | Literal["best", "average"] | None = None,
) -> Iterator[str]:
    """Compare an export with its source: weights, ids, chat template, stop tokens, logits; other readers' greedy text.

    Args:
        source: The run or the model that was exported.
        target: The folder or the .gguf file.
        dtype: Of the export: its logits equal the source's in "fp32" alone.
        tokenizer, step: As for to_huggingface().

    Yields:
        A sentence for each reader: lm, and where they are installed transformers for a folder, llama.cpp (the package
        llama_cpp) for a .gguf.

    Raises:
        ValueError: The first difference.
    """
    _, model, text = source_of(source, tokenizer, step)
    back, vocab_size, context = load(target), model.config.vocab_size, model.config.context_length
    # Ids that spread over the vocabulary, at most half the context.
    ids = [(7919 * i + 3) % vocab_size for i in range(min(TOKENS, max(1, context // 2)))]
    if text is not None:
        written, template = model_text(target), text.kept_template
        compare_ids("lm", list(map(int, written.tokenizer.encode(TEXT, allowed_special="all"))), text.tokenizer)
        if template is not None and written.template.source != template.source:
            raise ValueError("the chat template that was written is another")
        if template is not None and not set(written.template.stop_tokens) >= set(template.stop_tokens[:1]):
            raise ValueError(f"stop tokens {written.template.stop_tokens}, expected {template.stop_tokens}")
    count = min(GREEDY, context - len(ids))
    is_fp32 = dtype == "fp32"
    compare_weights(back, model, ROUNDING[dtype])
    difference = compare_logits("lm", logits_of(back, ids), logits_of(model, ids), EXACT if is_fp32 else None)
    greedy = generate(back, ids, max_new_tokens=count, temperature=0)
    yield f"lm reads it: logits differ by {difference:.1e} of the largest from the source's in its own dtype"
    for name, logits, encode, bound in other_readers(Path(target)):
        exact = name == "transformers" or is_fp32
        difference = compare_logits(name, logits(ids), logits_of(back, ids), bound if exact else None)
        sequence = [*ids]
        for _ in range(count):
            sequence.append(int(logits(sequence)[-1].argmax()))
        if exact and sequence[len(ids) :] != greedy:
            raise ValueError(f"{target}: {name} writes another greedy text than lm")
        if text is not None:
            compare_ids(name, encode(TEXT), text.tokenizer)
        yield f"{name} reads it: logits differ by {difference:.1e} of the largest" + ", the greedy text is lm's" * exact


def other_readers(target: Path) -> Iterator[tuple[str, Logits, Callable[[str], list[int]], float]]:
    """Yield the programs that read an export: name, ids → logits (ids, vocab), text → ids, and the most they differ."""
    if target.is_dir() and importlib.util.find_spec("transformers") is not None:
        import transformers

        auto: Any = transformers.AutoModelForCausalLM
        written = auto.from_pretrained(target, dtype=torch.float32).eval()

        def encode(text: str) -> list[int]:
            tokenizer: Any = transformers.AutoTokenizer.from_pretrained(target)
            return list(tokenizer(text, add_special_tokens=False)["input_ids"])

        yield "transformers", lambda ids: logits_of(lambda batch: written(batch).logits, ids), encode, EXACT
    if target.is_file() and importlib.util.find_spec("llama_cpp") is not None:
        import llama_cpp

        # Keys and values in fp32, as lm's.
        settings = {"logits_all": True, "type_k": 0, "type_v": 0, "flash_attn": False, "verbose": False}
        llama = llama_cpp.Llama(str(target), n_ctx=0, **settings)

        def logits(ids: list[int]) -> Tensor:
            llama.reset()
            llama.eval(ids)
            return torch.tensor(llama.scores[: len(ids)])

        yield "llama.cpp", logits, lambda text: llama.tokenize(text.encode(), add_bos=False, special=True), BY_TABLE


@torch.inference_mode()
def logits_of(model: Callable[[Tensor], Tensor], ids: list[int]) -> Tensor:
    return model(torch.tensor([ids]))[0].float()


def compare_weights(back: Transformer, model: Transformer, bound: float) -> None:
    """ValueError: a tensor that lm reads differs by more than a bound: no few tokens see every row and expert."""
    for (name, tensor), (_, expected) in zip(exported(back), exported(model), strict=True):
        least = 1e-3 * expected.numel() ** 0.5  # GGUF adds 1 to some norms: of smaller weights it keeps less
        gap = float((tensor - expected).norm() / expected.norm().clamp(min=least))
        if not gap < bound:
            raise ValueError(f"lm reads another model: the tensor {name} differs by {gap:.1e} of its norm")


def compare_logits(reader: str, logits: Tensor, expected: Tensor, bound: float | None) -> float:
    """Return the largest difference, as a part of the largest logit. ValueError: it is above a bound."""
    gap = float((logits - expected).abs().max() / expected.abs().max().clamp(min=1e-9))
    if bound is not None and not gap < bound:
        place = int((logits - expected).abs().amax(-1).argmax())
        raise ValueError(f"{reader} reads another model: logits differ by {gap:.1e} of the largest at token {place}")
    return gap


def compare_ids(reader: str, ids: list[int], tokenizer: Any) -> None:
    """ValueError: the ids of TEXT are not the tokenizer's, with the first that differs."""
    expected = list(map(int, tokenizer.encode(TEXT, allowed_special="all")))
    if ids != expected:
        place = next((n for n, pair in enumerate(zip(ids, expected, strict=False)) if pair[0] != pair[1]), -1)
        raise ValueError(f"{reader} encodes {TEXT!r} as {ids}, expected {expected}, from place {place} on")
