"""Architectures of Hugging Face: tiny random models made by transformers, read, compared, trained and written back."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tomli_w
import torch
import torch.nn.functional as F
from models import LEVELS, compiled_for, needs_compiler
from runs import CONFIG
from torch.overrides import TorchFunctionMode

import accounting
import lm
from lm import from_gguf, from_huggingface, to_gguf, to_huggingface
from lm.config import from_table, to_table
from lm.device import threads
from lm.evaluation.likelihood import Request, likelihoods
from lm.families import build, config_class
from lm.generation.decoder import Decoder
from lm.generation.kv_cache import Step
from lm.interop.config_json import from_config
from lm.interop.gguf_models import KINDS
from lm.interop.importing import import_run
from lm.ops.cpu.int8 import quantized
from lm.training.budget import beyond
from lm.training.objectives.next_token import NextToken

transformers = pytest.importorskip("transformers", "5.23")  # older ones compute some families otherwise
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
GROUPED = SIZES | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 16}
WINDOW = {"sliding_window": 6}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
# The settings of each model: its model_type, and what is not its class's default.
MODELS = {
    "gemma": ("gemma", WIDE | {"num_key_value_heads": 1}),
    "gemma2": ("gemma2", WIDE | WINDOW | {"query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0}),
    "gemma3": (
        "gemma3_text",
        WIDE
        | WINDOW
        | {
            "query_pre_attn_scalar": 24,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "olmo2": ("olmo2", GROUPED),
    "olmo3": ("olmo3", GROUPED | WINDOW | {"num_hidden_layers": 4}),
    "phi3": ("phi3", GROUPED | WINDOW | {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "smollm3": ("smollm3", GROUPED | {"no_rope_layer_interval": 2}),
    "granite": (
        "granite",
        GROUPED
        | {"embedding_multiplier": 3.0, "logits_scaling": 4.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2},
    ),
    "starcoder2": ("starcoder2", GROUPED | WINDOW),
    "starcoder2, biases of norms": ("starcoder2", GROUPED | {"use_bias": False}),
    "gpt_neox": ("gpt_neox", SIZES),
    "gpt_neox, one after the other": ("gpt_neox", SIZES | {"use_parallel_residual": False, "hidden_act": "gelu_new"}),
    "glm4": ("glm4", WIDE),
    "llama, yarn": (
        "llama",
        GROUPED
        | {"attention_bias": True, "mlp_bias": True}
        | {"rope_parameters": YARN | {"rope_theta": 1e4, "mscale": 0.7, "mscale_all_dim": 0.5}},
    ),
    "llama, dynamic": (
        "llama",
        SIZES
        | {
            "max_position_embeddings": 16,
            "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e3},
        },
    ),
    "llama": ("llama", GROUPED),
    "llama, biases of attention": ("llama", GROUPED | {"attention_bias": True, "tie_word_embeddings": True}),
    "llama, biases of the feed-forward": ("llama", WIDE | {"mlp_bias": True}),
    "mistral": ("mistral", GROUPED | WINDOW),
    "qwen2": ("qwen2", GROUPED),
    "qwen2, tied": ("qwen2", GROUPED | {"tie_word_embeddings": True}),
    "qwen2, windows": ("qwen2", GROUPED | WINDOW | {"use_sliding_window": True, "max_window_layers": 0}),
    "qwen3": ("qwen3", WIDE),
    "qwen3, biases": ("qwen3", WIDE | {"attention_bias": True}),
    "gpt2": (
        "gpt2",
        {"vocab_size": 96, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2}
        | {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None},
    ),
    "mistral, layers": ("mistral", GROUPED | WINDOW | {"rope_parameters": YARN | {"rope_theta": 1e4}}),
    "qwen2, layers": ("qwen2", GROUPED | WINDOW | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen3, yarn": ("qwen3", WIDE | {"rope_parameters": YARN | {"rope_theta": 1e6}}),
    "phi3, longrope": (
        "phi3",
        GROUPED
        | {"original_max_position_embeddings": 20}
        | {
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [2.0, 3.0, 4.0, 5.0],
                "original_max_position_embeddings": 20,
            }
        },
    ),
    "mixtral": ("mixtral", GROUPED | WINDOW | {"num_local_experts": 5}),
    "qwen3_moe": (
        "qwen3_moe",
        WIDE
        | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "mlp_only_layers": [1]}
        | {"norm_topk_prob": True},
    ),
    "olmoe": ("olmoe", GROUPED | {"num_experts": 6, "num_experts_per_tok": 3}),
    "gpt_oss": (
        "gpt_oss",
        WIDE
        | WINDOW
        | {"num_local_experts": 5, "num_experts_per_tok": 2, "swiglu_limit": 0.5}
        | {
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 1.5e4, "factor": 4.0, "truncate": False}
            | {"original_max_position_embeddings": 16, "beta_fast": 8.0, "beta_slow": 1.0}
        },
    ),
    "cohere": ("cohere", GROUPED | {"use_qk_norm": True, "logit_scale": 0.5}),
    "cohere2": ("cohere2", GROUPED | WINDOW | {"num_hidden_layers": 4}),
}
# What llama.cpp has not got of MODELS, and what it has instead; of "llama, dynamic" there is nothing.
GGUF: dict[str, dict[str, Any]] = {name: {} for name in MODELS} | {
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3": {"query_pre_attn_scalar": 16, "num_hidden_layers": 6, "layer_types": None},
    "phi3": {"sliding_window": None},
    "smollm3": {"no_rope_layer_interval": 4, "num_hidden_layers": 4},
    "starcoder2": {"sliding_window": None},
    "starcoder2, biases of norms": {"use_bias": True, "sliding_window": None},
    "gpt_neox, one after the other": {"hidden_act": "gelu"},
    "mistral": {"sliding_window": None},
    "mistral, layers": {"sliding_window": None},
    "qwen2, windows": {"use_sliding_window": False},
    "qwen3, biases": {"attention_bias": False},
    "qwen2, layers": {"use_sliding_window": False, "rope_parameters": YARN | {"rope_theta": 1e4}},
    "mixtral": {"sliding_window": None},
    "qwen3_moe": {"mlp_only_layers": []},
    "olmoe": {"num_key_value_heads": 4},
    "gpt_oss": {"swiglu_limit": 7.0},
    "cohere": {"use_qk_norm": False},
    "llama, dynamic": {"rope_parameters": {"rope_type": "dynamic"}},
}
IDS = torch.randint(96, (2, 20), generator=torch.Generator().manual_seed(3))
PROMPT = IDS[0, :9].tolist()


@functools.cache
def theirs_of(name):
    return random_model(name)


def random_model(name, **change):
    """A random model of transformers, its biases and norms away from zero and one."""
    model_type, settings = MODELS[name][0], MODELS[name][1] | change
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each model, written by transformers when it is first read."""
    root = tmp_path_factory.mktemp("families")

    @functools.cache
    def folder(name: str) -> Path:
        theirs_of(name).save_pretrained(root / name)
        return root / name

    return folder


