"""One recording, from its start to its end: what `tracellm run --explain` puts around a script.

    with Recording(folder) as recording:
        ...  # whatever is run here is recorded
    recording.stats  # what the probes cost

It installs the catalog, starts the recorder, and opens the span that stands for the script; when it has ended it
converts the record files. There is one recording at a time in a process. Processes that this one starts through
multiprocessing record too, each into a file of its own (child_processes.py); when the recording ends here, it ends in
all of them (process_group.py).
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

from msgspec.structs import replace

from tracellm.probes.catalog import EVERY_ENGINE
from tracellm.probes.catalog.report_needs import SUBMISSIONS
from tracellm.probes.catalog.vllm.torch_compile import compile_patches
from tracellm.probes.context.call_context import Record, call_and_place, next_call, state
from tracellm.probes.context.clock import Clock, Ids
from tracellm.probes.context.exceptions import ErrorSummary, is_an_end, remember, without_probes
from tracellm.probes.context.traceparent import parse, write
from tracellm.probes.decorator import own_problems
from tracellm.probes.depth_limit import DepthLimit
from tracellm.probes.export.metrics import ProgramMetrics
from tracellm.probes.export.sender_process import SenderProcess, start_sender
from tracellm.probes.install.installation import Installation
from tracellm.probes.install.patcher import Patcher
from tracellm.probes.install.selection import Selection
from tracellm.probes.otel.instrumentor import Instrumentor, parent_from_outside
from tracellm.probes.overhead import spent, together, writer_cost
from tracellm.probes.propagation.child_processes import (
    RecordingHandle,
    earlier_engines,
    invitation,
    name_of_fork,
    process_patches,
)
from tracellm.probes.propagation.process_group import ProcessGroup, Status, file_stem, flush_all, recorded_processes
from tracellm.probes.propagation.resource import this_process
from tracellm.probes.propagation.threads import THREAD_PATCHES
from tracellm.probes.record.record_file import SUFFIX, CallIds, Header, record_files
from tracellm.probes.record.recorder import Recorder
from tracellm.probes.spans.converter import Conversion, Progress, convert_traces
from tracellm.probes.spans.live_feed import LiveFeed
from tracellm.probes.wrapping.probe import Entry, Mistake, Probe, new_site
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import TRACE_FOLDER, is_recording, lock_recording, unlock_recording

__all__ = ["Recording"]

_active: "Recording | None" = None
_stopping = threading.Lock()


class Recording:
    """Records what happens in this process into the run folder `folder`, under `trace/`.

    Args:
        folder: the run folder; made when it is missing.
        clock: the clocks; real ones by default.
        ids: where ids come from; random by default.
        selection: which of the catalog's functions are wrapped; all by default.
        ring: how many calls of each process are kept at least, the last ones; all by default.
        text: False leaves out every text that a user wrote or a model generated.
        listener: called with each span when it has ended, in the order in which they end, in the recorder's thread; see
            `live_feed.Listener`.
        script: the name of the script, which its span has.
        process: what this process is in the engine.
        catalog: what to probe; by default this engine and vLLM.
        joins: the recording of another process that this one is part of.
        convert: False leaves the record files as they are when the recording ends.
        progress: called with the share of the conversion that is done.
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
        joins: RecordingHandle | None = None,
        convert: bool = True,
        progress: Progress | None = None,
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
        self._joins = joins
        self._convert = convert
        self._progress = progress
        self._mistakes: list[Mistake] = []
        self._problems: list[str] = []
        self._entries = tuple(EVERY_ENGINE if catalog is None else catalog)
        self._is_standard = catalog is None
        self._installation = Installation(self._entries, self._selection, self._mistakes)
        self._otel = Instrumentor(text, lambda: self._call_ids, self._mistakes)
        self._patches = Patcher(
            {
                **THREAD_PATCHES,
                **process_patches(self._invitation, self._ran, partial(flush_all, self._traces)),
                **compile_patches(self._installation.leave_compiled),
                **self._otel.patches,
            },
            self._mistakes,
        )
        self._parent = parse(joins["traceparent"]) if joins is not None else None
        self._parent_pid: int | None = None if joins is None else joins["pid"]
        self._status: Status | None = None
        self._others: ProcessGroup | None = None
        self._sender: SenderProcess | None = None
        self._metrics: ProgramMetrics | None = None
        self._feed: LiveFeed | None = None
        self._not_recorded: list[str] = []
        self._lock: int | None = None
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
            RuntimeError: something is being recorded already, in this process or into this folder.
            OSError: the folder cannot be written.
        """
        global _active
        if _active is not None and _active._joins is not None and self._joins is None:
            _active.stop()  # in a process that had joined its parent's, somebody wants one of their own
        if _active is not None:
            raise RuntimeError("a recording is under way in this process; stop it before starting another")
        if self._joins is None and is_recording(self._traces.parent):
            raise RuntimeError(f"another process is recording into {self._traces.parent}")
        self._traces.mkdir(parents=True, exist_ok=True, mode=0o700)
        own_problems.clear()
        self._prepare()
        _active = self
        try:
            self._begin()
        except BaseException:
            _active = state.append = None
            self._patches.stop()
            self._installation.stop()
            atexit.unregister(self.stop)
            self._recorder.abandon()
            self._unlock()
            if self._others is not None:
                self._others.clean()
            raise

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording: take off the probes, have every process that records write the rest, and convert it.

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
        self._seconds = (time.perf_counter_ns() - self._started_real) / 1e9
        self._patches.stop()
        self._installation.stop()
        atexit.unregister(self.stop)
        if error is not None:
            without_probes(error)
        failed = None if error is None or is_an_end(error) else remember(error)
        state.open.pop(self._root, None)
        is_idle = self._status is not None and self._status.is_idle
        others, problems = self._others.end() if self._others is not None else ([], [])
        is_written = self._recorder.stop(ended, self._script_record(ended, failed))
        state.append = None  # a write that was under way may have set it
        if is_idle and self._status is not None:
            self._status.remove()
            return
        self._problems += [*self._not_recorded, *problems]
        if self._feed is not None:
            self._feed.end(ended)
        if self._metrics is not None:
            self._metrics.end()
        if self._status is not None:
            self._stats = self._cost()
            self._status.end(self._stats)
            return
        stats = [one["stats"] for one in others if "stats" in one]
        sent = self._sender.end() if self._sender is not None else None
        conversion = self._converted() if is_written else None
        self._stats = together(self._cost(), stats, conversion, self._seconds)
        if problems and self._selection.depth_limit is not None:  # a killed process left no word of how deep it was
            self._stats["deep_steps"] = self._stats["deep_steps"] or 0
        self._unlock()
        if self._feed is not None:
            self._stats["unheard"] = self._feed.skipped
        if sent is not None:
            self._stats["export"] = sent

    @property
    def left_out(self) -> dict[str, list[str]]:
        """Subjects that are not recorded whole, as in run.json under `probes`; known before the start."""
        return self._installation.left_out

    @property
    def processes(self) -> list[dict[str, Any]]:
        """Every process that has recorded, `pid` and `name`, this one first."""
        return recorded_processes(self._file, self._earlier_files)

    @property
    def stats(self) -> dict[str, Any]:
        """Costs of the recording, as run.json has them under `probes` (overhead.py); complete when it has ended."""
        if self._stats is not None:
            return self._stats
        seconds = (time.perf_counter_ns() - self._started_real) / 1e9
        return together(self._cost(), (), None, seconds)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make what records, and nothing that the program could notice."""
        self._root = next_call()
        self._script_probe = Probe(method=self._script, level="request", span_name=self._script, lifeline=self._script)
        outside = parent_from_outside(os.environ) if self._joins is None else None
        if outside is not None:
            self._script_probe.constants[names.OUTSIDE] = True
            self._otel.sampled = outside.sampled
        offset = self._ids.first_span - self._root
        trace_id, outermost = self._parent or (None, f"{self._ids.first_span:016x}")
        self._header = Header(
            process={},
            clock=(self._clock.wall_ns, self._clock.monotonic_ns),
            root=self._root,
            origins=[(self._root, offset)],
            trace_id=trace_id or (self._ids.trace() if outside is None else outside.trace_id),
            outermost=outermost,
            outside=None if outside is None else outside.span_id,
            text=self._text,
            untold=list(self._installation.left_out),
        )
        self._call_ids = CallIds(self._header)
        self._earlier_files = {file.name for file in self._traces.glob("*") if file.suffix in (".jsonl", SUFFIX)}
        if self._joins is None:
            self._others = ProcessGroup(self._traces)
            self._not_recorded = earlier_engines()
        else:
            self._status = Status(self._traces, self._name)
        self._prepare_recorder()

    def _begin(self) -> None:
        """Begin to record.

        Raises:
            OSError: the folder cannot be written.
        """
        if self._joins is None:
            self._lock = lock_recording(self._traces)
        self._recorder.start()
        if self._joins is None:
            self._sender = start_sender(self._traces, self._earlier_files, os.environ)
        atexit.register(self.stop)
        if self._joins is not None:
            self._end_with_multiprocessing()
        self._installation.start()
        self._patches.start()
        self._started_real = time.perf_counter_ns()
        self._started = self._clock.now()
        state.clock, state.ids, state.first = self._clock.now, self._ids, self._root
        state.settle, state.place_of, state.thinned = None, self._call_ids.place_of, not self._selection.is_deep
        state.open = {}
        if self._parent is None:
            state.open[self._root] = (new_site(self._script_probe, None), 0, 0, self._started)
        state.append, state.step_ended = self._recorder.buffer.append, self._depth_limit.step_ended

    def _unlock(self) -> None:
        """Let others record into the folder."""
        if self._lock is not None:
            unlock_recording(self._traces, self._lock)
            self._lock = None

    def _prepare_recorder(self) -> None:
        process = this_process(self._name, self._clock, self._parent_pid)
        self._header.process = process.attributes
        path = self._traces / f"{file_stem(self._name, process.pid)}{SUFFIX}"
        for number in range(2, 1000):
            if not path.exists():  # else an earlier recording's, which is not converted
                break
            path = path.with_name(f"{file_stem(f'{self._name}.{number}', process.pid)}{SUFFIX}")
        self._file = path.with_suffix(".jsonl")
        self._recorder = Recorder(path, self._header, self._ring, SUBMISSIONS, self._each_round, self._tell)
        self._depth_limit = DepthLimit(
            self._selection.depth_limit, self._recorder, self._installation, self._depth_limited
        )
        if self._listener is not None:
            entries = {entry.target: entry for entry in self._entries}
            listener: Any = self._listener if hasattr(self._listener, "names") else _Any(self._listener)
            self._feed = LiveFeed([listener], self._recorder, self._header, entries, self._now, self._tell)
        if self._joins is None and not self._is_fork:
            self._metrics = ProgramMetrics(path, self._program_measures)

    def _now(self) -> int:
        return self._clock.wall(self._clock.now())

    def _converted(self) -> Conversion | None:
        if not self._convert:
            return None
        try:
            return convert_traces(self._traces, None if self._is_standard else self._entries, self._progress)
        except KeyboardInterrupt:
            self._tell("the conversion of the records was interrupted: `tracellm show` converts them")
            return None
        except Exception as error:  # the records are kept
            self._tell(f"the records could not be converted: {type(error).__name__}: {error}")
            return None

    def _tell(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def _depth_limited(self, steps: int) -> None:
        """Pass on to whoever shows the run that it is recorded less deep from here on."""
        show = getattr(self._listener, "depth_limited", None)
        if show is not None:
            show(steps, self._recorder.bytes)

    def _program_measures(self) -> int:
        return self._sender.program_measures() if self._sender is not None else 0

    def _has_others(self) -> bool:
        return (self._others is not None and self._others.any()) or len(record_files(self._traces)) > 1

    def _invitation(self) -> RecordingHandle | None:
        """Handle for a process that is being started; None when nothing is being recorded."""
        if _active is not self:
            return None
        call, place = call_and_place()
        trace_id, span_id = self._call_ids.place_of(call, place)
        parent = write(trace_id, span_id) if span_id is not None else ""
        return invitation(self._traces.parent, self._selection, self._ring, self._text, parent, self._clock)

    def _ran(self) -> None:
        """A process that was started by a recorded one has done its work."""
        if self._joins is not None or self._is_fork:
            self.stop()

    def _each_round(self) -> None:
        self._depth_limit.look()
        if self._feed is not None:
            self._feed.look(self._has_others())
        if self._metrics is not None:
            self._metrics.look()
        if self._status is not None:
            if self._status.is_idle and not self._recorder.is_idle:
                self._status.begin()
            self._status.look(self.stop, self._so_far)

    def _so_far(self) -> dict[str, Any]:
        """Write all that there is, in the recorder's thread, and return the costs: this may be the end."""
        self._recorder.flush()
        self._recorder.write_open(least_age=0)
        return self._cost(at_rest=False)

    def _script_record(self, ended: int, error: ErrorSummary | None) -> Record | None:
        if self._parent is not None or self._is_fork:
            return None
        return new_site(self._script_probe, None), self._root, 0, 0, self._started, ended, None, error

    def _cost(self, at_rest: bool = True) -> dict[str, Any]:
        mistakes = (*self._mistakes, *own_problems)
        return {
            "installed": self._installation.installed,
            "engine": self._installation.findings.engine,
            "missing": self._installation.findings.missing,
            "left_out": self._installation.left_out,
            "let_go": self._recorder.let_go,
            "deep_steps": None,
            **spent(self._recorder.calls, at_rest),
            "writer": writer_cost(self._recorder),
            "problems": [*(one.told(self._text) for one in mistakes), *self._problems],
        }

    def _continue_in_child(self) -> None:
        """This process was forked from a recorded one: go on in a file of its own."""
        global _stopping
        _stopping = threading.Lock()  # another thread may have held it
        self._is_fork = True
        self._name = name_of_fork()
        self._listener = self._feed = self._metrics = None
        self._parent_pid = os.getppid()
        self._others = None
        self._recorder.forget()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._sender is not None:
            self._sender.forget()
            self._sender = None
        if self._status is not None:
            self._status.leave()
        first = next_call()
        self._ids = Ids()
        self._header = replace(
            self._header, origins=[*self._header.origins, (first, self._ids.first_span - first)], steps=0
        )
        self._call_ids.header = self._header
        state.ids = self._ids
        state.open = {}
        self._problems = []
        self._status = Status(self._traces, self._name, is_idle=True)
        self._prepare_recorder()
        self._recorder.start(begin_file=False)
        state.append, state.step_ended = self._recorder.buffer.append, self._depth_limit.step_ended
        self._end_with_multiprocessing()

    def _end_with_multiprocessing(self) -> None:
        """A process that multiprocessing forks, from this one or from its server, ends without what atexit knows."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(self, lambda recording: util.Finalize(None, recording.stop, exitpriority=0))


class _Any:
    """A listener that wants every span."""

    names: frozenset[str] | None = None

    def __init__(self, listener: Callable[[Span], None]) -> None:
        self._listener = listener

    def __call__(self, span: Span) -> None:
        """Take a span that has ended."""
        self._listener(span)


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


os.register_at_fork(after_in_child=_after_fork)
