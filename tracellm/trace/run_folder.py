"""A run folder: `run.json`, a description of the run, and `trace/*.jsonl`, the spans of each process.

`whatif/*.jsonl` are variants of the run, which `tracellm whatif` adds: its requests, scheduled under other settings.

`RunFolder.open` reads as much as is there. A killed run leaves a torn last line, and a full disk can damage more.
`problems` lists what cannot be read, by file and line.
"""

import codecs
import json
import os
import reprlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from tracellm.trace import otlp
from tracellm.trace.gc_pause import gc_paused
from tracellm.trace.merge import merge, repair
from tracellm.trace.messages import link
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.problems import Problem

__all__ = [
    "MANIFEST",
    "SCHEMA",
    "TRACE_FOLDER",
    "VARIANTS_FOLDER",
    "RunFolder",
    "RunFolderError",
    "is_recording",
    "lock_recording",
    "unlock_recording",
    "write_manifest",
]

SCHEMA = 1
"""Version of the folder's format, `schema` in run.json."""

MANIFEST = "run.json"
TRACE_FOLDER = "trace"
VARIANTS_FOLDER = "whatif"
_LOCK = ".lock"
"""File in the trace folder, locked by the main process while it records."""

_NAMED_LINES = 20  # corrupt lines, or ranges of them, that are listed by number
_PIECE = 1 << 18  # bytes read at a time: a line of the recorder's has some 50,000
_LONGEST_LINE = 1 << 28  # bytes: a longer line would fill the memory, and counts as corrupt


