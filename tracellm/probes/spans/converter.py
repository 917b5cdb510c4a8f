"""Conversion of record files into the run's trace, OTLP JSON lines: when the run has ended, or a command opens it.

A file is read from beginning to end, frame by frame, so memory stays small. The trace file appears when it is complete,
and the record file is removed after that: after an interrupt, the next conversion starts again.

If several files are large, each is converted by a process of its own, as many at a time as there are cores. One
file is never divided: a span may depend on any call before it.
"""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tracellm import __version__
from tracellm.probes.catalog import ENTRIES_BY_TARGET
from tracellm.probes.record.record_file import (
    DEFINITIONS,
    END,
    KEPT,
    OPEN,
    RECORDS,
    Frame,
    Header,
    RawRecord,
    RecordFileError,
    RecordReader,
    check_version,
    record_files,
)
from tracellm.probes.spans.builder import SpanBuilder
from tracellm.probes.spans.encoder import SpanEncoder
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace.otlp.encoding import line, opening
from tracellm.trace.run_folder import TRACE_FOLDER

__all__ = ["Conversion", "convert_file", "convert_folder", "convert_traces", "has_records"]

Progress = Callable[[float], None]
"""Called with the share that is done, from 0 to 1."""

_SPANS_IN_A_LINE = 64
_LARGE = 32 << 20  # bytes of record files that are converted by several processes
_CODE = "import sys; from tracellm.probes.spans.converter import main; main(sys.argv[1:])"


