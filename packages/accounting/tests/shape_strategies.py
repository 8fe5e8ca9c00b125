"""Random shapes for hypothesis, and layouts of devices that they can be laid out on."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from accounting import Policy, TransformerShape
from accounting.cluster.layout import Layout
from accounting.layer import Attention, Layer

POLICIES = st.builds(
    Policy,
    **{
        "precision": st.sampled_from(["fp32", "bf16", "autocast"]),
        "attention_kernel": st.sampled_from(["fused", "eager"]),
        "activation_checkpointing": st.sampled_from(["none", "selective", "full"]),
        "loss": st.sampled_from(["plain", "chunked"]),
        "loss_kernel": st.sampled_from(["operators", "fused"]),
        "optimizer_step": st.sampled_from(["fused", "foreach", "loop"]),
        "gradient_accumulation": st.booleans(),
        "allocator": st.sampled_from(["exact", "cuda"]),
        "optimizer": st.sampled_from(["adamw", "adamw8bit", "sgd", "muon"]),
    },
)


def windows(draw: st.DrawFn, window: int | None) -> dict[str, Any]:
    """A window in every layer, or in some of a pattern."""
    if window is None or draw(st.booleans()):
        return {"sliding_window": window}
    here = Layer(Attention(window, chunked=draw(st.booleans())))
    return {"layers": tuple(draw(st.lists(st.sampled_from([here, Layer()]), min_size=1, max_size=4)))}


@st.composite
def shapes(draw: st.DrawFn, *, experts: bool = True) -> TransformerShape:
    kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    layers = draw(st.integers(1, 5))
    window = draw(st.none() | st.integers(1, 40))
    several = draw(st.none() | st.integers(1, 6)) if experts else None
    return TransformerShape(
        draw(st.integers(1, 300)),
        draw(st.integers(1, 64)),
        layers,
        draw(st.integers(1, 48)),
        kv_heads * group,
        draw(st.integers(1, 96)),
        num_kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 8)),
        ffn=draw(st.sampled_from(["swiglu", "geglu", "gelu", "silu", "relu2"])),
        norm=draw(st.sampled_from(["rmsnorm", "layernorm", "none"])),
        position=draw(st.sampled_from(["rope", "learned", "none"])),
        tied_embeddings=draw(st.booleans()),
        bias=draw(st.booleans()),
        **windows(draw, window),
        qk_norm=draw(st.booleans()),
        post_norm=draw(st.booleans()),
        experts=several,
        experts_per_token=None if several is None else draw(st.integers(1, several)),
        vocab_multiple=draw(st.sampled_from([1, 8, 64])),
    )


@st.composite
def laid_out(draw: st.DrawFn, **given: Any) -> tuple[TransformerShape, Layout]:
    shape = replace(
        draw(shapes()), vocab_multiple=1, vocab_size=draw(st.integers(16, 300)), d_ff=draw(st.integers(16, 96))
    )
    layout = Layout(
        data=draw(st.integers(1, 5)),
        tensor=draw(st.integers(1, shape.num_heads)),
        pipeline=draw(st.integers(1, shape.num_layers)),
        zero=draw(st.integers(0, 3)),
        sequence_parallel=draw(st.booleans()),
        micro_batches=draw(st.integers(1, 6)),
    )
    return shape, replace(layout, **given)
