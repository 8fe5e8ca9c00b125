"""Bytes of a training step on one device in its phases, forward, loss, backward and step; the highest is the peak.

Going backward, a block gives up what it saved and leaves the gradients of its weights: a straight line down the blocks,
so that the highest point is at the last or at the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from accounting.breakdown import Breakdown
from accounting.checks import instance
from accounting.counting.adapters import OF_FFN_MATRICES, adapted, adapter_elements, rank_of
from accounting.counting.dimensions import FfnDimensions, LatentDimensions, attention_matrices
from accounting.counting.parameters import (
    block_parameters,
    matrices,
    parameters,
    tensors,
    trained_symbol,
    trained_tensors,
)
from accounting.formula import Symbol, Term, added
from accounting.layer import Kind
from accounting.memory.activations import (
    ForwardPass,
    block_tensors,
    copies_of_heads,
    head_tensors,
    saved_by_block,
    saved_by_layers,
    scratch_of_blocks,
    shared_tensors,
)
from accounting.memory.allocator import BLOCK, waste
from accounting.memory.optimizer_state import optimizer_state, state_tensors, step_temporaries
from accounting.memory.records import (
    OF_FFN,
    Component,
    Group,
    Item,
    Phase,
    PhaseKind,
    Tensors,
    items,
    phase,
    plain_bytes,
    temporary,
)
from accounting.memory.transformers_blocks import masks
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import Bytes, human


@dataclass(frozen=True)
class TrainingMemory(Breakdown):
    """The peak of a step by component; `phases`, each with what is alive where it needs most; `peak`, of them the one
    that needs most, the first of equals."""

    phases: tuple[Phase, ...]
    peak: Phase
    policy: Policy


@dataclass(frozen=True)
class Gradients:
    """Gradients of the weights at one moment: their bytes, the newest one's apart, and the whole tensors among them."""

    finished: Term
    newest: Term
    tensors: Tensors


@dataclass(frozen=True)
class Moment:
    """One phase before anything is added up: its gradients, and all that comes and goes."""

    title: str
    kind: PhaseKind
    gradients: Gradients
    alive: list[Item]


