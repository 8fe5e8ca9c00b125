"""Adapters as PEFT's folders, out and in, with its logits; and the kinds of adapters beside their definitions in it."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from runs import CONFIG, assert_continues, run

import lm
from lm import lora
from lm.commands.cli import main
from lm.interop.peft import to_peft
from lm.model import Transformer

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
IDS = torch.arange(1, 15)[None]
SHAPES = {
    "llama": {"num_kv_heads": 1},
    "qwen2": {"qkv_bias": True},
    "gpt2": {"ffn": "gelu", "norm": "layernorm", "position": "learned", "tied_embeddings": True, "bias": True},
}
KINDS = {
    "lora": {},
    "some, rslora": {"lora_targets": ("qkv", "down"), "lora_rslora": True},
    "dora": {"lora_dora": True, "lora_targets": ("output", "qkv")},
}


def shape(name):
    return lm.ModelConfig(50, 16, 2, 16, 2, 24, **SHAPES[name])


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A folder of transformers for each shape."""
    folder = tmp_path_factory.mktemp("bases")
    for number, name in enumerate(SHAPES):
        torch.manual_seed(number)
        model = Transformer(shape(name))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p), alpha=0.05)
        lm.to_huggingface(model, folder / name)
    return folder


def theirs(base, adapter):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    return peft.PeftModel.from_pretrained(model, adapter)


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "lora") for name in SHAPES), ("llama", "some, rslora"), ("llama", "dora")]
)
def test_adapters_of_a_run_have_our_logits_in_peft_and_come_back(data, bases, tmp_path, name, kind):
    config = dataclasses.replace(
        CONFIG, steps=4, init_from=str(bases / name), lora_rank=3, lora_alpha=6.0, eval_every=0, **KINDS[kind]
    )
    result = run(data, tmp_path / "run", config, None)
    assert main(["export", str(tmp_path / "run"), "--adapter", str(tmp_path / "adapter")]) == 0
    about = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert about["base_model_name_or_path"] == str(bases / name)
    with torch.no_grad():
        ours, base = result.model(IDS), lm.load(str(bases / name))(IDS)
        assert (ours - base).abs().max() > 1e-3
        torch.testing.assert_close(theirs(bases / name, tmp_path / "adapter")(IDS).logits, ours, atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(lm.load(tmp_path / "adapter")(IDS), ours, atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(lm.load(tmp_path / "run")(IDS), ours, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "more", [{}, {"use_rslora": True, "target_modules": ["q_proj", "up_proj"]}, {"use_dora": True}]
)
def test_adapters_of_peft_have_its_logits_here(bases, tmp_path, more):
    """Each of its matrices has an A of its own, which ours share."""
    torch.manual_seed(3)
    base = transformers.AutoModelForCausalLM.from_pretrained(bases / "llama", dtype=torch.float32).eval()
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = peft.LoraConfig(**{"r": 4, "lora_alpha": 7, "target_modules": targets, "task_type": "CAUSAL_LM"} | more)
    model = peft.get_peft_model(base, config)
    with torch.no_grad():
        for tensor_name, p in model.named_parameters():
            if "lora_B" in tensor_name or "magnitude" in tensor_name:
                p.add_(torch.randn_like(p), alpha=0.1)
    model.save_pretrained(tmp_path / "adapter")
    with torch.no_grad():
        logits = model(IDS).logits
        torch.testing.assert_close(lm.load(tmp_path / "adapter")(IDS), logits, atol=3e-6, rtol=1e-5)
    path = tmp_path / "adapter" / "adapter_config.json"
    about = json.loads(path.read_text())
    refused = ({"bias": "all"}, "bias = 'all'"), ({"base_model_name_or_path": None}, "does not name the model")
    refused += (({"init_lora_weights": "pissa"}, "'pissa'"),)  # the base that PEFT computes with is another one
    for change, says in refused:
        path.write_text(json.dumps(about | change))
        with pytest.raises(ValueError, match=says):
            lm.load(tmp_path / "adapter")
    path.write_text(json.dumps(about | {"base_model_name_or_path": str(bases / "gpt2")}))
    with pytest.raises(ValueError, match="stands beside no matrix"):
        lm.load(tmp_path / "adapter")


def test_kinds_of_adapters_continue_to_the_bit_and_do_not_decay(data, base, tmp_path):
    settings = {"init_from": str(base), "lora_rank": 2, "lora_dropout": 0.2, "lora_targets": ("qkv",)}
    config = dataclasses.replace(lm.TrainConfig(12, **settings), checkpoint_every=4, threads=1, batch_size=4)
    assert config.weight_decay == 0
    assert lm.TrainConfig(12).weight_decay == 0.1
    assert_continues(data, tmp_path, dataclasses.replace(config, precision="fp32", device="cpu"), step=5)
    with pytest.raises(ValueError, match="trained no adapters"):
        to_peft(base, tmp_path / "none")
    with pytest.raises(ValueError, match="'q_proj': choose of qkv, output"):
        lora.add(Transformer(shape("llama")), 2, targets=["q_proj"])
    with pytest.raises(ValueError, match=r"lora_dropout 0\.1 has no effect without lora_dora false"):
        lm.TrainConfig(12, lora_rank=2, lora_dropout=0.1, lora_dora=True)
