"""One recording, from its start to its end: what `tracellm run --explain` puts around a script.

    with Recording(folder) as recording:
        ...  # whatever is run here is recorded
    recording.stats  # what the probes cost

It installs the catalog, starts the writer, and opens the span that stands for the script. There is one recording at a
time in a process.
"""

import atexit
import os
import platform
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tracellm import __version__
from tracellm.probes.brief import arguments_and_result
from tracellm.probes.build import Builder
from tracellm.probes.catalog import CATALOG
from tracellm.probes.clock import Clock, Ids
from tracellm.probes.decorator import own_problems
from tracellm.probes.errors import Remembered, remember, without_probes
from tracellm.probes.install import Installation
from tracellm.probes.spec import Entry, Mistake, Probe
from tracellm.probes.state import next_call, state
from tracellm.probes.wrap import wrap
from tracellm.probes.writer import Writer
from tracellm.trace import names
from tracellm.trace.model import Process, Span
from tracellm.trace.names import Level
from tracellm.trace.run_folder import TRACE_FOLDER

__all__ = ["Recording"]

_active: "Recording | None" = None


class Recording:
    """Records what happens in this process into the run folder `folder`, under `trace/`.

    Args:
        folder: the run folder; made when it is missing.
        clock: the clocks; real ones by default.
        ids: where ids come from; random by default.
        detail: how deep to look: request, step, layer or kernel.
        text: False leaves out every text that a user wrote or a model generated.
        listener: called with each span when it has ended, in the order in which they end, in the writer's thread.
        script: the name of the script, which its span has.
        process: what this process is in the engine.
        catalog: what to probe; by default the engine's own catalog.

    Attributes:
        spans_written: how many spans the file has.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        detail: Level = "kernel",
        text: bool = True,
        listener: Callable[[Span], None] | None = None,
        script: str = "python",
        process: str = "main",
        catalog: Iterable[Entry] | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._clock = clock or Clock.real()
        self._ids = ids or Ids()
        self._text = text
        self._listener = listener
        self._script = script
        self._name = process
        self._mistakes: list[Mistake] = []
        self._installation = Installation(CATALOG if catalog is None else catalog, detail, self._mistakes)
        self._is_child = False
        self._started = self._stopped = 0
        self._stats: dict[str, Any] | None = None

    # -- start and stop -----------------------------------------------------------------------------------------------

    def __enter__(self) -> "Recording":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(error)

    def start(self) -> None:
        """Begin to record.

        Raises:
            RuntimeError: something is being recorded already.
            OSError: the folder cannot be written.
        """
        global _active
        if _active is not None:
            raise RuntimeError("a recording is under way in this process; stop it before starting another")
        (self._folder / TRACE_FOLDER).mkdir(parents=True, exist_ok=True)
        own_problems.clear()
        self._root = next_call()
        self._script_probe = Probe(method=self._script, level="request", span_name=self._script, lifeline=self._script)
        self._builder = Builder(self._clock, self._ids, self._root, self._text)
        self._begin_writing()
        _active = self
        atexit.register(self.stop)
        self._installation.start()
        self._started_real = time.perf_counter_ns()
        self._started = self._clock.now()
        state.clock = self._clock.now
        state.open = {self._root: (self._script_probe, 0, None, None, self._started)}
        state.append = self._writer.buffer.append

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording: take off the probes and write all that was recorded. A second call does nothing.

        `error` is the exception that ended the script, if one did; the probes' frames are taken out of its traceback.
        """
        global _active
        if _active is not self:
            return
        state.append = None
        _active = None
        ended = self._clock.now()
        seconds = (time.perf_counter_ns() - self._started_real) / 1e9
        self._installation.stop()
        atexit.unregister(self.stop)
        if error is not None:
            without_probes(error)
        failed = None if error is None or _ended_well(error) else remember(error)
        state.open.pop(self._root, None)
        self._writer.stop(lambda: self._last_spans(ended, failed))
        self._stats = self._cost(seconds)

    @property
    def stats(self) -> dict[str, Any]:
        """What run.json says under `probes`; complete when the recording has ended.

        `seconds` is the time spent in probes on the hot path, estimated as the number of calls times the cost of one,
        which is measured when the recording ends, plus the measured time of captures; `share` is that of the run's wall
        time.
        """
        if self._stats is not None:
            return self._stats
        return self._cost((time.perf_counter_ns() - self._started_real) / 1e9)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _begin_writing(self) -> None:
        pid = os.getpid()
        process = Process(pid, self._name, _describe_process(pid, self._name, self._clock))
        file = self._folder / TRACE_FOLDER / f"{self._name}-{pid}.jsonl"
        self._writer = Writer(file, process, self._builder, self._listener, __version__)
        self._writer.start()

    def _last_spans(self, ended: int, error: Remembered | None) -> Iterator[Span]:
        yield from self._builder.close(ended)
        if not self._is_child:
            yield from self._builder.build(
                (self._script_probe, self._root, 0, None, None, self._started, ended, ended, None, error)
            )

    def _cost(self, seconds: float) -> dict[str, Any]:
        calls, per_call = self._builder.calls, _seconds_per_call()
        spent = calls * per_call + self._builder.capture_ns / 1e9
        return {
            "installed": self._installation.installed,
            "missing": list(self._installation.missing),
            "calls": calls,
            "seconds": round(spent, 6),
            "share": round(spent / seconds, 6) if seconds else 0.0,
            "per_call_us": round(per_call * 1e6, 3),
            "problems": [*map(self._tell, (*self._mistakes, *own_problems)), *self._writer.problems],
        }

    def _tell(self, mistake: Mistake) -> str:
        return f"{mistake.what}: {mistake.message}" if mistake.message and self._text else mistake.what

    def _continue_in_child(self) -> None:
        """This process was forked from a recorded one: go on in a file of its own."""
        self._is_child = True
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        self._name = "child" if process is None else process.current_process().name
        self._listener = None
        self._builder.continue_in_child(next_call())
        state.open = {}
        self._begin_writing()
        state.append = self._writer.buffer.append
        if util is not None:  # its children end without running what atexit knows
            util.register_after_fork(self, lambda recording: util.Finalize(None, recording.stop, exitpriority=0))


def _after_fork() -> None:
    if _active is not None:
        _active._continue_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _ended_well(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _describe_process(pid: int, name: str, clock: Clock) -> dict[str, Any]:
    return {
        names.SERVICE_NAME: "tracellm",
        names.SERVICE_VERSION: __version__,
        names.PROCESS_PID: pid,
        names.PROCESS_NAME: name,
        names.PROCESS_RUNTIME: platform.python_version(),
        names.HOST_NAME: socket.gethostname(),
        names.CLOCK_WALL: clock.wall_ns,
        names.CLOCK_MONOTONIC: clock.monotonic_ns,
    }


def _seconds_per_call(calls: int = 500, repeats: int = 5) -> float:
    """What a probe adds to a call here and now: a probed function of two numbers against the bare one."""

    def bare(first: int, second: int) -> int:
        return first

    capture, _ = arguments_and_result(bare, "")
    probed = wrap(bare, Probe(method="bare", level="request", capture=capture))
    costs = []
    before = state.append, state.clock
    for _ in range(repeats):
        times = []
        for function in (bare, probed):
            records: list[Any] = []
            state.append, state.clock = records.append, time.perf_counter_ns
            start = time.thread_time_ns()
            for _ in range(calls):
                function(1, 2)
            times.append(time.thread_time_ns() - start)
            state.append, state.clock = before
        costs.append(max(0, times[1] - times[0]) / calls / 1e9)
    return statistics.median(costs)
