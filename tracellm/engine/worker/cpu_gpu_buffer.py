"""Buffers filled on the host and read on the device: the way of every step's inputs and sampling parameters.

On CUDA the host side is pinned memory, so that a copy does not make the host wait; on the CPU both sides are the same
memory and nothing is copied. `async_tensor_h2d` sends what has no fixed buffer, without waiting either.

vLLM: vllm/v1/utils.py::CpuGpuBuffer and vllm/utils/torch_utils.py::async_tensor_h2d.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["BatchColumn", "BatchRows", "CpuGpuBuffer", "async_tensor_h2d"]


class CpuGpuBuffer:
    """One tensor in three views: `np` to write, `cpu` the same memory as a tensor, `gpu` on the device."""

    def __init__(self, *size: int, dtype: torch.dtype, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self.cpu: Tensor = torch.zeros(*size, dtype=dtype, pin_memory=on_gpu)
        self.gpu: Tensor = torch.zeros(*size, dtype=dtype, device=device) if on_gpu else self.cpu
        self.np = self.cpu.numpy()

    def copy_to_gpu(self, n: int) -> Tensor:
        """Send the first `n` entries (rows) to the device without waiting, and return them there.

        A later step never overwrites what is still being copied: a step ends when the sampled tokens are back on the
        host, and under asynchronous scheduling the model runner waits for the copies.
        """
        if self.gpu is not self.cpu:
            self.gpu[:n].copy_(self.cpu[:n], non_blocking=True)
        return self.gpu[:n]


class BatchColumn:
    """One number per row of the batch, sent to the device only after a number has changed."""

    def __init__(self, max_num_reqs: int, neutral: float, dtype: torch.dtype, device: torch.device) -> None:
        """Make a column in which every row has the number without effect, `neutral`."""
        self._neutral = neutral
        self._buffer = CpuGpuBuffer(max_num_reqs, dtype=dtype, device=device)
        self._buffer.np[:] = neutral
        self._is_stale = True

    def set(self, row: int, value: float) -> None:
        """Replace the number of a row."""
        if self._buffer.np[row] != value:
            self._buffer.np[row] = value
            self._is_stale = True

    def count(self, num_reqs: int) -> int:
        """Count the rows whose number has an effect."""
        return int(np.count_nonzero(self._buffer.np[:num_reqs] != self._neutral))

    def get(self, num_reqs: int) -> Tensor | None:
        """Return the numbers on the device, [num_reqs]; None if none of them has an effect."""
        return self.to_device(num_reqs) if self.count(num_reqs) else None

    def to_device(self, num_reqs: int) -> Tensor:
        """Return the numbers on the device, [num_reqs]."""
        if self._is_stale:
            self._buffer.copy_to_gpu(len(self._buffer.np))
            self._is_stale = False
        return self._buffer.gpu[:num_reqs]


class BatchRows:
    """A list of numbers for some rows of the batch, padded to one tensor; exists while a row has one."""

    def __init__(self, max_num_reqs: int, padding: int, dtype: torch.dtype, device: torch.device) -> None:
        self._max_num_reqs, self._padding, self._dtype, self._device = max_num_reqs, padding, dtype, device
        self._lengths: dict[int, int] = {}
        self._tensor = self._make(0)

    def _make(self, width: int) -> Tensor:
        return torch.full((self._max_num_reqs, width), self._padding, dtype=self._dtype, device=self._device)

    def set(self, row: int, values: Sequence[int] | np.ndarray | None) -> None:
        """Replace the numbers of a row; None removes them."""
        if self._lengths.pop(row, None) is not None:
            self._tensor[row] = self._padding
        if values is not None:
            if len(values) > (width := self._tensor.shape[1]):
                smaller, self._tensor = self._tensor, self._make(len(values))
                self._tensor[:, :width] = smaller
            self._tensor[row, : len(values)] = async_tensor_h2d(values, self._dtype, self._device)
            self._lengths[row] = len(values)
        elif not self._lengths:
            self._tensor = self._make(0)

    def get(self, num_reqs: int) -> Tensor | None:
        """Return the rows on the device, [num_reqs, longest list]; None if no row has one."""
        return self._tensor[:num_reqs, : max(self._lengths.values())] if self._lengths else None


def async_tensor_h2d(data: Sequence[Any] | np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the numbers, of any shape, as a tensor on the device; on the CPU an array's memory is shared.

    On CUDA they are copied from pinned memory, which PyTorch keeps until the copy is done. A copy from pageable memory
    would make the host wait for the device, which under asynchronous scheduling still runs the step before.
    """
    if device.type != "cuda":
        return torch.as_tensor(data, dtype=dtype, device=device)
    return torch.as_tensor(data, dtype=dtype).pin_memory().to(device, non_blocking=True)
