"""The model beside transformers' LlamaForCausalLM and GPT2LMHeadModel: the same weights, logits and gradients."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode

from lm.config import ModelConfig
from lm.loss import cross_entropy
from lm.model import Transformer

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-5}


class Doubled(TorchFunctionMode):
    """float64 wherever float32 is asked for: transformers takes norms, angles and softmax in float32 in every model."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        arguments = [torch.float64 if a is torch.float32 else a for a in arguments]
        keywords = {k: torch.float64 if a is torch.float32 else a for k, a in (keywords or {}).items()}
        return function(*arguments, **keywords)


def llama(tied, kv_heads, head_dim, bias):
    config = transformers.LlamaConfig(
        vocab_size=61,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=32,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        attention_bias=bias,
        mlp_bias=bias,
        attn_implementation="eager",
    )
    ours = ModelConfig(61, 32, 3, 24, 4, 40, num_kv_heads=kv_heads, head_dim=head_dim, tied_embeddings=tied, bias=bias)
    return transformers.LlamaForCausalLM(config), ours


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=61,
        n_positions=32,
        n_embd=24,
        n_layer=3,
        n_head=4,
        n_inner=40,
        attn_implementation="eager",
        bos_token_id=0,
        eos_token_id=0,
    )
    ours = ModelConfig(
        61, 32, 3, 24, 4, 40, ffn="gelu", norm="layernorm", position="learned", tied_embeddings=True, bias=True
    )
    return transformers.GPT2LMHeadModel(config), ours


def from_llama(named, config):
    """Weights, or their gradients, under transformers' names → under ours."""
    out = {"embedding.weight": named["model.embed_tokens.weight"], "final_norm.weight": named["model.norm.weight"]}
    if not config.tied_embeddings:
        out["head.weight"] = named["lm_head.weight"]
    for i in range(config.num_layers):
        theirs, ours = f"model.layers.{i}.", f"blocks.{i}."
        out[f"{ours}attention_norm.weight"] = named[f"{theirs}input_layernorm.weight"]
        out[f"{ours}ffn_norm.weight"] = named[f"{theirs}post_attention_layernorm.weight"]
        for kind in ("weight", "bias") if config.bias else ("weight",):
            q, k, v, o = (named[f"{theirs}self_attn.{name}_proj.{kind}"] for name in "qkvo")
            out[f"{ours}attention.qkv.{kind}"] = torch.cat((q, k, v))
            out[f"{ours}attention.output.{kind}"] = o
            gate, up, down = (named[f"{theirs}mlp.{name}_proj.{kind}"] for name in ("gate", "up", "down"))
            out[f"{ours}ffn.gate_up.{kind}"] = torch.cat((gate, up))
            out[f"{ours}ffn.down.{kind}"] = down
    return out


def from_gpt2(named, config):
    """The same for GPT-2, whose matrices are (in, out)."""
    out = {"embedding.weight": named["transformer.wte.weight"], "positions.weight": named["transformer.wpe.weight"]}
    names = {"ln_1": "attention_norm", "attn.c_attn": "attention.qkv", "attn.c_proj": "attention.output"}
    names |= {"ln_2": "ffn_norm", "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}
    for kind in ("weight", "bias"):
        out[f"final_norm.{kind}"] = named[f"transformer.ln_f.{kind}"]
        for i in range(config.num_layers):
            for theirs, ours in names.items():
                out[f"blocks.{i}.{ours}.{kind}"] = named[f"transformer.h.{i}.{theirs}.{kind}"].t()
    return out


CASES = {
    "llama": lambda: llama(False, 4, 6, False),
    "llama, tied": lambda: llama(True, 4, 6, False),
    "llama, grouped": lambda: llama(False, 2, 6, False),
    "llama, wide heads, biases": lambda: llama(False, 1, 10, True),
    "gpt2": gpt2,
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_logits_and_gradients_are_those_of_transformers(case, dtype):
    torch.manual_seed(0)
    doubled = Doubled if dtype == torch.float64 else contextlib.nullcontext
    with doubled():
        theirs, config = CASES[case]()
    convert = from_gpt2 if case == "gpt2" else from_llama
    theirs = theirs.to(dtype).eval()
    with torch.no_grad():  # biases of zero and norms of one would hide a mistake in them
        for p in theirs.parameters():
            p.copy_(0.3 * torch.randn(p.shape, dtype=dtype) + (p.ndim == 1))
    ours = Transformer(config).to(dtype)
    missing, unexpected = ours.load_state_dict(convert(dict(theirs.named_parameters()), config), strict=False)
    assert not missing
    assert not unexpected
    ids = torch.randint(61, (3, 32))
    logits = {}
    with doubled():
        logits["theirs"] = theirs(ids).logits
    logits["ours"] = ours(ids)
    for output in logits.values():
        cross_entropy(output[:, :-1], ids[:, 1:]).backward()
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(logits["ours"], logits["theirs"], rtol=tolerance, atol=tolerance)
    want = convert({name: p.grad for name, p in theirs.named_parameters()}, config)
    assert want.keys() == dict(ours.named_parameters()).keys()
    for name, p in ours.named_parameters():
        torch.testing.assert_close(
            p.grad, want[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )
