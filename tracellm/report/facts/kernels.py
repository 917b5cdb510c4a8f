"""The Triton kernels of a run: launches, launch and run times, bytes and operations.

The two times are separate: a launch returns as soon as it is queued for the GPU
(probes/catalog/engine/triton_launches.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tracellm.report.facts.requests import as_int, as_list
from tracellm.trace import names
from tracellm.trace.model import Span, Trace

__all__ = ["KernelFacts", "kernels"]


@dataclass(slots=True)
class KernelFacts:
    """All launches of one kernel.

    Attributes:
        name: name of the kernel.
        launches: number of launches.
        launch_ns: time of the launching calls; in Triton's interpreter that of the kernel itself.
        timed: number of launches with a known GPU time; 0 without a GPU.
        gpu_ns: GPU time of those.
        timed_bytes: bytes moved by those.
        bytes: bytes read and written by all, as the launches recorded it.
        flops: floating-point operations of all.
    """

    name: str
    launches: int = 0
    launch_ns: int = 0
    timed: int = 0
    gpu_ns: int = 0
    timed_bytes: int = 0
    bytes: int = 0
    flops: int = 0


def kernels(trace: Trace) -> list[KernelFacts]:
    """Return the launched kernels, the longest first: by GPU time, else by launch time."""
    times = dict(_gpu_times(trace))
    found: dict[str, KernelFacts] = {}
    for span in trace.spans:
        if names.LAUNCH_GRID not in span.attributes:
            continue
        facts = found.setdefault(span.name, KernelFacts(span.name))
        moved = sum(as_int(span.attributes.get(n)) or 0 for n in (names.LAUNCH_BYTES_READ, names.LAUNCH_BYTES_WRITTEN))
        facts.launches += 1
        facts.launch_ns += span.duration_ns
        facts.bytes += moved
        facts.flops += as_int(span.attributes.get(names.LAUNCH_FLOPS)) or 0
        time = times.get((_process(span), as_int(span.attributes.get(names.LAUNCH_NUMBER)) or 0))
        if time is not None:
            facts.timed += 1
            facts.gpu_ns += time
            facts.timed_bytes += moved
    return sorted(found.values(), key=lambda kernel: (-kernel.gpu_ns, -kernel.launch_ns, kernel.name))


def _gpu_times(trace: Trace) -> Iterator[tuple[tuple[int, int], int]]:
    """GPU time of each launch in nanoseconds, by process and number."""
    for span in trace.spans:
        if names.GPU_LAUNCHES in span.attributes:
            numbers, times = (as_list(span.attributes.get(n)) for n in (names.GPU_LAUNCHES, names.GPU_TIMES))
            for number, time in zip(numbers, times, strict=False):
                if isinstance(number, int) and isinstance(time, int):
                    yield (_process(span), number), time


def _process(span: Span) -> int:
    return span.process.pid if span.process is not None else 0
