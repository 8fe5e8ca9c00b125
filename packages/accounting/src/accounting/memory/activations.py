"""Bytes that the forward pass saves for the backward, by component: what autograd keeps, each storage once.

The order of operations is that of `lm` of this repository: one matrix for queries, keys and values, one for gate and
up. What lm cannot build is in transformers_blocks.py. Parameters are not among what is counted. Components are lists of
tensors, (how many, bytes of one), because an allocator rounds each tensor up by itself.
"""

from __future__ import annotations

from accounting.breakdown import Breakdown, breakdown
from accounting.checks import positive
from accounting.counting.adapters import OF_FFN_MATRICES, adapted, adapter_elements, rank_of
from accounting.counting.dimensions import Dimensions, FfnDimensions
from accounting.counting.layers import stack
from accounting.counting.parameters import block_weights
from accounting.formula import Symbol, Term
from accounting.layer import FeedForward, Kind
from accounting.memory import transformers_blocks
from accounting.memory.records import Component, Tensors, total_bytes
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape, no_value_embeddings
from accounting.units import Bytes

QUERY_BLOCK = 32  # queries that attention_kernel "blocks" takes at a time, of lm/ops/cpu/attention.c


class ForwardPass:
    """A forward pass as named numbers: batch and seq, the shape's dimensions, bytes of an element, and the policy.

    shards: devices among which the positions between the matrix multiplications are shared out (sequence parallelism).
    context_shards: devices that share each sequence (context parallelism); a query still sees keys of all of it.
    """

    def __init__(
        self,
        shape: TransformerShape,
        batch_size: int,
        seq_len: int | None,
        policy: Policy,
        shards: int = 1,
        context_shards: int = 1,
    ) -> None:
        no_value_embeddings(shape, "the memory of training")
        self.shape, self.policy, self.stack = shape, policy, stack(shape)
        if shape.lora_rank is not None:
            _only_counted_adapters(shape, policy)
        if policy.precision == "fp8" and (not shape.plain or shape.most_experts > 1 or policy.model_code != "lm"):
            raise ValueError("precision 'fp8' is counted of dense models that lm can build: use 'bf16'")
        self.transformers = policy.model_code == "transformers" or not shape.plain
        if self.transformers:
            transformers_blocks.only_counted(self)
        if context_shards > 1 and policy.attention_kernel == "blocks":
            raise ValueError("attention_kernel 'blocks' is lm's on a CPU, where no sequence is shared: use 'fused'")
        self.batch: Term = Symbol("batch", positive("batch_size", batch_size))
        self.seq: Term = Symbol("seq", shape.sequence(seq_len))
        cp = Symbol("cp", context_shards)
        self.queries: Term = self.seq if context_shards == 1 else (self.seq + (cp - 1)) // cp  # of a sequence, here
        self.tokens: Term = self.batch * self.queries
        self.n = Dimensions(shape)
        self.act: Term = Symbol("act_bytes", policy.bytes.activations)
        # what a matrix multiplication reads of a block's tensors
        self.operand: Term = Symbol("operand_bytes", 1) if policy.precision == "fp8" else self.act
        self.residual: Term = Symbol("residual_bytes", policy.bytes.residual)
        self.weight: Term = Symbol("weight_bytes", policy.bytes.weights)
        self.gradient: Term = Symbol("gradient_bytes", policy.gradient_bytes)
        # positions that a device holds of what lies between the matrix multiplications: all, or the largest of equal
        # shares
        tp = Symbol("tp", shards)
        self.between: Term = self.tokens if shards == 1 else self.batch * ((self.queries + (tp - 1)) // tp)

    @property
    def code(self) -> str:
        """Whose code is counted, in words."""
        return f"as {'transformers' if self.transformers else 'lm'} computes it without dropout"

    @property
    def window(self) -> int | None:
        """The narrowest window, of any layer."""
        return min((kind.attention.window for kind in self.shape.counts if kind.attention.window), default=None)

    @property
    def narrow(self) -> bool:
        """True if matrix multiplications are in 16 bits."""
        return self.policy.bytes.activations < 4

    @property
    def loss_vocab(self) -> Term:
        """The vocabulary without what pads it: the loss is over these alone."""
        padded = self.shape.vocab_rows != self.shape.vocab_size
        return Symbol("vocab_unpadded", self.shape.vocab_size) if padded else self.n.vocab


def _only_counted_adapters(shape: TransformerShape, policy: Policy) -> None:
    """ValueError for adapters whose memory is not counted."""
    four_bits = policy.frozen_dtype == "nf4"
    only = {"precision": ("fp32", "bf16", "pure_bf16", *(("autocast",) if four_bits else ()))}
    transformers_blocks.only_with("the memory of training adapters", policy, {**transformers_blocks.COUNTED, **only})
    if (experts := next(iter(shape.ffns)).experts) is not None:
        raise ValueError(f"the memory of training adapters is not counted with experts {experts}: leave them out")


def saved_activations(
    shape: TransformerShape, batch_size: int, seq_len: int | None = None, *, policy: Policy = DEFAULT
) -> Breakdown:
    """Bytes saved between forward and backward of the model and its loss.

    Args:
        shape: the model.
        batch_size: sequences in the batch.
        seq_len: positions of a sequence; the whole context unless given.
        policy: precision, kernels, activation checkpointing and loss.

    Returns:
        Bytes of every tensor that autograd keeps, each storage once.

    >>> from accounting import SHAPES
    >>> saved_activations(SHAPES["gpt2"], 1)["attention output"]
    Bytes(37_748_736)
    """
    run = ForwardPass(shape, batch_size, seq_len, policy)
    terms: dict[str, int] = {one.value: total_bytes(tensors) for one, tensors in shared_tensors(run).items()}
    for kind, count in run.stack.counts.items():
        for one, tensors in saved_by_block(run, kind).items() if run.policy.offload != "activations" else ():
            size = count * total_bytes(tensors)
            terms[one.value] = terms[one.value] + size if one.value in terms else size
    terms |= {one.value: total_bytes(tensors) for one, tensors in head_tensors(run).items()}
    words = f"{policy.description}, {run.code}: every tensor that autograd keeps, each storage once"
    return breakdown("saved activations", Bytes, terms, words)


def shared_tensors(run: ForwardPass) -> dict[Component, Tensors]:
    """Tensors of all layers: the token ids, a complex rotation for every position and pair, the mask of a window."""
    window, tables = run.window, []
    if run.transformers:
        kinds = 2 if run.shape.position == "learned" else 1  # ids of positions too
        shared = {Component.TOKEN_IDS: [(kinds, 8 * run.tokens)], Component.TABLES: transformers_blocks.tables(run)}
        if run.shape.embedding_norm:
            shared[Component.EMBEDDING_NORM] = norm_tensors(run, run.tokens, run.n.d_model)
        return shared
    if run.shape.position == "rope":
        tables.append((1, 4 * (run.n.max_seq * run.n.head_dim)))
    if run.policy.attention_kernel == "blocks":  # the first key of each query
        tables.append((1, 8 * run.queries))
    if run.policy.attention_kernel == "fused" and window is not None and window < int(run.seq):
        tables.append((1, run.queries * run.seq * run.act))
    # a frozen embedding has no use for the ids
    ids: Tensors = [(1, 8 * run.tokens)] if run.shape.lora_rank is None else []
    return {Component.TOKEN_IDS: ids, Component.TABLES: tables}


def saved_by_layers(run: ForwardPass, layers: dict[Kind, Term]) -> dict[Component, Tensors]:
    """Tensors that these layers of each kind save until their backward."""
    saved: dict[Component, Tensors] = {}
    for kind, count in layers.items() if run.policy.offload != "activations" else ():
        if not count and len(layers) > 1:
            continue
        for one, tensors in saved_by_block(run, kind).items():
            saved.setdefault(one, []).extend((count * each, size) for each, size in tensors)
    return saved


def saved_by_block(run: ForwardPass, kind: Kind) -> dict[Component, Tensors]:
    """Tensors that one block saves until its backward; with checkpointing the rest is computed again then."""
    inputs: Tensors = [(1, run.between * run.n.d_model * run.residual)]
    if run.policy.activation_checkpointing == "full":
        return {Component.BLOCK_INPUTS: inputs}
    if run.policy.activation_checkpointing == "operators":
        return {Component.BLOCK_INPUTS: inputs, **_outputs(run, kind)}
    block = block_tensors(run, kind)
    if run.policy.activation_checkpointing == "selective":
        del block[Component.ATTENTION_WEIGHTS]
        # the copies that score matrices want are made inside, from what is saved
        block[Component.QKV] = transformers_blocks.entering(run, kind) if run.transformers else _views(run)
    return block


def block_tensors(run: ForwardPass, kind: Kind) -> dict[Component, Tensors]:
    """Tensors that one block saves when nothing is recomputed."""
    shape, n, act, tokens = run.shape, run.n, run.act, run.tokens
    norms = shape.norms_of_block
    before, *statistics = norm_tensors(run, run.between, n.d_model) or [(0, Term(0))]
    inputs = 1 if shape.parallel else norms  # norms that read the same input save it once
    saved: dict[Component, Tensors] = {
        Component.NORMS: [(inputs * before[0], before[1]), *((norms * count, size) for count, size in statistics)],
        Component.ATTENTION_INPUT: [(1, run.between * n.d_model * run.operand)],
    }
    # behind one norm attention and the feed-forward layer read one tensor
    ffn_input: Tensors = [(0 if shape.parallel and norms == 1 else 1, run.between * n.d_model * run.operand)]
    if run.transformers:
        saved |= transformers_blocks.of_attention(run, kind)
        return {**saved, Component.FFN_INPUT: ffn_input, **transformers_blocks.of_ffn(run, kind)}
    if shape.qk_norm:
        saved[Component.QK_NORMS] = _qk_norms(run)
    saved[Component.QKV] = _qkv(run, kind)
    saved[Component.ATTENTION_WEIGHTS] = _attention_weights(run)
    saved[Component.ATTENTION_OUTPUT] = [(1, tokens * n.n_heads * n.head_dim * act)]
    if run.policy.precision == "fp8":  # as the input of the next matrix
        saved[Component.ATTENTION_OUTPUT].append((1, tokens * n.n_heads * n.head_dim * run.operand))
    saved[Component.FFN_INPUT] = ffn_input
    # gated: gate and up, which are one storage of 2·d_ff, the product, and unless the kernel computes it again the
    # activated gate; else before and after
    hidden = tokens * FfnDimensions(shape, kind.ffn).d_ff * act
    outputs = 1 if run.policy.gate_kernel == "fused" else 2
    inside: Tensors = [(1, 2 * hidden), (outputs, hidden)] if shape.gated else [(2, hidden)]
    if run.policy.precision == "fp8":  # the last of them is the input of the down matrix
        *others, (count, size) = inside
        inside = [*others, (count - 1, size), (1, tokens * FfnDimensions(shape, kind.ffn).d_ff * run.operand)]
    saved[Component.FFN_HIDDEN] = [(kind.ffn.active * count, size) for count, size in inside]
    if kind.ffn.experts is not None:
        saved[Component.ROUTER] = _router(run, kind.ffn)
    if run.policy.precision == "autocast":
        copied = (
            Symbol("block_weights", block_weights(shape)) if shape.lora_rank is None else adapter_elements(shape, 1)
        )
        saved[Component.WEIGHTS_IN_BF16] = [(1, 2 * copied)]
    return saved if shape.lora_rank is None else _with_adapters(run, saved)


def _with_adapters(run: ForwardPass, saved: dict[Component, Tensors]) -> dict[Component, Tensors]:
    """Tensors that a block with adapters saves: a frozen matrix has no use for its input, unless its adapter has."""
    components = dict(saved)
    targets = set(adapted(run.shape))
    for component, readers in (
        (Component.ATTENTION_INPUT, {"query", "key", "value", "qkv"}),
        (Component.FFN_INPUT, {"gate", "up", "gate_up"}),
    ):
        copies = len(targets & readers)  # autocast makes a copy in bf16 for each adapter
        copies = copies if run.policy.precision == "autocast" else min(copies, 1)
        components[component] = [(copies * count, size) for count, size in components[component]]
    if "output" not in targets and run.policy.attention_kernel == "eager":  # a fused kernel keeps it for itself
        del components[Component.ATTENTION_OUTPUT]
    if "down" not in targets:
        *others, (count, size) = components[Component.FFN_HIDDEN]
        components[Component.FFN_HIDDEN] = [*others, (count - 1, size)]
    for component, of_ffn in ((Component.ADAPTERS_OF_ATTENTION, False), (Component.ADAPTERS_OF_FFN, True)):
        count = sum((name in OF_FFN_MATRICES) == of_ffn for name in targets)
        if count:
            components[component] = [(count, run.tokens * rank_of(run.shape) * run.act)]
    return components


def _outputs(run: ForwardPass, kind: Kind) -> dict[Component, Tensors]:
    """Outputs of attention, and of the matmuls for queries, values, the gate and the way down, every second one."""
    shape, n, act, policy = run.shape, run.n, run.act, run.policy
    llama = shape.plain and shape.ffn == "swiglu" and not (shape.bias or shape.biased_qkv or shape.post_norm)
    if not llama or shape.most_experts > 1 or shape.lora_rank is not None or policy.attention_kernel != "fused":
        raise ValueError("activation_checkpointing 'operators' is counted of models like Llama alone: use 'full'")
    queries = 1, run.tokens * (n.n_heads * n.head_dim) * act
    values = run.tokens * (n.n_kv_heads * n.head_dim) * act
    gate = run.tokens * FfnDimensions(shape, kind.ffn).d_ff * act
    return {
        Component.MATMUL_OUTPUTS: [queries, (1, run.between * n.d_model * act), (1, values), (1, gate)],
        Component.ATTENTION_WEIGHTS: _attention_weights(run),
        Component.ATTENTION_OUTPUT: [queries],
    }


def _router(run: ForwardPass, ffn: FeedForward) -> Tensors:
    """The router's probabilities and indices, and what the experts read and gave."""
    tokens, act, active = run.tokens, run.act, ffn.active
    return [
        (1, tokens * FfnDimensions(run.shape, ffn).n_experts * act),  # of a token its probabilities
        (1, tokens * act),  # and their sum over those chosen
        (active, 8 * tokens),  # of a choice its index
        (active, 16 * tokens),  # its place among the token's and among the expert's
        (2 * active, tokens * act),  # its weight as one of the token's and as one of the expert's
        (3 * active, tokens * run.n.d_model * act),  # what the expert read, what it gave, and that weighed
    ]


def _qk_norms(run: ForwardPass) -> Tensors:
    """The statistics of each head, and copies of the heads before they are weighed; see _qkv for the inputs."""
    n, tokens = run.n, run.tokens
    copies = {"fused": 0, "composite": 2 if run.narrow else 1}[run.policy.norm_kernel]
    if copies and run.shape.lora_rank is not None:
        copies -= 1
    saved: Tensors = [(1, 4 * (tokens * n.n_heads)), (1, 4 * (tokens * n.n_kv_heads))]
    if copies:
        saved += [(copies, 4 * (tokens * n.n_heads * n.head_dim)), (copies, 4 * (tokens * n.n_kv_heads * n.head_dim))]
    return saved


def _attention_weights(run: ForwardPass) -> Tensors:
    """The seq × seq weights of every head, those of blocks of queries, or a log-sum-exp of each row."""
    n, kernel = run.n, run.policy.attention_kernel
    if kernel == "blocks":
        scores = scores_in_blocks(int(run.seq))
        return [(1, run.batch * n.n_heads * scores * run.act), (1, 4 * (run.tokens * n.n_heads))]
    if kernel == "eager":
        return [(1, run.batch * n.n_heads * run.queries * run.seq * run.act)]
    return [(1, 4 * (run.tokens * n.n_heads))]


def _projected(run: ForwardPass) -> tuple[int, Term]:
    """The output of the projection, into which the values are a view."""
    n = run.n
    return 1, run.tokens * ((n.n_heads + 2 * n.n_kv_heads) * n.head_dim) * run.act


def _views(run: ForwardPass) -> Tensors:
    """The projection, and queries and keys if something was done to them since; of lm's blocks of queries the
    projection, and behind norms of queries and keys, which save it as it was, what they are joined to."""
    n, shape = run.n, run.shape
    if run.policy.attention_kernel == "blocks":
        return [(2 if shape.qk_norm else 1, _projected(run)[1])]
    rotated = 1, run.tokens * ((n.n_heads + n.n_kv_heads) * n.head_dim) * run.act
    return [_projected(run), rotated] if shape.position == "rope" or shape.qk_norm else [_projected(run)]


def _qkv(run: ForwardPass, kind: Kind) -> Tensors:
    """Queries, keys and values as attention saves them: views keep the whole of the storage they look into."""
    shape, n, act = run.shape, run.n, run.act
    if run.policy.attention_kernel != "eager":
        return _views(run)
    copies = copies_of_heads(run, kind)
    if int(run.batch) == 1 or shape.kv_heads == 1:
        projected, *rotated = _views(run)
        if copies and rotated:  # the copy stands for the queries
            rotated = [(1, run.tokens * (n.n_kv_heads * n.head_dim) * act)]
        return [*copies, *rotated, projected]
    of_norm = run.policy.norm_kernel == "fused" or not run.narrow
    return [*copies, _projected(run)] if shape.qk_norm and of_norm else copies


def scores_in_blocks(length: int) -> Term:
    """Scores of one head: each query's row is as long as the keys up to the end of its block, whatever it sees."""
    whole = -(-length // QUERY_BLOCK) * QUERY_BLOCK
    return Symbol("block_scores", whole * (whole + QUERY_BLOCK) // 2)


def scratch_of_blocks(run: ForwardPass) -> Term:
    """A thread's room: queries, keys, values, scores and their gradients of one head, with room for vectors."""
    width = -(-int(run.n.head_dim) // QUERY_BLOCK) * QUERY_BLOCK
    rows = -(-int(run.seq) // QUERY_BLOCK) * QUERY_BLOCK + 3 * QUERY_BLOCK
    return Symbol("block_scratch", (5 * width + 3 * QUERY_BLOCK) * rows) * run.act


def copies_of_heads(run: ForwardPass, kind: Kind) -> Tensors:
    """Whole score matrices want batch and key heads as one dimension, which copies unless one of the two is 1."""
    n, kernel = run.n, run.policy.attention_kernel
    if run.transformers:
        return transformers_blocks.repeated(run, kind)
    queries = (1, run.tokens * (n.n_heads * n.head_dim) * run.act)
    keys_and_values = (2, run.tokens * (n.n_kv_heads * n.head_dim) * run.act)
    if kernel != "eager":
        return []
    if int(run.batch) == 1 or run.shape.kv_heads == 1:
        return [] if run.shape.kv_heads == run.shape.num_heads or int(run.seq) == 1 else [queries]
    return [queries, keys_and_values]


def norm_tensors(run: ForwardPass, tokens: Term, width: Term) -> Tensors:
    """Tensors that one norm saves: its input, raw or normalised, and statistics of each position in fp32."""
    if run.shape.norm == "none":
        return []
    if run.shape.norm == "layernorm":  # without weights in fp32, as OLMo computes it
        return [(1, tokens * width * (run.residual if run.shape.norm_weights else Term(4))), (2, 4 * tokens)]
    if run.policy.norm_kernel == "composite":  # input and normalised input, in fp32 whatever came in, and the statistic
        # a norm without trained weights has no use for the normalised input
        copies = 1 if run.shape.lora_rank is not None or not run.shape.norm_weights else 2
        return [(copies, 4 * (tokens * width)), (1, 4 * tokens)]
    return [(1, tokens * width * run.residual), (1, 4 * tokens)]


def head_tensors(run: ForwardPass) -> dict[Component, Tensors]:
    """Tensors that the final norm, the head and the loss save."""
    n = run.n
    saved = {Component.FINAL_NORM: norm_tensors(run, run.between, n.d_model)}
    if run.policy.loss == "chunked":  # its gradients are ready on the way forward, and nothing else is saved
        gradients: Tensors = [(1, run.tokens * n.d_model * run.residual)]
        if run.shape.lora_rank is None:  # adapters leave the head frozen
            gradients.append((1, n.vocab * n.d_model * run.weight))
        return {**saved, Component.LOSS: gradients}
    if run.shape.lora_rank is None:
        saved[Component.HEAD_INPUT] = [(1, run.between * n.d_model * run.act)]
    if run.policy.precision == "autocast":
        saved[Component.HEAD_IN_BF16] = [(1, 2 * (n.vocab * n.d_model))]
    # log-probabilities, targets, and the sum of weights
    saved[Component.LOSS] = [(1, 4 * (run.tokens * run.loss_vocab)), (1, 8 * run.tokens), (1, Term(4))]
    return saved
