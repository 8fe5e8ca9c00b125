"""One thread: the matrices here are too small for two, and on a busy machine waiting for the second takes milliseconds.

Where there is no CUDA device, Triton's kernels run in its interpreter, which has to be said before Triton is imported.
"""

import os

import torch

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