@dataclass(slots=True)
class Conversion:
    """Outcome of converting record files.

    Attributes:
        calls, spans: number of calls in the records, and of spans written.
        capture_ns: time that captures took in the recorded processes.
        seconds: processor time of the conversion.
        dropped: calls that a ring dropped.
        deep_steps: steps recorded in more depth than requests and steps; None: all.
        problems: what is missing, and why.
    """

    calls: int = 0
    spans: int = 0
    capture_ns: int = 0
    seconds: float = 0.0
    dropped: int = 0
    deep_steps: int | None = None
    problems: list[str] = field(default_factory=list)

    def add(self, other: "Conversion") -> None:
        """Add another outcome to this one."""
        for name in ("calls", "spans", "capture_ns", "seconds", "dropped"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.deep_steps is not None:
            self.deep_steps = max(self.deep_steps or 0, other.deep_steps)
        for problem in other.problems:
            self.add_problem(problem)

    def add_problem(self, problem: str) -> None:
        """Note a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)


def has_records(folder: Path) -> bool:
    """Return whether a run folder has record files that are not converted."""
    return bool(record_files(folder / TRACE_FOLDER))


def convert_folder(folder: Path, progress: Progress | None = None) -> list[str]:
    """Convert every record file of a run folder; return what is missing, and why, a line each.

    Raises:
        RecordFileError: a file has another version of the format; none was converted.
    """
    for segments in record_files(folder / TRACE_FOLDER).values():
        for segment in segments:
            with suppress(OSError):  # the conversion reports it
                check_version(segment)
    return convert_traces(folder / TRACE_FOLDER, None, progress).problems


def convert_traces(
    traces: Path, entries: Iterable[Entry] | None = None, progress: Progress | None = None
) -> Conversion:
    """Convert every record file in the folder `traces`; `entries` are the catalog, by default of every engine.

    Raises:
        KeyboardInterrupt: the conversion was interrupted; the records of unfinished files are complete.
    """
    files = record_files(traces)
    sizes = {path: sum(map(_size, segments)) for path, segments in files.items()}
    whole = sum(sizes.values()) or 1
    cores = len(os.sched_getaffinity(0))
    if entries is None and whole > _LARGE and len(files) > 1 and cores > 1 and sys.executable:
        return _convert_side_by_side(files, sizes, cores, progress)
    done, before = Conversion(), 0
    for path, segments in files.items():

        def show(share: float, before: float = before, size: int = sizes[path]) -> None:
            if progress is not None:
                progress((before + share * size) / whole)

        done.add(convert_file(path, segments, entries, show))
        before += sizes[path]
    return done


def convert_file(
    path: Path,
    segments: Sequence[Path],
    entries: Iterable[Entry] | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Convert the record file `path` in this process; `segments` are its segments, the oldest first."""
    catalog = ENTRIES_BY_TARGET if entries is None else {entry.target: entry for entry in entries}
    begin = time.process_time()
    converter, partial = _FileConverter(catalog), path.with_suffix(".jsonl.part")
    whole = sum(map(_size, segments)) or 1
    try:
        with open(partial, "wb", buffering=1 << 20, opener=_private) as stream:
            for lines in converter.lines(segments):
                stream.write(lines)
                if progress is not None:
                    progress(min(1.0, converter.position / whole))
        if converter.done.spans:
            _publish(partial, path.with_suffix(".jsonl"))
        for segment in segments:
            segment.unlink()
    except OSError as error:
        converter.done.add_problem(f"{path} cannot be converted ({error.strerror}): its spans are missing")
    except RecordFileError as error:
        converter.done.add_problem(error.problem)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    converter.done.seconds = time.process_time() - begin
    return converter.done


class _FileConverter:
    """Makes the lines of a trace file from the frames of a record file.

    Attributes:
        done: the outcome.
        position: bytes of the file read.
    """

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.done = Conversion()
        self.position = 0
        self._entries = entries
        self._builder: SpanBuilder | None = None
        self._next = self._dropped = 0  # number of the next record, and of records that a ring dropped
        self._ended: int | None = None
        self._texts: list[str] = []

    def lines(self, segments: Sequence[Path]) -> Iterator[bytes]:
        """Yield the lines, after each frame those that are complete."""
        before = 0
        for segment in segments:
            reader = RecordReader(segment)
            try:
                for frame in reader.frames():
                    self._convert(frame, reader)
                    self.position = before + reader.position
                    yield self._lines() if len(self._texts) >= _SPANS_IN_A_LINE else b""
                if self._builder is None and reader.header is not None:
                    self._start(reader.header)
                if reader.damaged:
                    self.done.add_problem(
                        f"{segment.name} is damaged: everything after {reader.position:,} bytes is missing"
                    )
            finally:
                reader.close()
            before += _size(segment)
        if self._builder is not None:
            yield self._end(self._builder)

    def _start(self, header: Header) -> SpanBuilder:
        self._builder = builder = SpanBuilder(header, self._entries)
        self._encoder = SpanEncoder(builder, self.done.add_problem)
        self._opening = opening(builder.process, __version__)
        return builder

    def _convert(self, frame: Frame, reader: RecordReader) -> None:
        assert reader.header is not None
        builder = self._builder or self._start(reader.header)
        kind, content = frame
        if kind == DEFINITIONS:
            self._encoder.define(*content)
        elif kind == KEPT:
            self._skip_to(content.first, reader.header.steps, content.records)
        elif kind == RECORDS:
            self._skip_to(content.first, reader.header.steps)
            records = content.records[self._next - content.first :]  # an interrupted frame was written twice
            self._next += len(records)
            self._texts += self._encoder.encode(records)
        elif kind == OPEN:
            builder.note_open(content[0])
        elif kind == END:
            self._ended = content[0]

    def _skip_to(self, first: int, steps: int, kept: Sequence[RawRecord] = ()) -> None:
        """Continue with the record `first`, after those that a ring has dropped."""
        if first > self._next:
            assert self._builder is not None
            self._builder.skip(steps, kept)
            self._dropped += first - self._next
            self._next = first

    def _end(self, builder: SpanBuilder) -> bytes:
        self._texts += self._encoder.encode_spans(builder.close(self._ended))
        done = self.done
        done.calls, done.capture_ns, done.dropped = builder.calls, builder.capture_ns, self._dropped
        done.deep_steps = builder.tracker.deep_steps
        for mistake in builder.problems:
            done.add_problem(mistake.describe(builder.header.text))
        if builder.updates.dropped:
            done.add_problem(
                f"{builder.updates.dropped:,} attributes, events or links of unfinished calls were dropped: "
                "there were too many"
            )
        return self._lines()

    def _lines(self) -> bytes:
        texts, self._texts = self._texts, []
        self.done.spans += len(texts)
        size = _SPANS_IN_A_LINE
        return b"".join([line(self._opening, texts[at : at + size]) for at in range(0, len(texts), size)])


def _publish(partial: Path, target: Path) -> None:
    """Move a complete trace file to its name, or append it to that of an earlier recording of the process."""
    if target.exists():
        with partial.open("rb") as source, target.open("ab") as stream:
            shutil.copyfileobj(source, stream, 1 << 20)
    else:
        partial.replace(target)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# -- several processes -------------------------------------------------------------------------------------------------


def _convert_side_by_side(
    files: Mapping[Path, Sequence[Path]], sizes: Mapping[Path, int], cores: int, progress: Progress | None
) -> Conversion:
    """Convert each file in a process of its own, the largest first, as many at a time as there are cores."""
    whole = sum(sizes.values())
    waiting = sorted(files, key=sizes.__getitem__)
    shares = dict.fromkeys(files, 0.0)
    running: dict[Any, tuple[subprocess.Popen[bytes], Path]] = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    done = Conversion()
    selector = selectors.DefaultSelector()
    try:
        while waiting or running:
            while waiting and len(running) < cores:
                path = waiting.pop()
                command = [sys.executable, "-c", _CODE, str(path), *map(str, files[path])]
                process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ)
                running[process.stdout] = process, path
            for key, _ in selector.select():
                process, path = running[key.fileobj]
                if output := key.fileobj.readline():  # type: ignore[union-attr]
                    message = msgspec.json.decode(output, type=float | Conversion)
                    if isinstance(message, Conversion):
                        done.add(message)
                        message = 1.0
                    shares[path] = message
                    if progress is not None:
                        progress(sum(share * sizes[file] for file, share in shares.items()) / whole)
                    continue
                selector.unregister(key.fileobj)
                del running[key.fileobj]
                process.communicate()
                if process.returncode:
                    done.add_problem(f"{path.name} was not converted (exit status {process.returncode})")
    finally:
        selector.close()
        for process, _ in running.values():
            process.kill()
            process.communicate()
    return done


def main(arguments: Sequence[str]) -> None:
    """Convert a record file; print the completed share, and at last the outcome, as lines of JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    path, *segments = map(Path, arguments)
    printed = 0.0

    def show(share: float) -> None:
        nonlocal printed
        if share >= printed + 0.01:
            printed = share
            print(share, flush=True)  # noqa: T201

    done = convert_file(path, segments, None, show)
    print(msgspec.json.encode(done).decode(), flush=True)  # noqa: T201
