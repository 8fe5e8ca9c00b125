"""The checks of chapter 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from grading import (
    Wrong,
    close,
    compare_speed,
    drawing,
    followed,
    mistake,
    normal,
    same_function,
    seconds,
    with_weights,
)
from torch import Tensor

import lm
from lm import reference

torch.set_num_threads(1)  # so that the figures are of the code, and not of what else the machine does


def randomised(module: Any, seed: int = 1) -> Any:
    """One of our modules with weights that hide no mistake: none is 0 or 1."""
    with torch.no_grad():
        for i, weight in enumerate(module.parameters()):
            weight += normal(*weight.shape, seed=seed + i, scale=0.1)
    return module


def module_gives(call: str, yours: Any, ours: Any, *inputs: Tensor, hint: str = "", tolerance: float = 1e-5) -> None:
    """Raise Wrong unless a student's module computes the same as ours, with the weights of ours, and its gradients."""
    with_weights(yours, ours.state_dict())
    before = [t.clone() for t in inputs]
    same_function(call, yours, ours, inputs, hint, tolerance)
    with torch.no_grad():
        yours(*inputs)
    if not all(map(torch.equal, inputs, before)):
        raise Wrong(f"{call} changes its argument in place, which whoever calls it still needs: make a new value.")


def softmax(yours: Callable[..., Any]) -> None:
    for shape, dim in (((5,), 0), ((3, 4), -1), ((3, 4), 0), ((2, 3, 4), 1), ((2, 3, 4), -3)):
        x, call = normal(*shape), f"softmax(x {shape}, dim={dim})"
        both = (followed(function, dim) for function in (yours, reference.softmax))
        same_function(call, *both, [x], "Sum over dim alone.")
    large = torch.tensor([1000.0, 1001.0, 999.0])
    hint = "exp(1000) is infinite: take the largest off first, which changes nothing else."
    close("softmax([1000, 1001, 999], dim=0)", yours(large, 0), reference.softmax(large, 0), hint, 2e-4)
    rows = torch.tensor([[1000.0, 1001.0], [0.0, 1.0], [-1000.0, -1001.0]])
    hint = "Take off the largest of each row: with one for all rows, the small row becomes 0 / 0."
    close(f"softmax({rows.tolist()}, dim=1)", yours(rows, 1), reference.softmax(rows, 1), hint, 2e-4)
    wide = normal(3, 4).double()
    close("softmax(x in float64, dim=1)", yours(wide, 1), reference.softmax(wide, 1), "The dtype of x stays.", 1e-12)
    hidden = torch.tensor([0.0, -torch.inf, 1.0])
    close("softmax([0, -inf, 1], dim=0)", yours(hidden, 0), reference.softmax(hidden, 0), "exp(-inf) is 0.")


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


def not_alike(call: str, first: Tensor, second: Tensor) -> None:
    """Raise Wrong if two weights of one shape begin equal."""
    if torch.equal(first, second):
        raise Wrong(f"{call} begin equal, and so would learn the same: draw each anew, and set no seed of your own.")


def linear(yours: Callable[..., Any]) -> None:
    numbers = drawing("Linear")
    for shape in ((2, 6), (), (2, 1, 3)):
        inputs, outputs = numbers.sample(range(2, 9), 2)
        ours = reference.Linear(inputs, outputs)
        call = f"Linear({inputs}, {outputs})(x {(*shape, inputs)})"
        module_gives(call, yours(inputs, outputs), ours, normal(*shape, inputs), hint="The weight is used transposed.")
    torch.manual_seed(numbers.randrange(10**6))
    first, second = yours(300, 500).weight, yours(300, 500).weight
    initial("weight of Linear(300, 500)", first, (2 / 800) ** 0.5)
    not_alike("Two Linear(300, 500)", first, second)


