"""Random shapes for hypothesis."""

from hypothesis import strategies as st

from accounting import TransformerShape


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
        window=window,
        window_layers=None if window is None else draw(st.none() | st.integers(1, layers)),
        qk_norm=draw(st.booleans()),
        post_norm=draw(st.booleans()),
        experts=several,
        experts_per_token=None if several is None else draw(st.integers(1, several)),
        vocab_multiple=draw(st.sampled_from([1, 8, 64])),
    )
