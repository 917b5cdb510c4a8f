"""One recording, from its start to its end: what `tracellm run --explain` puts around a script.

    with Recording(folder) as recording:
        ...  # whatever is run here is recorded
    recording.stats  # what the probes cost

It installs the catalog, starts the writer, and opens the span that stands for the script. There is one recording at a
time in a process. Processes that this one starts through multiprocessing record too, each into a file of its own
(spawned.py); when the recording ends here, it ends in all of them (together.py).
"""

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from tracellm.probes.build import Builder
from tracellm.probes.catalog import EVERY_ENGINE
from tracellm.probes.clock import Clock, Ids
from tracellm.probes.compiled import compile_patches
from tracellm.probes.cost import spent, together
from tracellm.probes.courier import Courier
from tracellm.probes.decorator import own_problems
from tracellm.probes.desk import AnyDesk, Assignment, Desk
from tracellm.probes.errors import Remembered, is_an_end, remember, without_probes
from tracellm.probes.install import Installation
from tracellm.probes.listeners import Listener, Listeners
from tracellm.probes.live import Follower, Live
from tracellm.probes.otel.export import Export, begin_export
from tracellm.probes.otel.metrics import UsersMetrics
from tracellm.probes.otel.opentelemetry import OpenTelemetry, parent_from_outside
from tracellm.probes.patches import Patches
from tracellm.probes.process import this_process
from tracellm.probes.selection import Selection
from tracellm.probes.spawned import Invitation, earlier_engines, invitation, name_of_fork, process_patches
from tracellm.probes.spec import Entry, Mistake, Probe
from tracellm.probes.state import Record, call_and_place, next_call, state
from tracellm.probes.thinning import Thinning
from tracellm.probes.threads import THREAD_PATCHES
from tracellm.probes.together import Status, Together, file_stem, recorded_processes, settle
from tracellm.probes.traceparent import parse, write
from tracellm.probes.writer import Writer
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import TRACE_FOLDER

__all__ = ["Recording"]

_PATIENCE_SECONDS = 3.0
"""How long a process that may be killed next waits until all that it recorded is written; who asked waits longer."""

_active: "Recording | None" = None
_stopping = threading.Lock()


