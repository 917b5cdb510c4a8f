"""A run folder: `run.json`, which says what was run, and `trace/*.jsonl`, the spans of each process.

`RunFolder.open` reads as much as is there. A run that was killed leaves a torn last line, a full disk leaves worse;
what can be read is read, and what could not is told in `problems`, by file and line.
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tracellm.trace import otlp
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.ranges import format_ranges

__all__ = ["MANIFEST", "SCHEMA", "TRACE_FOLDER", "RunFolder", "RunFolderError", "write_manifest"]

SCHEMA = 1
"""The version of the folder's form, `schema` in run.json."""

MANIFEST = "run.json"
TRACE_FOLDER = "trace"

_NAMED_LINES = 20  # so many corrupt lines (or runs of them) are told by number


class RunFolderError(Exception):
    """What was given is no run folder; the message says what is wrong, and is meant to be shown as it is."""


class RunFolder:
    """A recorded run, read from disk.

    Attributes:
        path: the folder.
        manifest: run.json; empty when it could not be read.
        trace: all spans of all processes.
        problems: what could not be read, a sentence each.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], trace: Trace, problems: list[str]) -> None:
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
        problems: list[str] = []
        manifest = _read_manifest(folder / MANIFEST, problems)
        files = sorted((folder / TRACE_FOLDER).glob("*.jsonl"))
        if not files:
            problems.append(f"{TRACE_FOLDER}/ holds no .jsonl file: nothing was recorded, or it was removed")
        reader = _Reader(problems)
        for file in files:
            reader.read(file)
        return cls(folder, manifest, Trace(_untangle(reader.spans, problems), reader.processes), problems)


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
            raise RunFolderError(
                f"{path}: there is no such folder. Give the run folder that `tracellm run --explain` left."
            )
        if not path.is_dir():
            raise RunFolderError(
                f"{path} is a file, not a run folder. Give the folder that holds {MANIFEST} and {TRACE_FOLDER}/."
            )
        if not (path / MANIFEST).is_file() and not any((path / TRACE_FOLDER).glob("*.jsonl")):
            raise RunFolderError(f"{path} is no run folder: it has neither {MANIFEST} nor {TRACE_FOLDER}/*.jsonl.")
    except (OSError, ValueError) as error:  # no permission, or a name that no file can have
        raise RunFolderError(f"{path} cannot be read: {error}") from None
    return path


def _read_manifest(file: Path, problems: list[str]) -> dict[str, Any]:
    try:
        manifest = json.loads(file.read_bytes())
    except FileNotFoundError:
        problems.append(f"{MANIFEST} is missing: what was run, and with which options, is not known")
        return {}
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{MANIFEST} is damaged ({error}): what was run, and with which options, is not known")
        return {}
    if not isinstance(manifest, dict):
        problems.append(f"{MANIFEST} is damaged (a JSON object was expected): what was run is not known")
        return {}
    schema = manifest.get("schema")
    if schema != SCHEMA:
        problems.append(
            f"{MANIFEST} has schema {schema!r}, and this version of tracellm knows {SCHEMA}; some of it may be misread"
        )
    return manifest


class _Reader:
    """Reads trace files one after the other and collects what they hold."""

    def __init__(self, problems: list[str]) -> None:
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
                self.problems.append(f"{name} is empty: what it recorded is lost")
        except OSError as error:
            self.problems.append(f"{name} cannot be read: {error}")
        if corrupt and not good:
            self.problems.append(f"{name} is no trace: none of its {len(corrupt)} lines is an OTLP JSON document")
        elif corrupt:
            self.problems.append(f"{name}: {len(corrupt)} corrupt {_plural(corrupt)} skipped: {_numbers(corrupt)}")
        if torn:
            self.problems.append(f"{name}: the last line is torn (the process ended while writing it) and was skipped")

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


def _plural(lines: list[int]) -> str:
    return "line" if len(lines) == 1 else "lines"


def _numbers(lines: list[int]) -> str:
    runs = format_ranges(lines).split(",")
    more = f" and {len(runs) - _NAMED_LINES} more places" if len(runs) > _NAMED_LINES else ""
    return ", ".join(runs[:_NAMED_LINES]) + more


def _untangle(spans: Iterable[Span], problems: list[str]) -> list[Span]:
    """Spans whose ids are unique and whose parents form no circle: what a tree can be made of."""
    by_id: dict[str, Span] = {}
    repeated = 0
    for span in spans:
        if by_id.setdefault(span.span_id, span) is not span:
            repeated += 1
    if repeated:
        problems.append(f"{repeated} spans have the id of another span and were skipped")
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
        problems.append(f"{circles} spans were their own ancestors and count as roots")
    return list(by_id.values())
