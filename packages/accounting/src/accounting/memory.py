"""Bytes of a training step on one device, phase by phase: forward, loss, backward, step; the highest phase is the peak.

Going backward, a block gives up what it kept and leaves the gradients of its weights: a straight line down the blocks,
so that the highest point is at the last or at the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from accounting.activations import (
    CHUNK_BYTES,
    Policy,
    block_tensors,
    copies_of_heads,
    head_tensors,
    kept_of_block,
    scores_in_blocks,
    shared_tensors,
    tokens,
    total,
)
from accounting.allocator import ALLOCATORS, BLOCK, waste
from accounting.breakdown import Breakdown, breakdown
from accounting.formula import Symbol, Term, added
from accounting.optimizers import optimizer_state, state_tensors, step_temporaries
from accounting.parameters import parameters, symbols, tensors
from accounting.shape import TransformerShape, choose, positive
from accounting.units import Bytes, Count, human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from accounting.activations import Pieces

    Gradients = tuple[Term, Pieces]  # bytes of weight gradients, and of which whole tensors they are known to be
    Phase = tuple[str, Gradients, dict[str, Pieces]]  # its title, and all that comes and goes


@dataclass(frozen=True)
class TrainingMemory(Mapping[str, Count]):
    """The phases of a step, each a Breakdown of what is alive at its highest; the components are those of the peak."""

    phases: tuple[Breakdown, ...]
    optimizer: str
    convention: str

    @property
    def peak(self) -> Breakdown:
        """The phase that needs most; of equals, the first."""
        return max(self.phases, key=lambda phase: int(phase.total))

    @property
    def total(self) -> Count:
        return self.peak.total

    @property
    def formula(self) -> dict[str, str]:
        return self.peak.formula

    def explain(self) -> dict[str, str]:
        return self.peak.explain()

    def __getitem__(self, name: str) -> Count:
        return self.peak[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.peak)

    def __len__(self) -> int:
        return len(self.peak)

    def __int__(self) -> int:
        return int(self.total)


def training_memory(
    shape: TransformerShape,
    batch_size: int,
    seq_len: int | None = None,
    *,
    precision: str = "fp32",
    optimizer: str = "adamw",
    step: str = "fused",
    attention: str = "fused",
    norm_kernel: str = "fused",
    checkpointing: str = "none",
    loss: str = "plain",
    chunk_bytes: int = CHUNK_BYTES,
    accumulate: bool = False,
    allocator: str = "exact",
) -> TrainingMemory:
    """Bytes alive in every phase of a step on batch_size sequences, gradients freed after the step before.

    precision: "fp32"; "bf16" for weights, gradients and activations, with fp32 master weights in the optimizer; "autocast"
    for fp32 weights and gradients with products in bf16. attention, norm_kernel, checkpointing and loss as saved_activations
    has them, optimizer and step ("fused", "foreach", "loop") as step_temporaries has them. chunk_bytes: of fp32 logits that
    the chunked loss takes at a time; as lm on CUDA, if not given. accumulate: the gradients of
    earlier micro-batches are there from the start. allocator: "cuda" adds what rounding every tensor up to a block takes
    (see allocator), with the step counter that fused AdamW keeps on the device for each parameter.
    """
    choose("allocator", allocator, ALLOCATORS)
    B, T = Symbol("B", positive("batch_size", batch_size)), Symbol("T", shape.sequence(seq_len))
    policy = Policy(precision, attention, norm_kernel, checkpointing, loss, chunk_bytes)
    run = Step(shape, B, T, policy, accumulate)
    states = optimizer_state(shape, optimizer=optimizer, master=policy.bytes.master)
    chunks = f", {human(Bytes(chunk_bytes))} of logits at a time" if loss == "chunked" else ""
    convention = f"{optimizer}, {step} step; {policy.words}{chunks}; " + (
        "every tensor in a block of its own, what remains of shared segments not in it; "
        if allocator == "cuda"
        else "no allocator's rounding, "
    )
    convention += "no driver, no libraries"
    always = {"parameters": run.N * run.p, "optimizer state": added(term for _, term in states.terms)}
    temporaries = step_temporaries(shape, optimizer=optimizer, step=step)
    listed: list[Phase] = [
        *run.losses(),
        *run.blocks(),
        run.embedding_backward(tied=shape.tied_embeddings),
        ("optimizer step", (run.N * run.p, run.weights), {"temporaries": temporaries}),
    ]
    held = [*run.weights, *state_tensors(shape, optimizer=optimizer, master=policy.bytes.master)]
    counters = Symbol("Y", sum(count for count, _ in tensors(shape))) if optimizer.startswith("adamw") else Term(0)
    phases = []
    for title, (gradients, whole), pieces in listed:
        parts = {**always, "gradients": gradients, **{name: total(found) for name, found in pieces.items()}}
        if allocator == "cuda":
            rounded = [*held, *whole, *(piece for found in pieces.values() for piece in found)]
            parts["allocator rounding"] = BLOCK * counters + waste(rounded)
        phases.append(breakdown(title, Bytes, parts, convention))
    return TrainingMemory(tuple(phases), optimizer, convention)


class Step:
    """The phases of one step before the optimizer's, as tensors; the letters are those of breakdown.SYMBOLS."""

    def __init__(self, shape: TransformerShape, B: Term, T: Term, policy: Policy, accumulate: bool) -> None:
        self.shape, self.policy, self.accumulate = shape, policy, accumulate
        s, count, bytes_of = symbols(shape), parameters(shape), policy.bytes
        self.p, self.r, self.a = (
            Symbol("p", bytes_of.weights),
            Symbol("r", bytes_of.residual),
            Symbol("a", bytes_of.activations),
        )
        self.V, self.L, self.d, self.f, self.he = s["V"], s["L"], s["d"], s["f"], s["h"] * s["e"]
        self.N, self.BT = Symbol("N", int(count.total)), B * T
        self.F = Symbol("F", (int(count["ffn"]) + int(count["router"])) // shape.num_layers)
        self.P = self.F + Symbol("Q", int(count["attention"]) // shape.num_layers)
        self.weights = [(count, size * self.p) for count, size in tensors(shape)]
        self.inside = block_tensors(shape, B, T, policy)
        self.again = copies_of_heads(shape, B, T, policy)
        self.between = kept_of_block(shape, B, T, policy)
        self.head = head_tensors(shape, B, T, policy)
        self.shared = shared_tensors(shape, B, T, policy)
        self.explicit, self.cast = policy.attention != "fused", policy.precision == "autocast"
        # what attention's backward holds at once: the gradients of weights and scores, or of queries, keys, values and output;
        # in blocks the scores' gradient of the one that sees the most, and twice the gradients of keys and values
        if policy.attention == "eager":
            self.scores: Pieces = [(2, B * s["h"] * T * T * self.a)]
        elif policy.attention == "blocks":
            most = Symbol("J", max(scores_in_blocks(int(T), shape.window)))
            kv = self.BT * s["k"] * s["e"] * self.a
            self.scores = [(1, B * s["h"] * most * self.a), (1, self.BT * self.he * self.a), (4, kv)]
        else:
            self.scores = [(3, self.BT * self.he * self.a), (1, self.BT * self.d * self.a)]
        if self.explicit:
            self.shared["mask"] = [(1, T * T * self.a)]

    def gradients(self, finished: Term, newest: Term, blocks: int = 0) -> Gradients:
        """Weight gradients: accumulated ones are all there, and a new one is a tensor of its own until it is added.

        Under autocast the new one is that of the bf16 copy, and then a second one in fp32. blocks: how many are through.
        """
        new: Pieces = [(1, newest * self.p), (1, newest * self.a)] if self.cast else [(1, newest * self.p)]
        whole = [(count // int(self.L) * blocks, size) for count, size in self.weights if count >= int(self.L)]
        if self.accumulate:
            whole, finished = self.weights, self.N
        return finished * self.p + total(new), whole

    def losses(self) -> list[Phase]:
        """Forward, loss, and their backward down to the final norm."""
        none, hidden, matrix = Term(0), self.BT * self.d * self.r, self.V * self.d
        kept = self.kept(self.L)
        before = {**kept, **{f"kept: {name}": found for name, found in self.head.items() if name != "loss"}}
        after = {**before, "kept: loss": self.head["loss"]}
        # autocast keeps the copies that it made until the loss is there, whatever is recomputed later
        copies: dict[str, Pieces] = {}
        if self.cast and self.policy.checkpointing == "full":
            copies["weights in bf16"] = [(self.L * count, size) for count, size in self.inside["weights in bf16"]]
        if self.cast and self.policy.loss == "chunked":
            copies["head in bf16"] = [(1, 2 * matrix)]
        if self.policy.loss == "chunked":
            chunk = min(int(self.BT), max(1, self.policy.chunk_bytes // (4 * self.shape.vocab_rows)))
            # a chunk's softmax stands where its logits stood; of narrow numbers the products go in and out beside it
            rows = Symbol("K", chunk)
            logits: Pieces = [(1, 4 * (rows * self.V))]
            if int(self.a) != 4:
                logits += [(1, rows * self.V * self.a), (1, self.V * self.d * self.a), (1, rows * self.d * self.a)]
            loss: Phase = (
                "loss",
                self.gradients(none, none),
                {**after, **copies, "hidden state": [(1, hidden)], "chunks of logits": logits},
            )
            # the kept gradients times the loss's own are tensors of their own
            value, whole = self.gradients(none, none)
            scaled = value + matrix * self.p, [*whole, (1, matrix * self.p)]
            return [loss, ("backward of the loss", scaled, {**after, "hidden gradient": [(1, hidden)]})]
        logit, wide = self.BT * self.V * self.a, 4 * (self.BT * tokens(self.shape))  # the loss is computed in fp32
        copy: Pieces = [(1, wide)] if int(self.a) != 4 else []
        return [
            ("forward", self.gradients(none, none), {**before, **copies, "logits": [(1, logit)]}),
            ("loss", self.gradients(none, none), {**after, **copies, "logits": [(1, logit)], "logits in fp32": copy}),
            # the gradient of the chosen log-probabilities is as large as all of them, and becomes that of the logits
            ("backward of the loss", self.gradients(none, none), {**after, "gradients of logits": [(2, wide)]}),
            (
                "backward of the head",
                self.gradients(none, matrix),
                {**before, "gradients of logits": [(1, logit)], "hidden gradient": [(1, hidden)]},
            ),
        ]

    def blocks(self) -> list[Phase]:
        """The backward of feed-forward layer and attention, in the last block and in the first."""
        shape, BT = self.shape, self.BT
        wide = (2 if shape.gated else 1) * shape.active_experts  # tensors of d_ff that meet where an activation is
        ffn: Pieces = [(1, BT * self.d * self.r), (wide, BT * self.f * self.a)]
        attention: Pieces = [(1, BT * self.d * self.r), *self.scores]
        bottom = Term(0) if shape.tied_embeddings else self.V * self.d
        if shape.position == "learned":
            bottom = bottom + Symbol("C", shape.context_length) * self.d
        phases: list[Phase] = []
        for name, others, finished in (
            ("last", self.L - 1, self.V * self.d),
            ("first", Term(0), self.N - bottom - self.P),
        ):
            done = int(self.L - 1 - others)
            kept = self.kept(others)
            phases += [
                (
                    f"backward of the {name} block, ffn",
                    self.gradients(finished, self.d * self.f, done),
                    {**kept, **self.current(ffn=True), "gradients of activations": ffn},
                ),
                (
                    f"backward of the {name} block, attention",
                    self.gradients(finished + self.F, self.he * self.d, done),
                    {**kept, **self.current(ffn=False), "gradients of activations": attention},
                ),
            ]
        return phases

    def embedding_backward(self, *, tied: bool) -> Phase:
        """The end of the backward: the embedding's gradient is dense, and of one tied to a head here this is the second."""
        matrix, kept = self.V * self.d, {f"kept: {name}": found for name, found in self.shared.items()}
        hidden = self.BT * self.d * self.r
        title = "backward of the embedding"
        if not tied:
            others = self.N if self.accumulate else self.N - matrix
            return title, (others * self.p + matrix * self.p, self.weights), {**kept, "hidden gradient": [(1, hidden)]}
        # the head's gradient is there already, and the sum of the two is a third tensor
        second = max(hidden, matrix * self.p)
        return title, (self.N * self.p + matrix * self.p, self.weights), {**kept, "second gradient": [(1, second)]}

    def kept(self, blocks: Term) -> dict[str, Pieces]:
        """What so many blocks keep, and what all of them share."""
        return {f"kept: {name}": found for name, found in self.shared.items()} | {
            f"kept: {name}": [(blocks * count, size) for count, size in found] for name, found in self.between.items()
        }

    def current(self, *, ffn: bool) -> dict[str, Pieces]:
        """What the block in its backward holds: all of it, or once the feed-forward layer is done, what is left."""
        inside = dict(self.between if self.policy.checkpointing == "selective" else self.inside)
        if self.policy.checkpointing == "selective" and not ffn:  # made once more, beside what they were made of
            inside["attention weights"] = self.inside["attention weights"]
            inside["queries, keys, values again"] = self.again
        if self.policy.checkpointing == "full" and not self.input_is_kept:
            inside["input"] = self.between["block inputs"]
        parts = {f"this block: {name}": found for name, found in inside.items()}
        if not ffn:
            parts = {name: found for name, found in parts.items() if "ffn" not in name and "router" not in name}
            parts["this block: norms"] = [(count // 2, size) for count, size in parts["this block: norms"]]
            if self.explicit:  # the output's own backward is over when the weights' begins
                del parts["this block: attention output"]
        return parts

    @property
    def input_is_kept(self) -> bool:
        """Whether what a block recomputes keeps the block's own input, and not only something made of it."""
        if self.shape.norm == "none":
            return int(self.a) == int(self.r)
        kernel = self.policy.norm_kernel
        return self.shape.norm == "layernorm" or kernel == "fused" or (kernel == "composite" and int(self.r) == 4)
