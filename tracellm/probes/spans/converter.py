"""Record files become the run's trace: OTLP JSON lines, once, when the run has ended or when somebody opens the folder.

A file is read from its beginning to its end, a frame at a time, so memory stays small. The trace file appears when it
is whole, and the record file goes after that: whatever interrupts a conversion, the next one begins anew. Files of
several processes are converted side by side, by as many processes as there are cores, where there is much to convert.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tracellm import __version__
from tracellm.probes.catalog import EVERY_ENGINE
from tracellm.probes.record.record_file import (
    DEFINITIONS,
    END,
    OPEN,
    RECORDS,
    Frame,
    RecordFileError,
    RecordReader,
    record_files,
)
from tracellm.probes.spans.builder import SpanBuilder
from tracellm.probes.spans.encoder import SpanEncoder
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Process
from tracellm.trace.otlp.encoding import line, opening
from tracellm.trace.run_folder import TRACE_FOLDER

__all__ = ["Conversion", "convert_file", "convert_folder", "convert_traces", "has_records"]

Progress = Callable[[float], None]
"""Called now and then with the share that is done, from 0 to 1."""

_SPANS_IN_A_LINE = 64
_LARGE = 32 << 20  # bytes of record files: with more, every file has a process of its own
_CODE = "import sys; from tracellm.probes.spans.converter import main; main(sys.argv[1:])"


@dataclass(slots=True)
class Conversion:
    """Outcome of the conversion of record files.

    Attributes:
        calls, spans: how many calls were in them, and spans were written.
        capture_ns: time that the captures took, in the recorded processes.
        seconds: time of the conversion.
        let_go: calls that a ring had let go.
        deep_steps: steps of which more than requests and steps is recorded; None: all.
        problems: what is missing, and why.
    """

    calls: int = 0
    spans: int = 0
    capture_ns: int = 0
    seconds: float = 0.0
    let_go: int = 0
    deep_steps: int | None = None
    problems: list[str] = field(default_factory=list)

    def add(self, other: "Conversion") -> None:
        """Count in another one's."""
        for name in ("calls", "spans", "capture_ns", "seconds", "let_go"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.deep_steps is not None:
            self.deep_steps = max(self.deep_steps or 0, other.deep_steps)
        self.problems += [problem for problem in other.problems if problem not in self.problems]


def has_records(folder: Path) -> bool:
    """Whether a run folder has record files that were not converted."""
    return bool(record_files(folder / TRACE_FOLDER))


def convert_folder(folder: Path, progress: Progress | None = None) -> list[str]:
    """Convert every record file of a run folder. Return what is missing, and why, a line each."""
    return convert_traces(folder / TRACE_FOLDER, None, progress).problems


def convert_traces(
    traces: Path, entries: Iterable[Entry] | None = None, progress: Progress | None = None
) -> Conversion:
    """Convert every record file in the folder `traces`; `entries` are the catalog, by default of every engine.

    Raises:
        KeyboardInterrupt: it was interrupted; files that were not converted are whole.
    """
    done = Conversion()
    files = record_files(traces)
    sizes = {path: sum(map(_size, segments)) for path, segments in files.items()}
    whole = sum(sizes.values()) or 1
    if entries is None and whole > _LARGE and len(files) > 1 and sys.executable:
        return _convert_side_by_side(files, progress)
    before = 0
    for path, segments in files.items():
        part = (
            (lambda share, path=path, before=before: progress((before + share * sizes[path]) / whole))
            if progress
            else None
        )
        done.add(convert_file(path, segments, entries, part))
        before += sizes[path]
    return done


def convert_file(
    path: Path,
    segments: Sequence[Path],
    entries: Iterable[Entry] | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Convert the record file `path`, of which there are these segments, the oldest first."""
    catalog = {entry.target: entry for entry in (EVERY_ENGINE if entries is None else entries)}
    begin = time.process_time()
    file = _File(path, catalog)
    target = path.with_suffix(".jsonl")
    part = path.with_suffix(".jsonl.part")
    try:
        with open(part, "wb", buffering=1 << 20, opener=_private) as stream:
            size, read = sum(map(_size, segments)) or 1, 0
            for segment in segments:
                for lines in file.read(segment):
                    stream.write(lines)
                    if progress is not None:
                        progress(min(1.0, (read + file.position) / size))
                read += _size(segment)
            stream.write(file.rest())
        if file.done.spans:
            _publish(part, target)
        for segment in segments:
            segment.unlink()
    except OSError as error:
        file.tell(f"{path} cannot be converted ({error.strerror}): its spans are missing")
    except RecordFileError as error:
        file.tell(str(error))
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    done = file.done
    done.seconds = time.process_time() - begin
    return done


class _File:
    """The records of one process on their way to its trace file."""

    def __init__(self, path: Path, entries: Mapping[str, Entry]) -> None:
        self.done = Conversion()
        self.position = 0
        self._path = path
        self._entries = entries
        self._builder: SpanBuilder | None = None
        self._next: int | None = None  # number of the next record
        self._ended: int | None = None
        self._texts: list[str] = []

    def tell(self, problem: str) -> None:
        """Note a problem, once."""
        if problem not in self.done.problems:
            self.done.problems.append(problem)

    def read(self, segment: Path) -> Iterator[bytes]:
        """The lines of a segment, after each frame those that are due."""
        reader = RecordReader(segment)
        try:
            for frame in reader.frames():
                if self._builder is None:
                    self._begin(reader)
                self._take(frame)
                self.position = reader.position
                yield self._lines() if len(self._texts) >= _SPANS_IN_A_LINE else b""
            if self._builder is None and reader.header is not None:
                self._begin(reader)
            if reader.damaged:
                self.tell(f"{segment.name} is damaged: what comes after {reader.position:,} bytes is missing")
        finally:
            reader.close()

    def rest(self) -> bytes:
        """The last lines, when all segments are read."""
        if self._builder is None:
            return b""
        self._texts += self._encoder.encode_spans(self._builder.close(self._ended))
        content = self._lines()
        builder, done = self._builder, self.done
        done.calls, done.capture_ns = builder.calls, builder.capture_ns
        done.deep_steps = builder.tracker.deep_steps
        for mistake in builder.problems:
            self.tell(mistake.describe(builder.header.text))
        if builder.updates.let_go:
            self.tell(
                f"{builder.updates.let_go:,} attributes, events or links of calls under way were too many to keep"
            )
        return content

    def _begin(self, reader: RecordReader) -> None:
        assert reader.header is not None
        self._builder = SpanBuilder(reader.header, self._entries)
        self._encoder = SpanEncoder(self._builder, self.tell)
        attributes = reader.header.process
        process = Process(attributes[names.PROCESS_PID], attributes[names.PROCESS_NAME], attributes)
        self._opening = opening(process, __version__)

    def _take(self, frame: Frame) -> None:
        assert self._builder is not None
        kind, content = frame
        if kind == DEFINITIONS:
            self._encoder.define(*content)
        elif kind == RECORDS:
            if self._next is None:
                self.done.let_go = self._next = content.first
            records = content.records[max(0, self._next - content.first) :]  # a frame that was interrupted came twice
            self._next += len(records)
            self._texts += self._encoder.encode(records)
        elif kind == OPEN:
            self._builder.note_open(content[0])
        elif kind == END:
            self._ended = content[0]

    def _lines(self) -> bytes:
        texts, self._texts = self._texts, []
        self.done.spans += len(texts)
        size = _SPANS_IN_A_LINE
        return b"".join([line(self._opening, texts[at : at + size]) for at in range(0, len(texts), size)])


def _publish(part: Path, target: Path) -> None:
    """Let the trace file appear; what an earlier recording of the process left in the folder stays before it."""
    if target.exists():
        with part.open("rb") as added, target.open("ab") as stream:
            while content := added.read(1 << 20):
                stream.write(content)
    else:
        part.replace(target)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# -- several processes
# --------------------------------------------------------------------------------------------------


def _convert_side_by_side(files: Mapping[Path, Sequence[Path]], progress: Progress | None) -> Conversion:
    """Convert each file in a process of its own, the largest first, as many at a time as there are cores."""
    waiting = sorted(files, key=lambda path: sum(map(_size, files[path])))
    running: list[subprocess.Popen[bytes]] = []
    done = Conversion()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    try:
        while waiting or running:
            while waiting and len(running) < len(os.sched_getaffinity(0)):
                path = waiting.pop()
                command = [sys.executable, "-c", _CODE, str(path), *map(str, files[path])]
                running.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment))
            first = running.pop(0)
            said, _ = first.communicate()
            try:
                done.add(Conversion(**msgspec.json.decode(said.splitlines()[-1])))
            except (IndexError, ValueError, TypeError):
                done.problems.append(f"a record file was not converted (exit status {first.returncode})")
            if progress is not None:
                progress(1 - (len(waiting) + len(running)) / len(files))
    except BaseException:
        for process in running:
            process.kill()
            process.wait()
        raise
    return done


def main(arguments: Sequence[str]) -> None:
    """Convert one file, and print what came of it."""
    path, *segments = map(Path, arguments)
    print(msgspec.json.encode(convert_file(path, segments)).decode())  # noqa: T201
