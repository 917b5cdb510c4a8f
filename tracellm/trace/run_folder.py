"""A run folder: `run.json`, which says what was run, and `trace/*.jsonl`, the spans of each process.

`RunFolder.open` reads as much as is there. A run that was killed leaves a torn last line, a full disk leaves worse;
what can be read is read, and what could not is told in `problems`, by file and line.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from tracellm.trace import otlp
from tracellm.trace.merge import merge
from tracellm.trace.messages import link
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.problems import Problem
from tracellm.trace.ranges import format_ranges

__all__ = ["MANIFEST", "SCHEMA", "TRACE_FOLDER", "RunFolder", "RunFolderError", "write_manifest"]

SCHEMA = 1
"""The version of the folder's form, `schema` in run.json."""

MANIFEST = "run.json"
TRACE_FOLDER = "trace"

_NAMED_LINES = 20  # so many corrupt lines (or runs of them) are told by number


class RunFolderError(Exception):
    """What was given is no run folder; `problem` says what is wrong, and is meant to be shown as it is."""

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
        """Read a run folder; its `run.json` may be named in its place.

        Raises:
            RunFolderError: there is no such folder, or it is no run folder.
        """
        folder = _folder(Path(path))
        problems: list[Problem] = []
        manifest = _read_manifest(folder / MANIFEST, problems)
        files = sorted((folder / TRACE_FOLDER).glob("*.jsonl"))
        if not files:
            problems.append(Problem("trace_missing"))
        reader = _Reader(problems)
        for file in files:
            reader.read(file)
        spans = _untangle(reader.spans, problems)
        merge(reader.processes, spans, problems)
        trace = Trace(spans, reader.processes)
        link(trace)
        return cls(folder, manifest, trace, problems)


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write run.json in one move, so that a reader never sees half of it."""
    half = folder / f"{MANIFEST}.part"
    half.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", errors="replace")
    half.replace(folder / MANIFEST)


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
        problems.append(Problem("manifest_schema", schema=repr(schema), known=SCHEMA))
    return manifest


class _Reader:
    """Reads trace files one after the other and collects what they hold."""

    def __init__(self, problems: list[Problem]) -> None:
        self.spans: list[Span] = []
        self.problems = problems
        self._processes: dict[str, Process] = {}

    @property
    def processes(self) -> list[Process]:
        return list(self._processes.values())

    def read(self, file: Path) -> None:
        name = f"{TRACE_FOLDER}/{file.name}"
        corrupt: list[int] = []
        good = 0
        torn = False
        try:
            for number, line in _lines(file):
                try:
                    self._take(line)
                    good += 1
                except otlp.OtlpError:
                    if line.endswith(b"\n"):
                        corrupt.append(number)
                    else:
                        torn = True
            if not (good or corrupt or torn):
                self.problems.append(Problem("trace_empty", file=name))
        except OSError as error:
            self.problems.append(Problem("trace_unreadable", file=name, reason=error))
        if corrupt and not good:
            self.problems.append(Problem("trace_none", file=name, count=len(corrupt)))
        elif corrupt:
            code = "trace_corrupt_line" if len(corrupt) == 1 else "trace_corrupt_lines"
            self.problems.append(Problem(code, file=name, count=len(corrupt), lines=_numbers(corrupt)))
        if torn:
            self.problems.append(Problem("trace_torn", file=name))

    def _take(self, line: bytes) -> None:
        for process, spans in otlp.decode(line):
            key = repr(process)
            known = self._processes.setdefault(key, process)
            for span in spans:
                span.process = known
            self.spans.extend(spans)


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield number, line


def _let_last(spans: Collection[Span]) -> None:
    """What never ended lasted at least until the last that its process told of."""
    last: dict[int, int] = {}
    for span in spans:
        last[id(span.process)] = max(last.get(id(span.process), 0), span.end_ns)
    for span in spans:
        if span.open:
            span.end_ns = last[id(span.process)]


def _numbers(lines: list[int]) -> str:
    runs = format_ranges(lines).split(",")
    return ", ".join([*runs[:_NAMED_LINES], "…"] if len(runs) > _NAMED_LINES else runs)


def _untangle(spans: Iterable[Span], problems: list[Problem]) -> list[Span]:
    """Spans whose ids are unique and whose parents form no circle: what a tree can be made of."""
    by_id: dict[str, Span] = {}
    repeated = 0
    for span in spans:
        known = by_id.setdefault(span.span_id, span)
        if known.open:
            by_id[span.span_id] = span
        elif not (known is span or span.open):
            repeated += 1
    _let_last(by_id.values())
    if repeated:
        problems.append(Problem("spans_repeated", count=repeated))
    settled: set[str] = set()
    circles = 0
    for span in by_id.values():
        path: set[str] = set()
        current: Span | None = span
        while current is not None and current.span_id not in settled:
            if current.span_id in path:
                current.parent_span_id = None
                circles += 1
                break
            path.add(current.span_id)
            current = by_id.get(current.parent_span_id) if current.parent_span_id else None
        settled |= path
    if circles:
        problems.append(Problem("spans_circular", count=circles))
    return list(by_id.values())