def rms_norm(yours: Callable[..., Any]) -> Callable[[], str]:
    for width, eps, scale in ((8, 1e-5, 1.0), (8, 1e-5, 1e-3), (6, 0.1, 0.5), (5, 1e-5, 100.0)):
        hint = "eps is added to the mean of the squares, inside of the root; the weight is multiplied at the end."
        ours = randomised(reference.RMSNorm(width, eps))
        x = normal(2, 3, width, scale=scale)
        module_gives(f"RMSNorm({width}, eps={eps})(x of about {scale:g})", yours(width, eps), ours, x, hint=hint)
    ours, x = randomised(reference.RMSNorm(8)), normal(8, scale=1e-3)
    module_gives("RMSNorm(8)(x of about 0.001)", yours(8), ours, x, hint="eps is 1e-5 unless something else is passed.")
    close("The initial weight of RMSNorm(8)", yours(8).weight, torch.ones(8))
    for dtype, width, scale in ((torch.float16, 8, 300.0), (torch.bfloat16, 512, 1.0)):
        x = normal(16, width, scale=scale).to(dtype)
        with torch.no_grad():
            half = with_weights(yours(width), {"weight": torch.ones(width)})(x)
        call, right = f"RMSNorm({width})(x in {dtype})", reference.RMSNorm(width)(x).detach()
        hint = "The square of 300 does not fit float16: compute in float32, and give back the dtype of x."
        close(call, half, right, hint, 1e-3 if dtype == torch.float16 else 1e-2)
        if (half == right).float().mean() < 0.9:
            raise Wrong(f"{call} is rounded on the way: compute in float32, and go back to the dtype of x at the end.")
    x, student, weight = normal(2048, 512), yours(512), torch.ones(512)

    def speed() -> str:
        with torch.no_grad():
            slow = seconds(lambda: student(x), 5)
            fast = seconds(lambda: torch.nn.functional.rms_norm(x, (512,), weight, 1e-5), 5)
        return compare_speed("2,048 rows of 512, beside the operator that lm uses", slow, fast)

    return speed


def swiglu(yours: Callable[..., Any]) -> None:
    hint = "The gate silu(w1 x) and w3 x are multiplied number by number before w2."
    ours = reference.SwiGLU(8, 12)
    module_gives("SwiGLU(8, 12)(x)", yours(8, 12), ours, normal(2, 5, 8), hint=hint)
    student, x = with_weights(yours(8, 12), ours.state_dict()), normal(64, 8, scale=1000)
    with torch.no_grad():
        hint = "Where x is in the hundreds exp(x) does not fit: use torch.sigmoid."
        close("SwiGLU(8, 12)(x of about 1000)", student(x), ours(x), hint)
    initial_weights("SwiGLU(240, 320)", yours(240, 320))


def rotary(yours: Callable[..., Any]) -> None:
    numbers = drawing("RoPE")
    for theta, width, longest in ((10000.0, 8, 32), (100.0, 4, 40)):
        ours, student = reference.RoPE(theta, width, longest), with_weights(yours(theta, width, longest), {})
        x = normal(2, 3, 6, width)
        rows = torch.tensor([[numbers.sample(range(longest), 6) for _ in range(3)] for _ in range(2)])
        for what, positions in (
            ("0 … 5", torch.arange(6)),
            ("7 … 12", torch.arange(7, 13)),
            (f"{longest - 6} … {longest - 1}", torch.arange(longest - 6, longest)),
            ("others in each row", rows),
        ):
            call = f"RotaryPositionalEmbedding({theta}, {width}, {longest})(x, positions {what})"
            hint = "Pairs are neighbours, (0, 1), (2, 3), …; the first turns by a whole radian from token to token."
            same_function(call, student, ours, [x, positions], hint)


def dot_product_attention(yours: Callable[..., Any]) -> Callable[[], str]:
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    drawn = normal(2, 4, 4, 7, seed=9) > 0
    drawn[..., 0] |= ~drawn.any(-1)  # each query sees a key
    functions = (yours, reference.attention)
    for queries, keys, mask, what in (
        (2, 3, None, "None"),
        (5, 5, None, "None"),
        (5, 5, causal, "causal"),
        (2, 3, torch.tensor([[True, False, True], [False, True, False]]), "of another kind"),
        (4, 7, drawn, "another one for each head"),
    ):
        q, k, v = normal(2, 4, queries, 8), normal(2, 4, keys, 8, seed=1), normal(2, 4, keys, 6, seed=2)
        call = f"scaled_dot_product_attention of {queries} queries and {keys} keys, mask {what},"
        hint = "Divide by √d_k; what is hidden gets -inf before softmax, which runs over the keys."
        same_function(call, *(followed(function, mask) for function in functions), [q, k, v], hint)
        one = None if mask is None else mask[0, 0] if mask.dim() == 4 else mask
        parts = [q[0, 0], k[0, 0], v[0, 0]]
        same_function(f"{call} without a batch", *(followed(function, one) for function in functions), parts)
        hint = "A hidden score has to lose against any other: -inf, not some number."
        far = yours(60 * q, k, v, mask)
        close(call + " scores of about 100", far, reference.attention(60 * q, k, v, mask), hint, 1e-4)
    q, k, v = (normal(1, 8, 512, 64, seed=seed) for seed in range(3))
    mask = torch.ones(512, 512, dtype=torch.bool).tril()

    def speed() -> str:
        with torch.no_grad():
            lm.attention.attention(q, k, v, causal=True)  # its first call may compile
            slow = seconds(lambda: yours(q, k, v, mask), 3)
            fast = seconds(lambda: lm.attention.attention(q, k, v, causal=True), 3)
        return compare_speed("8 heads, 512 positions", slow, fast)

    return speed


