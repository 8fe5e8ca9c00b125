"""Where there is no CUDA device, Triton's kernels run in its interpreter: that has to be said before Triton is
imported."""

import os
import sys

import torch

LATE = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1" and not torch.cuda.is_available()
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
