"""How long one call of an operation takes: on a CPU by its clock, on a GPU by replays of a CUDA graph full of calls.

A call on a GPU only asks for work, and asking takes the host some microseconds, often longer than the work: who timed
calls would measure the host. So many of them are captured into one graph, whose replay is asked for once, and two
events in the GPU's queue, before and behind it, tell how long all of them took. What asking takes is told beside it.

    host   ask, ask, ask ...  (once, for the capture)       replay
    GPU                                                       |event| call | call | call | ... | call |event|

`tracellm bench kernels` (kernels.py). vLLM: benchmarks/kernels/, by `triton.testing.do_bench_cudagraph`.
"""

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from math import ceil
from typing import Any, Protocol

__all__ = ["Turn", "make_turn"]

_TURN_SECONDS = 0.02
_MOST_CALLS = 10_000
_MOST_LAUNCHES = 1_000
"""In a graph, whose capture takes the host as long as so many launches; in a queue, before the host has to wait."""

Calls = Sequence[Callable[[], object]]
"""An operation, on each copy of its tensors."""


class Turn(Protocol):
    """One operation of one implementation."""

    def seconds(self) -> float:
        """How long a call takes, on average of many."""
        ...

    def launch_seconds(self) -> float | None:
        """How long the host takes to ask for one; None where it computes by itself."""
        ...


def make_turn(calls: Calls, device: Any) -> Turn:
    """The operation is called on each copy once: that compiles, tunes, and touches all memory."""
    for call in calls:
        call()
    return OnGpu(calls) if device.type == "cuda" else OnCpu(calls)


class OnCpu:
    """Calls often enough for a clock to tell."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._count = len(calls)
        while (once := self.seconds()) * self._count < _TURN_SECONDS and self._count < _MOST_CALLS:
            self._count = min(_MOST_CALLS, max(2 * self._count, int(_TURN_SECONDS / once)))

    def seconds(self) -> float:
        """See `Turn.seconds`."""
        return _host_seconds(self._calls, self._count)

    def launch_seconds(self) -> None:
        """There is no asking."""


class OnGpu:
    """Replays a graph of whole rounds over the copies.

    Args:
        calls: nothing in them waits for the GPU, and what they work out once, as a plan of attention, is worked out.
        cuda: `torch.cuda`; tests have one of their own.
    """

    def __init__(self, calls: Calls, cuda: Any = None) -> None:
        if cuda is None:
            from torch import cuda
        self._calls, self._cuda = calls, cuda
        once = self._between_events(lambda: self._call(len(calls))) / len(calls)  # as yet with the host's time
        rounds = ceil(min(_TURN_SECONDS / max(once, 1e-9), _MOST_LAUNCHES) / len(calls))
        self._count = max(1, rounds) * len(calls)
        self._graph = cuda.CUDAGraph()
        with cuda.graph(self._graph):
            self._call(self._count)
        self.seconds()  # the first replay brings the graph to the GPU

    def seconds(self) -> float:
        """See `Turn.seconds`."""
        return self._between_events(self._graph.replay) / self._count

    def launch_seconds(self) -> float:
        """See `Turn.launch_seconds`."""
        self._cuda.synchronize()  # an empty queue has room for all
        taken = _host_seconds(self._calls, min(self._count, _MOST_LAUNCHES))
        self._cuda.synchronize()
        return taken

    def _call(self, count: int) -> None:
        for call in islice(cycle(self._calls), count):
            call()

    def _between_events(self, work: Callable[[], object]) -> float:
        """The GPU's time from before this work to behind it, in seconds."""
        before, behind = (self._cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        work()
        behind.record()
        behind.synchronize()
        milliseconds: float = before.elapsed_time(behind)
        return milliseconds / 1e3


def _host_seconds(calls: Calls, count: int) -> float:
    """Of one call, on average of so many, by the host's clock."""
    start = time.perf_counter()
    for call in islice(cycle(calls), count):
        call()
    return (time.perf_counter() - start) / count
