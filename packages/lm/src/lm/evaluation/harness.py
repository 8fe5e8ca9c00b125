"""EleutherAI's lm_eval harness over any model that lm.load reads: the extra `lm_eval`.

import lm_eval
from lm.evaluation.harness import Harness

lm_eval.simple_evaluate(model=Harness("runs/first"), tasks=["hellaswag"])
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections import abc
from pathlib import Path
from typing import Any

import torch

from lm.chat_template import Message
from lm.config import to_table
from lm.evaluation.likelihood import first_of, likelihoods, pair_likelihoods, windows
from lm.extras import need
from lm.generation.sampling import Sampling
from lm.generation.scheduler import Scheduler, Sequence
from lm.generation.stream import StreamDecoder
from lm.interop.loading import load, model_text
from lm.model import Transformer
from lm.tokenizer import prompt_ids

LM: Any = need("lm_eval.api.model", "the evaluation harness", "groundup-lm[lm_eval]").LM

NEW_TOKENS = 256  # of a generation that does not say how many
AT_ONCE = 2048  # requests between two times that results are kept


class Harness(LM):  # type: ignore[misc]  # lm_eval has no types here, and need not be installed
    """A run, or another program's model, as lm_eval asks for one.

    Args:
        model: The model, as for lm.load.
        tokenizer: A tokenizer file, by default the model's own.
        rows: How many texts are generated together.
        device, dtype: As for lm.load.
        loaded: The model, if it is in memory already.
    """

    def __init__(
        self,
        model: str | Path,
        tokenizer: str | Path | None = None,
        *,
        rows: int = 16,
        device: str = "auto",
        dtype: str = "fp32",
        loaded: Transformer | None = None,
    ) -> None:
        super().__init__()
        self.text, self.rows = model_text(model, tokenizer), rows
        self.tokenizer, self.is_chat = self.text.tokenizer, False
        self.model = load(model, device=device, dtype=dtype) if loaded is None else loaded

    @property
    def tokenizer_name(self) -> str:
        """A name of the chat template, by which lm_eval tells its caches apart."""
        return hashlib.sha256(self.text.template.source.encode()).hexdigest()[:16]

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The model's chat template, which lm_eval writes into its results."""
        return self.text.template.source

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as text, whose special tokens count as such from now on."""
        # It ends with the beginning of an answer, or with the last message, which the answer continues.
        self.is_chat = True
        messages = [Message(message["role"], message["content"]) for message in chat_history]
        text = self.text.template.render(messages, add_generation_prompt=add_generation_prompt)
        last = messages[-1].content.rstrip()
        return text if add_generation_prompt else text[: text.rindex(last) + len(last)]

    def loglikelihood(self, requests: abc.Sequence[Any]) -> list[tuple[float, bool]]:
        """log p(continuation | context) of each request, in nats, and whether greedy decoding would write it."""
        results = list[tuple[float, bool]]()
        for start in range(0, len(requests), AT_ONCE):
            some = requests[start : start + AT_ONCE]
            pairs = [request.args for request in some]
            scores = pair_likelihoods(self.model, self.tokenizer, pairs, is_chat=self.is_chat)
            for request, score in zip(some, scores, strict=True):
                results.append((-score.nats, score.greedy))
                self.cache_hook.add_partial("loglikelihood", request.args, results[-1])
        return results

    def loglikelihood_rolling(self, requests: abc.Sequence[Any]) -> list[float]:
        """log p of each whole text, by windows of the context that do not score a token twice."""
        context = self.model.config.context_length
        texts = [windows(self.tokenizer, request.args[0], context, context) for request in requests]
        results = iter(likelihoods(self.model, [window for text in texts for window in text]))
        return [-sum(next(results).nats for _ in text) for text in texts]

    def generate_until(self, requests: abc.Sequence[Any]) -> list[str]:
        """Generate after each context until one of `until`, a token that ends a text, or max_gen_toks."""
        batch, waiting = Scheduler(self.model, rows=self.rows), list(range(len(requests)))[::-1]
        writers: dict[Sequence, tuple[int, StreamDecoder]] = {}
        texts = [""] * len(requests)
        while waiting or batch.sequences:
            # A free row takes the next request.
            while waiting and batch.room:
                number = waiting.pop()
                context, settings = requests[number].args
                until = settings.get("until") or []
                sequence = batch.add(**self.settings_of(context, settings))
                stop = [until] if isinstance(until, str) else [each for each in until if each]
                writers[sequence] = number, StreamDecoder(self.tokenizer, stop)
            # All texts take a step; a stop string ends one early.
            for sequence, token in batch.step():
                number, writer = writers[sequence]
                texts[number] += "" if token is None else writer.feed(token)
                if writer.stopped:
                    batch.cancel(sequence)
                if sequence.ended is not None:
                    texts[number] += writer.finish()
        return texts

    def settings_of(self, context: str, settings: dict[str, Any]) -> dict[str, Any]:
        """The arguments of Scheduler.add: greedy by default; a context too long loses its beginning."""
        length = self.model.config.context_length
        new = max(1, min(int(settings.get("max_gen_toks", NEW_TOKENS)), length - 1))
        temperature = float(settings.get("temperature", 0.0) or 0.0)
        if settings.get("do_sample") is not None:
            temperature = (temperature or 1.0) if settings["do_sample"] else 0.0
        encode = functools.partial(self.tokenizer.encode, allowed_special="all")
        ids = encode(context) if self.is_chat else prompt_ids(self.tokenizer, context)
        return {
            "ids": (ids or first_of(self.tokenizer))[-(length - new) :],
            "max_new_tokens": new,
            "sampling": Sampling(temperature, settings.get("top_k") or None, settings.get("top_p")),
            "seed": 0,
            "stop_tokens": [*self.text.stop_tokens, *(self.text.template.stop_tokens if self.is_chat else ())],
        }


def write_items(samples: abc.Mapping[str, abc.Sequence[abc.Mapping[str, Any]]], path: str | Path) -> None:
    """Write lm_eval's samples to Parquet: task, item, metrics as numbers; the item, its target and answers as JSON."""
    parquet = need("pyarrow.parquet", "--per-document", "groundup-lm[data]")
    import pyarrow

    texts = ("doc", "target", "arguments", "filtered_resps")
    rows = [
        {
            "task": task,
            "item": item["doc_id"],
            "filter": item["filter"],
            **{name: float(item[name]) for name in item["metrics"] if isinstance(item[name], int | float)},
            **{name: json.dumps(item[name], ensure_ascii=False, default=str) for name in texts},
        }
        for task, items in samples.items()
        for item in items
    ]
    columns = dict.fromkeys(name for row in rows for name in row)  # tasks have metrics of their own
    table = pyarrow.table({name: [row.get(name) for row in rows] for name in columns})
    parquet.write_table(table, path)


def model_fingerprint(model: Transformer) -> str:
    """SHA-256, in hex, of the model's configuration and weights."""
    digest = hashlib.sha256(json.dumps(to_table(model.config), sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
