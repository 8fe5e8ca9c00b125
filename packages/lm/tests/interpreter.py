"""The device of the tests: the CPU, with Triton's kernels in its interpreter, also where there is a GPU; with
GROUNDUP_GPU=1 on CUDA, as `nox -s gpu` does. Both have to be said before Triton is imported.

The interpreter is made stricter than Triton leaves it. It computes bfloat16 as a device does. The programs of a launch
run in a random order. A launch fails that touches what lies outside its tensors, or whose programs touch what another
one of them writes: on a device the result of such a launch would depend on chance.
"""

# ruff: noqa: E402 (torch and what imports it come after the environment)

import functools
import importlib.util
import os
import random
import sys

# Read when torch is loaded: threads that spin while they wait for others take the processor from these and from the
# tests beside them, up to thirty times the work itself.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
LATE = False
if os.environ.get("GROUNDUP_GPU") != "1":
    LATE = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import pytest
import torch
from hypothesis import Phase

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # to shrink a failure takes the interpreter minutes

# Triton's interpreter passes NumPy what NumPy calls deprecated, and overflows where a masked row is thrown away.
# On CUDA the first product may be in the thread of the backward pass, which has no context, and torch says that.
MARKS = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
]
needs_cuda = pytest.mark.skipif(not CUDA, reason="needs CUDA: nox -s gpu")

UNTOUCHED, SHARED = -1, -2  # beside the number of the only program that touched an element
LARGEST_WATCHED = 1 << 28  # bytes of a storage, whose elements each have two numbers beside them


def tensors_in(arguments):
    """The tensors among a launch's arguments, in its tuples and descriptors too."""
    for x in arguments:
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, tuple):
            yield from tensors_in(x)
        elif hasattr(x, "block_shape"):
            yield x.base


class Region:
    """One storage of a launch: which of its elements belong to a tensor, and which program reads and writes them."""

    def __init__(self, tensor):
        storage = tensor.untyped_storage()
        self.size, self.base = tensor.element_size(), storage.data_ptr()
        self.end = self.base + storage.nbytes()
        self.writer = None
        if storage.nbytes() <= LARGEST_WATCHED:
            count = -(-storage.nbytes() // self.size)
            self.inside, self.writer, self.reader = np.zeros(count, bool), *np.full((2, count), UNTOUCHED, np.int32)

    def add(self, tensor):
        """Allow the elements of a tensor, which need not be all that its storage has."""
        if self.writer is not None:
            elements = torch.from_numpy(self.inside).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
            elements.fill_(True)

    def touch(self, addresses, program, writes):
        """Record what a program reads or writes at once. MemoryError: that is outside the tensors, or shared."""
        places = (addresses.astype(np.int64) - self.base) // self.size
        if addresses.max() + self.size > self.end:
            raise MemoryError("a program goes over the end of a tensor")
        if self.writer is None:
            return
        if not self.inside[places].all():
            raise MemoryError("a program touches what no tensor of the launch has")
        touched = (self.writer, self.reader) if writes else (self.writer,)
        if any(((owner[places] != UNTOUCHED) & (owner[places] != program)).any() for owner in touched):
            raise MemoryError("two programs touch an element that one of them writes")
        owner = self.writer if writes else self.reader
        owner[places] = np.where((owner[places] == UNTOUCHED) | (owner[places] == program), program, SHARED)


def bfloat16_rounded(x):
    """Bits of x in bfloat16, rounded to the nearest, of two the even one. NumPy has no such dtype."""
    return torch.from_numpy(np.ascontiguousarray(x, np.float32)).bfloat16().view(torch.uint16).numpy()


def widened(x):
    """float32 of the bits of bfloat16."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def make_strict():
    """Change Triton's interpreter as this module says."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    cast, dot, binary = builder.cast_impl, builder.create_dot, builder.binary_op
    load, store = builder.create_masked_load, builder.create_masked_store
    launch, set_grid_idx = interpreter.GridExecutor.__call__, builder.set_grid_idx
    orders, regions, current = random.Random(0), {}, [0]

    def wide(x):
        return handle(widened(x.data), tl.float32) if x.dtype.scalar == tl.bfloat16 else x

    @functools.wraps(cast)
    def strict_cast(self, x, dtype):
        if dtype.scalar == tl.bfloat16:
            return handle(bfloat16_rounded(wide(x).data), tl.bfloat16)
        return cast(self, wide(x), dtype)

    @functools.wraps(dot)
    def strict_dot(self, a, b, *rest):
        return dot(self, wide(a), wide(b), *rest)

    def strict_binary(self, a, b, operation):
        if a.dtype.scalar == tl.bfloat16:
            raise TypeError("a kernel computes in bfloat16, whose bits are integers here: widen to float32 first")
        return binary(self, a, b, operation)

    def touch(pointers, mask, writes):
        addresses = np.broadcast_to(pointers.data, mask.data.shape)[mask.data]
        if addresses.size:
            first = addresses.min()
            region = next((r for r in regions.values() if r.base <= first < r.end), None)
            if region is None:
                raise MemoryError("a program starts outside every tensor of the launch")
            region.touch(addresses, current[0], writes)

    def strict_load(self, pointers, mask, *rest, **named):
        touch(pointers, mask, False)
        return load(self, pointers, mask, *rest, **named)

    def strict_store(self, pointers, value, mask, *rest, **named):
        touch(pointers, mask, True)
        return store(self, pointers, value, mask, *rest, **named)

    def shuffled(self, x, y, z):
        _, rows, columns = self.grid_dim
        place = (x * rows + y) * columns + z
        if place == 0:
            self.order = orders.sample(range(self.grid_dim[0] * rows * columns), self.grid_dim[0] * rows * columns)
        current[0] = number = self.order[place]
        set_grid_idx(self, number // columns // rows, number // columns % rows, number % columns)

    def watched(self, *arguments, **named):
        regions.clear()
        for tensor in tensors_in((*arguments, *named.values())):
            if tensor.numel():
                key = tensor.untyped_storage().data_ptr()
                regions[key] = regions.get(key) or Region(tensor)
                regions[key].add(tensor)
        return launch(self, *arguments, **named)

    builder.cast_impl, builder.create_dot, builder.binary_op = strict_cast, strict_dot, strict_binary
    builder.create_masked_load, builder.create_masked_store = strict_load, strict_store
    builder.set_grid_idx, interpreter.GridExecutor.__call__ = shuffled, watched


if not CUDA and not LATE and importlib.util.find_spec("triton") is not None:
    make_strict()
    from lm.ops.triton import problem

    problem.DTYPES.add(torch.bfloat16)  # which it multiplies as a device does now
