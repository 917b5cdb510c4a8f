"""A recording from start to end, as `tracellm run --explain` makes it around a script.

    with Recording(folder) as recording:
        ...  # all that runs here is recorded
    recording.stats  # the overhead

It installs the catalog, starts the recorder, and opens the span that stands for the script; at the end it converts the
record files. A process has one recording at a time. Processes that it starts through multiprocessing record into files
of their own, and end with it (propagation/processes.py).

OpenTelemetry: the counterpart is the setup of a `TracerProvider`, from instrumentation to `shutdown`.
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
from tracellm.probes.context.call_context import Record, current_call, next_call, state
from tracellm.probes.context.clock import Clock, Ids
from tracellm.probes.context.exceptions import ErrorSummary, is_an_end, remember, without_probes
from tracellm.probes.context.traceparent import parse, write
from tracellm.probes.decorator import own_problems
from tracellm.probes.export.metrics import ProgramMetrics
from tracellm.probes.export.sender_process import SenderProcess, start_sender
from tracellm.probes.install.installation import DepthLimit, Installation
from tracellm.probes.install.patcher import Patcher
from tracellm.probes.install.selection import Selection
from tracellm.probes.otel.instrumentor import Instrumentor, parent_from_outside
from tracellm.probes.overhead import call_cost, combined_stats, writer_cost
from tracellm.probes.propagation.processes import (
    ProcessGroup,
    RecordingHandle,
    Status,
    earlier_engines,
    file_stem,
    flush_all,
    name_of_fork,
    process_attributes,
    process_patches,
    recorded_processes,
    recording_handle,
)
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
        folder: the run folder; made if it is missing.
        clock: the clock; the machine's by default.
        ids: source of ids; random by default.
        selection: which of the catalog's functions are wrapped; all by default.
        ring: the number of last calls kept of each process, at least; all by default.
        text: False leaves out every text that a user wrote or a model generated.
        listener: called in the recorder's thread with each span that ended, in order; see `live_feed.Listener`.
        script: name of the script, and of its span.
        process: name of this process in the engine.
        catalog: the entries to probe; by default those for this engine and vLLM.
        joins: the recording of another process that this one is part of.
        convert: False leaves the record files unconverted at the end.
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
                **process_patches(self._handle, self._on_run_end, partial(flush_all, self._traces)),
                **compile_patches(self._installation.leave_compiled),
                **self._otel.patches,
            },
            self._mistakes,
        )
        self._parent = None if joins is None else parse(joins["traceparent"])
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
        """Start to record.

        Raises:
            RuntimeError: a recording is active already, in this process or into this folder.
            OSError: the folder cannot be written.
        """
        global _active
        if _active is not None and _active._joins is not None and self._joins is None:
            _active.stop()  # this process had joined its parent's recording, and now starts its own
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
            if self._status is not None:
                self._status.remove()
            self._unlock()
            if self._others is not None:
                self._others.clean()
            raise

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording in all its processes, remove the probes, and convert the records.

        A second call does nothing. `error` is the exception that ended the script, if any; the probes' frames are
        removed from its traceback.
        """
        global _active
        with _stopping:
            if _active is not self:
                return
            _active = None
        state.append = state.reconcile = None
        if self._status is not None:
            self._status.set_ending()
        ended = self._clock.now()
        seconds = (time.perf_counter_ns() - self._started_real) / 1e9
        self._patches.stop()
        self._installation.stop()
        atexit.unregister(self.stop)
        if error is not None:
            without_probes(error)
        failed = None if error is None or is_an_end(error) else remember(error)
        state.open.pop(self._root, None)
        is_idle = self._status is not None and self._status.is_idle and self._recorder.is_idle
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
            self._stats = self._own_stats()
            self._status.end(self._stats)
            return
        sent = self._sender.end() if self._sender is not None else None
        conversion = self._convert_records() if is_written else None
        stats_of_others = [status["stats"] for status in others if "stats" in status]
        self._stats = combined_stats(self._own_stats(), stats_of_others, conversion, seconds)
        if problems and self._selection.depth_limit is not None:  # a killed process did not report its depth
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
        """`pid` and `name` of every process that has recorded, this one first."""
        return recorded_processes(self._file, self._earlier_files)

    @property
    def stats(self) -> dict[str, Any]:
        """Overhead of the recording, as in run.json under `probes` (overhead.py); complete when it has ended."""
        if self._stats is not None:
            return self._stats
        seconds = (time.perf_counter_ns() - self._started_real) / 1e9
        return combined_stats(self._own_stats(), (), None, seconds)

    # -- the start ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Create all parts, without any effect on the program."""
        self._root = next_call()
        self._script_probe = Probe(method=self._script, level="request", span_name=self._script, lifeline=self._script)
        outside = parent_from_outside(os.environ) if self._joins is None else None
        if outside is not None:
            self._script_probe.constants[names.OUTSIDE] = True
            self._otel.sampled = outside.sampled
        trace_id, outermost = self._parent or (None, f"{self._ids.first_span:016x}")
        self._header = Header(
            process={},
            clock=(self._clock.wall_ns, self._clock.monotonic_ns),
            root=self._root,
            origins=[(self._root, self._ids.first_span - self._root)],
            trace_id=trace_id or (self._ids.trace() if outside is None else outside.trace_id),
            outermost=outermost,
            outside=None if outside is None else outside.span_id,
            text=self._text,
            left_out=list(self._installation.left_out),
        )
        self._call_ids = CallIds(self._header)
        self._earlier_files = {file.name for file in self._traces.glob("*") if file.suffix in (".jsonl", SUFFIX)}
        if self._joins is None:
            self._others = ProcessGroup(self._traces)
            self._not_recorded = earlier_engines()
        else:
            self._status = Status(self._traces, self._name)
        self._prepare_recorder()

    def _prepare_recorder(self) -> None:
        self._header.process = process_attributes(self._name, self._clock, self._parent_pid)
        path = self._traces / f"{file_stem(self._name, os.getpid())}{SUFFIX}"
        for number in range(2, 1000):
            if not path.exists():  # else it is an earlier recording's, which is not converted
                break
            path = path.with_name(f"{file_stem(f'{self._name}.{number}', os.getpid())}{SUFFIX}")
        self._file = path.with_suffix(".jsonl")
        self._recorder = Recorder(path, self._header, self._ring, SUBMISSIONS, self._each_round, self._add_problem)
        limit = self._selection.depth_limit
        self._depth_limit = DepthLimit(limit, self._recorder, self._installation, self._on_depth_limit)
        if self._listener is not None:
            entries = {entry.target: entry for entry in self._entries}
            self._feed = LiveFeed(
                self._listener, self._recorder, self._header, entries, self._wall_now, self._add_problem
            )
        if self._joins is None and not self._is_fork:
            self._metrics = ProgramMetrics(path, self._on_program_metrics)

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
        state.reconcile, state.span_ids = None, self._call_ids.parent_in_thread
        state.depth_limited = not self._selection.is_deep
        state.open = {}
        if self._parent is None:
            state.open[self._root] = (new_site(self._script_probe, None), 0, 0, self._started)
        state.append, state.step_ended = self._recorder.buffer.append, self._depth_limit.step_ended

    def _unlock(self) -> None:
        """Let other processes record into the folder."""
        if self._lock is not None:
            unlock_recording(self._traces, self._lock)
            self._lock = None

    # -- while it runs ------------------------------------------------------------------------------------------------

    def _each_round(self) -> None:
        self._depth_limit.check()
        if self._feed is not None:
            has_others = (self._others is not None and self._others.any()) or len(record_files(self._traces)) > 1
            self._feed.poll(has_others)
        if self._metrics is not None:
            self._metrics.check()
        if self._status is not None:
            if self._status.is_idle and not self._recorder.is_idle:
                self._status.set_busy()
            self._status.check(self.stop, self._flush)

    def _flush(self) -> dict[str, Any]:
        """Write all records, in the recorder's thread, and return the stats: the process may be killed next."""
        self._recorder.write_all()
        return self._own_stats(at_rest=False)

    def _wall_now(self) -> int:
        return self._clock.wall(self._clock.now())

    def _add_problem(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def _on_depth_limit(self, steps: int) -> None:
        show = getattr(self._listener, "depth_limited", None)
        if show is not None:
            show(steps, self._recorder.bytes)

    def _on_program_metrics(self) -> int:
        return self._sender.leave_metrics() if self._sender is not None else 0

    # -- the end ------------------------------------------------------------------------------------------------------

    def _script_record(self, ended: int, error: ErrorSummary | None) -> Record | None:
        if self._parent is not None or self._is_fork:
            return None
        return new_site(self._script_probe, None), self._root, 0, 0, self._started, ended, None, error

    def _convert_records(self) -> Conversion | None:
        if not self._convert:
            return None
        try:
            return convert_traces(self._traces, None if self._is_standard else self._entries, self._progress)
        except KeyboardInterrupt:
            self._add_problem("the conversion of the records was interrupted: `tracellm show` converts them")
        except Exception as error:  # the records are kept
            self._add_problem(f"the records could not be converted: {type(error).__name__}: {error}")
        return None

    def _own_stats(self, at_rest: bool = True) -> dict[str, Any]:
        """Return this process's part of the stats."""
        mistakes = (*self._mistakes, *own_problems)
        return {
            "installed": self._installation.installed,
            "engine": self._installation.findings.engine,
            "missing": self._installation.findings.missing,
            "left_out": self._installation.left_out,
            "let_go": self._recorder.dropped,
            "deep_steps": None,
            **call_cost(self._recorder.calls, at_rest),
            "writer": writer_cost(self._recorder),
            "problems": [*(mistake.describe(self._text) for mistake in mistakes), *self._problems],
        }

    # -- other processes ----------------------------------------------------------------------------------------------

    def _handle(self) -> RecordingHandle | None:
        """Return the handle that a process being started joins with; None if this recording is not active."""
        if _active is not self:
            return None
        trace_id, span_id = self._call_ids.parent_in_thread(*current_call())
        parent = write(trace_id, span_id) if span_id is not None else ""
        return recording_handle(self._traces.parent, self._selection, self._ring, self._text, parent, self._clock)

    def _on_run_end(self) -> None:
        """End the recording in a child process that has done its work."""
        if self._joins is not None or self._is_fork:
            self.stop()

    def _continue_in_child(self) -> None:
        """Continue in a fork of a recorded process, in a file of its own."""
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
        origins = [*self._header.origins, (first, self._ids.first_span - first)]
        self._header = replace(self._header, origins=origins, steps=0)
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
        """Stop at the end of a process that multiprocessing forks, from this one or its server: it skips atexit."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(self, lambda recording: util.Finalize(None, recording.stop, exitpriority=0))


def _after_fork() -> None:
    global _active
    if _active is not None:
        try:
            _active._continue_in_child()
        except OSError as error:
            name = _active._name
            print(f"tracellm: what the process {name} does is not recorded: {error}", file=sys.stderr)  # noqa: T201
            _active = state.append = None


os.register_at_fork(after_in_child=_after_fork)
