"""Settings that would do nothing are refused, and values of NumPy are taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from runs import MODEL, some_tokens

import lm
from lm.config import ModelConfig, TrainConfig
from lm.schedule import learning_rate


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"schedule": "constant", "min_learning_rate": 1e-4}, "min_learning_rate"),
        ({"momentum": 0.5}, "momentum"),
        ({"dpo_beta": 0.5}, "dpo_beta"),
        ({"lora_alpha": 2.0}, "lora_alpha"),
    ],
)
def test_a_setting_of_training_without_effect_is_refused(settings, name):
    with pytest.raises(ValueError, match=f"^{name} "):
        TrainConfig(200, **settings)


@pytest.mark.parametrize("settings", [{"rope_factor": 4.0}, {"rope_theta": 5e5}])
def test_rope_settings_are_refused_without_rope(settings):
    with pytest.raises(ValueError, match=f"^{next(iter(settings))} "):
        ModelConfig(50, 16, 2, 16, 2, 24, position="learned", **settings)
    ModelConfig(50, 16, 2, 16, 2, 24, **settings)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"rope_original_context_length": 8192}, "rope_original_context_length"),
        ({"rope_low_freq_factor": 2.0}, "rope_low_freq_factor"),
        ({"rope_factor": 2.0, "rope_high_freq_factor": 9.0}, "rope_high_freq_factor"),
        ({"norm": "none", "norm_eps": 1e-3}, "norm_eps"),
        ({"norm": "none", "norm_placement": "post"}, "norm_placement"),
        ({"position": "none", "rope_low_freq_factor": 2.0}, "rope_low_freq_factor"),
    ],
)
def test_a_setting_of_the_model_without_effect_is_refused(settings, name):
    with pytest.raises(ValueError, match=f"{name} .* has no effect"):
        ModelConfig(50, 16, 1, 16, 2, 24, **settings)


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


def test_the_rates_are_those_that_the_comments_say():
    cosine = TrainConfig(10, learning_rate=1.0, min_learning_rate=0.1, warmup_steps=0)
    assert learning_rate(cosine, 10) == pytest.approx(0.1)
    assert learning_rate(cosine, 9) > 0.1
    linear = TrainConfig(10, learning_rate=1.0, warmup_steps=0, schedule="linear", decay_steps=2)
    assert [learning_rate(linear, step) for step in (8, 9, 10)] == [1.0, 0.5, 0.0]


def test_evaluate_names_what_it_does_not_take_and_puts_the_mode_back():
    model = lm.Transformer(MODEL).train()
    with pytest.raises(TypeError, match="str"):
        lm.evaluate(model, "data")
    with pytest.raises(ValueError, match="stride"):
        lm.evaluate(model, some_tokens(100), stride=99)

    def fail(inputs, targets, end_of_text):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        lm.evaluate(model, some_tokens(100), summed=fail)
    assert model.training
    assert torch.is_grad_enabled()
