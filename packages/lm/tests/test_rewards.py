"""Rewards: the ready-made ones, functions of one's own in runs, and what happens when one fails."""

from __future__ import annotations

import dataclasses
import json
import sys
import time

import pytest
import torch
from runs import CONFIG, MODEL, assert_same_run, metrics, run, stop_at
from talks import tokenizer
from test_grpo import GRPO as OF_NUMBERS

from lm.commands.cli import main
from lm.config import TrainConfig
from lm.data import open_tokens
from lm.training import checkpoint, rewards
from lm.training.rewards import RewardFailed, named, numbers, program, regex, rewards_of
from lm.training.train import Stopped

pytest.importorskip("bpe")

GSM8K = "She ate 3 and sold 16 - 3 - 4 = 9 eggs, $2 each.\n#### 18"
SQUARE, TESTS = "def square(x):\n    return x * x\n", "assert square(3) == 9"
COLUMNS = {"completions": ["a", "bb"], "prompts": ["p", "p"], "completion_ids": [[1], [2, 3]], "length": [1, 3]}


@pytest.mark.parametrize(
    ("completion", "answer", "right"),
    [
        ("so 2 * 9 = 18.", GSM8K, True),
        ("#### $18.00", GSM8K, True),
        ("18 eggs, or 9 pairs", GSM8K, False),
        ("none", GSM8K, False),
        ("1,234.50", 1234.5, True),
        ("20-2", "2", True),
        ("it is -7", "-7", True),
        ("none", "none", False),
        ("7" * 5000, "7" * 5000, False),
    ],
)
def test_numbers_are_compared_as_gsm8k_compares_them(completion, answer, right):
    assert numbers([completion], [answer]) == [right]


def test_patterns_are_searched():
    assert regex(["<answer>4</answer>", "4"], [r"<answer>\d+</answer>"] * 2) == [1, 0]


def test_programs_pass_their_tests_or_do_not(monkeypatch):
    """Programs that leave before the tests, print what looks like success, run for ever or take all memory earn 0."""
    monkeypatch.setattr(rewards, "PROGRAM_SECONDS", 2)
    right = (SQUARE, f"Here:\n```python\n{SQUARE}```\nIt squares.")
    wrong = (
        "def square(x): return x + x",
        "import sys; sys.exit(0)",
        "import os; print('passed', flush=True); os._exit(0)",
        "print(input()); raise SystemExit",
        "while True: pass",
        SQUARE + "x = bytearray(1 << 31)",
        "def square(x:",
        "",
    )
    assert program([*right, *wrong], [TESTS] * 10) == [1, 1, *[0] * 8]


def test_a_function_gets_the_columns_that_it_names():
    def long_enough(completions, length):
        return [
            float(len(text) >= least) if least < 3 else None for text, least in zip(completions, length, strict=True)
        ]

    def everything(**columns):
        assert columns == COLUMNS
        return torch.tensor([1.0, 2.0])

    text, functions = named([long_enough, (everything, 0.5), "regex"])
    assert text.count("<locals>.long_enough,") == text.count("<locals>.everything@0.5,regex") == 1
    first, second, _ = rewards_of(text, functions)
    assert (first(COLUMNS, 9), second(COLUMNS, 9), second.weight) == ([1, 0], [1, 2], 0.5)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda completions: 1 / 0, r"raised ZeroDivisionError.* for 2 completions, the first 'a'"),
        (lambda answer: [1, 1], "reads 'answer', and the rows of the data have completions, prompts"),
        (lambda prompts: [1], "returned 1 values"),
        (lambda prompts: [1, "x"], "returned 'x'"),
        (lambda prompts: [1, float("nan")], "returned nan"),
        (lambda prompts: torch.ones(2, 2), "returned tensor"),
        (lambda prompts: [1, 10**400], "returned 1000"),
        (lambda prompts: time.sleep(20), "took more than 1 s"),
    ],
)
def test_a_reward_that_fails_is_named(function, says):
    with pytest.raises(RewardFailed, match=f"the reward {__name__}:<lambda> .*{says}"):
        rewards_of(*named(function))[0](COLUMNS, 1)


@pytest.mark.parametrize("text", ["nothing", "no_such_module:f", "json:no_function", "numbers@heavy", "numbers@inf"])
def test_a_reward_that_is_not_there_is_named(text):
    with pytest.raises(ValueError, match=text.partition("@")[0]):
        rewards_of(text)


