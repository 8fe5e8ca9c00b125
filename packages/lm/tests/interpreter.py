"""The device of the tests: the CPU, with Triton's kernels in its interpreter, also where there is a GPU; with
GROUNDUP_GPU=1 on CUDA, as `nox -s gpu` does. Both have to be said before Triton is imported."""

# ruff: noqa: E402 (torch and what imports it come after the environment)

import os
import sys

LATE = False
if os.environ.get("GROUNDUP_GPU") != "1":
    LATE = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch
from hypothesis import Phase

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
DTYPES = [torch.float32, torch.float16] + ([torch.bfloat16] if CUDA else [])  # bfloat16 is wrong in the interpreter
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
