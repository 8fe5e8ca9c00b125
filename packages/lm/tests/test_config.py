"""Configurations: what they refuse, and that TOML and the command line give the same ones."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lm.commands.cli import main
from lm.commands.configuration import configuration, presets
from lm.config import ModelConfig, TrainConfig, from_table, override, read_toml, settable
from lm.families import build

GOOD = {"vocab_size": 50, "context_length": 16, "num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vocab_size": 0}, "vocab_size must be at least 1, got 0"),
        ({"num_layers": -1}, "num_layers must be at least 1"),
        ({"num_heads": 5}, "d_model 16 is not a multiple of num_heads 5"),
        ({"num_kv_heads": 3}, "num_kv_heads 3 does not divide num_heads 4"),
        ({"head_dim": 3}, "head_dim 3 is odd"),
        ({"ffn": "swigl"}, "ffn 'swigl' is unknown: did you mean 'swiglu'"),
        ({"norm": "batch"}, "norm 'batch' is unknown: it has rmsnorm, layernorm, none"),
        ({"position": "alibi"}, "position 'alibi'"),
        ({"norm_placement": "both"}, "norm_placement 'both'"),
        ({"norm_eps": 0.0}, "norm_eps must be more than 0"),
        ({"sliding_window": 0}, "window must be at least 1"),
        ({"rope_theta": float("inf")}, "rope_theta must be a finite number, got inf"),
    ],
)
def test_a_model_is_refused_with_value_and_bound(change, says):
    with pytest.raises(ValueError, match=says):
        ModelConfig(**GOOD | change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"d_ff": 24.0}, "d_ff must be a whole number, got 24.0"),
        ({"bias": 1}, "bias must be true or false"),
        ({"d_ff": True}, "d_ff must be a whole number"),
    ],
)
def test_a_wrong_type_is_refused(change, says):
    with pytest.raises(TypeError, match=says):
        ModelConfig(**GOOD | change)
    with pytest.raises(TypeError, match="steps must be a whole number, got '5'"):
        TrainConfig(steps="5")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"warmup_steps": 11}, "warmup_steps 11 is more than steps 10"),
        ({"min_learning_rate": 1.0}, "min_learning_rate 1.0 is more than learning_rate"),
        ({"learning_rate": 0.0}, "learning_rate must be more than 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be more than 0"),
        ({"learning_rate": float("inf")}, "learning_rate must be a finite number, got inf"),
        ({"weight_decay": float("inf")}, "weight_decay must be a finite number"),
        ({"beta2": 1.0}, "beta2 must be less than 1"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"schedule": "linear", "decay_steps": 11}, "together more than"),
        ({"decay_steps": 2}, "decay_steps 2 has no effect without schedule 'linear'"),
        ({"micro_batch_size": 3}, "micro_batch_size 3 does not divide batch_size 8"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**63}, "seed must be at most 9223372036854775807, got 9223372036854775808"),
        ({"threads": 100_000}, "threads must be at most 1024, got 100000"),
        ({"compile": "yes"}, "compile 'yes'"),
    ],
)
def test_a_training_is_refused_with_value_and_bound(change, says):
    with pytest.raises(ValueError, match=says):
        TrainConfig(**{"steps": 10, "warmup_steps": 0} | change)


def test_unknown_and_missing_keys_are_named():
    with pytest.raises(KeyError, match=r"\[model\] has no setting 'num_layer': did you mean 'num_layers'"):
        from_table(ModelConfig, GOOD | {"num_layer": 3}, "model")
    with pytest.raises(ValueError, match="steps must be at least 1"):
        from_table(TrainConfig, {}, "train")
    with pytest.raises(ValueError, match="both say how long"):
        TrainConfig(5, epochs=2)


def test_overrides_are_read_as_toml_values():
    kinds = {"model": ModelConfig, "train": TrainConfig}
    tables = {"model": dict(GOOD), "train": {"steps": 10}}
    for setting, text in (
        ("--model.num-layers", "7"),
        ("--model.ffn", "gelu"),
        ("--model.bias", "true"),
        ("--train.learning_rate", "1"),
        ("--train.warmup_steps", "5"),
        ("--train.micro_batch_size", "4"),
        ("--train.micro_batch_size", "none"),
    ):
        override(tables, setting, text, kinds)
    model, train = (from_table(kinds[name], tables[name], name) for name in kinds)
    assert (model.num_layers, model.ffn, model.bias) == (7, "gelu", True)
    assert (train.learning_rate, train.micro_batch_size) == (1.0, None)


# Parameters that these programs print, or that the models' pages name: nanoGPT leaves the positions' embedding out, and
# nanochat's norms have no weights.
PUBLISHED = {
    "gpt2-124m": 124_475_904,
    "nanochat-d20": 560_988_160 + 57_600,
    "nanogpt-124m": 123_587_328 + 786_432,
    "nanogpt-shakespeare-char": 10_646_784 + 98_304,
    "pythia-70m": 70_426_624,
    "smollm-135m": 134_515_008,
    "stories15m": 15_191_712,
    "tinyllama-1.1b": 1_100_048_384,
}


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_whole_and_can_be_changed(name):
    model, train = configuration(name, ["--train.seed", "7", "--model.num_layers=3"])
    assert (model.num_layers, train.seed) == (3, 7)
    if name in PUBLISHED:
        with torch.device("meta"):
            whole = build(configuration(name, [])[0])
        assert sum(parameter.numel() for parameter in whole.parameters()) == PUBLISHED[name]


def test_a_preset_or_setting_that_is_not_one_is_an_error():
    assert {*PUBLISHED, "cpu-demo"} <= set(presets())
    with pytest.raises(FileNotFoundError, match="neither a file nor a preset: did you mean 'cpu-demo'"):
        configuration("cpudemo", [])
    with pytest.raises(ValueError, match="lacks its value"):
        configuration("cpu-demo", ["--train.steps"])
    with pytest.raises(ValueError, match="'8' stands where a setting should"):
        configuration("cpu-demo", ["8"])


def test_a_file_that_is_not_toml_or_has_a_strange_section(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("[model\n")
    with pytest.raises(ValueError, match=r"a\.toml is not TOML"):
        read_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"a\.toml is not TOML: .*utf-8"):
        read_toml(path)
    for text in ("model = 3\n", "[[model]]\n"):
        path.write_text(text)
        with pytest.raises(TypeError, match=r"model must be a table, got .*: write \[model\]"):
            configuration(str(path), [])
        with pytest.raises(TypeError, match=r"model must be a table"):
            configuration(str(path), ["--model.d_ff", "8"])
    path.write_text("[modle]\n")
    with pytest.raises(KeyError, match="did you mean 'model'"):
        configuration(str(path), [])


def test_configurations_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig(**GOOD).d_ff = 3  # type: ignore[misc]


def test_the_face_of_the_package_is_light_and_reaches_every_module():
    """Neither lm nor its commands' parser loads torch, so that `lm --help` and a mistyped setting answer at once."""
    code = """
import sys; sys.path[:0] = sys.argv[1:]
import lm, lm.commands.cli as cli
cli.make_parser()
print("torch" in sys.modules, "ModelConfig" in dir(lm))
print(all(getattr(lm, name).__name__ for name in dir(lm)), lm.checkpoint.save.__module__)
"""
    command = [sys.executable, "-c", code, *filter(None, sys.path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout == "False True\nTrue lm.training.checkpoint\n"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("--modle.num_layers", "'--modle.num_layers' is not a setting: did you mean --model.num_layers?"),
        ("--num-layer", "'--num-layer' is not a setting: did you mean --model.num_layers?"),
        ("--learning_rate", "'--learning_rate' is not a setting: did you mean --train.learning_rate?"),
        ("--data.steps", "'--data.steps' is not a setting: did you mean --train.steps?"),
        ("--wrong", "'--wrong' is not a setting: write --section.key, with section one of model, train"),
        ("--train.learningrate", "[train] has no setting 'learningrate': did you mean 'learning_rate'"),
        ("--train.lr", "[train] has no setting 'lr': did you mean 'learning_rate'"),  # as others call it
        ("--train.wd", "did you mean 'weight_decay'"),
        ("--model.block_size", "did you mean 'context_length'"),
    ],
)
def test_a_setting_that_is_none_leads_to_the_one_that_is_meant(setting, says):
    with pytest.raises(KeyError, match=re.escape(says)):
        override({}, setting, "8", {"model": ModelConfig, "train": TrainConfig})


