"""A fixed buffer filled on the host with NumPy and read on the device: what every step's inputs pass through.

On CUDA the host side is pinned, so a copy does not wait; on the CPU both sides are the same memory and nothing is
copied. What is sent now and then goes by `async_tensor_h2d`, which does not wait either.

vLLM: vllm/v1/utils.py::CpuGpuBuffer and vllm/utils/torch_utils.py::async_tensor_h2d.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["CpuGpuBuffer", "async_tensor_h2d"]


class CpuGpuBuffer:
    """One tensor, seen three ways: `np` to write, `cpu` the same memory as a tensor, `gpu` on the device."""

    def __init__(self, *size: int, dtype: torch.dtype, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.cpu: Tensor = torch.zeros(*size, dtype=dtype, pin_memory=on_gpu)
        self.gpu: Tensor = torch.zeros(*size, dtype=dtype, device=device) if on_gpu else self.cpu
        self.np = self.cpu.numpy()

    def copy_to_gpu(self, n: int) -> Tensor:
        """Send the first `n` entries (rows) to the device, without waiting; they, there.

        A later step never overwrites what is still being copied: a step ends with the sampled tokens coming back, or
        under asynchronous scheduling the model runner waits for the copies.
        """
        if self.gpu is not self.cpu:
            self.gpu[:n].copy_(self.cpu[:n], non_blocking=True)
        return self.gpu[:n]


def async_tensor_h2d(data: Sequence[Any] | np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """These numbers, of any shape, as a tensor on the device; on the CPU it is an array itself that is given.

    On CUDA they are copied from pinned memory, which PyTorch keeps until the copy is done: from other memory the host
    would wait until the device has come as far, and under asynchronous scheduling that is the step before.
    """
    if device.type != "cuda":
        return torch.as_tensor(data, dtype=dtype, device=device)
    return torch.tensor(data, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
