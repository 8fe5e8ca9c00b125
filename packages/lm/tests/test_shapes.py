"""Parts that public speedruns added to the model: value embeddings and soft-capped logits, beside their definitions."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from runs import CONFIG, assert_continues

import lm
from lm import to_gguf, to_huggingface
from lm.commands.configuration import configuration
from lm.config import ModelConfig
from lm.device import device_name
from lm.model import Transformer, softcapped
from lm.training import budget

BOTH = ModelConfig(50, 16, 3, 16, 4, 24, num_kv_heads=2, qk_norm=True, value_embeddings=True, logit_softcap=4.0)


def trained_a_little(config, dtype=torch.float64):
    """A model whose gates are not at their beginning, nor its logits small."""
    torch.manual_seed(1)
    model = Transformer(config).to(dtype)
    for name, p in model.named_parameters():
        if name.endswith("gate.weight") or name == "head.weight":
            torch.nn.init.normal_(p)
    return model.eval()


def some_ids(*shape):
    return torch.randint(0, 50, shape, generator=torch.Generator().manual_seed(0))


def test_a_value_embedding_is_its_definition():
    """v ← v + 2 sigmoid(gate x) · e[token], for each key head: by hand, of the last block and every other one."""
    model = trained_a_little(BOTH)
    assert [block.attention.value_embedding is not None for block in model.blocks] == [True, False, True]
    attention, ids = model.blocks[2].attention, some_ids(2, 7)
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    plain = Transformer(dataclasses.replace(BOTH, value_embeddings=False)).double().blocks[2].attention
    plain.load_state_dict({k: v for k, v in attention.state_dict().items() if "value" not in k})
    (q, k, v), (plain_q, plain_k, plain_v) = attention.project(x, ids), plain.project(x, None)
    assert torch.equal(q, plain_q)
    assert torch.equal(k, plain_k)
    gate = 2 / (1 + (-(x @ attention.value_gate.weight.T)).exp())  # (2, 7, kv_heads)
    want = attention.value_embedding.weight[ids].view(2, 7, 2, 4) * gate[..., None]
    torch.testing.assert_close(v - plain_v, want)


def test_logits_are_capped():
    model = trained_a_little(BOTH)
    free = trained_a_little(dataclasses.replace(BOTH, logit_softcap=None))
    ids = some_ids(2, 9)
    logits = free(ids)
    assert logits.abs().max() > 4
    torch.testing.assert_close(model(ids), 4 * torch.tanh(logits / 4))
    assert softcapped(logits, None) is logits


def test_a_run_of_both_learns_stops_and_generates(data, tmp_path):
    config = dataclasses.replace(CONFIG, optimizer="normuon")
    assert assert_continues(data, tmp_path, config, BOTH).loss < 3.6
    model = lm.load(tmp_path / "whole")
    assert len(lm.generate(model, [1, 2], max_new_tokens=5)) >= 5


@pytest.mark.parametrize("change", [{"value_embeddings": True}, {"logit_softcap": 30.0}])
def test_no_other_program_has_them(change, tmp_path):
    model = Transformer(dataclasses.replace(BOTH, **{"value_embeddings": False, "logit_softcap": None, **change}))
    for export in (lambda: to_huggingface(model, tmp_path / "hf"), lambda: to_gguf(model, tmp_path / "m.gguf")):
        with pytest.raises(ValueError, match=next(iter(change))):
            export()


def test_a_speedrun_that_a_cpu_has_no_memory_for_is_refused(monkeypatch):
    model, config = configuration("speedrun", [])
    assert model.value_embeddings
    assert config.optimizer == "normuon"
    monkeypatch.setattr(budget, "memory_of", lambda device: 16e9)
    message = budget.beyond(model, dataclasses.replace(config, precision="fp32"), torch.device("cpu"), 512)
    assert message == (
        f"not enough memory on {device_name(torch.device('cpu'))} (16.0 GB) with 32 sequences at a time: "
        f"lower --train.micro_batch_size"
    )
