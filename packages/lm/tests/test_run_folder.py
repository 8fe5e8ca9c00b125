"""Runs that go on longer, elsewhere or as a branch, that lost something, and that are verified."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import safetensors.torch
import tomli_w
import torch
from runs import CONFIG, MODEL, assert_same_run, metrics, run, some_tokens, stop_at, timeless

from lm import checkpoint, to_huggingface
from lm.commands.cli import main
from lm.config import TrainConfig, to_table
from lm.data import Mixture, open_tokens, write_tokens
from lm.files import sha256
from lm.interop.importing import import_run
from lm.model import Transformer
from lm.training import measure
from lm.training.checkpoint import Damaged, NoCheckpoint
from lm.training.resume import RunConfig
from lm.training.run import Run, best_step, read, write
from lm.training.train import Diverged, Stopped, train
from lm.training.trainer import Trainer

STABLE = dataclasses.replace(CONFIG, schedule="linear", decay_steps=5)


@pytest.fixture
def ended(base, tmp_path):
    """A copy of a run that was never stopped, to change."""
    return shutil.copytree(base, tmp_path / "ended")


def weights(folder, step=None):
    return checkpoint.load(folder / "checkpoints", step).model


def assert_same_weights(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("schedule", ["constant", "stable"])
def test_a_run_trained_longer_is_that_of_the_longer_one_where_the_rates_are(data, tmp_path, capsys, schedule):
    config = dataclasses.replace(CONFIG, schedule="constant") if schedule == "constant" else STABLE
    longer = dataclasses.replace(config, steps=30)
    if schedule == "stable":  # stopped before its rate began to fall
        with pytest.raises(Stopped):
            run(data, tmp_path / "run", config, on_step=stop_at(12))
    else:
        run(data, tmp_path / "run", config)
    run(data, tmp_path / "whole", longer)
    capsys.readouterr()
    train(MODEL, longer, data, tmp_path / "run", progress=True)
    stderr = capsys.readouterr().err
    at = 12 if schedule == "stable" else 20
    assert f"continuing {tmp_path / 'run'} from step {at} of 30" in stderr
    assert "steps raised from 20 to 30: the run is, to the bit, one of 30 steps" in stderr
    assert_same_weights(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert read(tmp_path / "run").train.steps == 30
    with pytest.raises(ValueError, match=r"train\.steps = 30, and this call asks for 20"):
        run(data, tmp_path / "run", config)


def test_a_run_ends_earlier_where_the_rates_so_far_are_the_same(data, tmp_path, capsys):
    """A stable run that its listener stops before the rate falls is, to the bit, one of the shorter schedule."""
    shorter = dataclasses.replace(STABLE, steps=16, decay_steps=3)
    with pytest.raises(Stopped):
        run(data, tmp_path / "run", STABLE, on_step=lambda line: line["step"] == 12)
    with pytest.raises(ValueError, match=r"train\.steps = 20, and this call asks for 10"):
        run(data, tmp_path / "run", dataclasses.replace(STABLE, steps=10))  # its step 12 is done
    with pytest.raises(ValueError, match=r"train\.decay_steps = 5, and this call asks for 10"):
        run(data, tmp_path / "run", dataclasses.replace(STABLE, decay_steps=10))  # its rate would have fallen
    capsys.readouterr()
    train(MODEL, shorter, data, tmp_path / "run")
    assert "steps lowered from 20 to 16: the run is, to the bit, one of 16 steps" in capsys.readouterr().err
    run(data, tmp_path / "whole", shorter)
    assert_same_weights(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert [line["step"] for line in metrics(tmp_path / "run") if "loss" in line] == list(range(1, 17))


def test_a_run_whose_rate_fell_is_trained_longer_and_says_what_it_is_not(data, ended, capsys):
    longer = dataclasses.replace(CONFIG, steps=30)
    assert train(MODEL, longer, data, ended).steps == 30
    assert "the learning rate is that of 30 steps only from here on" in capsys.readouterr().err
    assert [line["step"] for line in metrics(ended) if "loss" in line] == list(range(1, 31))


def test_a_run_moves_to_another_device_and_number_of_threads_where_that_is_asked_for(data, ended, capsys):
    path = ended / "config.toml"
    path.write_text(path.read_text().replace('device = "cpu"', 'device = "mps"'))  # as if it had been there
    free = dataclasses.replace(CONFIG, steps=24, device="auto")
    with pytest.raises(ValueError, match=r"the run was on 'mps', which is not here: --train\.device cpu"):
        run(data, ended, free)
    moved = dataclasses.replace(CONFIG, steps=24, threads=2)
    train(MODEL, moved, data, ended)
    stderr = capsys.readouterr().err
    assert "threads 1, now 2: the run continues to rounding, not to the bit" in stderr
    assert (read(ended).train.device, read(ended).train.threads) == ("cpu", 2)


def test_a_branch_with_nothing_changed_is_the_run_it_came_from(data, base, tmp_path):
    run(data, tmp_path / "branch", branch=base, step=16)
    assert_same_run(tmp_path / "branch", base, but=("seconds", "best"))
    assert read(tmp_path / "branch").start["kind"] == "branch"
    assert read(tmp_path / "branch").start["step"] == 16
    shutil.rmtree(tmp_path / "branch" / "checkpoints" / "00000020")
    (tmp_path / "branch" / "checkpoints" / "latest").write_text("00000016\n")
    run(data, tmp_path / "branch", branch=base, step=16)  # goes on, and does not begin again
    with pytest.raises(ValueError, match=r"began from .* at step 16: leave --branch out"):
        run(data, tmp_path / "branch", branch=base, step=20)


def test_a_branch_has_settings_of_its_own(data, base, tmp_path):
    lower = dataclasses.replace(CONFIG, learning_rate=1e-3, steps=24)
    run(data, tmp_path / "branch", lower, branch=base, step=16)
    lines = [line for line in metrics(tmp_path / "branch") if "loss" in line]
    assert lines[:16] == [line for line in metrics(base) if "loss" in line][:16]
    assert max(line["learning_rate"] for line in lines[16:]) < 1e-3
    assert [line["step"] for line in lines] == list(range(1, 25))
    with pytest.raises(ValueError, match=r"has model\.d_ff = 24, and this call asks for 32"):
        run(data, tmp_path / "other", lower, dataclasses.replace(MODEL, d_ff=32), branch=base)
    with pytest.raises(ValueError, match=r"is of step 20, and train\.steps is 20: raise it, or name an earlier one"):
        run(data, tmp_path / "other", branch=base)
    with pytest.raises(ValueError, match="choose another --out"):
        run(data, base, branch=base)
    assert not (tmp_path / "other" / "config.toml").exists()


def test_a_branch_with_another_batch_size_keeps_its_place_in_the_data(data, base, tmp_path, monkeypatch):
    rows, real = [], Mixture.batch

    def batch(self, seed, index, rank, world, size, context, **more):
        rows.append((more["rows_before"] + index * size, size))
        return real(self, seed, index, rank, world, size, context, **more)

    monkeypatch.setattr(Mixture, "batch", batch)
    ramp = [(base, 16, 8), (tmp_path / "8", 18, 2)]  # a branch of a branch, too
    for source, step, size in ramp:
        config = dataclasses.replace(CONFIG, batch_size=size, checkpoint_every=2)
        run(data, tmp_path / str(size), config, branch=source, step=step)
    assert rows == [(64, 8), (72, 8), (80, 8), (88, 8), (80, 2), (82, 2)]
    lines = [line["tokens"] // MODEL.context_length for line in metrics(tmp_path / "2") if "loss" in line]
    assert lines == [*range(4, 65, 4), 72, 80, 82, 84]


def test_a_branch_of_the_best_step(data, base, tmp_path, capsys):
    tables = {"model": to_table(MODEL), "train": to_table(dataclasses.replace(CONFIG, steps=24))}
    (tmp_path / "c.toml").write_text(tomli_w.dumps(tables))
    arguments = ["--data", str(data), "--out", str(tmp_path / "b"), "--branch", str(base), "--step", "best", "--quiet"]
    assert main(["train", str(tmp_path / "c.toml"), *arguments]) == 0
    assert read(tmp_path / "b").start["step"] == best_step(base)
    arguments[3], arguments[7] = str(tmp_path / "d"), "worst"
    assert main(["train", str(tmp_path / "c.toml"), *arguments]) == 2
    assert 'must be a number of steps, "best" or "average"' in capsys.readouterr().err


def test_an_array_of_ids_is_data(data, base, tmp_path):
    arrays = {"train": open_tokens(data / "train.npy").ids, "heldout": open_tokens(data / "heldout.npy").ids}
    run({name: np.array(ids, dtype=np.int64) for name, ids in arrays.items()}, tmp_path / "run")
    assert_same_weights(weights(tmp_path / "run"), weights(base))
    assert run(np.array(arrays["train"]), tmp_path / "alone").heldout is None
    for wrong, error in ((np.ones((4, 4), int), TypeError), (np.ones(40), TypeError), (np.full(40, -1), ValueError)):
        with pytest.raises(error, match="expected "):
            run(wrong, tmp_path / "no")
    for more in ({"model": Transformer(MODEL)}, {"config": to_table(CONFIG)}):
        with pytest.raises(TypeError, match=r"expected a (Model|Train)Config, got a (Transformer|dict)"):
            run(data, tmp_path / "no", **more)
    with pytest.raises(ValueError, match="50"):
        run(np.full(40, 50), tmp_path / "no")


def test_a_run_goes_on_after_it_was_moved_and_without_its_origin(data, base, tmp_path, monkeypatch):
    longer = dataclasses.replace(CONFIG, init_from=str(shutil.copytree(base, tmp_path / "base")))
    with pytest.raises(Stopped):
        run(data, tmp_path / "run", longer, on_step=stop_at(9))
    run(data, tmp_path / "whole", longer)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Stopped):  # by another name of the same folder
        run(data, tmp_path / "elsewhere", dataclasses.replace(longer, init_from="base"), None, on_step=stop_at(13))
    shutil.rmtree(tmp_path / "base")
    run(data, tmp_path / "elsewhere", longer, None)
    assert_same_run(tmp_path / "elsewhere", tmp_path / "whole", but=("seconds",))
    with pytest.raises(FileNotFoundError, match=r"there is no .*other"):
        run(data, tmp_path / "elsewhere", dataclasses.replace(longer, init_from=str(base.parent / "other")), None)


def test_a_branch_that_was_killed_while_it_was_made_is_made_again(data, base, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run(data, tmp_path / "branch", branch=base, step=16)
    run(data, tmp_path / "branch", branch=base, step=16)
    assert_same_weights(weights(tmp_path / "branch"), weights(base))


def test_the_advice_to_a_diverged_run_can_be_followed(data, tmp_path, monkeypatch):
    real = Trainer.forward_backward

    def broken(self, *rest):
        loss = real(self, *rest)
        return float("nan") if self.step >= 6 else loss

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "forward_backward", broken)
        with pytest.raises(Diverged) as diverged:
            run(data, tmp_path / "run")
    assert "10 steps in a row were skipped, " in str(diverged.value)
    assert all(p.isfinite().all() for p in Run.load(tmp_path / "run").parameters())
    words = str(diverged.value).partition("--branch ")[2].split()
    assert words[1:4:2] == ["--step", "--train.learning_rate"]
    assert checkpoint.load(tmp_path / "run" / "checkpoints").step == 16
    lower = dataclasses.replace(CONFIG, learning_rate=float(words[4]))
    assert run(data, tmp_path / "lower", lower, branch=words[0], step=int(words[2])).steps == 20


def test_a_run_begins_with_the_weights_of_another(data, base, tmp_path):
    config = dataclasses.replace(CONFIG, init_from=str(base), learning_rate=1e-9, min_learning_rate=1e-9, steps=4)
    run(data, tmp_path / "tuned", config)
    for name, weight in weights(base).items():
        torch.testing.assert_close(weights(tmp_path / "tuned")[name], weight, rtol=0, atol=1e-6)
    assert metrics(tmp_path / "tuned")[0]["loss"] < 3.2 < metrics(base)[0]["loss"]
    with pytest.raises(ValueError, match=r"train\.init_from = "):
        run(data, tmp_path / "tuned", dataclasses.replace(config, init_from="scratch"))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run(data, tmp_path / "other", dataclasses.replace(config, init_from=str(tmp_path / "nowhere")))


def test_import_then_fine_tune_then_fine_tune_again_as_one_would_type_it(data, base, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    to_huggingface(Run.load(base), tmp_path / "exported")
    import_run("exported", "runs/tuned")
    arguments = ["--data", str(data), "--train.steps", "3", "--train.warmup_steps", "0", "--train.device", "cpu"]
    arguments += ["--train.learning_rate", "1e-9", "--train.threads", "1"]
    first = ["train", "runs/tuned/config.toml", "--out", "runs/ft1", *arguments]
    for _ in range(2):  # the same command reads what is done
        assert main(first) == 0, capsys.readouterr().err
    assert metrics(tmp_path / "runs" / "ft1")[0]["loss"] < 3.2, "the imported weights, and none at random"
    stderr = capsys.readouterr().err
    assert "runs/ft1 has all of its 3 steps: nothing is left to train" in stderr
    assert stderr.count("training on ") == 1, "by the first of the two calls"
    again = ["train", "runs/ft1/config.toml", "--out", "runs/ft2", *arguments]
    assert main(again) == 0, capsys.readouterr().err
    assert "beginning with the weights of runs/ft1 at its step 3, and a new optimizer" in capsys.readouterr().err
    assert_same_weights(weights(tmp_path / "runs" / "ft2", 0), weights(tmp_path / "runs" / "ft1", 3))
    for name in ("runs/ft1", "runs/ft1/", "runs/ft1/config.toml"):  # the same folder, however it is typed
        assert main(["train", name, "--out", "runs/ft2", *arguments]) == 0, capsys.readouterr().err
        assert "runs/ft2 has all of its 3 steps" in capsys.readouterr().err
    assert main([*again, "--train.init_from", "scratch", "--out", "runs/new"]) == 0, capsys.readouterr().err
    assert metrics(tmp_path / "runs" / "new")[0]["loss"] > 3.2


def test_fine_tuning_and_then_again_with_other_data_is_a_line_each(data, base, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    to_huggingface(Run.load(base), tmp_path / "exported")
    (tmp_path / "other").mkdir()
    write_tokens(tmp_path / "other" / "train.npy", some_tokens(3000, seed=1))

    def typed(*words: str) -> str:
        arguments = ["--train.warmup_steps", "0", "--train.device", "cpu", "--train.threads", "1"]
        assert main(["train", *words, *arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().err

    first = ("exported", "--data", str(data), "--out", "one", "--train.steps", "6", "--train.learning_rate", "1e-9")
    assert "beginning with the weights of one/initial at its step 0" in typed(*first)
    assert metrics(tmp_path / "one")[0]["loss"] < 3.2, "the model's weights, and none at random"
    assert "one has all of its 6 steps: nothing is left to train" in typed(*first)
    second = ("one", "--data", "other", "--out", "two")  # the settings are those of the first run
    assert "beginning with the weights of one at its step 6" in typed(*second)
    assert read(tmp_path / "two").train.steps == 6
    assert_same_weights(weights(tmp_path / "two", 0), weights(tmp_path / "one", 6))
    assert "continuing two from step 6 of 8" in typed(*second, "--train.steps", "8")
    assert len([line for line in metrics(tmp_path / "two") if "loss" in line]) == 8


def test_a_folder_whose_run_began_with_another_model_is_refused(data, base, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--data", str(data), "--out", "run", "--quiet", "--train.steps", "2", "--train.warmup_steps", "0"]
    torch.manual_seed(5)
    for name, model in ("one", Run.load(base)), ("other", Transformer(MODEL)):
        to_huggingface(model, tmp_path / name)
    assert main(["train", "one", *arguments]) == 0, capsys.readouterr().err
    before = weights(tmp_path / "run", 2)
    assert main(["train", "other", *arguments]) == 2
    stderr = capsys.readouterr().err
    assert f"the run in run began with {tmp_path}/one, and this call names other" in stderr
    assert_same_weights(weights(tmp_path / "run", 2), before)
    assert main(["train", "other", *arguments, "--restart"]) == 0, capsys.readouterr().err
    assert metrics(tmp_path / "run")[0]["loss"] > 3.2, "the other's weights"
    capsys.readouterr()


def test_a_configuration_of_a_run_that_lost_its_checkpoints_does_not_begin_at_random(data, ended, capsys):
    shutil.rmtree(ended / "checkpoints")
    arguments = ["--out", str(ended.parent / "new"), "--data", str(data), "--quiet"]
    for name in (ended, ended / "config.toml"):
        assert main(["train", str(name), *arguments]) == 2
        assert "is of a run whose checkpoints are missing" in capsys.readouterr().err
    assert main(["train", str(ended), *arguments, "--train.init_from", "scratch"]) == 0, capsys.readouterr().err
    assert metrics(ended.parent / "new")[0]["loss"] > 3.2
    capsys.readouterr()


@pytest.mark.parametrize("missing", ["checkpoints", "config.toml", "the newest"])
def test_a_run_that_lost_something_is_not_begun_again_in_silence(data, ended, missing):
    before = (ended / "metrics.jsonl").read_bytes()
    if missing == "config.toml":
        (ended / missing).unlink()
    else:
        shutil.rmtree(ended / "checkpoints")
        if missing == "the newest":
            (ended / "checkpoints").mkdir()
            (ended / "checkpoints" / "latest").write_text("00000020\n")
    if missing == "the newest":
        with pytest.warns(UserWarning, match="is not there"), pytest.raises(ValueError, match="--restart"):
            run(data, ended)
    else:
        with pytest.raises(ValueError, match=r"has metrics of an earlier run, and .* (is|are) missing: --restart"):
            run(data, ended)
    assert (ended / "metrics.jsonl").read_bytes() == before
    assert run(data, ended, dataclasses.replace(CONFIG, steps=4), restart=True).steps == 4
    assert [line["step"] for line in metrics(ended) if "loss" in line] == [1, 2, 3, 4]


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(data, base, tmp_path):
    def crash(line):
        if line["step"] == 3:
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        run(data, tmp_path, on_step=crash)
    run(data, tmp_path)
    assert timeless(tmp_path) == timeless(base)


def test_both_checkpoints_damaged_names_the_ways_forward(data, ended):
    for folder in (ended / "checkpoints").glob("0*"):
        (folder / "optimizer.pt").write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(Damaged, match=r"--train\.init_from .*--restart"):
        run(data, ended)
    assert run(data, ended.parent / "new", dataclasses.replace(CONFIG, init_from=str(ended), steps=3)).steps == 3


def test_the_optimizer_may_be_missing_where_only_weights_are_wanted(base, ended, monkeypatch):
    for path in (ended / "checkpoints").glob("0*/optimizer.pt"):
        path.unlink()

    def drawn(tensor, *_):
        assert tensor.is_meta, "weights are drawn at random"
        return tensor

    monkeypatch.setattr(torch.nn.init, "trunc_normal_", drawn)
    assert_same_weights(Run.load(ended).state_dict(), weights(base))
    assert_same_weights(Run.load(ended, 16).state_dict(), weights(base, 16))
    with pytest.raises(NoCheckpoint, match="no checkpoint of step 20th: those that it has are of 16, 20"):
        Run.load(ended, "20th")


def test_the_environment_says_the_threads_that_were_set(data, tmp_path):
    config = dataclasses.replace(CONFIG, steps=3, threads=3)
    run(data, tmp_path, config)
    assert json.loads((tmp_path / "environment.json").read_text())["threads"] == 3


def test_a_run_of_an_earlier_version_is_refused_by_name(data, tmp_path):
    old = {"model": to_table(MODEL), "train": {"steps": 20, "warmup_steps": 3, "documents": False}}
    (tmp_path / "config.toml").write_text(tomli_w.dumps(old))
    with pytest.raises(ValueError, match=r"another version .*'documents'.*'document_masking'"):
        run(data, tmp_path)
    with pytest.raises(ValueError, match="another version"):
        Run.load(tmp_path)


def test_weights_of_another_model_are_refused_by_name(tmp_path):
    tensors = Transformer(MODEL).state_dict()
    tensors["layers.0.weight"] = tensors.pop("embedding.weight")
    checkpoint.save(tmp_path / "checkpoints", 0, tensors, None, {})
    write(tmp_path, RunConfig(MODEL, TrainConfig(1, warmup_steps=0)))
    with pytest.raises(ValueError, match=r"the weights lack 'embedding\.weight', and the model says otherwise"):
        Run.load(tmp_path)


def test_data_of_another_tokenizer_is_refused_before_a_branch_begins(base, tmp_path):
    write_tokens(tmp_path / "train.npy", some_tokens(3000), tokenizer="another")
    with pytest.raises(ValueError, match="another tokenizer than that of"):
        run(tmp_path, tmp_path / "run", dataclasses.replace(CONFIG, init_from=str(base)))


def test_measuring_says_what_it_does(capsys, monkeypatch):
    monkeypatch.setattr("lm.progress.LOG_INTERVAL", 0.0)
    measure.measure(MODEL, CONFIG, steps=1, warmup=0, progress=True)
    assert "measuring steps" in capsys.readouterr().err


# lm verify: parts of a run are trained again and compared with what it kept


@pytest.mark.parametrize("change", [{}, {"dropout": 0.1, "optimizer": "normuon"}])
def test_a_run_is_verified_by_its_steps(data, tmp_path, capsys, change):
    config = dataclasses.replace(CONFIG, keep_checkpoints=4, **change)
    run(data, tmp_path / "run", config)
    command = ["verify", str(tmp_path / "run"), "--data", str(data)]
    assert main([*command, "--segments", "2"]) == 0
    equal = "weights, optimizer and losses are equal to the bit"
    assert capsys.readouterr().out.splitlines() == [f"steps 17 to 20: {equal}", f"steps 13 to 16: {equal}"]


def test_a_weight_that_was_changed_is_named(data, tmp_path, capsys):
    """A weight of the checkpoint between, with its hash; so that no hash shows it."""
    run(data, tmp_path / "run", CONFIG)
    command = ["verify", str(tmp_path / "run"), "--data", str(data)]
    path = next((tmp_path / "run" / "checkpoints").glob("*16/model.safetensors"))
    weights = safetensors.torch.load_file(path)
    weights["final_norm.weight"][3] += 1e-3
    before = sha256(path)
    safetensors.torch.save_file(weights, path)
    for about in path.parent.glob("*.json"):
        about.write_text(about.read_text().replace(before, sha256(path)))
    assert main(command) == 1
    captured = capsys.readouterr()
    assert "steps 17 to 20: the loss of step 17 was" in captured.out
    assert re.search(r"[1-9]\d* of \d+ elements of \S+ differ, by at most", captured.out)
    assert "the optimizer's state differs" in captured.out
    assert "is not what its steps come to here" in captured.err
    assert main([*command, "--segments", "0"]) == 2
