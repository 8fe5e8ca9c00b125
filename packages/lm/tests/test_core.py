"""CORE from a small bundle of files, held to the accuracies that nanochat's own code gave on the same files."""

from __future__ import annotations

import json
import random
import shutil

import pytest
import torch
from models import rotate_neighbours_as_halves
from talks import tokenizer as of_bytes

import lm
from lm.commands.cli import main
from lm.evaluation import evaluate_core, read_core

pytest.importorskip("bpe")
LETTERS = "abcdefghijklmnopqrstuvwxyz "
# label: kind, examples, delimiter, baseline in percent
TASKS = {
    "choices": ("multiple_choice", 2, " ", 25.0),
    "long": ("multiple_choice", 5, "\nAnswer: ", 50.0),
    "schema": ("schema", 0, " ", 50.0),
    "words": ("language_modeling", 0, "", 0.0),
    "shown words": ("language_modeling", 3, " ", 0.0),
}
# By core_eval.evaluate_task of nanochat, commit 92d63d4, with its shuffle and the centring of its base_eval.
ACCURACIES = {"choices": 0.25, "long": 0.225, "schema": 0.675, "words": 0.6, "shown words": 0.0}
CORE = 0.08


@pytest.fixture(scope="module")
def model():
    """Weights by a formula, as random numbers differ between versions; letters are likelier than other bytes."""
    model = lm.Transformer(lm.ModelConfig(257, 64, 2, 32, 2, 48)).eval()
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):
            places = torch.arange(weight.numel(), dtype=torch.float64)
            weight.copy_((torch.sin(places * places % 9973 + number) * 0.4 + (weight.ndim == 1)).view(weight.shape))
        model.head_weight[97:123] *= 3
    rotate_neighbours_as_halves(model)
    return model


@pytest.fixture(scope="module")
def tokenizer():
    return of_bytes(["<|endoftext|>"])


@pytest.fixture(scope="module")
def bundle(model, tokenizer, tmp_path_factory):
    folder, draw = tmp_path_factory.mktemp("bundle"), random.Random(0)
    (folder / "eval_data").mkdir()

    def text(least, most):
        return "".join(draw.choice(LETTERS) for _ in range(draw.randint(least, most))).strip() or "a"

    def item(kind):
        if kind == "multiple_choice":
            start = text(2, 4)  # some choices begin alike, and one is the beginning of another
            choices = [start, f"{start} {text(3, 8)}", text(3, 8), text(3, 8)]
            return {"query": text(5, 20), "choices": choices, "gold": draw.randrange(4)}
        if kind == "schema":
            contexts = [text(5, 15), text(5, 15)]
            return {"context_options": contexts, "continuation": text(3, 9), "gold": draw.randrange(2)}
        context = text(5, 15)
        likeliest = model(torch.tensor([[256, *context.encode()]]))[0, -1].argmax().item()
        right = draw.random() < 0.6 and 97 <= likeliest < 123
        space = " " * (draw.random() < 0.3)
        return {"context": context + space, "continuation": chr(likeliest) if right else "q"}

    rows, tasks = ["Eval Task,Task Category,Random baseline"], []
    for label, (kind, examples, delimiter, baseline) in TASKS.items():
        lines = [json.dumps(item(kind)) for _ in range(40)]
        (folder / "eval_data" / f"{label}.jsonl").write_text("\n".join(lines) + "\n")
        rows.append(f"{label},test,{baseline}")
        tasks.append(f"- label: {label}\n  dataset_uri: {label}.jsonl\n  num_fewshot: [{examples}]\n")
        tasks.append(f"  icl_task_type: {kind}\n  continuation_delimiter: {json.dumps(delimiter)}\n")
    (folder / "eval_meta_data.csv").write_text("\n".join(rows) + "\n")
    (folder / "core.yaml").write_text("icl_tasks:\n" + "".join(tasks))
    return folder


def test_scores_are_those_of_nanochat(model, tokenizer, bundle):
    score = evaluate_core(model, tokenizer, read_core(bundle))
    assert score.accuracies == ACCURACIES
    assert score.core == pytest.approx(CORE, abs=1e-6)


def test_separators_of_unicode_within_an_item_do_not_end_its_line(bundle, tmp_path):
    shutil.copytree(bundle, tmp_path / "bundle")
    file = tmp_path / "bundle/eval_data/words.jsonl"
    item = {"context": "a\u2028b\x85c", "continuation": "d"}
    file.write_text(json.dumps(item, ensure_ascii=False) + "\n", encoding="utf-8")
    (words,) = (task for task in read_core(tmp_path / "bundle") if task.label == "words")
    assert words.items == (item,)


def test_from_the_command_line(model, tokenizer, bundle, tmp_path, capsys):
    tokenizer.save(tmp_path / "tok.json")
    lm.to_huggingface(model, tmp_path / "model", tokenizer=tmp_path / "tok.json")
    command = ["eval", str(tmp_path / "model"), "--core", str(bundle), "--limit", "8"]
    assert main([*command, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    score = evaluate_core(model, tokenizer, read_core(bundle, limit=8))
    assert printed == {"accuracies": score.accuracies, "centred": score.centred, "core": score.core}
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["CORE", f"{score.core:.4f}"]
    assert main(["eval", str(tmp_path / "model"), "--core", str(tmp_path)]) == 2
    assert "no core.yaml" in capsys.readouterr().err
    assert main(["eval", str(tmp_path / "model"), "--core", str(bundle), "--stride", "3"]) == 2
    assert main(["eval", str(tmp_path / "model"), "--core", str(bundle), "--limit", "5"]) == 2
    assert "shows 5 examples" in capsys.readouterr().err
