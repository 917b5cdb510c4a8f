"""Record the addresses that each program of a launch reads and writes in Triton's interpreter."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from tracellm.probes.catalog.engine.triton_work import estimate_work

__all__ = ["Launch", "watched"]


@dataclass
class Launch:
    """Launch with the catalog's estimate of its work, and its actual accesses by index in the grid."""

    name: str
    grid: tuple[int, ...]
    work: Any
    reads: list[tuple[tuple[int, ...], np.ndarray, int]] = field(default_factory=list)
    """Program, addresses, bytes per element; single numbers, such as a sequence's length, are omitted."""
    writes: list[tuple[tuple[int, ...], np.ndarray, int]] = field(default_factory=list)

    def bytes_read(self) -> int:
        """Return the bytes read by all programs."""
        return sum(addresses.size * size for _, addresses, size in self.reads)

    def bytes_written(self) -> int:
        """Return the bytes written by all programs."""
        return sum(addresses.size * size for _, addresses, size in self.writes)

    def blocks_read(self, cache: Tensor) -> dict[tuple[int, ...], list[int]]:
        """Return the blocks of a cache [blocks, ...] that each program read, each once, in order of first access."""
        of_programs: dict[tuple[int, ...], list[int]] = {}
        start, size = cache.data_ptr(), cache.stride(0) * cache.element_size()
        for program, addresses, _ in self.reads:
            blocks = (addresses[(addresses >= start) & (addresses < start + len(cache) * size)] - start) // size
            of_programs.setdefault(program, []).extend(blocks.tolist())
        return {program: list(dict.fromkeys(blocks)) for program, blocks in of_programs.items() if blocks}


@contextmanager
def watched(*modules: Any) -> Iterator[list[Launch]]:
    """Record all launches of these modules' kernels within the `with` block."""
    from triton.runtime.interpreter import interpreter_builder as builder

    launches: list[Launch] = []
    masked_load, masked_store = builder.create_masked_load, builder.create_masked_store

    running: list[Launch] = []  # one, or none for a kernel of another module

    def note(kind: str, pointers: Any, mask: Any) -> None:
        if running and pointers.data.size > 1:
            size = pointers.get_element_ty().primitive_bitwidth // 8
            addresses = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)].astype(np.int64)
            getattr(running[0], kind).append((builder.grid_idx[: len(running[0].grid)], addresses, size))

    def load(pointers: Any, mask: Any, *others: Any) -> Any:
        note("reads", pointers, mask)
        return masked_load(pointers, mask, *others)

    def store(pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        note("writes", pointers, mask)
        return masked_store(pointers, value, mask, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "create_masked_load", load)
        patch.setattr(builder, "create_masked_store", store)
        for module in modules:
            launch = module.launch

            def watch(kernel: Any, grid: Any, *args: Any, launch: Any = launch, **constants: Any) -> None:
                name = getattr(kernel, "base_fn", kernel.fn).__name__
                values = dict(zip(kernel.arg_names, args, strict=False)) | constants
                running.append(Launch(name, grid, estimate_work(name, values)))
                launch(kernel, grid, *args, **constants)
                launches.append(running.pop())

            patch.setattr(module, "launch", watch)
        yield launches
