"""Training, generation and data-parallel wrappers on a CUDA device: `nox -s gpu` runs these."""

from __future__ import annotations

import dataclasses
import math

import interpreter  # noqa: F401 (before whatever imports triton)
import numpy as np
import pytest
import torch
import torch.distributed as dist
from runs import CONFIG, metrics, run, stop_at

import lm
from lm.attention import attention, has_flash
from lm.commands.cli import main
from lm.config import ModelConfig
from lm.device import Processes, threads
from lm.generation.sampling import Sampling
from lm.generation.scheduler import Scheduler
from lm.training.distributed import DistributedContext
from lm.training.train import Stopped
from lm.training.trainer import Trainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA: nox -s gpu"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning"),
    pytest.mark.filterwarnings("ignore:::torch"),  # its compiler warns of what it does itself
]

MODEL = ModelConfig(61, 32, 2, 64, 4, 96, num_kv_heads=2)
GPT2 = ModelConfig(
    61, 32, 2, 64, 4, 96, ffn="gelu", norm="layernorm", position="learned", tied_embeddings=True, bias=True
)
STEPS = 8


def some_batches(size=4, context=32):
    """Rows in which each token is one or two more than the one before; token 3 ends a text."""
    random = np.random.default_rng(0)
    while True:
        ids = torch.from_numpy(np.cumsum(random.integers(1, 3, (size, context + 1)), axis=1) % 61)
        yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def trained(device="cuda", model=MODEL, context=None, **change):
    """A trainer after STEPS steps, and the losses of these."""
    config = dataclasses.replace(CONFIG, **{"batch_size": 8, "micro_batch_size": 4, "device": device, **change})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        new = lm.Transformer(model)
    context = context or Processes(device=torch.device("cuda", 0) if device == "cuda" else torch.device("cpu"))
    trainer = Trainer(new, config, context, end_of_text=3 if config.document_masking else None)
    batches = some_batches(config.micro_batch_size)
    with threads(0, config.precision):
        return trainer, [trainer.train_step(batches)["loss"] for _ in range(STEPS)]


@pytest.mark.parametrize(
    ("optimizer", "bound"), [("adamw", 1e-3), ("muon", 0.05), ("normuon", 0.05)]
)  # Muon's products are bfloat16 on CUDA
def test_a_run_in_float32_is_that_of_a_cpu(optimizer, bound):
    _, want = trained("cpu", optimizer=optimizer)
    _, actual = trained(optimizer=optimizer)
    assert actual == pytest.approx(want, rel=bound)
    assert actual[-1] < actual[0] - 0.5  # it learns


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_other_numbers_learn_alike(precision):
    _, want = trained("cpu")
    _, actual = trained(precision=precision)
    assert actual == pytest.approx(want, rel=0.02)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (MODEL, {}),
        (MODEL, {"document_masking": True}),
        (dataclasses.replace(MODEL, sliding_window=9, qk_norm=True), {"activation_checkpointing": "full"}),
        (GPT2, {}),
    ],
)
def test_a_compiled_run_is_that_of_one_that_is_not(model, change):
    _, want = trained(model=model, precision="bf16", **change)
    _, actual = trained(model=model, precision="bf16", compile="on", **change)
    assert actual == pytest.approx(want, rel=0.02)


@pytest.fixture
def alone():
    """A group over NCCL of one process, which takes itself for the first of two that never differ: what is exchanged
    is exchanged with nobody."""
    if not dist.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda", 0))
    yield DistributedContext(0, 2, torch.device("cuda", 0))
    dist.destroy_process_group()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_wrapped_models_learn_what_others_do(alone, monkeypatch, parallel):
    import torch.distributed.device_mesh as device_mesh

    meshed = device_mesh.init_device_mesh
    monkeypatch.setattr(device_mesh, "init_device_mesh", lambda kind, _: meshed(kind, (1,)))
    # Of two processes the first has half of each batch, and with nobody to exchange with it learns from that alone.
    _, actual = trained(context=alone, parallel=parallel, precision="bf16", micro_batch_size=2)
    _, want = trained(precision="bf16", batch_size=4, micro_batch_size=2)
    assert [2 * loss for loss in actual] == pytest.approx(want, rel=0.01)


def test_a_run_stops_and_goes_on(data, tmp_path):
    config = dataclasses.replace(CONFIG, device="cuda", precision="bf16")
    run(data, tmp_path / "whole", config)
    with pytest.raises(Stopped):
        run(data, tmp_path / "parts", config, on_step=stop_at(7))
    run(data, tmp_path / "parts", config)
    whole, parts = ([line.get("loss") for line in metrics(tmp_path / name)] for name in ("whole", "parts"))
    assert [loss for loss in parts if loss] == pytest.approx([loss for loss in whole if loss], rel=1e-3)


def test_texts_have_the_tokens_that_they_have_on_a_cpu():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = lm.Transformer(dataclasses.replace(MODEL, context_length=300, sliding_window=80)).eval()
        prompts = [torch.randint(61, (length,)).tolist() for length in (3, 130, 64, 1, 65)]
    tokens = {}
    for device in ("cpu", "cuda"):
        batch = Scheduler(model.to(device), rows=4)  # one waits
        texts = []
        for number, prompt in enumerate(prompts):
            while not batch.room:
                batch.step()
            own = {"sampling": Sampling(temperature=0.0)} if number % 2 else {"seed": number}
            texts.append(batch.add(prompt, max_new_tokens=90, **own))
        while batch.sequences:
            batch.step()
        tokens[device] = [text.tokens for text in texts]
    assert tokens["cuda"] == tokens["cpu"]


def test_a_model_without_numbers_is_refused():
    model = lm.Transformer(MODEL).to("cuda").eval()
    with torch.no_grad():
        model.final_norm.weight[0] = math.nan
    with pytest.raises(ValueError, match="are not numbers"):
        lm.generate(model, [1, 2, 3], max_new_tokens=4, temperature=0)


@pytest.mark.parametrize("masks", [{}, {"sliding_window": 30}, {"documents": True}, {"causal": False}])
def test_flex_attention_with_gradients(masks):
    q = torch.randn(2, 4, 200, 32, device="cuda", requires_grad=True)
    k, v = (torch.randn(2, 2, 200, 32, device="cuda", requires_grad=True) for _ in range(2))
    more = {key: value for key, value in masks.items() if key != "documents"}
    if "documents" in masks:
        more["document_ids"] = torch.arange(200, device="cuda").div(70, rounding_mode="floor").expand(2, 200)
    results = []
    for backend in ("flex", "sdpa"):
        out = attention(q, k, v, backend=backend, **more)
        results.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    for actual, want in zip(*results, strict=True):
        torch.testing.assert_close(actual, want, atol=5e-3, rtol=5e-3)  # flex takes TF32


def test_what_auto_takes():
    assert has_flash("cuda:0", torch.bfloat16, 64)


def test_commands(tmp_path, capsys):
    config = tmp_path / "small.toml"
    config.write_text(
        "[model]\nvocab_size = 61\ncontext_length = 64\nnum_layers = 2\nd_model = 64\nnum_heads = 2\nd_ff = 96\n"
        '[train]\nsteps = 10\nwarmup_steps = 2\nbatch_size = 8\nmicro_batch_size = 4\ndevice = "cuda"\n'
    )
    assert main(["plan", str(config)]) == 0
    assert torch.cuda.get_device_name() in capsys.readouterr().out
    assert main(["profile", str(config), "--steps", "2"]) == 0
    assert "forward" in capsys.readouterr().out