def test_a_file_with_the_name_of_another_module_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    for folder, value in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        for name in ("judged_by_two_files.py", "json.py"):
            (tmp_path / folder / name).write_text(f"def loads(completions): return [{value}] * len(completions)")
    one, two, json = (
        tmp_path / f"{name}.py" for name in ("one/judged_by_two_files", "two/judged_by_two_files", "one/json")
    )
    assert rewards_of(f"{one}:loads")[0](COLUMNS, 9) == rewards_of(f"{one}:loads")[0](COLUMNS, 9) == [1, 1]
    for file in (two, json):
        with pytest.raises(ValueError, match="rename its file"):
            rewards_of(f"{file}:loads")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run that answers a question with a letter, and the prompts with what a reward reads."""
    folder = tmp_path_factory.mktemp("base")
    tokenizer().save(folder / "tok.json")
    rows = [{"question": f"{n}?", "wants": "a", "tests": ["any"]} for n in range(12)]
    talks = [
        {"messages": [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": letter}]}
        for row in rows
        for letter in "ab"
    ]
    for name, lines in (("talks", talks), ("prompts", rows)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = ["--tokenizer", str(folder / "tok.json"), "--context", "48", "--heldout", "0.2"]
    assert main(["data", "chat", str(folder / "talks.jsonl"), "--out", str(folder / "talks"), *common]) == 0
    more = [*common, "--prompt", "question"]
    assert main(["data", "prompts", str(folder / "prompts.jsonl"), "--out", str(folder / "prompts"), *more]) == 0
    shape = dataclasses.replace(MODEL, vocab_size=259, context_length=48)
    config = dataclasses.replace(CONFIG, objective="sft", document_masking=True, steps=60, eval_every=0)
    run(folder / "talks", folder / "run", config, shape, tokenizer=folder / "tok.json")
    return folder


GRPO = dataclasses.replace(OF_NUMBERS, grpo_group_size=8, steps=16, learning_rate=5e-3, eval_every=8)

MINE = """
def wanted(completions, wants, prompts, tests):
    assert all(one == ["any"] for one in tests) and all("<|im_start|>user" in one for one in prompts)
    return [float(text == want) for text, want in zip(completions, wants)]

def brevity(completion_ids, **rest):
    return [1 / (1 + len(ids)) for ids in completion_ids]
"""


def test_a_run_earns_by_functions_of_a_file_and_continues_to_the_bit(base, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    reward = f"{tmp_path / 'mine.py'}:wanted,{tmp_path / 'mine.py'}:brevity@0.1"
    settings = [
        f"--train.{name}={str(value).lower()}"
        for name, value in vars(GRPO).items()
        if value != getattr(TrainConfig(1), name)
    ]
    command = ["train", str(base / "run"), "--data", str(base / "prompts"), "--quiet", *settings]
    command += ["--train.reward", reward]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    config = dataclasses.replace(GRPO, init_from=str(base / "run"), reward=reward)
    with pytest.raises(Stopped):
        run(base / "prompts", tmp_path / "stopped", config, None, on_step=stop_at(5))
    run(base / "prompts", tmp_path / "stopped", config, None)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    lines = [line for line in metrics(tmp_path / "whole") if "reward" in line]
    wanted, brevity = (f"reward/{tmp_path / 'mine.py'}:{name}" for name in ("wanted", "brevity"))
    assert all(line["reward"] == pytest.approx(line[wanted] + 0.1 * line[brevity]) for line in lines)
    assert sum(line[wanted] for line in lines[-3:]) > 1.2 * sum(line[wanted] for line in lines[:3])
    scores = [line for line in metrics(tmp_path / "whole") if "val_reward" in line]
    assert scores[-1]["val_loss"] == pytest.approx(1 - scores[-1]["val_reward"])


def test_a_reward_that_raises_loses_no_run(base, tmp_path, monkeypatch):
    calls = []

    def wants(completions, wants):
        calls.append(1)
        if len(calls) == 4:
            raise KeyError("no verdict")
        return [float(text == want) for text, want in zip(completions, wants, strict=True)]

    config = dataclasses.replace(GRPO, init_from=str(base / "run"), eval_every=0, checkpoint_every=0)
    with pytest.raises(RewardFailed, match="no verdict"):
        run(base / "prompts", tmp_path / "run", config, None, reward=wants)
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] == 3
    run(base / "prompts", tmp_path / "run", config, None, reward=wants)
    run(base / "prompts", tmp_path / "whole", config, None, reward=wants)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    with pytest.raises(ValueError, match=r"train\.reward"):
        run(base / "prompts", tmp_path / "run", dataclasses.replace(config, steps=14), None, reward="regex")


def test_what_does_not_go_together_is_refused(base, tmp_path, capsys):
    config = dataclasses.replace(GRPO, init_from=str(base / "run"))
    sft = dataclasses.replace(CONFIG, objective="sft", init_from=str(base / "run"))
    for refused, says in ((config, "the data has prompts alone"), (sft, "prompts without answers")):
        with pytest.raises(ValueError, match=says):
            run(base / "prompts", tmp_path / "run", refused, None)
    with pytest.raises(RewardFailed, match="'answer', and the rows of the data have wants, tests"):
        run(base / "prompts", tmp_path / "run", dataclasses.replace(config, reward="numbers"), None)
    (tmp_path / "two.jsonl").write_text('{"prompt": "a", "answer": 1}\n{"prompt": "a", "answer": 2}\n')
    command = ["data", "prompts", str(tmp_path / "two.jsonl"), "--tokenizer", str(base / "tok.json"), "--context", "48"]
    assert main([*command, "--heldout", "0", "--out", str(tmp_path / "two")]) == 2
    assert "one prompt and other fields" in capsys.readouterr().err
    path = base / "prompts" / "train.fields"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"train\.fields is damaged"):
        run(base / "prompts", tmp_path / "other", dataclasses.replace(config, reward="regex"), None)
    path.write_bytes(whole)
    assert open_tokens(base / "prompts" / "train.npy").prompts