class RunFolderError(Exception):
    """The path is not a run folder; `problem` is the reason, as a sentence for the user."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class RunFolder:
    """A recorded run, read from disk.

    Attributes:
        path: the folder.
        manifest: run.json; empty when it could not be read.
        trace: all spans of all processes, their times on one clock, receives linked to their sends.
        problems: what could not be read.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], trace: Trace, problems: list[Problem]) -> None:
        self.path = path
        self.manifest = manifest
        self.trace = trace
        self.problems = problems

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "RunFolder":
        """Read a run folder; the path may also be that of its `run.json`.

        Raises:
            RunFolderError: there is no such folder, or it is not a run folder.
        """
        folder = _folder(Path(path))
        problems: list[Problem] = []
        manifest = _read_manifest(folder / MANIFEST, problems)
        files = sorted((folder / TRACE_FOLDER).glob("*.jsonl"))
        if not files:
            problems.append(Problem("trace_missing"))
        with gc_paused():
            trace = _read_trace(files, problems)
        return cls(folder, manifest, trace, problems)

    @cached_property
    def variants(self) -> dict[str, Trace]:
        """Variants of the run by name, read on first use; their problems are added to those of the run."""
        files = sorted((self.path / VARIANTS_FOLDER).glob("*.jsonl"))
        return {file.stem: _read_trace([file], self.problems) for file in files}


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write run.json atomically, by renaming a complete file."""
    half = folder / f"{MANIFEST}.part"
    half.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", errors="replace")
    half.replace(folder / MANIFEST)


def is_recording(folder: Path) -> bool:
    """Return whether a run is recording into this run folder now."""
    import fcntl  # POSIX only, as recording is; reading works everywhere

    try:
        descriptor = os.open(folder / TRACE_FOLDER / _LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two readers do not exclude each other
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def lock_recording(traces: Path) -> int:
    """Lock the trace folder for a recording, and return the file descriptor, which holds the lock until it is closed.

    A forked child inherits the descriptor and holds the lock too, until it ends or closes it.

    Raises:
        BlockingIOError: another process is recording there.
    """
    import fcntl

    descriptor = os.open(traces / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def unlock_recording(traces: Path, descriptor: int) -> None:
    """Release the lock of `lock_recording`, and remove its file."""
    with suppress(OSError):  # the program may have removed the folder
        (traces / _LOCK).unlink()
    os.close(descriptor)


def _folder(path: Path) -> Path:
    try:
        if path.name == MANIFEST and path.is_file():
            path = path.parent
        if not path.exists():
            raise RunFolderError(Problem("no_such_folder", path=path))
        if not path.is_dir():
            raise RunFolderError(Problem("not_a_folder", path=path))
        if not (path / MANIFEST).is_file() and not any((path / TRACE_FOLDER).glob("*.jsonl")):
            raise RunFolderError(Problem("no_run_folder", path=path))
    except (OSError, ValueError) as error:  # no permission, or a name that no file can have
        raise RunFolderError(Problem("unreadable", path=path, reason=error)) from None
    return path


def _read_manifest(file: Path, problems: list[Problem]) -> dict[str, Any]:
    try:
        if file.exists() and not file.is_file():
            raise OSError("not a regular file")
        manifest = json.loads(file.read_bytes())
    except FileNotFoundError:
        problems.append(Problem("manifest_missing"))
        return {}
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Problem("manifest_damaged", reason=error))
        return {}
    if not isinstance(manifest, dict):
        problems.append(Problem("manifest_no_object"))
        return {}
    schema = manifest.get("schema")
    if schema != SCHEMA:
        problems.append(Problem("manifest_schema", schema=reprlib.repr(schema), known=SCHEMA))
    return manifest


def _read_trace(files: Sequence[Path], problems: list[Problem]) -> Trace:
    reader = _Reader(problems)
    for file in files:
        reader.read(file)
    by_id, wrong = repair(reader.spans)
    problems += wrong
    reader.spans.clear()
    merge(reader.processes, by_id.values())
    trace = Trace(by_id.values(), reader.processes)
    trace.by_id = by_id
    link(trace)
    return trace


class _Reader:
    """Reads trace files one after the other and collects their spans."""

    def __init__(self, problems: list[Problem]) -> None:
        self.spans: list[Span] = []
        self.problems = problems
        self._decoder = otlp.Decoder()
        self._processes: dict[int, Process] = {}

    @property
    def processes(self) -> list[Process]:
        return list(self._processes.values())

    def read(self, file: Path) -> None:
        name = f"{file.parent.name}/{file.name}"
        corrupt = _Numbers()
        good = 0
        torn = False
        try:
            for number, line in _lines(file):
                try:
                    self._take(line)
                    good += 1
                except otlp.OtlpError:
                    if _is_torn(line):
                        torn = True
                    else:
                        corrupt.add(number)
            if not (good or corrupt.count or torn):
                self.problems.append(Problem("trace_empty", file=name))
        except OSError as error:
            self.problems.append(Problem("trace_unreadable", file=name, reason=error))
        if corrupt.count and not good:
            self.problems.append(Problem("trace_none", file=name, count=corrupt.count))
        elif corrupt.count:
            code = "trace_corrupt_line" if corrupt.count == 1 else "trace_corrupt_lines"
            self.problems.append(Problem(code, file=name, count=corrupt.count, lines=str(corrupt)))
        if torn:
            self.problems.append(Problem("trace_torn", file=name))

    def _take(self, line: bytes) -> None:
        for process, spans in self._decoder.decode(line):
            self._processes.setdefault(id(process), process)
            self.spans += spans


class _Numbers:
    """Numbers of corrupt lines: the count, and the first of them, neighbours as a range."""

    def __init__(self) -> None:
        self.count = 0
        self._runs: list[list[int]] = []  # each a first and a last line

    def add(self, number: int) -> None:
        self.count += 1
        if self._runs and self._runs[-1][1] + 1 == number:
            self._runs[-1][1] = number
        elif len(self._runs) <= _NAMED_LINES:
            self._runs.append([number, number])

    def __str__(self) -> str:
        ranges = [str(first) if first == last else f"{first}-{last}" for first, last in self._runs[:_NAMED_LINES]]
        return ", ".join([*ranges, "…"] if len(self._runs) > _NAMED_LINES else ranges)


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers; only the beginning of a line that is too long."""
    if not file.is_file():  # opening a pipe would block until data comes
        raise OSError("not a regular file")
    with file.open("rb", buffering=_PIECE) as stream:
        number = 0
        while line := stream.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                while (more := stream.readline(1 << 20)) and not more.endswith(b"\n"):
                    pass
                line = line[:80] + b"\n"
            if not line.isspace():
                yield number, line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def _is_torn(line: bytes) -> bool:
    """Return whether an unreadable line was being written when the process ended."""
    if line.endswith(b"\n") or not line.startswith(b"{"):
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return True
    return False
