"""The files on the way to a run's first step and to a first token; what a continuation may change."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from runs import CONFIG, MODEL, run, some_tokens
from torch.utils._python_dispatch import TorchDispatchMode

import accounting
import lm
from lm.commands.configuration import configuration, presets
from lm.config import TrainConfig
from lm.data import write_tokens
from lm.training import resume
from lm.training.budget import policy
from lm.training.metrics import Throughput
from lm.training.train import may_exceed_memory, train
from lm.training.trainer import Trainer

SOURCES = Path(lm.__file__).parent


class FirstStep(Exception):
    """Raised in place of the first step."""


@contextlib.contextmanager
def visited():
    """The files of lm's functions that run meanwhile, in the order of their first calls; no modules or class bodies."""
    files, functions = [], set()

    def visit(frame, event, argument):
        path, code = Path(frame.f_code.co_filename), frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and path.is_relative_to(SOURCES) and code not in functions:
            functions.add(code)
            files.append(path.relative_to(SOURCES).as_posix())

    sys.setprofile(visit)
    try:
        yield files
    finally:
        sys.setprofile(None)


def test_one_process_visits_ten_files_before_the_first_step_and_returns_seldom(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    write_tokens(tmp_path / "data" / "train.npy", some_tokens(1000), end_of_text=0)
    write_tokens(tmp_path / "data" / "heldout.npy", some_tokens(200), end_of_text=0)

    def train_step(self, *arguments, **options):
        raise FirstStep

    monkeypatch.setattr(Trainer, "train_step", train_step)
    with pytest.raises(FirstStep), visited() as files:
        train(MODEL, CONFIG, tmp_path / "data", tmp_path / "run")
    assert len(set(files)) <= 10, sorted(set(files))
    assert {"training/train.py", "training/run.py", "training/trainer.py", "model.py"} <= set(files)
    returns = [(old, new) for i, (old, new) in enumerate(itertools.pairwise(files)) if old != new in files[:i]]
    assert len(returns) <= 25, returns
    assert "training/distributed.py" not in files


def test_lm_generate_visits_at_most_twenty_files_before_the_first_token(tmp_path):
    """In a process of its own, in which nothing was computed before: C is compared with PyTorch as well."""
    bpe = pytest.importorskip("bpe", reason="the package bpe is not installed")
    write_tokens(tmp_path / "train.npy", some_tokens(1000))
    run(tmp_path / "train.npy", tmp_path / "run", model=dataclasses.replace(MODEL, vocab_size=256))
    bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=[]).save(tmp_path / "run" / "tokenizer.json")
    script = "import sys; sys.path.insert(0, sys.argv[1])\n"
    script += "from lm.commands.cli import main; from test_way_in import visited\n"
    script += "with visited() as files:\n    main(sys.argv[2:])\n"
    script += "print(*sorted(set(files)), file=sys.stderr)"
    words = ("generate", str(tmp_path / "run"), "--prompt", "a", "--max-new-tokens", "1")
    command = [sys.executable, "-c", script, str(Path(__file__).parent), *words]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    files = process.stderr.splitlines()[-1].split()
    assert len(files) <= 20, files
    assert {"commands/generate.py", "generation/stream.py", "generation/decoder.py", "model.py"} <= {*files}


def test_each_setting_of_training_has_a_policy():
    fields = {field.name for field in dataclasses.fields(TrainConfig)} - {"_"}
    assert set(resume.POLICY) == fields


@pytest.mark.parametrize("name", sorted(resume.POLICY))
def test_what_may_differ_is_what_the_table_says(name):
    before = {"train": {field: getattr(CONFIG, field) for field in resume.POLICY}}
    old = before["train"][name]
    new = old + 1 if isinstance(old, int | float) else "another"
    now = {"train": {**before["train"], name: new}}
    refused = [key for key, _, _ in resume.refused_changes(before, now)]
    may_differ = resume.POLICY[name] in ("free", "rounding") or name == "steps"
    assert refused == ([] if may_differ else [f"train.{name}"])
    if name == "steps":
        assert list(resume.refused_changes(now, before)) == [("train.steps", new, old)]
    if resume.POLICY[name] == "schedule":
        assert not list(resume.refused_changes(now, before, same_rates=True))


def test_the_quick_bound_on_memory_is_above_what_accounting_counts(monkeypatch):
    """If the bound lets a step pass uncounted, accounting counts less than the memory available."""
    cpu = torch.device("cpu")
    shapes = [configuration(name, []) for name in presets()]
    shapes += [(MODEL, CONFIG), (dataclasses.replace(MODEL, vocab_size=50_000), CONFIG)]
    for model, config in shapes:
        if model.value_embeddings:
            continue
        needed = int(
            accounting.training_memory(model.shape(), config.batch_size, policy=policy(model, config, cpu)).total
        )
        config = dataclasses.replace(config, micro_batch_size=None)
        monkeypatch.setattr("lm.training.train.memory_of", lambda device, size=needed: size)
        assert may_exceed_memory(model, config, cpu, config.batch_size), (model, needed)


def test_tokens_per_second_is_near_the_truth_after_six_steps():
    """The first step compiles: here it takes a thousand times as long as the others."""
    throughput = Throughput(MODEL, CONFIG, torch.device("cpu"), 1)
    truth = CONFIG.batch_size * MODEL.context_length / 0.05
    throughput.update(50.0)
    assert throughput.tokens_per_second is None
    for seconds in (0.05, 0.052, 0.048, 0.05, 0.051):
        throughput.update(seconds)
    assert throughput.tokens_per_second == pytest.approx(truth, rel=0.1)
    assert throughput.mean_tokens_per_second == pytest.approx(truth, rel=0.1)


class Reads(TorchDispatchMode):
    """Counts the elements that Python reads of tensors one by one, for each of which it would wait for a GPU."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*arguments, **(named or {}))


def test_a_step_waits_for_the_device_once(monkeypatch):
    trainer = Trainer(lm.Transformer(MODEL), dataclasses.replace(CONFIG, batch_size=4, micro_batch_size=2))
    trainer.module = lambda ids, _: trainer.model(ids).logsumexp(-1).sum()  # the loss on a CPU reads its targets
    ids = torch.arange(2 * (MODEL.context_length + 1)).view(2, -1) % MODEL.vocab_size
    add_up, reads = type(trainer.distributed).sum, []

    def noted(self, *values):
        reads.append(mode.count)
        assert any(isinstance(value, torch.Tensor) for value in values)
        return add_up(self, *values)

    monkeypatch.setattr(type(trainer.distributed), "sum", noted)
    with Reads() as mode:
        line = trainer.train_step(iter([(ids[:, :-1], ids[:, 1:])] * 2))
    assert reads == [0]
    assert line["loss"] > 0
    assert line["gradient_norm"] > 0


def test_an_exhausted_iterator_of_batches_is_refused():
    trainer = Trainer(lm.Transformer(MODEL), CONFIG)
    with pytest.raises(ValueError, match="step 1"):
        trainer.train_step(iter([]))
    assert trainer.step == 0