class Recording:
    """Records what happens in this process into the run folder `folder`, under `trace/`.

    Args:
        folder: the run folder; made when it is missing.
        clock: the clocks; real ones by default.
        ids: where ids come from; random by default.
        selection: which of the catalog's functions are wrapped; all by default.
        ring: how many spans of each process are kept, the last ones; all by default.
        text: False leaves out every text that a user wrote or a model generated.
        listener: called with each span when it has ended, in the order in which they end, in the writer's thread.
        script: the name of the script, which its span has.
        process: what this process is in the engine.
        catalog: what to probe; by default this engine and vLLM.
        joins: the recording of another process that this one is part of.
        apart: whether spans are made and written in a process of their own; not if the clock is a test's. By default
            they are, if the catalog is the engine's own.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        selection: Selection | None = None,
        ring: int | None = None,
        text: bool = True,
        listener: Callable[[Span], None] | None = None,
        script: str = "python",
        process: str = "main",
        catalog: Iterable[Entry] | None = None,
        joins: Invitation | None = None,
        apart: bool | None = None,
    ) -> None:
        self._traces = Path(folder).absolute() / TRACE_FOLDER  # the program may change its directory
        self._clock = clock or Clock.real()
        self._ids = ids or Ids()
        self._text = text
        self._listener = listener
        self._script = script
        self._name = process
        self._selection = selection or Selection()
        self._ring = ring
        self._apart = catalog is None if apart is None else apart
        self._joins = joins
        self._mistakes: list[Mistake] = []
        self._installation = Installation(EVERY_ENGINE if catalog is None else catalog, self._selection, self._mistakes)
        self._otel = OpenTelemetry(self._clock, text, lambda: self._builder, self._mistakes)
        self._patches = Patches(
            {
                **THREAD_PATCHES,
                **process_patches(self._invitation, self._ran, partial(settle, self._traces)),
                **compile_patches(self._installation.leave_compiled),
                **self._otel.patches,
            },
            self._mistakes,
        )
        self._parent = parse(joins["traceparent"]) if joins is not None else None
        self._parent_pid: int | None = None if joins is None else joins["pid"]
        self._status: Status | None = None
        self._others: Together | None = None
        self._export: Export | None = None
        self._follower: Follower | None = None
        self._not_recorded: list[str] = []
        self._is_fork = False
        self._started = 0
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
        if _active is not None and _active._joins is not None and self._joins is None:
            _active.stop()  # in a process that had joined its parent's, somebody wants one of their own
        if _active is not None:
            raise RuntimeError("a recording is under way in this process; stop it before starting another")
        self._traces.mkdir(parents=True, exist_ok=True)
        own_problems.clear()
        self._root = next_call()
        self._script_probe = Probe(method=self._script, level="request", span_name=self._script, lifeline=self._script)
        outside = parent_from_outside(os.environ) if self._joins is None else None
        if outside is not None:
            self._script_probe.constants[names.OUTSIDE] = True
            self._otel.sampled = outside.sampled
        self._builder = Builder(self._clock, self._ids, self._root, self._text, self._parent, outside and outside[:2])
        self._builder.ledger.untold = self._installation.left_out.keys()
        if self._joins is None:
            self._others = Together(self._traces)
            self._not_recorded = earlier_engines()
        else:
            self._status = Status(self._traces, self._name)
        self._prepare_writing()
        if self._joins is None:
            self._export = begin_export(self._traces, self._earlier_files, self._ring, os.environ)
        self._writer.start()
        _active = self
        atexit.register(self.stop)
        if self._joins is not None:
            self._end_with_multiprocessing()
        self._installation.start()
        self._patches.start()
        self._started_real = time.perf_counter_ns()
        self._started = self._clock.now()
        state.clock, state.ids, state.first = self._clock.now, self._ids, self._root
        state.settle, state.place_of, state.thinned = None, self._builder.place_of, False
        state.open = {}
        if self._parent is None:
            state.open[self._root] = (self._script_probe, 0, None, None, self._started)
        state.append, state.step_ended = self._writer.buffer.append, self._thinning.step_ended
        if isinstance(self._desk, Courier):
            self._desk.wait_for_start()

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording: take off the probes and write all that was recorded, in every process that records.

        A second call does nothing. `error` is the exception that ended the script, if one did; the probes' frames are
        taken out of its traceback.
        """
        global _active
        with _stopping:
            if _active is not self:
                return
            _active = None
        state.append = state.settle = None
        if self._status is not None:
            self._status.is_ending()
        ended = self._clock.now()
        seconds = (time.perf_counter_ns() - self._started_real) / 1e9
        self._patches.stop()
        self._installation.stop()
        atexit.unregister(self.stop)
        if error is not None:
            without_probes(error)
        failed = None if error is None or is_an_end(error) else remember(error)
        state.open.pop(self._root, None)
        told, problems = self._others.end() if self._others is not None else ([], [])
        self._writer.stop(ended, self._script_record(ended, failed))
        if self._status is not None and self._status.is_idle:
            self._status.remove()
            return
        own = self._cost()
        own["problems"] += [*self._not_recorded, *problems]
        others = [one["stats"] for one in told if "stats" in one]
        self._stats = together(own, others, seconds)
        if problems and self._selection.deep_calls is not None:  # who was killed could not say how deep it was
            self._stats["deep_steps"] = self._stats["deep_steps"] or 0
        if self._follower is not None:
            self._stats["unheard"] = max(0, sum(one["writer"]["spans"] for one in others) - self._follower.count)
        if self._export is not None:
            self._stats["export"] = self._export.end(self._stats["writer"]["spans"])
        if self._status is not None:
            self._status.end(self._stats)

    @property
    def left_out(self) -> dict[str, list[str]]:
        """What cannot be told of this run, as run.json says under `probes`; known before it starts."""
        return self._installation.left_out

    @property
    def processes(self) -> list[dict[str, Any]]:
        """Every process that has recorded, `pid` and `name`, this one first."""
        return recorded_processes(self._file, self._earlier_files)

    @property
    def stats(self) -> dict[str, Any]:
        """What run.json says under `probes` (see cost.py); complete when the recording has ended."""
        if self._stats is not None:
            return self._stats
        seconds = (time.perf_counter_ns() - self._started_real) / 1e9
        return together(self._cost(), (), seconds)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _prepare_writing(self) -> None:
        process = this_process(self._name, self._clock, self._parent_pid)
        self._file = self._traces / f"{file_stem(self._name, process.pid)}.jsonl"
        self._earlier_files = {file.name for file in self._traces.glob("*.jsonl")}
        listeners: list[Listener] = []
        if self._listener is not None:
            wanted: frozenset[str] | None = getattr(self._listener, "names", None)
            self._follower = Follower(self._traces, self._file, self._ring, wanted)
            now = lambda: self._clock.wall(self._clock.now())  # noqa: E731
            listeners.append(Live(self._listener, wanted, self._follower, self._has_others, now))
        if self._joins is None and not self._is_fork:
            listeners.append(UsersMetrics(self._program_measures))
        self._problems: list[str] = []
        heard = Listeners(listeners, self._tell)
        self._assigned = Assignment(self._file, process, self._builder, heard, self._ring, self._tell)
        desk, begin = (Desk(self._assigned), self._begin_in_child) if self._is_fork else (self._new_desk(), None)
        self._writer = Writer(desk, heard, self._problems, self._each_round, begin)
        self._thinning = Thinning(self._selection.deep_calls, self._writer, self._installation)

    def _new_desk(self) -> AnyDesk:
        if not (self._apart and os.name == "posix" and self._clock.readings is not None):
            return Desk(self._assigned)
        return Courier(self._assigned, self._mistakes, () if self._status is None else (self._status.descriptor,))

    @property
    def _desk(self) -> AnyDesk:
        return self._writer.desk

    def _tell(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def _program_measures(self) -> int:
        return self._export.users_metrics() if self._export is not None else 0

    def _has_others(self) -> bool:
        return (self._others is not None and self._others.any()) or len(self.processes) > 1

    def _invitation(self) -> Invitation | None:
        """What a process that is being started is told; None when nothing is being recorded."""
        if _active is not self:
            return None
        call, place = call_and_place()
        trace_id, span_id = self._builder.place_of(call, place)
        parent = write(trace_id, span_id) if span_id is not None else ""
        return invitation(self._traces.parent, self._selection, self._ring, self._text, parent, self._clock)

    def _ran(self) -> None:
        """A process that was started by a recorded one has done its work."""
        if self._joins is not None or self._is_fork:
            self.stop()

    def _each_round(self) -> None:
        self._thinning.look()
        if self._status is not None:
            self._status.look(self.stop, self._so_far)

    def _so_far(self) -> dict[str, Any]:
        """Hand over all that there is, in the writer's thread, and say what it has cost: this may be the end."""
        self._writer.hand_over()
        if isinstance(self._desk, Courier):
            self._desk.wait_until_read(_PATIENCE_SECONDS)
        return self._cost(at_rest=False)

    def _script_record(self, ended: int, error: Remembered | None) -> Record | None:
        if self._parent is not None or self._is_fork:
            return None
        return self._script_probe, self._root, 0, None, None, self._started, ended, ended, None, error

    def _cost(self, at_rest: bool = True) -> dict[str, Any]:
        mistakes, told = (*self._mistakes, *own_problems), self._desk.told()
        return {
            "installed": self._installation.installed,
            "engine": self._installation.findings.engine,
            "missing": self._installation.findings.missing,
            "left_out": self._installation.left_out,
            "let_go": self._desk.let_go,
            "deep_steps": told.get("deep_steps"),
            **spent(told.get("calls", 0), told.get("capture_ns", 0), at_rest),
            "writer": self._desk.effort.told(told, self._writer.held_up_ns),
            "problems": [*(one.told(self._text) for one in mistakes), *self._problems],
        }

    def _continue_in_child(self) -> None:
        """This process was forked from a recorded one: go on in a file of its own."""
        global _stopping
        _stopping = threading.Lock()  # another thread may have held it
        self._is_fork = True
        self._name = name_of_fork()
        self._listener = self._follower = None
        self._parent_pid = os.getppid()
        self._others = None
        if isinstance(self._desk, Courier):
            self._desk.forget()
        if self._export is not None:
            self._export.forget()
            self._export = None
        if self._status is not None:
            self._status.leave()
        state.ids = self._builder.continue_in_child(next_call())
        self._builder.ledger.untold = self._installation.left_out.keys()
        state.open = {}
        self._status = Status(self._traces, self._name, is_idle=True)
        self._prepare_writing()
        self._writer.start()
        state.append, state.step_ended = self._writer.buffer.append, self._thinning.step_ended
        self._end_with_multiprocessing()

    def _begin_in_child(self) -> AnyDesk:
        """There is something to write in a fork: most end, or become another program, without that."""
        assert self._status is not None
        try:
            desk = self._new_desk()
        except OSError as error:
            self._status.fail(error)
            self._status = None
            _leave_out(self, error)
            return self._desk
        self._status.begin()
        return desk

    def _end_with_multiprocessing(self) -> None:
        """A process that multiprocessing forks, from this one or from its server, ends without what atexit knows."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(self, lambda recording: util.Finalize(None, recording.stop, exitpriority=0))


def _after_fork() -> None:
    if _active is not None:
        try:
            _active._continue_in_child()
        except OSError as error:
            _leave_out(_active, error)


def _leave_out(recording: Recording, error: OSError) -> None:
    """This process cannot be recorded."""
    global _active
    print(f"tracellm: what the process {recording._name} does is not recorded: {error}", file=sys.stderr)  # noqa: T201
    _active = state.append = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
