"""The settings of training and inference that decide memory: one object, passed as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

from accounting.checks import booleans, choose, positive, whole

LOGITS_CHUNK_BYTES = 512 << 20  # what lm takes on CUDA: lm.loss.CHUNK_BYTES["cuda"]


@dataclass(frozen=True)
class Precision:
    """Bytes of one number in the weights and their gradients, in the residual stream and norms, and in all else."""

    weights: int
    residual: int
    activations: int
    master_weights: bool  # fp32 weights in the optimizer


PRECISIONS = {
    "fp32": Precision(4, 4, 4, False),
    "bf16": Precision(2, 2, 2, True),
    "pure_bf16": Precision(2, 2, 2, False),
    # fp32 weights, of which every matrix multiplication reads a bf16 copy: torch.autocast
    "autocast": Precision(4, 4, 2, False),
    # bf16 beside which every matrix of a block and what it multiplies are stored in fp8: Transformer Engine
    "fp8": Precision(2, 2, 2, True),
}
SETTINGS = {  # the names that a field of Policy may have, its default first
    "precision": tuple(PRECISIONS),
    "optimizer": ("adamw", "adamw8bit", "sgd", "muon"),
    "optimizer_step": ("fused", "foreach", "loop"),
    "attention_kernel": ("fused", "eager", "blocks"),
    "norm_kernel": ("fused", "composite"),
    "gate_kernel": ("composite", "fused"),
    "activation_checkpointing": ("none", "selective", "operators", "full"),
    "loss": ("plain", "shifted", "chunked"),
    "loss_kernel": ("operators", "fused"),
    "allocator": ("exact", "cuda", "reserved"),
    "gradient_dtype": ("weights", "fp32"),
    "moment_dtype": ("fp32", "bf16"),
    "offload": ("none", "optimizer", "activations"),
    "frozen_dtype": ("weights", "nf4"),
    "model_code": ("lm", "transformers"),
}


@dataclass(frozen=True)
class Policy:
    """The settings of a step; ValueError for a setting that is not known.

    Args:
        precision: "fp32"; "bf16" for weights, gradients and activations, with fp32 master weights in the optimizer;
            "pure_bf16" without master weights; "autocast" for fp32 weights, gradients and residual stream, with matrix
            multiplications in bf16, whose copies of the weights autograd keeps; "fp8" as bf16, with an fp8 copy and its
            transpose of each matrix of a block, and the inputs of those matrices saved in fp8 (by Transformer Engine's
            rules, not measured).
        optimizer: "adamw", "adamw8bit" (bitsandbytes), "sgd" (with momentum) or "muon".
        optimizer_step: "fused", "foreach" or "loop": how PyTorch goes over the parameters, which decides the
            temporaries.
        attention_kernel: what attention saves. "fused" saves queries, keys, values, output and one log-sum-exp a row
            (FlashAttention); "eager" saves the seq × seq weights; "blocks" of each block of 32 queries those up to its
            last (lm on a CPU in fp32). How many FLOPs are counted is another question: `pairs` of forward_flops.
        norm_kernel: what an RMSNorm saves. "fused" its input; "composite" that divided by its root mean square too
            (PyTorch's own on a CPU).
        gate_kernel: what a gated feed-forward layer saves between its matrices. "composite" gate and up, the activated
            gate and the product (PyTorch's operators); "fused" all but the activated gate.
        activation_checkpointing: "selective" saves what enters attention's inside but nothing of it (Korthikanti et al.
            2022); "operators" what enters each block and the outputs of attention and of every second matmul, as
            torchtitan does; "full" only what enters each block (Chen et al. 2016).
        loss: "plain" saves log-probabilities; "shifted" holds the logits in fp32 beside them to the end, as
            transformers does; "chunked" saves the gradients of hidden state and head.
        loss_kernel: in what numbers the chunked loss holds logits. "operators" in fp32, beside a copy in those of the
            matrix multiplications; "fused" in the latter alone (lm's kernel on CUDA).
        logits_chunk_bytes: of logits that the chunked loss has alive at once, as if all were fp32: it decides how many
            rows they are.
        gradient_accumulation: the gradients of earlier micro-batches are there from the start.
        allocator: "cuda" adds what rounding every tensor up to a block takes (see memory/allocator.py), with the step
            counter that fused AdamW keeps on the device for each parameter. "reserved" adds the logits in 16 bits,
            whose segment is too small for fp32 ones and stays cached: what max_memory_reserved() has at the loss.
        gradient_dtype: "weights" as the weights; "fp32" adds every gradient up in fp32, in buffers that are there from
            the start, as Megatron-LM does for bf16 weights.
        overhead_bytes: what driver, context and libraries take besides, in every phase.
        moment_dtype: of AdamW's moments and SGD's momentum.
        offload: "optimizer" keeps its state in the host's memory, where the step is computed (ZeRO-Offload);
            "activations" keeps there what full checkpointing saves of each block (Unsloth).
        frozen_dtype: how matrices beside adapters are stored: "nf4" in 4 bits with doubly quantised scales (QLoRA).
            With precision "autocast" all else is fp32, as PEFT's prepare_model_for_kbit_training leaves it.
        model_code: whose code the saved tensors follow, "lm" or "transformers": the latter has a matrix each for
            queries, keys, values, gate and up, and repeats keys and values for eager attention. Layers that lm cannot
            build follow transformers. Dropout is counted of neither: it would save a mask for each use.

    >>> Policy(precision="bf16", activation_checkpointing="full").description
    'bf16, fused attention, fused norms, plain loss, activation checkpointing full'
    """

    precision: str = "fp32"
    optimizer: str = "adamw"
    optimizer_step: str = "fused"
    attention_kernel: str = "fused"
    norm_kernel: str = "fused"
    gate_kernel: str = "composite"
    activation_checkpointing: str = "none"
    loss: str = "plain"
    loss_kernel: str = "operators"
    logits_chunk_bytes: int = LOGITS_CHUNK_BYTES
    gradient_accumulation: bool = False
    allocator: str = "exact"
    gradient_dtype: str = "weights"
    overhead_bytes: int = 0
    moment_dtype: str = "fp32"
    offload: str = "none"
    frozen_dtype: str = "weights"
    model_code: str = "lm"

    def __post_init__(self) -> None:
        for name, among in SETTINGS.items():
            choose(name, getattr(self, name), among)
        counted = self.optimizer in ("adamw", "sgd") and self.optimizer_step == "fused"
        for name, value in (("moment_dtype", "bf16"), ("offload", "optimizer")):
            if getattr(self, name) == value and not counted:
                raise ValueError(f"{name} {value!r} is counted of a fused step of adamw or sgd: use one of them")
        if self.frozen_dtype == "nf4" and self.precision not in ("bf16", "pure_bf16", "autocast"):
            raise ValueError(f"frozen_dtype 'nf4' is not counted with precision {self.precision!r}: use 'bf16'")
        if self.offload == "activations" and self.activation_checkpointing != "full":
            raise ValueError("offload 'activations' moves what activation_checkpointing 'full' saves: set that too")
        positive("logits_chunk_bytes", self.logits_chunk_bytes)
        whole("overhead_bytes", self.overhead_bytes)
        booleans(self, ("gradient_accumulation",))

    @property
    def bytes(self) -> Precision:
        """Bytes of one number, by what it is a number of."""
        return PRECISIONS[self.precision]

    @property
    def moment_bytes(self) -> int:
        """Bytes of one element of a moment."""
        return 2 if self.moment_dtype == "bf16" else 4

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one gradient where it is added up."""
        return 4 if self.gradient_dtype == "fp32" else self.bytes.weights

    @property
    def accumulates(self) -> bool:
        """True if buffers of all gradients are there from the start."""
        return self.gradient_accumulation or self.gradient_dtype == "fp32"

    @property
    def description(self) -> str:
        """The settings that decide the saved activations, in words."""
        return (
            f"{self.precision}, {self.attention_kernel} attention, {self.norm_kernel} norms, {self.loss} loss, "
            f"activation checkpointing {self.activation_checkpointing}"
        )


DEFAULT = Policy()
_TUNING = Policy(precision="pure_bf16", activation_checkpointing="full", loss="chunked")
# What torchtitan does, and the others when they tune adapters; each against published peaks in
# tests/test_storage_of_training.py.
STACKS = {
    "torchtitan": Policy(precision="bf16", activation_checkpointing="operators", allocator="reserved"),
    "torchtune": _TUNING,
    "trl+peft": replace(_TUNING, precision="autocast", loss="shifted", frozen_dtype="nf4"),
    "unsloth": replace(_TUNING, offload="activations", frozen_dtype="nf4"),
}
