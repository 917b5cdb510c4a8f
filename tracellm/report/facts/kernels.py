"""The Triton kernels of a run, step by step: launches, launch and run times, bytes and operations.

The two times are separate: a launch returns as soon as it is queued for the GPU
(probes/catalog/engine/triton_launches.py).
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from tracellm.report.facts.requests import as_int, as_list
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.steps import engine_key, step_around

__all__ = ["KernelFacts", "kernels"]


@dataclass(slots=True)
class KernelFacts:
    """All launches of one kernel in one step.

    Attributes:
        name: name of the kernel.
        step: id of the step's span; None outside of steps: measuring memory, capturing graphs.
        launches: number of launches.
        launch_ns: time of the launching calls; in Triton's interpreter that of the kernel itself.
        timed: number of launches with a known GPU time; 0 without a GPU.
        gpu_ns: GPU time of those.
        timed_bytes: bytes moved by those.
        timed_flops: floating-point operations of those.
        bytes: bytes read and written by all, as the launches recorded it.
        flops: floating-point operations of all.
    """

    name: str
    step: str | None
    launches: int = 0
    launch_ns: int = 0
    timed: int = 0
    gpu_ns: int = 0
    timed_bytes: int = 0
    timed_flops: int = 0
    bytes: int = 0
    flops: int = 0


def kernels(trace: Trace) -> list[KernelFacts]:
    """Return the launched kernels of each step, in the order of their first launches."""
    times = dict(_gpu_times(trace))
    found: dict[tuple[str | None, str], KernelFacts] = {}
    for span in trace.spans:
        if names.LAUNCH_GRID not in span.attributes:
            continue
        around = step_around(trace, span)
        step = around.span_id if around is not None else None
        facts = found.setdefault((step, span.name), KernelFacts(span.name, step))
        moved = sum(as_int(span.attributes.get(n)) or 0 for n in (names.LAUNCH_BYTES_READ, names.LAUNCH_BYTES_WRITTEN))
        flops = as_int(span.attributes.get(names.LAUNCH_FLOPS)) or 0
        facts.launches += 1
        facts.launch_ns += span.duration_ns
        facts.bytes += moved
        facts.flops += flops
        time = times.get((engine_key(span), as_int(span.attributes.get(names.LAUNCH_NUMBER)) or 0))
        if time is not None:
            facts.timed += 1
            facts.gpu_ns += time
            facts.timed_bytes += moved
            facts.timed_flops += flops
    return list(found.values())


def _gpu_times(trace: Trace) -> Iterator[tuple[tuple[Hashable, int], int]]:
    """Yield the GPU time of each launch in nanoseconds, by process and number."""
    for span in trace.spans:
        if names.GPU_LAUNCHES in span.attributes:
            numbers, times = (as_list(span.attributes.get(n)) for n in (names.GPU_LAUNCHES, names.GPU_TIMES))
            for number, time in zip(numbers, times, strict=False):
                if isinstance(number, int) and isinstance(time, int):
                    yield (engine_key(span), number), time
