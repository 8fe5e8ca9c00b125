"""llama.cpp's names: of the tensors in a GGUF file, and of split patterns."""

from __future__ import annotations

from lm.config import ModelConfig
from lm.interop.tensors import Part, Table

# llama.cpp's names of the split patterns of bpe. Without one, a pattern would give other ids.
PRE_TOKENIZERS = {
    "gpt2": "gpt-2",
    "llama3": "llama-bpe",
    "qwen2": "qwen2",
    "o200k": "gpt-4o",
    "deepseek-v3": "deepseek-v3",
}


def table(config: ModelConfig, architecture: str) -> Table:
    """The tensors of llama.cpp that make up each of ours."""
    width, d, ff = config.head_width, config.d_model, config.d_ff
    q, kv, half = config.num_heads * width, config.kv_heads * width, architecture == "qwen3"
    kinds = ("weight", "bias") if config.bias else ("weight",)
    parts: Table = {"embedding.weight": (Part("token_embd.weight", config.vocab_size),)}
    if architecture == "gpt2":
        parts["positions.weight"] = (Part("position_embd.weight", config.context_length),)
    normed = kinds if architecture == "gpt2" else ("weight",)
    for i in range(config.num_layers):
        blk, block = f"blk.{i}.", f"blocks.{i}."
        for kind in normed:
            parts[f"{block}attention_norm.{kind}"] = (Part(f"{blk}attn_norm.{kind}", d),)
            parts[f"{block}ffn_norm.{kind}"] = (Part(f"{blk}ffn_norm.{kind}", d),)
        for kind in kinds:
            if architecture == "gpt2":
                parts[f"{block}attention.qkv.{kind}"] = (Part(f"{blk}attn_qkv.{kind}", q + 2 * kv),)
                parts[f"{block}ffn.up.{kind}"] = (Part(f"{blk}ffn_up.{kind}", ff),)
            else:
                parts[f"{block}attention.qkv.{kind}"] = (
                    Part(f"{blk}attn_q.{kind}", q, half_split=half),
                    Part(f"{blk}attn_k.{kind}", kv, half_split=half),
                    Part(f"{blk}attn_v.{kind}", kv),
                )
                parts[f"{block}ffn.gate_up.{kind}"] = (
                    Part(f"{blk}ffn_gate.{kind}", ff),
                    Part(f"{blk}ffn_up.{kind}", ff),
                )
            parts[f"{block}attention.output.{kind}"] = (Part(f"{blk}attn_output.{kind}", d),)
            parts[f"{block}ffn.down.{kind}"] = (Part(f"{blk}ffn_down.{kind}", d),)
        if config.qk_norm:
            parts[f"{block}attention.q_norm.weight"] = (Part(f"{blk}attn_q_norm.weight", width, half_split=half),)
            parts[f"{block}attention.k_norm.weight"] = (Part(f"{blk}attn_k_norm.weight", width, half_split=half),)
    for kind in normed:
        parts[f"final_norm.{kind}"] = (Part(f"output_norm.{kind}", d),)
    if not config.tied_embeddings:
        parts["head.weight"] = (Part("output.weight", config.vocab_size),)
    return parts