def logits_of(model, ids=IDS):
    with torch.no_grad():
        out = model(ids)
    return out if isinstance(out, torch.Tensor) else out.logits


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_text_are_those_of_transformers(folders, name):
    theirs, ours = theirs_of(name), from_huggingface(folders(name))
    torch.testing.assert_close(logits_of(ours), logits_of(theirs), rtol=1e-5, atol=1e-5)
    size = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False}
    expected = theirs.generate(torch.tensor([PROMPT]), **size)[0, len(PROMPT) :].tolist()
    assert lm.generate(ours, PROMPT, max_new_tokens=24, temperature=0) == expected
    # Beside another text of another length, whose pages lie elsewhere.
    together = lm.generate_batch(ours, [IDS[1, :4].tolist(), PROMPT], max_new_tokens=24, temperature=0)
    assert together[1][0] == expected


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, "int8"])  # of float32: their greedy text
@pytest.mark.parametrize("name", [name for name in MODELS if name != "llama, dynamic"])
def test_prompts_and_steps_in_c_are_the_model(folders, name, dtype):
    """Three texts at once, and one text in parts of one token, of few, and of more than a panel has."""
    check_c(from_huggingface(folders(name)), name, dtype)


def check_c(model, name, dtype):
    model = quantized(model) if dtype == "int8" else model.to(dtype)
    # A longrope text is rotated anew beyond 20 positions, and the keys before them are not.
    ids = torch.randint(96, (3, 64 if name != "phi3, longrope" else 20), generator=torch.Generator().manual_seed(1))
    expected = logits_of(model, ids)
    # A router computes in fp32 in any model; of int8, x is rounded to 16 bits.
    exact = 2e-6 if any("router" in key for key in model.state_dict()) else 1e-12
    near = {torch.float64: exact, torch.float32: 1e-4, "int8": 4e-3}
    with threads(2), torch.no_grad():
        decoder = Decoder(model, rows=3, native=True)
        steps = torch.stack([decoder.step(column.tolist()).clone() for column in ids.T], 1)
        torch.testing.assert_close(steps, expected, rtol=0, atol=near[dtype])
        decoder = Decoder(model, native=True)
        parts = torch.cat([decoder.read(0, part.tolist(), every=True) for part in ids[0].tensor_split([1, 9])])
        torch.testing.assert_close(parts, expected[0], rtol=0, atol=near[dtype])
        decoder = Decoder(model, native=True)
        torch.testing.assert_close(decoder.read(0, ids[0].tolist()), expected[0, -1], rtol=0, atol=near[dtype])