def test_every_setting_stands_in_the_help_with_its_default_and_what_it_means(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    stdout = capsys.readouterr().out
    for name, kind in (("model", ModelConfig), ("train", TrainConfig)):
        for key in settable(kind):
            assert f"--{name}.{key} " in stdout
    assert re.search(r"--train\.steps 0 +optimizer steps of the whole run", stdout)
    assert re.search(r"--train\.gradient_clip 1 +the largest global norm of the gradients; 0: no limit", stdout)
    assert re.search(r"--model\.num_kv_heads none ", stdout)
    assert "one of none, selective, full" in " ".join(stdout.split())


def test_presets_are_shown(capsys):
    assert main(["presets"]) == 0
    stdout = capsys.readouterr().out
    assert all(name in stdout for name in presets())
    assert re.search(r"tinystories-17m +22,696,448 parameters", stdout)
    assert main(["presets", "gpt2-124m"]) == 0
    stdout = capsys.readouterr().out
    assert re.search(r"--model\.position learned .*default rope", " ".join(stdout.split()))
    assert main(["presets", "gpt2"]) == 2
    assert "did you mean 'gpt2-124m'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"schedule": "constant", "min_learning_rate": 1e-4}, "min_learning_rate"),
        ({"momentum": 0.5}, "momentum"),
        ({"dpo_beta": 0.5}, "dpo_beta"),
        ({"lora_alpha": 2.0}, "lora_alpha"),
        ({"position": "learned", "rope_factor": 4.0}, "rope_factor"),
        ({"position": "learned", "rope_theta": 5e5}, "rope_theta"),
        ({"rope_original_context_length": 8192}, "rope_original_context_length"),
        ({"rope_low_freq_factor": 2.0}, "rope_low_freq_factor"),
        ({"rope_factor": 2.0, "rope_high_freq_factor": 9.0}, "rope_high_freq_factor"),
        ({"norm": "none", "norm_eps": 1e-3}, "norm_eps"),
        ({"norm": "none", "norm_placement": "post"}, "norm_placement"),
        ({"position": "none", "rope_low_freq_factor": 2.0}, "rope_low_freq_factor"),
    ],
)
def test_a_setting_without_effect_is_refused(settings, name):
    with pytest.raises(ValueError, match=f"^{name} .* has no effect"):
        ModelConfig(**GOOD, **settings) if name in settable(ModelConfig) else TrainConfig(200, **settings)


def test_scalars_of_numpy_and_paths_are_taken():
    config = ModelConfig(np.int64(50), np.int32(16), 2, 16, 2, 24, norm_eps=np.float64(1e-6))
    assert (config.vocab_size, type(config.vocab_size), type(config.norm_eps)) == (50, int, float)
    train = TrainConfig(
        np.int64(200), learning_rate=np.float32(0.5), init_from=Path("runs/one"), document_masking=np.True_
    )
    assert (train.learning_rate, type(train.learning_rate)) == (0.5, float)
    assert (train.init_from, train.document_masking) == (str(Path("runs/one")), True)
    with pytest.raises(TypeError):
        ModelConfig(np.float64(50.5), 16, 2, 16, 2, 24)


@pytest.mark.parametrize(("steps", "warmup"), [(5, 0), (50, 5), (99, 9), (100, 100), (1000, 100)])
def test_the_default_warm_up_fits_any_number_of_steps(steps, warmup):
    assert TrainConfig(steps).warmup_steps == warmup
