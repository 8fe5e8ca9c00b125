"""The answer to every question: named components, exact, with their sum, convention and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from accounting.formula import Term, constant
from accounting.units import Count

SYMBOLS = {
    "batch": "sequences in a batch",
    "seq": "positions of a sequence",
    "context": "positions already in the cache, the new one included",
    "vocab": "rows of the vocabulary, padding included",
    "vocab_unpadded": "rows of the vocabulary without padding",
    "max_seq": "longest sequence the model reads: rows of learned positions, or of the table of rotations",
    "n_layers": "layers",
    "window_layers": "layers with a window",
    "full_layers": "layers without a window",
    "softmax_layers": "layers with softmax attention, where others have none",
    "latent_layers": "layers with latent attention, where others have none",
    "delta_layers": "layers with linear attention (Gated DeltaNet)",
    "mamba_layers": "layers with a Mamba state",
    "lightning_layers": "layers with lightning attention",
    "convolution_layers": "layers with a short convolution in place of attention",
    "altup_layers": "layers that mix several residual streams, the first apart",
    "key_heads": "heads of queries and keys in linear attention",
    "value_heads": "heads of values in linear attention",
    "key_dim": "width of a key head in linear attention",
    "kernel": "positions of the convolution of a layer with a state",
    "state_heads": "heads of a Mamba state",
    "state_width": "width of a head of it",
    "state_dim": "width of its keys and queries",
    "groups": "groups of heads that share those",
    "channels": "channels, each with a Mamba state of its own",
    "step_rank": "width of the latent of their steps",
    "index_heads": "heads that choose the positions that attention sees",
    "index_dim": "width of one of them",
    "expert_elements": "elements of the matrices of the experts",
    "other_elements": "elements of the blocks beside the matrices of the experts",
    "rotated_layers": "layers with rotary positions, where others have none",
    "unrotated_layers": "layers without",
    "expert_rotated_layers": "layers with experts and rotary positions",
    "expert_unrotated_layers": "layers with experts and without rotary positions",
    "dense_rotated_layers": "layers without experts and with rotary positions",
    "dense_unrotated_layers": "layers without both",
    "value_layers": "layers with a value embedding",
    "d_model": "width of the residual stream",
    "n_heads": "query heads",
    "n_kv_heads": "key and value heads",
    "head_dim": "width of one head",
    "d_ff": "width of the feed-forward layer, of one expert where there are several",
    "n_experts": "experts in a layer",
    "held_experts": "experts of a layer whose weights a device has",
    "active_experts": "experts that a token passes in a layer",
    "expert_layers": "layers with experts",
    "dense_layers": "layers with one feed-forward layer where the others have experts",
    "dense_d_ff": "width of the feed-forward layer of those",
    "shared_d_ff": "width of the feed-forward layer that every token passes beside its experts",
    "q_rank": "width of the latent of queries",
    "kv_rank": "width of the latent of keys and values",
    "nope_dim": "part of a query and key that is not rotated",
    "rope_dim": "part of a query and key that is rotated",
    "value_dim": "width of a value",
    "window": "positions that a sliding window shows, the query's own included",
    "n_params": "parameters; of Muon those that are left to AdamW",
    "embedding_params": "parameters of the embedding, the learned positions and the head",
    "lora_rank": "rank of the adapters",
    "adapter_params": "parameters of the adapters, which alone are trained",
    "block_adapters": "of them, those of one block",
    "block_params": "parameters of one block, its norms not among them",
    "expert_params": "parameters of the experts on a device",
    "block_experts": "parameters of the experts of one block on a device",
    "block_weights": "elements of the matrices of one block",
    "n_tensors": "tensors that the parameters are",
    "ffn_params": "parameters of one block's feed-forward layer",
    "expert_ffn_params": "parameters of the feed-forward layers of one block with experts",
    "dense_ffn_params": "parameters of the feed-forward layer of one block without",
    "attention_params": "parameters of one block's attention",
    "block_scores": "scores that one head saves of a block of queries",
    "chunk_rows": "rows of logits alive at once in the chunked loss",
    "act_bytes": "bytes of one element that matrix multiplications read and give",
    "operand_bytes": "bytes of one element that a matrix multiplication of a block reads",
    "residual_bytes": "bytes of one element of the residual stream",
    "weight_bytes": "bytes of one weight",
    "gradient_bytes": "bytes of one gradient where gradients are added up",
    "overhead_bytes": "bytes of driver, context and libraries, as given",
    "dp": "devices that hold the same weights: data-parallel replicas and those that share sequences",
    "edp": "of them, those that hold the same experts",
    "cp": "devices that share a sequence (context parallelism)",
    "ep": "devices that share the experts (expert parallelism)",
    "tp": "devices that share a layer (tensor parallelism)",
    "replicated_params": "parameters that every tensor-parallel device holds",
    "in_flight": "other micro-batches in flight",
    "micro_batches": "micro-batches of a step",
    "last_shard": "what is left for the last shard",
    "newest_gradient": "bytes of the newest gradient",
    "matrix_rows": "smaller side of the largest matrix",
    "matrix_columns": "larger side of the largest matrix",
    "largest_tensor": "elements of the largest tensor",
    "quantised_params": "elements of tensors large enough for 8-bit states",
    "scale_blocks": "their blocks of 256",
    "muon_params": "elements of the matrices of the blocks",
    "block_elements": "elements of the weights of the blocks, of experts those that are read",
}


@dataclass(frozen=True)
class Breakdown(Mapping[str, Count]):
    """A sum by parts: `breakdown["head"]`, `breakdown.total`, `for name, value in breakdown.items()`, `int(breakdown)`.

    Every component is a quantity of `unit` and equals a plain int. `convention` says in words what was counted and what
    was not; `formula` gives each component in the names of SYMBOLS, `explain()` the same with the numbers put in.
    """

    title: str
    unit: type[Count]
    terms: tuple[tuple[str, Term], ...]
    convention: str

    @property
    def total(self) -> Count:
        return self.unit(sum(int(term) for _, term in self.terms))

    @property
    def formula(self) -> dict[str, str]:
        return {name: term.text() for name, term in self.terms}

    def explain(self) -> dict[str, str]:
        return {name: term.text(values=True) for name, term in self.terms}

    def share(self, name: str) -> float:
        """The part of the total that a component is, between 0 and 1."""
        return int(self[name]) / int(self.total) if self.total else 0.0

    def __getitem__(self, name: str) -> Count:
        for candidate, term in self.terms:
            if candidate == name:
                return self.unit(int(term))
        raise KeyError(f"{name!r} is not a component of {self.title}; it has {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.terms)

    def __len__(self) -> int:
        return len(self.terms)

    def __int__(self) -> int:
        return int(self.total)


def breakdown(title: str, unit: type[Count], terms: Mapping[str, int], convention: str) -> Breakdown:
    """A Breakdown of these terms, in this order."""
    return Breakdown(title, unit, tuple((name, constant(term)) for name, term in terms.items()), convention)