@needs_compiler
@pytest.mark.parametrize("level", LEVELS)
def test_c_of_older_processors_is_the_model(folders, tmp_path_factory, level):
    with compiled_for(level, tmp_path_factory):
        for name in ("gemma2", "gpt_oss", "cohere", "glm4", "llama, yarn"):
            for dtype in (torch.float32, "int8"):
                check_c(from_huggingface(folders(name)), name, dtype)


def test_a_rotation_that_depends_on_the_length_says_that_it_is_pytorch(folders):
    decoder = Decoder(from_huggingface(folders("llama, dynamic")))
    assert decoder.how == "in PyTorch, because its rotation depends on the length of the text"


def config_of(folder):
    """transformers' configuration of a folder, but for what says nothing of the model."""
    config = transformers.AutoConfig.from_pretrained(folder).to_dict()
    ignored = {"_name_or_path", "initializer_range", "transformers_version", "attn_pdrop", "embd_pdrop", "resid_pdrop"}
    return {key: value for key, value in config.items() if key not in ignored | {"n_ctx", "summary_first_dropout"}}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_was_trained_comes_back_as_what_it_was(folders, tmp_path, name):
    """Read and written, a folder is the same; so are names, shapes and settings after a step of all weights."""
    source, out, same = folders(name), tmp_path / "out", tmp_path / "same"
    to_huggingface(from_huggingface(source), same)
    before, after = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (source, same))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert config_of(source) == config_of(same)
    config = lm.TrainConfig(steps=1, batch_size=2, warmup_steps=0, learning_rate=1e-2, init_from=str(source))
    lm.train(None, config, np.arange(400) * 7 % 96, tmp_path / "run", progress=False)
    trained = lm.load(tmp_path / "run")
    to_huggingface(tmp_path / "run", out)
    after = safetensors.torch.load_file(out / "model.safetensors")
    assert {key: tensor.shape for key, tensor in before.items()} == {key: tensor.shape for key, tensor in after.items()}
    assert not all(torch.equal(before[key], after[key]) for key in before)
    assert config_of(source) == config_of(out)
    tables = [json.loads((folder / "config.json").read_text()) for folder in (source, out)]
    assert tables[0]["architectures"] == tables[1]["architectures"]
    exported = transformers.AutoModelForCausalLM.from_pretrained(out)
    torch.testing.assert_close(logits_of(exported), logits_of(trained), rtol=1e-5, atol=1e-5)


def gradients_of(model, folder):
    """The gradients of a model of transformers, under the names of its files."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    model.save_pretrained(folder)
    return safetensors.torch.load_file(folder / "model.safetensors")


def balance_of(logits, per_token):
    """experts · Σ f P of one layer. (Fedus et al. 2021, equations 4 to 6)"""
    probabilities = logits.softmax(-1)
    chosen = F.one_hot(probabilities.topk(per_token, -1).indices, logits.shape[-1]).sum(1)
    return logits.shape[-1] * (chosen.float().mean(0) * probabilities.mean(0)).sum()


class Doubled(TorchFunctionMode):
    """float64 wherever float32 is asked for: transformers takes norms, angles and softmax in float32 in every model."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        arguments = [torch.float64 if a is torch.float32 else a for a in arguments]
        keywords = {k: torch.float64 if a is torch.float32 else a for k, a in (keywords or {}).items()}
        return function(*arguments, **keywords)