def self_attention(yours: Callable[..., Any]) -> None:
    for width, heads, theta in ((16, 4, 10000.0), (12, 2, 50.0)):
        call = f"MultiHeadSelfAttention({width}, {heads}, 32, {theta})"
        student, ours = yours(width, heads, 32, theta), reference.MultiHeadAttention(width, heads, 32, theta)
        x = normal(2, 32, width, scale=2)
        with_weights(student, ours.state_dict())
        with torch.no_grad():
            before = student(x)
            if isinstance(before, Tensor) and before.shape == x.shape:
                later = x.clone()
                later[:, 4:] += 1
                if not torch.allclose(before[:, :4], student(later)[:, :4], atol=1e-6):
                    raise Wrong(
                        "MultiHeadSelfAttention sees the future: changing positions from 4 on changes what 0 to 3 give."
                    )
        for length in (6, 1, 32):
            hint = "Queries and keys are turned, values are not; each head has d_k neighbouring features."
            module_gives(f"{call}(x of {length} positions)", student, ours, x[:, :length], hint=hint)
        hint = "x is (…, seq, d_model): there may be no batch, so count dimensions from the end."
        module_gives(f"{call}(x without a batch)", student, ours, x[0, :6], hint=hint)
    initial_weights("MultiHeadSelfAttention(256, 4, 8, 100.0)", yours(256, 4, 8, 100.0))


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


def initial_weights(call: str, student: Any) -> None:
    """Raise Wrong unless every weight of a module begins as chapter 4 says."""
    matrices: dict[tuple[int, ...], Tensor] = {}
    for name, weight in student.named_parameters():
        if weight.dim() == 1:
            close(f"The initial {name} of {call}", weight, torch.ones(len(weight)), "Weights of norms begin at 1.")
            continue
        initial(f"{name} of {call}", weight, 1.0 if "embed" in name else (2 / sum(weight.shape)) ** 0.5)
        other = matrices.setdefault(tuple(weight.shape), weight)
        if other is not weight:
            not_alike(f"{name} of {call} and another weight", weight, other)


def transformer_lm(yours: Callable[..., Any]) -> Callable[[], str]:
    sizes = {"vocab_size": 50, "context_length": 16, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 24}
    for theta in (10000.0, 20.0):
        ours = randomised(reference.TransformerLM(**sizes, rope_theta=theta))
        ids = torch.tensor([drawing("TransformerLM").choices(range(50), k=16) for _ in range(2)])
        hint = "The norms stand before attention and before the feed-forward; both results are added to what came in."
        model = with_weights(yours(**sizes, rope_theta=theta), ours.state_dict())
        with torch.no_grad():
            logits, right = model(ids), ours(ids)
            mistakes = {
                "There is a softmax behind the head; logits are what comes out.": right.softmax(-1),
                "There is a log softmax behind the head; logits are what comes out.": right.log_softmax(-1),
                "The last norm, ln_final, is missing.": ours.lm_head(hidden(ours, ids)),
                "In a block the norm stands behind the sum, and should stand in front of each part.": post_norm(
                    ours, ids
                ),
            }
            hint = mistake(logits, mistakes.items(), hint)
            close("TransformerLM(…)(ids)", logits, right, hint)
        same_function("TransformerLM(…)(ids)", model, ours, [ids], hint)
    sizes |= {"vocab_size": 1000, "context_length": 128, "d_model": 128, "num_layers": 2, "num_heads": 4, "d_ff": 352}
    student = yours(**sizes, rope_theta=10000.0)
    initial_weights("TransformerLM", student)
    return lambda: model_speed(student, sizes)


def model_speed(student: Any, sizes: dict[str, int]) -> str:
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


CHAPTERS: dict[int, dict[str, Callable[..., Callable[[], str] | None]]] = {
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
