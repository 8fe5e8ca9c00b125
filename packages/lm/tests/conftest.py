"""One thread: the matrices here are too small for two, and on a busy machine waiting for the second takes milliseconds."""

import torch

torch.set_num_threads(1)
