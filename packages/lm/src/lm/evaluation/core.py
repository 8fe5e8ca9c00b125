"""CORE: 22 tasks answered after examples, from the published bundle of files; the mean of their centred accuracies.

    core.yaml               the tasks: label, kind, file, number of examples, and what joins a question to its answer
    eval_meta_data.csv      for each label its "Random baseline", in percent
    eval_data/              the tasks' files, a JSON object a line

An accuracy is centred so that guessing gives 0 and all right gives 1. Examples are drawn, and prompts written, as in
nanochat, so that scores are comparable to its own. (Li et al. 2024, arXiv:2406.11794)
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accounting.commands.tables import columns
from lm.evaluation.likelihood import Request, first_of, likelihoods, shared
from lm.extras import need
from lm.model import Transformer
from lm.progress import progress_bar

ORDER_SEED, EXAMPLES_SEED = 1337, 1234  # of the order of items, and, with an item's number, of its examples
AT_ONCE = 32  # items


@dataclass(frozen=True)
class CoreTask:
    """A task of CORE."""

    label: str
    kind: str  # "multiple_choice", "schema" (one continuation of several contexts) or "language_modeling"
    items: tuple[Mapping[str, Any], ...]  # objects of its file, in the order of evaluation
    examples: int  # other items that stand before each
    delimiter: str  # between a question and its answer
    baseline: float  # accuracy of guessing


@dataclass(frozen=True)
class CoreScore:
    """The accuracy of each task by its label, and centred ones."""

    accuracies: Mapping[str, float]
    centred: Mapping[str, float]

    @property
    def core(self) -> float:
        """The mean of the centred accuracies."""
        return sum(self.centred.values()) / len(self.centred)

    def __str__(self) -> str:
        rows = [(label, f"{self.accuracies[label]:.4f}", f"{self.centred[label]:.4f}") for label in self.centred]
        return columns([("task", "accuracy", "centred"), *rows, ("CORE", "", f"{self.core:.4f}")])


def read_core(folder: str | Path, *, limit: int | None = None) -> list[CoreTask]:
    """Read the tasks of a bundle. limit: the number of items of each, the first in the order of evaluation.

    Raises:
        FileNotFoundError: A file of the bundle is missing.
        ValueError: A task has no baseline, fewer items than examples, or a line that is not JSON.
    """
    yaml, folder = need("yaml", "CORE", "groundup-lm[core]"), Path(folder)
    for name in ("core.yaml", "eval_meta_data.csv"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"there is no {name} in {folder}: name the folder of the unpacked bundle")
    with open(folder / "eval_meta_data.csv", encoding="utf-8", newline="") as file:
        baselines = {row["Eval Task"]: float(row["Random baseline"]) / 100 for row in csv.DictReader(file)}
    tasks = []
    for task in yaml.safe_load((folder / "core.yaml").read_text(encoding="utf-8"))["icl_tasks"]:
        label, path = task["label"], folder / "eval_data" / task["dataset_uri"]
        if label not in baselines:
            raise ValueError(f"{folder / 'eval_meta_data.csv'} has no baseline of {label!r}")
        try:
            items = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} has a line that is not JSON: {error}") from None
        random.Random(ORDER_SEED).shuffle(items)
        items, examples = items[:limit], task["num_fewshot"][0]
        if len(items) <= examples:
            raise ValueError(f"{label} shows {examples} examples before each item, and has {len(items)} items in all")
        delimiter = task.get("continuation_delimiter", " ")
        tasks.append(CoreTask(label, task["icl_task_type"], tuple(items), examples, delimiter, baselines[label]))
    return tasks


def evaluate_core(
    model: Transformer, tokenizer: Any, tasks: Sequence[CoreTask], *, progress: bool = False
) -> CoreScore:
    """Score a model on tasks. tokenizer: a bpe.Tokenizer, the model's own. progress: show a live line on stderr."""
    accuracies = dict[str, float]()
    for task in tasks:
        right = 0
        with progress_bar(task.label, len(task.items), "item", disable=not progress) as bar:
            for start in range(0, len(task.items), AT_ONCE):
                numbers = range(start, min(start + AT_ONCE, len(task.items)))
                right += answers_right(model, tokenizer, task, numbers)
                bar.update(len(numbers))
        accuracies[task.label] = right / len(task.items)
    centred = {task.label: (accuracies[task.label] - task.baseline) / (1 - task.baseline) for task in tasks}
    return CoreScore(accuracies, centred)


def answers_right(model: Transformer, tokenizer: Any, task: CoreTask, numbers: Sequence[int]) -> int:
    """Number of these items that the model answers right."""
    requests = [requests_of(tokenizer, task, number, model.config.context_length) for number in numbers]
    scores = iter(likelihoods(model, [one for each in requests for one in each if one.ids]))
    right = 0
    for number, each in zip(numbers, requests, strict=True):
        scored = [next(scores) if one.ids else None for one in each]
        if task.kind == "language_modeling":
            right += all(score is not None and score.greedy for score in scored)
            continue
        # The choice with the least mean loss counts. One that another begins with has no tokens of its own: it is NaN.
        losses = [score.nats / len(one.ids) if score else float("nan") for one, score in zip(each, scored, strict=True)]
        right += losses.index(min(losses)) == task.items[number]["gold"]
    return right


def requests_of(tokenizer: Any, task: CoreTask, number: int, context_length: int) -> list[Request]:
    """The tokens to score for each choice of an item, after those before them, in the last context_length tokens."""
    begin = first_of(tokenizer)
    ids = [[*begin, *tokenizer.encode(prompt, disallowed_special=())] for prompt in prompts_of(task, number)]
    # The scored part begins where the choices, or from the end the contexts, differ.
    if task.kind == "schema":  # what follows the contexts is scored, as far as its tokens are the same
        starts = [len(one) - shared([each[::-1] for each in ids]) for one in ids]
    else:
        starts = [shared(ids)] * len(ids)
    if task.kind == "language_modeling":
        ids, starts = ids[1:], starts[1:]
    # A prompt that does not fit the context loses its beginning.
    cuts = [min(max(0, len(one) - context_length), start - 1) for one, start in zip(ids, starts, strict=True)]
    return [Request(tuple(i[cut:start]), tuple(i[start:])) for i, start, cut in zip(ids, starts, cuts, strict=True)]


def prompts_of(task: CoreTask, number: int) -> list[str]:
    """The texts of an item after its examples: one for each choice, or without and with the continuation."""
    others = [index for index in range(len(task.items)) if index != number]
    drawn = random.Random(EXAMPLES_SEED + number).sample(others, task.examples) if task.examples else []
    item, examples, sep = task.items[number], [task.items[index] for index in drawn], task.delimiter
    if task.kind == "multiple_choice":
        before = "".join(f"{one['query']}{sep}{one['choices'][one['gold']]}\n\n" for one in examples)
        return [f"{before}{item['query']}{sep}{choice}" for choice in item["choices"]]
    if task.kind == "schema":
        before = "".join(f"{one['context_options'][one['gold']]}{sep}{one['continuation']}\n\n" for one in examples)
        return [f"{before}{context}{sep}{item['continuation']}" for context in item["context_options"]]
    if task.kind == "language_modeling":
        before = "".join(f"{one['context'].strip()}{sep}{one['continuation']}\n\n" for one in examples)
        context = f"{before}{item['context'].strip()}{sep}"
        return [context.strip(), f"{context}{item['continuation']}"]
    raise ValueError(f"{task.label} is of the kind {task.kind!r}: use multiple_choice, schema or language_modeling")
