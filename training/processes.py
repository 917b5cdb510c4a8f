"""One trainer for each core: each computes a part of every step, and they sum their gradients.

Processes synchronize once per step. The threads of one process would do so in every operation, which takes most of the
time on a busy machine.
"""

import logging
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from tracellm.engine.ipc.spawn import end_with_parent

__all__ = ["run_trainers", "sum_gradients"]

MALLOC_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
"""Settings of glibc to keep freed memory, which makes training 4 times as fast on a virtual machine."""

START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
"""Way in which trainers start; elsewhere torch may not work in a fork."""


def run_trainers(train: Callable[[int, Any], None], options: Any, processes: int) -> None:
    """Call `train(rank, options)` in as many `processes`, which form a group with one thread each."""
    os.environ.update(MALLOC_SETTINGS, OMP_NUM_THREADS="1")  # for the fork server, where torch is imported once
    multiprocessing.set_forkserver_preload(["torch", "transformers"])
    with TemporaryDirectory() as folder:
        arguments = (train, options, processes, f"{folder}/rendezvous")
        start_processes(_trainer, arguments, nprocs=processes, start_method=START_METHOD)


def _trainer(rank: int, train: Callable[[int, Any], None], options: Any, processes: int, rendezvous: str) -> None:
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=processes)
    train(rank, options)
    dist.destroy_process_group()


def sum_gradients(parameters: Sequence[torch.nn.Parameter], loss: torch.Tensor) -> float:
    """Sum the gradients of `parameters`, and `loss`, over all trainers. Return the sum of the losses."""
    gradient = torch.cat(
        [p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in parameters] + [loss[None]]
    )
    dist.all_reduce(gradient)
    for p, part in zip(parameters, gradient[:-1].split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p)
    return gradient[-1].item()
