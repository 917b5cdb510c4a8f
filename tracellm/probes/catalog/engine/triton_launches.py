"""Launches of Triton kernels: the grid, block sizes and tensors, the work to do, and the time on the GPU.

A launch only queues work, so the time on the GPU is measured by two CUDA events around the kernel in the GPU's queue.
They are read when a step's tokens have arrived (runner.py); the probe never waits for the GPU. A hook of Triton's moves
the first event past the host's work for the launch. Launches captured into a CUDA graph have no time, as they do not
run. Launches that compile or tune their kernel have none either, as other work runs between the events.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import count
from typing import Any

from tracellm.probes.catalog.engine.triton_work import estimate_work
from tracellm.probes.catalog.entries import ours_only
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.wrapping.probe import code_constants
from tracellm.probes.wrapping.summary import brief, written
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.ranges import format_ranges

__all__ = ["ENTRIES", "gpu_times"]

_MAX_PENDING = 10_000
"""Maximum number of launches kept until their time is read; then the oldest are dropped."""

_pending: deque[tuple[int, Any, Any]] = deque(maxlen=_MAX_PENDING)
"""Number, event before and event after of launches that the GPU may not have finished."""

_next_launch = count(1).__next__
_current = threading.local()


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Put an event into the GPU's queue before the kernel."""
    _current.compiled, _current.event = _times_compiled(args[0]), _new_event(args)
    if _current.event is not None:
        _install_hook()


@cache
def _install_hook() -> None:
    """Let Triton call `_at_launch` from now on."""
    from triton import knobs

    if knobs.runtime.launch_enter_hook is None:  # Triton 3.4 has room for one
        knobs.runtime.launch_enter_hook = _at_launch
    else:
        knobs.runtime.launch_enter_hook.add(_at_launch)


def _at_launch(metadata: Any) -> None:
    """Move the event before the kernel, now that the host has prepared the launch."""
    event = getattr(_current, "event", None)
    if event is not None:
        event.record()


def _times_compiled(kernel: Any) -> int:
    """Count a kernel's compiled variants, by types of arguments and configurations, and its tuning results. A tuning
    may find its kernel compiled already."""
    jitted = kernel.fn if hasattr(kernel, "base_fn") else kernel  # without the tuner around it
    tuned = 0 if jitted is kernel else len(kernel.cache)
    return tuned + sum(len(cache[0]) for cache in getattr(jitted, "device_caches", {}).values())


def _new_event(args: tuple[Any, ...]) -> Any:
    """Record an event in the GPU's queue; None without a GPU, or while a CUDA graph is captured."""
    if not any(getattr(arg, "is_cuda", False) for arg in args[2:]):
        return None
    from torch import cuda

    if cuda.is_current_stream_capturing():
        return None
    event = cuda.Event(enable_timing=True)
    event.record()
    return event


def gpu_times() -> tuple[list[int], list[int]]:
    """Return the numbers of the launches done since the last call, and their times on the GPU in nanoseconds, without
    waiting."""
    numbers, times = [], []
    while _pending and _pending[0][2].query():
        number, before, behind = _pending.popleft()
        numbers.append(number)
        times.append(int(before.elapsed_time(behind) * 1e6))
    return numbers, times


def _capture(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture a call of `launch(kernel, grid, *args, **constants)`."""
    kernel, grid, *passed = args
    number, before, compiled = None, _current.event, _times_compiled(kernel) > _current.compiled
    _current.event = None
    if before is not None and not compiled:
        number = _next_launch()
        _pending.append((number, before, _new_event(args)))
    constants = dict(kwargs)
    best = getattr(kernel, "best_config", None)
    if best is not None:
        constants |= {**best.kwargs, "num_warps": best.num_warps, "num_stages": best.num_stages}
    code = _code(kernel)
    work = estimate_work(code[0], {**dict(zip(kernel.arg_names, passed, strict=False)), **constants})
    return {
        "code": code,
        "grid": list(grid(constants) if callable(grid) else grid),
        "arguments": [(name, brief(value)) for name, value in zip(kernel.arg_names, passed, strict=False)],
        "constants": constants,
        "work": None if work is None else (work.bytes_read, work.bytes_written, work.flops),
        "blocks": None if work is None or work.blocks_read is None else _blocks(work),
        "reason": None if work is None else work.reason,
        "number": number,
        "compiled": compiled or None,
    }


@lru_cache(maxsize=256)
def _code(kernel: Any) -> tuple[str, dict[str, Any]]:
    """Return the kernel's name and its place in the code."""
    function = getattr(kernel, "base_fn", None) or kernel.fn
    return function.__name__, code_constants(function)


@lru_cache(maxsize=8)
def _blocks(work: Any) -> list[str]:
    """Return the blocks that each program reads; cached, as the layers of a step share their work."""
    return [f"{_program(index)}: {format_ranges(blocks)}" for index, blocks in work.blocks_read.items()]


def _program(index: Sequence[int | None]) -> str:
    return ",".join("*" if axis is None else str(axis) for axis in index)


def _attributes(facts: Any) -> Mapping[str, Any]:
    result = f"{' x '.join(map(str, facts['grid']))} programs"
    bytes_read = bytes_written = flops = None
    if facts["work"] is not None:
        bytes_read, bytes_written, flops = facts["work"]
        result += f": {bytes_read:,} bytes read, {bytes_written:,} written, {flops:,} operations"
    attributes = {
        **facts["code"][1],
        **written(facts["arguments"], None),
        names.RESULT: result,
        names.LAUNCH_GRID: facts["grid"],
        names.LAUNCH_CONSTANTS: [f"{name}={value}" for name, value in facts["constants"].items()],
        names.LAUNCH_BYTES_READ: bytes_read,
        names.LAUNCH_BYTES_WRITTEN: bytes_written,
        names.LAUNCH_FLOPS: flops,
        names.LAUNCH_BLOCKS: facts["blocks"],
        names.LAUNCH_REASON: facts["reason"],
        names.LAUNCH_COMPILED: facts["compiled"],
        names.LAUNCH_NUMBER: facts["number"],
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _name(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    """Name the span by the kernel."""
    if facts is not None:
        span.name = facts["code"][0]


ENTRIES = tuple(
    entry
    for package in ("model_executor.ops.triton", "attention.ops")
    for entry in ours_only(
        "kernel",
        f"{package}.*:",  # each module that imports it
        "launch",
        capture=_capture,
        attributes=_attributes,
        before=_before,
        observe=_name,
        span_name=names.LAUNCH_SPAN,
        lifeline="Triton",
    )
)