@pytest.mark.parametrize("name", MODELS)
def test_logits_loss_and_gradients_are_those_of_transformers(folders, tmp_path, name):
    """The loss that spreads tokens over experts included, which transformers has in float32 alone.

    Gradients are written as weights are, in float32.
    """
    routed = {"output_router_logits": True} if hasattr(theirs_of(name).config, "router_aux_loss_coef") else {}
    # Gemma's embedding has a factor of float32, and a dynamic rotation is computed anew outside of the mode.
    wide = not routed and not name.startswith("gemma") and name not in ("llama, dynamic", "gpt_oss")
    dtype, bound = (torch.float64, 1e-10) if wide else (torch.float32, 1e-5)
    inputs, targets = IDS[:, :-1], IDS[:, 1:]
    with Doubled() if wide else contextlib.nullcontext():
        # Read anew: a dynamic rotation of theirs remembers the longest text that it has seen.
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folders(name)).to(dtype).train()
        out = theirs(inputs, **routed)
    loss = F.cross_entropy(out.logits.flatten(0, 1), targets.flatten())
    if routed:  # theirs is of all layers together, which lets a layer's collapse go unseen; the paper's is of each
        per_token = theirs.config.num_experts_per_tok
        own = [balance_of(logits, per_token) for logits in out.router_logits]
        loss = loss + theirs.config.router_aux_loss_coef * torch.stack(own).mean()
    loss.backward()
    ours = from_huggingface(folders(name)).to(dtype).train()
    torch.testing.assert_close(logits_of(ours, inputs), out.logits, rtol=bound, atol=bound)
    own_loss = NextToken(ours, CONFIG, None)(inputs, targets) / targets.numel()
    own_loss.backward()
    torch.testing.assert_close(own_loss, loss, rtol=bound, atol=bound)
    expected = gradients_of(theirs, tmp_path / "theirs")
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.copy_(parameter.grad)
    to_huggingface(ours, tmp_path / "ours")
    gradients = safetensors.torch.load_file(tmp_path / "ours" / "model.safetensors")
    bounds = {"rtol": 1e-6, "atol": 1e-9} if wide else {"rtol": 1e-4, "atol": 2e-5}
    for key, gradient in expected.items():
        torch.testing.assert_close(
            gradients[key], gradient.float(), **bounds, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.parametrize("name", MODELS)
def test_a_run_is_made_of_each_scored_adapted_and_counted(folders, tmp_path, name):
    model = import_run(folders(name), tmp_path / "run")
    back = lm.load(tmp_path / "run")
    assert back.config == model.config
    assert type(back) is type(model)
    logits = logits_of(back)
    assert torch.equal(logits, logits_of(model))

    # Continuations of one text, which it is read once for, and one of another.
    requests = [Request(tuple(IDS[0, :9].tolist()), tuple(IDS[0, 9 : 9 + size].tolist())) for size in (1, 7, 11)]
    requests.append(Request(tuple(IDS[1, :4].tolist()), tuple(IDS[1, 4:9].tolist())))
    for request, score in zip(requests, likelihoods(back, requests), strict=True):
        alone = logits_of(back, torch.tensor([request.before + request.ids[:-1]]))[0, -len(request.ids) :]
        expected = F.cross_entropy(alone, torch.tensor(request.ids), reduction="sum")
        assert score.nats == pytest.approx(float(expected), rel=1e-4, abs=1e-4)

    assert int(accounting.parameters(back.config.shape()).total) == sum(p.numel() for p in back.parameters())
    assert int(accounting.training_flops(back.config.shape()).total) > 0
    assert beyond(back.config, CONFIG, torch.device("cpu"), own=4) is None  # a step fits the memory
    lm.lora.add(back.train(), rank=2)
    for _ in range(2):  # in the first step B is zero, and A learns nothing
        NextToken(back, CONFIG, None)(IDS[:, :-1], IDS[:, 1:]).backward()
        with torch.no_grad():
            for parameter in back.parameters():
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-1e-3)
    for key, adapter in back.named_parameters():  # a token may have chosen an expert or not
        if adapter.requires_grad and ".experts." not in key:
            assert adapter.grad.any(), key
    adapted = logits_of(back.eval())
    assert not torch.allclose(adapted, logits)
    torch.testing.assert_close(logits_of(lm.lora.merge(back)), adapted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_documents_of_one_row_are_each_as_if_alone(folders, name):
    """Their logits and the gradients of their losses, some longer than what the rotation was made for, some shorter."""
    model = from_huggingface(folders(name)).double().eval()
    ids = IDS.flatten()
    documents, at = [], 0
    for length in (11, 24, 5):
        documents.append(ids[at : at + length][None])
        at += length
    marks = torch.repeat_interleave(torch.arange(3), torch.tensor([11, 24, 5]))[None]
    inputs, weights = list(model.parameters()), torch.randn(at, 96, generator=torch.Generator().manual_seed(0)).double()
    together = model(ids[None], marks)[0]
    alone = torch.cat([model(document)[0] for document in documents])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)
    gradients = [torch.autograd.grad((out * weights).sum(), inputs, allow_unused=True) for out in (together, alone)]
    for packed, separate in zip(*gradients, strict=True):
        torch.testing.assert_close(packed, separate, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_gguf_is_what_llama_cpp_computes_the_same_logits_of(folders, tmp_path, name):
    """Without its Python bindings: the file has all the weights, by names of the package gguf."""
    gguf = pytest.importorskip("gguf")
    file, folder, change = tmp_path / "model.gguf", folders(name), GGUF[name]
    if change:
        with pytest.raises(ValueError, match=r"llama\.cpp's"):
            to_gguf(from_huggingface(folder), file)
        if name == "llama, dynamic":
            return
        folder = tmp_path / "changed"
        random_model(name, **change).save_pretrained(folder)
    model = from_huggingface(folder)
    to_gguf(model, file, dtype="fp32")
    reader = gguf.GGUFReader(file)
    weights = {tensor.name: int(tensor.n_elements) for tensor in reader.tensors if not tensor.name.startswith("rope_")}
    assert sum(weights.values()) == sum(p.numel() for p in model.parameters())
    assert reader.fields["general.architecture"].contents() == KINDS[MODELS[name][0]].architecture
    back = from_gguf(file)
    assert change or type(back) is type(model)  # a Mistral without its window is a Llama
    torch.testing.assert_close(logits_of(back), logits_of(model), rtol=1e-5, atol=1e-5)
    llama_cpp = pytest.importorskip("llama_cpp")
    llama = llama_cpp.Llama(str(file), n_ctx=64, verbose=False, logits_all=True, type_k=0, type_v=0, flash_attn=False)
    ids = IDS.flatten()[:30]  # more than longrope's short factors are for: llama.cpp chooses by n_ctx
    llama.eval(ids.tolist())
    logits, coarse = logits_of(model, ids[None])[0], {"gemma", "gemma2", "gemma3", "starcoder2", "gpt_neox"}
    # llama.cpp looks up GELU in a table of half precision.
    tolerance = 1e-2 if name.partition(",")[0] in coarse else 1e-4
    np.testing.assert_allclose(llama.scores[: len(ids)], logits, rtol=0, atol=tolerance)


def test_what_a_gguf_cannot_say_of_a_gemma_2_is_refused(folders, tmp_path):
    config = dataclasses.replace(from_huggingface(folders("gemma2")).config, query_pre_attn_scalar=16)
    unbent = build(dataclasses.replace(config, attn_logit_softcapping=None))
    with pytest.raises(ValueError, match="gemma2 has no attn_logit_softcapping None"):
        to_gguf(unbent, tmp_path / "unbent.gguf")
    deep = build(dataclasses.replace(config, num_layers=46, layer_types=()))
    with pytest.raises(ValueError, match="gemma2 has no 46 layers with query_scale"):
        to_gguf(deep, tmp_path / "deep.gguf")


@pytest.mark.parametrize(("name", "setting"), [("gpt_neox", "hidden_act"), ("gpt2", "activation_function")])
def test_an_activation_that_is_unknown_is_refused_by_name(name, setting):
    table = transformers.AutoConfig.for_model(MODELS[name][0], **MODELS[name][1]).to_dict()
    with pytest.raises(ValueError, match=f"config.json: {setting} 'gelu_9' is unknown"):
        from_config(table | {setting: "gelu_9"}, "config.json")


def test_experts_in_mxfp4_are_read_as_transformers_reads_them(tmp_path):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    theirs = random_model("gpt_oss", intermediate_size=64)
    theirs.save_pretrained(tmp_path)
    file, generator = tmp_path / "model.safetensors", torch.Generator().manual_seed(0)
    tensors = safetensors.torch.load_file(file)
    for name, weight in theirs.state_dict().items():
        if name.endswith(("gate_up_proj", "down_proj")):
            number, inputs, outputs = tensors.pop(name).shape
            size = (number, outputs, inputs // 32)
            blocks = torch.randint(256, (*size, 16), dtype=torch.uint8, generator=generator)
            scales = torch.randint(120, 128, size, dtype=torch.uint8, generator=generator)
            tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            weight.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
    safetensors.torch.save_file(tensors, file)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    ours = from_huggingface(tmp_path)
    experts = ours.blocks[1].ffn.experts
    expected = theirs.model.layers[1].mlp.experts.down_proj
    assert torch.equal(torch.stack([expert.down.weight.T for expert in experts]), expected)
    torch.testing.assert_close(logits_of(ours), logits_of(theirs), rtol=1e-4, atol=1e-4)


def test_gguf_of_experts_in_eight_bits(tmp_path):
    gguf = pytest.importorskip("gguf")
    random_model("mixtral", sliding_window=None, intermediate_size=64).save_pretrained(tmp_path / "folder")
    model = from_huggingface(tmp_path / "folder")
    reader = gguf.GGUFReader(to_gguf(model, tmp_path / "model.gguf", dtype="q8_0"))
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert tensors["blk.0.ffn_gate_inp.weight"].tensor_type.name == "F32"
    stacked = tensors["blk.0.ffn_gate_exps.weight"]
    assert stacked.tensor_type.name == "Q8_0"
    matrices = torch.tensor(gguf.quants.dequantize(stacked.data, stacked.tensor_type))
    expected = torch.stack([expert.gate_up.weight[: model.config.d_ff] for expert in model.blocks[0].ffn.experts])
    torch.testing.assert_close(matrices, expected.detach(), rtol=0, atol=1e-2)


@pytest.mark.parametrize("name", MODELS)
def test_the_settings_of_a_run_are_those_of_its_family(folders, name):
    config = from_huggingface(folders(name)).config
    table = to_table(config)
    own = {"ffn", "rope_theta", "norm_placement", "value_embeddings"}
    assert own & table.keys() == (own if type(config) is lm.ModelConfig else set())
    assert from_table(config_class(table), tomllib.loads(tomli_w.dumps(table)), "model") == config


def test_a_step_that_knows_pages_alone_sees_the_same(folders):
    """As in a CUDA graph, whose attention is a kernel's unless scores are bent."""
    decoder = Decoder(from_huggingface(folders("gemma2")), rows=2, capacity=64)
    for row, length in enumerate((9, 4)):
        decoder.read(row, IDS[row, :length].tolist())
    tokens, positions, pages = torch.tensor([5, 7]), torch.tensor([9, 4]), torch.tensor(decoder.cache.table[:, :1])
    expected = decoder.step(tokens.tolist()).clone()
    new = pages[:, 0] * decoder.cache.page + positions
    torch.testing.assert_close(decoder.logits(tokens, Step(new, positions, None, pages)), expected)


# What the files of older programs have in place of rope_parameters and layer_types.
ORIGINAL = {"original_max_position_embeddings": 64}
OLDER: dict[str, dict[str, Any]] = {
    "gemma3_text": WIDE
    | {"rope_local_base_freq": 2e4, "rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    | {"sliding_window": 8, "sliding_window_pattern": 3, "num_hidden_layers": 7, "cache_implementation": "hybrid"},
    "olmo3": GROUPED | {"rope_theta": 5e5, "rope_scaling": YARN | {"attention_factor": 1.2}},
    "phi3": GROUPED
    | {"max_position_embeddings": 256, "original_max_position_embeddings": 64, "partial_rotary_factor": 0.5}
    | {
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0]} | ORIGINAL,
        "rope_theta": 5e3,
    },
    "gpt_neox": SIZES | {"rotary_pct": 0.5, "rotary_emb_base": 2e4, "hidden_dropout": 0.1},
    "glm4": WIDE | {"rope_theta": 3e4},
    "gpt_oss": WIDE | {"rope_theta": 1e5, "rope_scaling": YARN | {"truncate": False}, "initial_context_length": 16},
    "qwen2": GROUPED | {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0}},
    "smollm3": GROUPED | {"rope_theta": 1e6, "pretraining_tp": 2, "max_window_layers": 28},
    "starcoder2": GROUPED | {"rope_theta": 1e5, "residual_dropout": 0.1, "sliding_window": 8},
}


@pytest.mark.parametrize("model_type", OLDER)
def test_settings_of_older_files_are_read_as_transformers_reads_them(model_type):
    older = {"model_type": model_type, **OLDER[model_type]}
    today = transformers.AutoConfig.for_model(**older).to_dict()
    ours, theirs = from_config(older, "config.json"), from_config(today, "config.json")
    for layer in range(ours.num_layers):
        assert ours.window(layer) == theirs.window(layer)
        assert ours.rope_of(layer) == theirs.rope_of(layer)
    assert ours.norm_eps == theirs.norm_eps
