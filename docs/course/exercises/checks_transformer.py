"""The checks of chapter 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from grading import Wrong, close, compare_speed, mistake, seconds, with_weights
from torch import Tensor

import lm
from lm import reference

torch.set_num_threads(1)  # so that the figures are of the code, and not of what else the machine does


def some(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal numbers, the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def randomised(module: Any, seed: int = 1) -> Any:
    """One of our modules with weights that hide no mistake: none is 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight += torch.randn(weight.shape, generator=generator) * 0.1
    return module


def module_gives(call: str, yours: Any, ours: Any, *inputs: Tensor, hint: str = "") -> None:
    """Raise Wrong unless a student's module computes the same as ours, with the weights of ours."""
    with_weights(yours, ours.state_dict())
    with torch.no_grad():
        close(call, yours(*inputs), ours(*inputs), hint)


def softmax(yours: Callable[..., Any]) -> None:
    for shape, dim in (((5,), 0), ((3, 4), -1), ((3, 4), 0), ((2, 3, 4), 1)):
        x = some(*shape)
        close(f"softmax(x {shape}, dim={dim})", yours(x, dim), reference.softmax(x, dim), "Sum over dim alone.")
    large = torch.tensor([1000.0, 1001.0, 999.0])
    hint = "exp(1000) is infinite: take the largest off first, which changes nothing else."
    close("softmax([1000, 1001, 999], dim=0)", yours(large, 0), reference.softmax(large, 0), hint)
    rows = torch.tensor([[1000.0, 1001.0], [0.0, 1.0]])
    hint = "Take off the largest of each row: with one for all rows, the small row becomes 0 / 0."
    close("softmax([[1000, 1001], [0, 1]], dim=1)", yours(rows, 1), reference.softmax(rows, 1), hint)


def initial(name: str, weight: Tensor, deviation: float) -> None:
    """Raise Wrong unless a weight is drawn from N(0, deviation²), cut at three deviations."""
    weight = weight.detach()
    spread, middle, farthest = (float(x) / deviation for x in (weight.std(), weight.mean(), weight.abs().max()))
    rule = f"It should be drawn from N(0, {deviation:.4g}²), cut at three deviations (torch.nn.init.trunc_normal_)."
    if not 0.95 < spread < 1.03:
        raise Wrong(f"The initial {name} has the standard deviation {spread * deviation:.4g}. {rule}")
    if abs(middle) > 6 / weight.numel() ** 0.5:
        raise Wrong(f"The initial {name} has the mean {middle * deviation:.4g}. {rule}")
    if farthest > 3.0001 or min(float(weight.max()), -float(weight.min())) < 2.7 * deviation:
        raise Wrong(f"The initial {name} reaches {farthest:.2f} deviations from 0. {rule}")


def linear(yours: Callable[..., Any]) -> None:
    for inputs, outputs in ((4, 3), (3, 5)):
        ours = reference.Linear(inputs, outputs)
        call = f"Linear({inputs}, {outputs})(x)"
        module_gives(call, yours(inputs, outputs), ours, some(2, 6, inputs), hint="The weight is used transposed.")
    torch.manual_seed(0)
    initial("weight of Linear(300, 500)", yours(300, 500).weight, (2 / 800) ** 0.5)


def rms_norm(yours: Callable[..., Any]) -> str:
    for width, eps, scale in ((8, 1e-5, 1.0), (8, 1e-5, 1e-3), (6, 0.1, 0.5)):
        hint = "eps is added to the mean of the squares, inside of the root; the weight is multiplied at the end."
        ours = randomised(reference.RMSNorm(width, eps))
        x = some(2, 3, width, scale=scale)
        module_gives(f"RMSNorm({width}, eps={eps})(x)", yours(width, eps), ours, x, hint=hint)
    ours, x = randomised(reference.RMSNorm(8)), some(2, 8, scale=1e-3)
    module_gives("RMSNorm(8)(x of about 0.001)", yours(8), ours, x, hint="eps is 1e-5 unless something else is passed.")
    close("The initial weight of RMSNorm(8)", yours(8).weight, torch.ones(8))
    with torch.no_grad():
        half = with_weights(yours(8), {"weight": torch.ones(8)})(some(4, 8, scale=300).half())
    hint = "The square of 300 does not fit float16: compute in float32, and give back the dtype of x."
    close("RMSNorm(8)(x in float16)", half, reference.RMSNorm(8)(some(4, 8, scale=300).half()), hint, 1e-3)
    x, student, weight = some(2048, 512), yours(512), torch.ones(512)
    with torch.no_grad():
        slow = seconds(lambda: student(x), 5)
        fast = seconds(lambda: torch.nn.functional.rms_norm(x, (512,), weight, 1e-5), 5)
    return compare_speed("2,048 rows of 512, beside the operator that lm uses", slow, fast)


def swiglu(yours: Callable[..., Any]) -> None:
    hint = "The gate silu(w1 x) and w3 x are multiplied number by number before w2."
    module_gives("SwiGLU(8, 12)(x)", yours(8, 12), reference.SwiGLU(8, 12), some(2, 5, 8), hint=hint)


def rotary(yours: Callable[..., Any]) -> None:
    for theta, width in ((10000.0, 8), (100.0, 4)):
        ours, student = reference.RoPE(theta, width, 32), with_weights(yours(theta, width, 32), {})
        x = some(2, 3, 6, width)
        for what, positions in (
            ("0 … 5", torch.arange(6)),
            ("7 … 12", torch.arange(7, 13)),
            ("[[3, 1, …], …]", torch.tensor([[3, 1, 4, 1, 5, 9]] * 2)[:, None]),
        ):
            call = f"RotaryPositionalEmbedding({theta}, {width}, 32)(x, positions {what})"
            hint = "Pairs are neighbours, (0, 1), (2, 3), …; the first turns by a whole radian from token to token."
            close(call, student(x, positions), ours(x, positions), hint)


