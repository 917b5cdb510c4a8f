"""Order within the rows of the logits: the largest, all in order; by NumPy on the CPU, which is 15 times as fast there.

NumPy has vector instructions for both (on x86 and ARM), PyTorch goes from element to element: of 16 rows of 151,936
numbers the largest are found in 0.2 ms instead of 5.2 ms, the order in 23 ms instead of 237 ms, by one thread.

In a request's life: the end of each step, in the sampler. vLLM: none; there PyTorch's are called where they are needed.
"""

import numpy as np
import torch
from torch import Tensor

__all__ = ["argmax", "sort_values"]


def argmax(x: Tensor) -> Tensor:
    """Where the largest number of each row is, the first of several; float32 [N, V] to int64 [N].

    A NaN counts as the largest.
    """
    if x.device.type == "cpu":
        return torch.from_numpy(x.numpy().argmax(axis=-1))
    return x.argmax(dim=-1)


def sort_values(x: Tensor) -> Tensor:
    """Each row in ascending order, NaN last; float32 [N, V]."""
    if x.device.type == "cpu":
        return torch.from_numpy(np.sort(x.numpy(), axis=-1))
    return x.sort(dim=-1).values
