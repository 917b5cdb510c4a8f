"""Launches of Triton kernels: how many programs, of which sizes, over which tensors, and what they have to do.

A launch only asks the GPU for work, so the time of its call is that of asking. How long the GPU took is known later:
two CUDA events stand before and behind the kernel in the GPU's queue, and when the step's tokens have come (runner.py)
all pairs that have come to pass are asked for the time between. So the probe never waits for the GPU. The first event
is put there at the last moment, by a hook of Triton's: else a GPU with nothing to do would count the host's time, too.

Two kinds of launches have no such time: those that are being captured into a CUDA graph do not run, and while a launch
compiles its kernel, and tries its block sizes, the GPU does other things between the two events.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import count
from typing import Any

from tracellm.probes.catalog.engine.triton_work import estimate_work
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.wrapping.probe import Entry, code_constants
from tracellm.probes.wrapping.summary import brief, written
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.ranges import format_ranges

__all__ = ["ENTRIES", "gpu_times"]

_MOST_WAITING = 10_000  # launches whose time nobody has asked for, as where steps are not recorded: the latest are kept

_waiting: deque[tuple[int, Any, Any]] = deque(maxlen=_MOST_WAITING)
"""Of launches that the GPU has not done, as far as is known: number, event before, event behind."""

_next_launch = count(1).__next__
_here = threading.local()


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Put an event into the GPU's queue before the kernel."""
    _here.compiled, _here.event = _times_compiled(args[0]), _new_event(args)
    if _here.event is not None:
        _listen()


@cache
def _listen() -> None:
    """From now on Triton calls `_at_launch`."""
    from triton import knobs

    if knobs.runtime.launch_enter_hook is None:  # Triton 3.4 has room for one
        knobs.runtime.launch_enter_hook = _at_launch
    else:
        knobs.runtime.launch_enter_hook.add(_at_launch)


def _at_launch(metadata: Any) -> None:
    """Move the event before the kernel: the host has done all for this launch but the launch itself."""
    event = getattr(_here, "event", None)
    if event is not None:
        event.record()


def _times_compiled(kernel: Any) -> int:
    """How often the kernel was compiled, for each kind of its arguments and each configuration that was tried; and how
    often they were tried, as they may be of a kernel that is compiled."""
    jitted = _jitted(kernel)
    tried = 0 if jitted is kernel else len(kernel.cache)
    return tried + sum(len(of_device[0]) for of_device in getattr(jitted, "device_caches", {}).values())


def _jitted(kernel: Any) -> Any:
    """The kernel without the tuner around it."""
    return kernel.fn if hasattr(kernel, "base_fn") else kernel


def _new_event(args: tuple[Any, ...]) -> Any:
    """An event in the GPU's queue, behind all that is there; None where there is no GPU, or where it only listens."""
    if not any(getattr(arg, "is_cuda", False) for arg in args[2:]):
        return None
    from torch import cuda

    if cuda.is_current_stream_capturing():
        return None
    event = cuda.Event(enable_timing=True)
    event.record()
    return event


def gpu_times() -> tuple[list[int], list[int]]:
    """The numbers of launches that the GPU has done by now, and of each how long it took, in nanoseconds; each is told
    once. Does not wait."""
    numbers, times = [], []
    while _waiting and _waiting[0][2].query():
        number, before, behind = _waiting.popleft()
        numbers.append(number)
        times.append(int(before.elapsed_time(behind) * 1e6))
    return numbers, times


def _capture(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Attributes of a launch; `launch(kernel, grid, *args, **constants)`."""
    kernel, grid, *given = args
    number, before, compiled = None, _here.event, _times_compiled(kernel) > _here.compiled
    _here.event = None
    if before is not None and not compiled:
        number = _next_launch()
        _waiting.append((number, before, _new_event(args)))
    constants = dict(kwargs)
    best = getattr(kernel, "best_config", None)
    if best is not None:
        constants |= {**best.kwargs, "num_warps": best.num_warps, "num_stages": best.num_stages}
    where = _where(kernel)
    work = estimate_work(where[0], {**dict(zip(kernel.arg_names, given, strict=False)), **constants})
    return {
        "where": where,
        "grid": list(grid(constants) if callable(grid) else grid),
        "given": [(name, brief(value)) for name, value in zip(kernel.arg_names, given, strict=False)],
        "constants": constants,
        "work": None if work is None else (work.bytes_read, work.bytes_written, work.flops),
        "blocks": None if work is None or work.blocks_read is None else _blocks(work),
        "reason": None if work is None else work.reason,
        "number": number,
        "compiled": compiled or None,
    }


@lru_cache(maxsize=256)
def _where(kernel: Any) -> tuple[str, dict[str, Any]]:
    """The kernel's name, and where it is in the code."""
    function = getattr(kernel, "base_fn", None) or kernel.fn
    return function.__name__, code_constants(function)


@lru_cache(maxsize=8)
def _blocks(work: Any) -> list[str]:
    """Which blocks the programs read; a step's layers share their work, and this with it."""
    return [f"{_program(place)}: {format_ranges(blocks)}" for place, blocks in work.blocks_read.items()]


def _program(place: Sequence[int | None]) -> str:
    return ",".join("*" if at is None else str(at) for at in place)


def _attributes(facts: Any) -> Mapping[str, Any]:
    result = f"{' x '.join(map(str, facts['grid']))} programs"
    bytes_read = bytes_written = flops = None
    if facts["work"] is not None:
        bytes_read, bytes_written, flops = facts["work"]
        result += f": {bytes_read:,} bytes read, {bytes_written:,} written, {flops:,} operations"
    told = {
        **facts["where"][1],
        **written(facts["given"], None),
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
    return {name: value for name, value in told.items() if value is not None}


def _name(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    """The span is the kernel's, and a click on it leads there."""
    if facts is not None:
        span.name = facts["where"][0]


ENTRIES = tuple(
    Entry(
        f"tracellm.engine.{package}.*:launch",  # in each module that imports it
        "kernel",
        _capture,
        _attributes,
        before=_before,
        observe=_name,
        span_name=names.LAUNCH_SPAN,
        lifeline="Triton",
    )
    for package in ("model_executor.ops.triton", "attention.ops")
)