def training_memory(
    shape: TransformerShape, batch_size: int, seq_len: int | None = None, *, policy: Policy = DEFAULT
) -> TrainingMemory:
    """Bytes alive in every phase of a training step, gradients freed after the step before.

    Args:
        shape: the model.
        batch_size: sequences of one forward and backward pass.
        seq_len: positions of a sequence; the whole context unless given.
        policy: how the step is computed.

    Returns:
        The phases; `.total` is the bytes at the highest of them, `.peak`.

    >>> from accounting import SHAPES
    >>> training_memory(SHAPES["gpt2"], 8).peak.title
    'backward of the loss'
    """
    instance("shape", shape, TransformerShape, "SHAPES")
    fused = policy.loss_kernel == "fused"
    chunk = Bytes(policy.logits_chunk_bytes // 4 * policy.bytes.activations if fused else policy.logits_chunk_bytes)
    chunks = f", {human(chunk)} of logits at a time" if policy.loss == "chunked" else ""
    code = ForwardPass(shape, batch_size, seq_len, policy).code
    convention = f"{policy.optimizer}, {policy.optimizer_step} step; {policy.description}{chunks}, {code}; " + (
        "every tensor in a block of its own, what remains of shared segments not in it; "
        if policy.allocator == "cuda"
        else "no allocator's rounding, "
    )
    convention += "driver and libraries as given" if policy.overhead_bytes else "no driver, no libraries"
    if policy.gradient_dtype == "fp32":
        convention += "; gradients added up in fp32"
    if policy.offload == "optimizer":
        convention += f"; optimizer state of {human(optimizer_state(shape, policy=policy).total)} on the host"
    if policy.precision == "fp8":
        convention += "; fp8 by Transformer Engine's rules, not measured"
    moments = _alive(shape, batch_size, seq_len, policy)
    phases = tuple(phase(moment.title, moment.kind, alive, convention) for moment, alive in moments)
    peak = max(phases, key=int)
    return TrainingMemory(peak.title, Bytes, peak.terms, convention, phases, peak, policy)


def training_peak(
    shape: TransformerShape, batch_size: int, seq_len: int | None = None, *, policy: Policy = DEFAULT
) -> int:
    """training_memory(…).total without the formulas: a search for what fits asks for it many times."""
    moments = _alive(shape, batch_size, seq_len, policy)
    return max(sum(plain_bytes(item.tensors) for item in alive) for _, alive in moments)


def _alive(
    shape: TransformerShape, batch_size: int, seq_len: int | None, policy: Policy
) -> list[tuple[Moment, list[Item]]]:
    """Every moment of a step, with all that is alive in it."""
    run = Step(ForwardPass(shape, batch_size, seq_len, policy))
    offloaded = policy.offload == "optimizer"
    states = Term(0) if offloaded else added(term for _, term in optimizer_state(shape, policy=policy).terms)
    lasting = [*run.weights, *([] if offloaded else state_tensors(shape, policy))]
    counters = Term(0)
    if policy.optimizer.startswith("adamw") and not offloaded:
        counters = Symbol("n_tensors", sum(count for count, _ in trained_tensors(shape)))
    always = [*run.parameters(), Item("optimizer state", Group.OPTIMIZER_STATE, [(1, states)])]
    moments = []
    bottom = [] if run.frozen else [run.embedding_backward(tied=shape.tied_embeddings)]
    for moment in [*run.losses(), *run.blocks(), *bottom, run.stepping()]:
        gradients = moment.gradients
        alive = [
            *always,
            Item("gradients", Group.GRADIENTS, [(1, gradients.finished), (1, gradients.newest)]),
            *moment.alive,
        ]
        if policy.overhead_bytes:
            alive.append(overhead(policy))
        if policy.allocator == "cuda":
            rounded = [*lasting, *gradients.tensors, *(one for item in moment.alive for one in item.tensors)]
            alive.append(Item("allocator rounding", Group.ALLOCATOR, [(1, BLOCK * counters + waste(rounded))]))
        moments.append((moment, alive))
    return moments


def overhead(policy: Policy) -> Item:
    """Bytes of driver, context and libraries, as the policy gives them."""
    return Item("fixed overhead", Group.OVERHEAD, [(1, Symbol("overhead_bytes", policy.overhead_bytes))])


class Step:
    """The phases of one training step, as tensors."""

    def __init__(self, run: ForwardPass) -> None:
        self.run, self.shape, self.policy, self.n = run, run.shape, run.policy, run.n
        self.weight = run.weight
        counted = parameters(self.shape)
        self.autocast = self.policy.precision == "autocast"
        self.params = Symbol("n_params", int(counted.total))
        self.frozen = self.shape.lora_rank is not None  # but for the adapters
        self.trained = trained_symbol(self.shape) if self.frozen else self.params
        self.embedding_matrix = self.n.vocab * self.n.d_model
        self.weights: Tensors = [(count, size * self.weight) for count, size in tensors(self.shape)]
        self.buffers: Tensors = [(count, size * run.gradient) for count, size in trained_tensors(self.shape)]
        self.whole_block = {kind: block_tensors(run, kind) for kind in run.stack.counts}  # nothing recomputed
        self.head = head_tensors(run)
        self.shared = shared_tensors(run)
        self.materialises_scores = self.policy.attention_kernel != "fused"
        if self.policy.attention_kernel == "eager" and not self.run.transformers:
            self.shared[Component.MASK] = [(1, run.queries * run.seq * run.act)]

    def parameters(self) -> list[Item]:
        """The parameters as they are stored on a device, with what is there of them besides."""
        inside, policy = matrices(replace(self.shape, lora_rank=None, lora_targets=None)), self.policy
        elements = Symbol("block_elements", sum(rows * columns * count for (rows, columns), count in inside.items()))
        stored = [(1, self.params * self.weight)]
        if policy.frozen_dtype == "nf4":
            if not self.frozen or policy.allocator == "cuda":
                raise ValueError("frozen_dtype 'nf4' is counted of matrices beside adapters, without allocator 'cuda'")
            # a scale of a byte for 64 elements, and one of fp32 for 256 of those
            scales = (elements + 63) // 64 + 4 * ((elements + 64 * 256 - 1) // (64 * 256))
            stored = [(1, (self.params - elements) * self.weight), (1, (elements + 1) // 2 + scales)]
            rows, columns = max(inside, key=lambda sides: sides[0] * sides[1])
            largest = Symbol("largest_tensor", rows * columns)
            return [
                Item("parameters", Group.PARAMETERS, stored),
                temporary("a matrix in bf16", (1, 2 * largest)),
            ]
        parts = [Item("parameters", Group.PARAMETERS, stored)]
        if policy.precision == "fp8":
            parts.append(Item("matrices in fp8, twice", Group.PARAMETERS, [(2, elements)]))
        return parts

    @property
    def hidden(self) -> tuple[int, Term]:
        """The residual stream, or its gradient."""
        return 1, self.run.tokens * self.n.d_model * self.run.residual

    def trained_in(self, kind: Kind) -> tuple[Term, Term]:
        """Parameters with gradients of one block of this kind: of attention, and of the feed-forward layer."""
        if self.frozen:
            return adapter_elements(self.shape, 1, of_ffn=False), adapter_elements(self.shape, 1, of_ffn=True)
        attention, ffn = block_parameters(self.shape, kind)
        several = len(self.shape.ffns) > 1
        prefix = f"{'dense' if kind.ffn.experts is None else 'expert'}_" if several else ""
        return Symbol("attention_params", attention), Symbol(f"{prefix}ffn_params", ffn)

    def gradients(self, finished: Term, newest: Term, blocks: int = 0) -> Gradients:
        """Gradients of the finished parameters (`blocks` blocks are through) and of the newest: a tensor of its own
        until it is added to others. Under autocast that of the bf16 copy, and then a second one in fp32."""
        one = Term(0)
        if newest:
            one = newest * self.weight + newest * self.run.act if self.autocast else newest * self.weight
        if self.policy.accumulates:
            return Gradients(self.trained * self.run.gradient, one, self.buffers)
        layers = self.shape.num_layers
        whole = [(int(count) * blocks // layers, size) for count, size in self.buffers if count >= layers]
        return Gradients(finished * self.run.gradient if finished else Term(0), one, whole)

    def losses(self) -> list[Moment]:
        """Forward, loss, and their backward down to the final norm."""
        none, n, run = Term(0), self.n, self.run
        head: dict[Component, Tensors] = {
            one: tensors for one, tensors in self.head.items() if one is not Component.LOSS
        }
        before = [*self.saved(run.stack.counts), *items(Group.SAVED, head)]
        after = [*before, *items(Group.SAVED, {Component.LOSS: self.head[Component.LOSS]})]
        # autocast keeps the copies that it made until the loss is there, whatever is recomputed later
        copies: list[Item] = []
        if self.autocast and self.policy.activation_checkpointing == "full":
            (of_block,) = (block[Component.WEIGHTS_IN_BF16] for block in self.whole_block.values())
            copies.append(temporary("weights in bf16", *((n.n_layers * count, size) for count, size in of_block)))
        if self.autocast and self.policy.loss == "chunked":
            copies.append(temporary("head in bf16", (1, 2 * self.embedding_matrix)))
        nothing = self.gradients(none, none)
        if self.policy.loss == "chunked":
            # the saved gradients times the loss's own are tensors of their own
            of_head = Term(0) if self.frozen else self.embedding_matrix * self.weight
            scaled = Gradients(nothing.finished + of_head, nothing.newest, [*nothing.tensors, (1, of_head)])
            chunks = temporary("chunks of logits", *self._chunks(), *self._head_sum())
            loss = [*after, *copies, temporary("hidden state", self.hidden), chunks]
            backward = [*after, temporary("hidden gradient", self.hidden)]
            return [
                Moment("loss", PhaseKind.FORWARD, nothing, loss),
                Moment("backward of the loss", PhaseKind.BACKWARD, scaled, backward),
            ]
        logits = 1, run.tokens * n.vocab * run.act
        wide = 4 * (run.tokens * run.loss_vocab)  # the loss is computed in fp32
        in_fp32 = temporary("logits in fp32", *([(1, wide)] if run.narrow else []))
        # the gradient of the chosen log-probabilities is as large as all of them, and becomes that of the logits
        shifted = [temporary("logits in fp32", (1, wide))] if self.policy.loss == "shifted" else []
        loss_gradients = [*after, *shifted, temporary("gradients of logits", (2, wide))]
        if self.policy.allocator == "reserved" and run.narrow:
            loss_gradients.append(temporary("logits, cached", logits))
        head_gradients = [*before, temporary("gradients of logits", logits), temporary("hidden gradient", self.hidden)]
        newest = self.gradients(none, none if self.frozen else self.embedding_matrix)
        once = temporary("logits", logits)
        return [
            Moment("forward", PhaseKind.FORWARD, nothing, [*before, *copies, once]),
            Moment("loss", PhaseKind.FORWARD, nothing, [*after, *copies, *shifted, once, in_fp32]),
            Moment("backward of the loss", PhaseKind.BACKWARD, nothing, loss_gradients),
            Moment("backward of the head", PhaseKind.BACKWARD, newest, head_gradients),
        ]

    def _chunks(self) -> Tensors:
        """Logits of one chunk; its softmax stands where they stood. In 16 bits the products go in and out beside it:
        that for the head's gradient, summed in fp32, and, by a fused kernel under autocast alone, the hidden states."""
        run, n = self.run, self.n
        chunk = min(int(run.tokens), max(1, self.policy.logits_chunk_bytes // (4 * self.shape.vocab_rows)))
        rows = Symbol("chunk_rows", chunk)
        in_fp32, narrow = (1, 4 * (rows * n.vocab)), (1, rows * n.vocab * run.act)
        products: Tensors = [(1, rows * n.d_model * run.act)]
        if not self.frozen:
            products.insert(0, (1, n.vocab * n.d_model * run.act))
        if self.policy.loss_kernel == "fused":
            of_head = products[:-1] if self._head_sum() else []
            return [narrow, *products] if self.autocast else [narrow, *of_head]
        return [in_fp32, narrow, *products] if run.narrow else [in_fp32]

    def _head_sum(self) -> Tensors:
        """By how much the head's gradient is larger while it is summed over the chunks, in fp32."""
        if self.frozen or int(self.weight) >= 4:
            return []
        return [(1, (4 - int(self.weight)) * self.embedding_matrix)]

    def blocks(self) -> list[Moment]:
        """The backward of feed-forward layer and attention, in the last block of each kind and in the first."""
        shape, n, run = self.shape, self.n, self.run
        attention = temporary("gradients of activations", self.hidden, *self._attention_gradients())
        if shape.parallel:  # and that of the other branch
            attention = temporary(attention.name, self.hidden, *attention.tensors)
        bottom = Term(0) if shape.tied_embeddings else self.embedding_matrix
        if shape.position == "learned":
            bottom = bottom + n.max_seq * n.d_model
        trained = {kind: self.trained_in(kind) for kind in run.stack.counts}
        sizes = {kind: of_ffn + of_attention for kind, (of_attention, of_ffn) in trained.items()}
        above = self.params - bottom
        if self.frozen:
            above = added(count * sizes[kind] for kind, count in run.stack.counts.items())
        finished = Term(0) if self.frozen else self.embedding_matrix
        moments = []
        for name, kind, below in run.stack.ends:
            done = shape.num_layers - 1 - sum(int(count) for count in below.values())
            if done:
                finished = above - sizes[kind]
                for under, count in below.items():
                    finished = finished - count * sizes[under] if count else finished
            saved = self.saved(below, kind)
            ffn = temporary("gradients of activations", self.hidden, self._ffn_gradients(kind))
            moments += [
                Moment(
                    f"backward of the {name} block, ffn",
                    PhaseKind.BACKWARD,
                    self.gradients(finished, self._newest(kind, of_ffn=True), done),
                    [*saved, *self._ffn_backward(kind), ffn],
                ),
                Moment(
                    f"backward of the {name} block, attention",
                    PhaseKind.BACKWARD,
                    self.gradients(finished + trained[kind][1], self._newest(kind, of_ffn=False), done),
                    [*saved, *self._attention_backward(kind), attention],
                ),
            ]
        return moments

    def _ffn_gradients(self, kind: Kind) -> tuple[int, Term]:
        """Tensors of d_ff that meet where an activation is, or where an adapter's gradient meets its matrix's."""
        shape, run, ffn = self.shape, self.run, kind.ffn
        each = {"relu": 2, "gelu_new": 2, "relu2": 3}.get(shape.ffn, 2 if shape.gated else 1)
        each = max(each, 2 if "down" in shape.adapted else 1)
        m = FfnDimensions(shape, ffn)
        if (ffn.shared_d_ff or 0) > ffn.active * kind.d_ff:
            return each, run.tokens * m.shared_d_ff * run.act
        return each * ffn.active, run.tokens * m.d_ff * run.act

    def _newest(self, kind: Kind, *, of_ffn: bool) -> Term:
        """Elements of the first gradient of a layer that is there: of its last matrix, or of an adapter's half."""
        n = self.n
        if not self.frozen:
            if of_ffn:
                return n.d_model * FfnDimensions(self.shape, kind.ffn).d_ff
            return list(attention_matrices(self.shape, kind.attention).values())[-1]
        halves = [
            rank_of(self.shape) * into
            for name, (into, _) in adapted(self.shape).items()
            if (name in OF_FFN_MATRICES) == of_ffn
        ]
        return halves[-1] if halves else Term(0)

    def _attention_gradients(self) -> Tensors:
        """Tensors alive at once in attention's backward: gradients of weights and scores, or of inputs and output."""
        run, n = self.run, self.n
        queries = run.tokens * (n.n_heads * n.head_dim) * run.act
        if self.policy.attention_kernel == "eager":
            return [(2, run.batch * n.n_heads * run.queries * run.seq * run.act)]
        if self.shape.latent is not None:
            m = LatentDimensions(self.shape.latent)
            of_query, of_value = n.n_heads * (m.nope_dim + m.rope_dim), n.n_heads * m.value_dim
            return [(2, run.tokens * of_query * run.act), (2, run.tokens * of_value * run.act)]
        if self.policy.attention_kernel == "blocks":
            keys_and_values = run.tokens * (2 * n.n_kv_heads * n.head_dim) * run.act
            return [(1, queries + keys_and_values), (1, scratch_of_blocks(run))]
        return [(3, queries), (1, run.tokens * n.d_model * run.act)]

    def embedding_backward(self, *, tied: bool) -> Moment:
        """The end of the backward: the embedding's gradient is dense, and a second one of a tied head here."""
        matrix, saved = self.embedding_matrix, items(Group.SAVED, self.shared)
        newest = matrix * self.weight
        if tied:  # the head's gradient is there already, and the sum of the two is a third tensor
            second = temporary("second gradient", (1, max(self.hidden[1], newest)))
            gradients, alive = Gradients(self.params * self.run.gradient, newest, self.buffers), [*saved, second]
        else:
            others = self.params if self.policy.accumulates else self.params - matrix
            gradients = Gradients(others * self.run.gradient, newest, self.buffers)
            alive = [*saved, temporary("hidden gradient", self.hidden)]
        return Moment("backward of the embedding", PhaseKind.BACKWARD, gradients, alive)

    def stepping(self) -> Moment:
        """The optimizer's step."""
        gradients = Gradients(self.trained * self.run.gradient, Term(0), self.buffers)
        offloaded = self.policy.offload == "optimizer"
        alive = temporary("temporaries", *([] if offloaded else step_temporaries(self.shape, self.policy)))
        return Moment("optimizer step", PhaseKind.OPTIMIZER_STEP, gradients, [alive])

    def saved(self, layers: dict[Kind, Term], block: Kind | None = None) -> list[Item]:
        """Tensors that these layers of each kind save, and those shared with each other and the current block."""
        shared = self.shared
        if self.run.transformers:
            shared = {**shared, Component.MASK: masks(self.run, layers, block)}
        return items(Group.SAVED, {**shared, **saved_by_layers(self.run, layers)})

    def _ffn_backward(self, kind: Kind) -> list[Item]:
        """Tensors of a block when its backward begins: all that it saved or computed again."""
        selective = self.policy.activation_checkpointing == "selective"
        components = saved_by_block(self.run, kind) if selective else self.whole_block[kind]
        return [*items(Group.THIS_BLOCK, components), *self._recomputed_input(kind)]

    def _attention_backward(self, kind: Kind) -> list[Item]:
        """The same once the feed-forward layer is done: what is left, and half of the norms."""
        components = dict(self.whole_block[kind])
        if self.policy.activation_checkpointing == "selective":  # weights made once more, beside what they were made of
            again = components[Component.ATTENTION_WEIGHTS]
            components = {**saved_by_block(self.run, kind), Component.ATTENTION_WEIGHTS: again}
            components[Component.QKV_COPIES] = copies_of_heads(self.run, kind)
        components = {one: tensors for one, tensors in components.items() if one not in OF_FFN}
        components[Component.NORMS] = [(count // 2, size) for count, size in components[Component.NORMS]]
        if (
            self.materialises_scores and Component.ATTENTION_OUTPUT in components
        ):  # the output's own backward is over then
            del components[Component.ATTENTION_OUTPUT]
        return [*items(Group.THIS_BLOCK, components), *self._recomputed_input(kind)]

    def _recomputed_input(self, kind: Kind) -> list[Item]:
        """The input of a block that is computed again, unless the block saves it anyway."""
        checkpointing = self.policy.activation_checkpointing
        if checkpointing == "operators":  # values and gate are those that are computed with again
            saved = saved_by_block(self.run, kind)
            return items(Group.THIS_BLOCK, {Component.MATMUL_OUTPUTS: saved[Component.MATMUL_OUTPUTS][:2]})
        if checkpointing != "full":
            return []
        run, kernel = self.run, self.policy.norm_kernel
        if self.shape.norm == "none":
            there = int(run.act) == int(run.residual)
        elif self.shape.norm == "layernorm":
            there = self.shape.norm_weights or int(run.residual) == 4
        else:
            there = kernel == "fused" or int(run.residual) == 4
        if there:
            return []
        return [Item("this block: input", Group.THIS_BLOCK, saved_by_block(run, kind)[Component.BLOCK_INPUTS])]
