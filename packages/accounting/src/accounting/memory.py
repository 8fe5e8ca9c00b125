"""Bytes of a training step on one device, phase by phase: forward, loss, backward, step; the highest phase is the peak.

Going backward, a block gives up what it kept and leaves the gradients of its weights: a straight line down the blocks,
so that the highest point is at the last or at the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from accounting.activations import (
    ACTIVATION_BYTES,
    RECOMPUTED,
    block_activations,
    head_activations,
    saved_activations,
    tables,
    tokens,
)
from accounting.breakdown import Breakdown, breakdown
from accounting.formula import Symbol, Term, added
from accounting.optimizers import optimizer_state, step_temporaries
from accounting.parameters import parameters, symbols
from accounting.shape import TransformerShape, positive
from accounting.units import Bytes, Count

CHUNK_BYTES = 16 << 20  # of fp32 logits that the chunked loss takes at a time, lm.loss.CHUNK_BYTES


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
    accumulate: bool = False,
) -> TrainingMemory:
    """Bytes alive in every phase of a step on batch_size sequences, gradients freed after the step before.

    precision: "fp32", or "bf16" for weights, gradients and activations with fp32 master weights in the optimizer. attention,
    norm_kernel, checkpointing and loss as saved_activations has them, optimizer and step ("fused", "foreach", "loop") as
    step_temporaries has them. accumulate: the gradients of earlier micro-batches are there from the start.
    """
    B, T = Symbol("B", positive("batch_size", batch_size)), Symbol("T", shape.sequence(seq_len))
    saved = saved_activations(
        shape,
        batch_size,
        seq_len,
        precision=precision,
        attention=attention,
        norm_kernel=norm_kernel,
        checkpointing=checkpointing,
        loss=loss,
    )
    run = _Step(
        shape, B, T, Symbol("a", ACTIVATION_BYTES[precision]), attention, norm_kernel, checkpointing, loss, accumulate
    )
    master = precision == "bf16"
    states = optimizer_state(shape, optimizer=optimizer, master=master)
    temporaries = step_temporaries(shape, optimizer=optimizer, step=step)
    convention = f"{optimizer}, {step} step; {saved.convention}; no allocator's rounding, no driver, no libraries"
    always = {"parameters": run.N * run.a, "optimizer state": added(term for _, term in states.terms)}
    listed = [
        *run.losses(),
        *run.blocks(),
        run.embedding_backward(),
        ("optimizer step", run.N * run.a, {"temporaries": temporaries}),
    ]
    phases = (
        breakdown(title, Bytes, {**always, "gradients": gradients, **parts}, convention)
        for title, gradients, parts in listed
    )
    return TrainingMemory(tuple(phases), optimizer, convention)


Phase = tuple[str, Term, dict[str, Term]]  # its title, the bytes of weight gradients, and all else that comes and goes


class _Step:
    """The phases of one step before the optimizer's, as bytes; the letters are those of breakdown.SYMBOLS."""

    def __init__(
        self,
        shape: TransformerShape,
        B: Term,
        T: Term,
        a: Term,
        attention: str,
        norm_kernel: str,
        checkpointing: str,
        loss: str,
        accumulate: bool,
    ) -> None:
        self.shape, self.a, self.checkpointing, self.loss, self.accumulate = shape, a, checkpointing, loss, accumulate
        s, count = symbols(shape), parameters(shape)
        self.V, self.L, self.d, self.f, self.he = s["V"], s["L"], s["d"], s["f"], s["h"] * s["e"]
        self.N, self.BT = Symbol("N", int(count.total)), B * T
        self.F = Symbol("F", (int(count["ffn"]) + int(count["router"])) // shape.num_layers)
        self.P = self.F + Symbol("Q", int(count["attention"]) // shape.num_layers)
        self.inside = block_activations(shape, B, T, a, attention, norm_kernel)
        self.head = head_activations(shape, B, T, a, norm_kernel, loss)
        self.shared = {"token ids": 8 * self.BT, "tables": tables(shape, T, a, attention)}
        self.eager = attention == "eager"
        # what attention's backward holds at once: the gradients of weights and scores, or of queries, keys, values and output
        self.scores = 2 * (B * s["h"] * T * T) * a if self.eager else self.BT * (3 * self.he + self.d) * a
        if self.eager:
            self.shared["mask"] = T * T * a

    def gradients(self, finished: Term, newest: Term) -> Term:
        """Bytes of weight gradients: accumulated ones are all there, and a new one is a tensor of its own until it is added."""
        return (self.N if self.accumulate else finished) * self.a + newest * self.a

    def losses(self) -> list[Phase]:
        """Forward, loss, and their backward down to the final norm."""
        none, hidden, matrix = Term(0), self.BT * self.d * self.a, self.V * self.d
        kept = self.kept(self.L)
        before = {**kept, **{f"kept: {name}": term for name, term in self.head.items() if name != "loss"}}
        after = {**before, "kept: loss": self.head["loss"]}
        if self.loss == "chunked":
            chunk = min(int(self.BT), max(1, CHUNK_BYTES // (4 * self.shape.vocab_rows)))
            # at the start of a chunk the logits and the softmax of the one before are still there
            live = Symbol("K", 2 * chunk + min(chunk, int(self.BT) - chunk))
            return [
                (
                    "loss",
                    self.gradients(none, none),
                    {**after, "hidden state": hidden, "chunks of logits": 4 * (live * self.V)},
                ),
                ("backward of the loss", self.gradients(none, matrix), {**after, "hidden gradient": hidden}),
            ]
        logits, wide = self.BT * self.V * self.a, 4 * (self.BT * tokens(self.shape))  # the loss is computed in fp32
        copy = wide if int(self.a) != 4 else none
        return [
            ("forward", self.gradients(none, none), {**before, "logits": logits}),
            ("loss", self.gradients(none, none), {**after, "logits": logits, "logits in fp32": copy}),
            # the gradient of the chosen log-probabilities is as large as all of them, and becomes that of the logits
            ("backward of the loss", self.gradients(none, none), {**after, "gradients of logits": 2 * wide}),
            (
                "backward of the head",
                self.gradients(none, matrix),
                {**before, "gradients of logits": logits, "hidden gradient": hidden},
            ),
        ]

    def blocks(self) -> list[Phase]:
        """The backward of feed-forward layer and attention, in the last block and in the first."""
        shape, a, BT = self.shape, self.a, self.BT
        wide = (2 if shape.gated else 1) * shape.active_experts  # tensors of d_ff that meet where an activation is
        ffn = BT * (self.d + wide * self.f) * a
        attention = BT * self.d * a + self.scores
        bottom = Term(0) if shape.tied_embeddings else self.V * self.d
        if shape.position == "learned":
            bottom = bottom + Symbol("C", shape.context_length) * self.d
        phases = []
        for name, others, finished in (
            ("last", self.L - 1, self.V * self.d),
            ("first", Term(0), self.N - bottom - self.P),
        ):
            kept = self.kept(others)
            phases += [
                (
                    f"backward of the {name} block, ffn",
                    self.gradients(finished, self.d * self.f),
                    {**kept, **self.current(ffn=True), "gradients of activations": ffn},
                ),
                (
                    f"backward of the {name} block, attention",
                    self.gradients(finished + self.F, self.he * self.d),
                    {**kept, **self.current(ffn=False), "gradients of activations": attention},
                ),
            ]
        return phases

    def embedding_backward(self) -> Phase:
        """The end of the backward: the embedding's gradient is dense, and of a tied one this is the second."""
        matrix, kept = self.V * self.d, {f"kept: {name}": term for name, term in self.shared.items()}
        hidden = self.BT * self.d * self.a
        if not self.shape.tied_embeddings:
            return (
                "backward of the embedding",
                self.gradients(self.N - matrix, matrix),
                {**kept, "hidden gradient": hidden},
            )
        # the head's gradient is there already, and the sum of the two is a third tensor
        second = max(hidden, matrix * self.a)
        return "backward of the embedding", self.gradients(self.N, matrix), {**kept, "second gradient": second}

    def kept(self, blocks: Term) -> dict[str, Term]:
        """What so many blocks keep, and what all of them share."""
        if self.checkpointing == "full":
            inside = {"block inputs": self.BT * self.d * self.a}
        elif self.checkpointing == "selective":
            inside = {name: term for name, term in self.inside.items() if name not in RECOMPUTED}
        else:
            inside = self.inside
        return {f"kept: {name}": term for name, term in self.shared.items()} | {
            f"kept: {name}": blocks * term for name, term in inside.items()
        }

    def current(self, *, ffn: bool) -> dict[str, Term]:
        """What the block in its backward holds: all of it, or once the feed-forward layer is done, what is left."""
        selective = self.checkpointing == "selective"
        parts = {
            f"this block: {name}": term
            for name, term in self.inside.items()
            if not (ffn and selective and name in RECOMPUTED)
        }
        if not ffn:
            parts = {name: term for name, term in parts.items() if "ffn" not in name and "router" not in name}
            parts["this block: norms"] = parts["this block: norms"] // 2
            if self.eager:  # the output's own backward is over when the weights' begins
                del parts["this block: attention output"]
        return parts
