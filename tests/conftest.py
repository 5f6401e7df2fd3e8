"""Every test computes as a run does: with one thread."""

import torch

torch.set_num_threads(1)