def dot_product_attention(yours: Callable[..., Any]) -> str:
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    some_seen = torch.tensor([[True, False, True], [False, True, False]])
    for queries, keys, mask in ((2, 3, None), (5, 5, causal), (2, 3, some_seen)):
        q, k, v = some(2, 4, queries, 8), some(2, 4, keys, 8, seed=1), some(2, 4, keys, 6, seed=2)
        what = "None" if mask is None else "causal" if mask is causal else "of another kind"
        call = f"scaled_dot_product_attention of {queries} queries and {keys} keys, mask {what},"
        hint = "Divide by √d_k; what is hidden gets -inf before softmax, which runs over the keys."
        close(call, yours(q, k, v, mask), reference.attention(q, k, v, mask), hint)
        close(
            call + " without a batch", yours(q[0, 0], k[0, 0], v[0, 0], mask), reference.attention(q, k, v, mask)[0, 0]
        )
    q, k, v = (some(1, 8, 512, 64, seed=seed) for seed in range(3))
    mask = torch.ones(512, 512, dtype=torch.bool).tril()
    with torch.no_grad():
        slow = seconds(lambda: yours(q, k, v, mask), 3)
        fast = seconds(lambda: lm.attention.attention(q, k, v, causal=True), 3)
    return compare_speed("8 heads, 512 positions", slow, fast)


def self_attention(yours: Callable[..., Any]) -> None:
    student, ours = yours(16, 4, 32, 10000.0), reference.MultiHeadAttention(16, 4, 32, 10000.0)
    x = some(2, 6, 16)
    with_weights(student, ours.state_dict())
    with torch.no_grad():
        before = student(x)
        if isinstance(before, Tensor) and before.shape == x.shape:
            later = x.clone()
            later[:, 4:] += 1
            if not torch.allclose(before[:, :4], student(later)[:, :4], atol=1e-6):
                raise Wrong(
                    "MultiHeadSelfAttention sees the future: changing positions 4 and 5 changes what 0 to 3 give."
                )
        close(
            "MultiHeadSelfAttention(16, 4, 32, 10000.0)(x)",
            before,
            ours(x),
            "Queries and keys are turned, values are not; each head has d_k neighbouring features.",
        )
        hint = "x is (…, seq, d_model): there may be no batch, so count dimensions from the end."
        close("MultiHeadSelfAttention(16, 4, 32, 10000.0)(x without a batch)", student(x[0]), ours(x[0]), hint)


def hidden(model: Any, ids: Tensor) -> Tensor:
    """Output of the last block."""
    x = model.token_embeddings(ids)
    for layer in model.layers:
        x = layer(x)
    return x  # type: ignore[no-any-return]


def post_norm(model: Any, ids: Tensor) -> Tensor:
    """Logits of a model whose norms stand behind the sums."""
    x = model.token_embeddings(ids)
    for layer in model.layers:
        x = layer.ln1(x + layer.attn(x))
        x = layer.ln2(x + layer.ffn(x))
    return model.lm_head(model.ln_final(x))  # type: ignore[no-any-return]


def transformer_lm(yours: Callable[..., Any]) -> str:
    sizes = {"vocab_size": 50, "context_length": 16, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 24}
    ours = randomised(reference.TransformerLM(**sizes, rope_theta=10000.0))
    ids = torch.arange(24).reshape(2, 12) * 7 % 50
    hint = "The norms stand before attention and before the feed-forward; both results are added to what came in."
    model = with_weights(yours(**sizes, rope_theta=10000.0), ours.state_dict())
    with torch.no_grad():
        logits, right = model(ids), ours(ids)
        mistakes = {
            "There is a softmax behind the head; logits are what comes out.": right.softmax(-1),
            "There is a log softmax behind the head; logits are what comes out.": right.log_softmax(-1),
            "The last norm, ln_final, is missing.": ours.lm_head(hidden(ours, ids)),
            "In a block the norm stands behind the sum, and should stand in front of each part.": post_norm(ours, ids),
        }
        close("TransformerLM(…)(ids)", logits, right, mistake(logits, mistakes.items(), hint))
    sizes |= {"vocab_size": 1000, "context_length": 128, "d_model": 128, "num_layers": 2, "num_heads": 4, "d_ff": 352}
    student = yours(**sizes, rope_theta=10000.0)
    initial("token_embeddings of TransformerLM", student.token_embeddings.weight, 1.0)
    initial("lm_head of TransformerLM", student.lm_head.weight, (2 / 1128) ** 0.5)
    with torch.no_grad():
        for weight in student.parameters():  # whatever they were before, they are not to overflow
            weight.normal_(0, 0.02)
    fused = lm.fuse(lm.Transformer(lm.ModelConfig(**sizes)))
    ids = torch.randint(1000, (4, 128))

    def step(model: Any) -> None:
        logits = model(ids)
        reference.cross_entropy(logits, ids).backward()

    step(fused)
    slow, fast = seconds(lambda: step(student), 3), seconds(lambda: step(fused), 3)
    return compare_speed("forward and backward of 512 tokens", slow, fast)


CHAPTERS: dict[int, dict[str, Callable[..., str | None]]] = {
    4: {
        "softmax": softmax,
        "Linear": linear,
        "RMSNorm": rms_norm,
        "SwiGLU": swiglu,
        "RotaryPositionalEmbedding": rotary,
        "scaled_dot_product_attention": dot_product_attention,
        "MultiHeadSelfAttention": self_attention,
        "TransformerLM": transformer_lm,
    }
}
