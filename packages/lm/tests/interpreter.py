"""Where the tests compute: on the CPU, and Triton's kernels in its interpreter, also where there is a GPU; with
GROUNDUP_GPU=1 on CUDA, as `nox -s gpu` does. Both have to be said before Triton is imported."""

import os
import sys

LATE = False
if os.environ.get("GROUNDUP_GPU") != "1":
    LATE = "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TRITON_INTERPRET"] = "1"
