"""Run folders on disk: makes one for a new run; finds, converts and opens those of earlier runs."""

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from tracellm.cli.errors import CommandError, print_error
from tracellm.cli.reports import print_problems
from tracellm.report.export import FORMATS, file_name
from tracellm.report.texts import Language, text
from tracellm.report.wording.problems import problem_text
from tracellm.report.wording.quantities import clip
from tracellm.trace.run_folder import MANIFEST, TRACE_FOLDER, RunFolder, RunFolderError, is_recording

__all__ = ["DEFAULT_PARENT", "ConversionProgress", "convert", "find_run", "new_run_folder", "open_run", "read_run"]

DEFAULT_PARENT = Path("tracellm-runs")
"""Parent of run folders made without --out, in the current directory."""

_MOST_RUNS = 10
"""Limit of the runs that a message lists."""

_PROGRESS_DELAY = 1.0
"""Seconds after which a conversion shows its progress."""

_WRITTEN = (
    "run.json", "sequence.mmd", "calltree.txt", "report.html",
    *(f"{file_name(format)}{end}" for format in FORMATS for end in ("", ".gz", ".part", ".gz.part")),
    "trace/*.jsonl", "trace/*.records", "trace/*.part", "trace/*.process", "trace/.over", "trace/.measured-*",
    "trace/.lock", "whatif/*.jsonl", "whatif/*.part",
)  # fmt: skip
"""Files that tracellm writes into a run folder, removed when the folder is used again."""


def new_run_folder(stem: str, out: Path | None) -> Path:
    """Make the folder of a run: `out`, cleared of an earlier run, or a new one in DEFAULT_PARENT, named after `stem`.

    Raises:
        CommandError: `out` is a file, holds other files or a running recording, or cannot be written.
    """
    if out is not None:
        return _reuse(out)
    stem = stem.lstrip("-") or "run"  # a leading dash would look like an option
    name = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1, 1000):  # two runs may start in the same second
        folder = DEFAULT_PARENT / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.is_dir():
                continue
            raise CommandError("out_unwritable", path=folder, reason="there is a file in its place") from None
        except OSError as error:
            raise CommandError("out_unwritable", path=folder, reason=error.strerror) from None
        return folder
    raise CommandError("out_unwritable", path=DEFAULT_PARENT / name, reason="too many runs in one second")


def _reuse(out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise CommandError("out_not_folder", path=out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        entries = sorted(entry.name for entry in out.iterdir())
        if entries and not is_run_folder(out):
            raise CommandError("out_taken", path=out, example=entries[0])
        if is_recording(out):
            raise CommandError("out_recording", path=out)
        for pattern in _WRITTEN:
            for old in out.glob(pattern):
                old.unlink()
        probe = out / ".tracellm-write-test"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CommandError("out_unwritable", path=out, reason=error.strerror) from None
    return out


def is_run_folder(path: Path) -> bool:
    """Return whether the folder has a run.json of tracellm's."""
    try:
        manifest = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and "tracellm" in manifest


def find_run(name: str | None) -> Path:
    """Return a run folder by its path, or from DEFAULT_PARENT by its name, or the newest by its script's name.

    Without a name, or for `latest`, return the newest of all.

    Raises:
        CommandError: there is no such run.
    """
    if name is not None and Path(name).is_dir():
        return Path(name)
    runs = _newest_first()
    if name is not None and Path(name).exists():  # most likely a script
        return next(_runs_of(Path(name).name, runs), Path(name))
    if not runs and (name is None or name == "latest"):
        raise CommandError("no_runs", folder=f"{DEFAULT_PARENT}{os.sep}")
    if name is None or name == "latest":
        return runs[0]
    if (found := next(_runs_of(name, runs), None)) is not None:
        return found
    if not runs:
        raise CommandError("run_missing", path=name)
    shown, more = clip([run.name for run in runs], _MOST_RUNS)
    known = ", ".join([*shown, "…"] if more else shown)
    raise CommandError("run_unknown", path=name, folder=f"{DEFAULT_PARENT}{os.sep}", known=known)


def _runs_of(name: str, runs: Iterable[Path]) -> Iterator[Path]:
    """Yield the runs of this name, or of the script of this name."""
    stem = re.sub(r"\.(pyz?|zip)$", "", name)
    script = re.compile(rf"{re.escape(stem)}-\d{{8}}-\d{{6}}(-\d+)?")
    return (run for run in runs if name == run.name or script.fullmatch(run.name))


def _newest_first() -> list[Path]:
    manifests = [(file.stat().st_mtime_ns, file.parent) for file in DEFAULT_PARENT.glob("*/run.json")]
    return [run for _, run in sorted(manifests, reverse=True)]


def open_run(name: str | None, lang: Language) -> RunFolder:
    """Return the run `name`, converted if needed, and print its problems on stderr.

    Raises:
        CommandError: no such run, or its folder cannot be read.
    """
    run = read_run(name, lang)
    print_problems(run, lang)
    if run.manifest.get("status") == "running":
        print_error(lang, "unfinished")
    return run


def read_run(name: str | None, lang: Language) -> RunFolder:
    """Return the run `name`, converted if needed. The caller prints its `problems`.

    Raises:
        CommandError: no such run, or its folder cannot be read.
        SystemExit: Ctrl-C during the conversion (130). The records stay intact; the next command converts them.
    """
    folder = find_run(name)
    try:
        convert(folder, lang)
    except KeyboardInterrupt:
        print_error(lang, "convert_interrupted", folder=folder)
        raise SystemExit(130) from None
    try:
        return RunFolder.open(folder)
    except RunFolderError as error:
        raise CommandError("run_folder", reason=problem_text(error.problem, lang)) from None


def convert(folder: Path, lang: Language) -> None:
    """Convert the records in a run folder to spans, if there are any; print problems on stderr.

    Raises:
        CommandError: the records have another version of the format.
    """
    folder = folder.parent if folder.name == MANIFEST else folder
    if not os.path.isdir(folder) or not any((folder / TRACE_FOLDER).glob("*.records")):
        return
    from tracellm.probes.record.record_file import RecordFileError
    from tracellm.probes.spans.converter import convert_folder, has_records

    if not has_records(folder):
        return
    try:
        with ConversionProgress(folder, lang) as progress:
            problems = convert_folder(folder, progress)
    except RecordFileError as error:
        raise CommandError("run_folder", reason=problem_text(error.problem, lang)) from None
    for problem in problems:
        print_error(lang, "problem", problem=problem)


class ConversionProgress:
    """A progress bar on a terminal's stderr, which appears when a conversion takes longer than a second.

    Call it with the completed share, from 0 to 1, within a `with` block.
    """

    def __init__(self, folder: Path, lang: Language) -> None:
        self._title = text(lang, "cli.converting", folder=folder)
        self._begin: float | None = None
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, share: float) -> None:
        """Show the completed share."""
        now = time.monotonic()
        if self._begin is None:
            self._begin = now
        if self._bar is None and now - self._begin > _PROGRESS_DELAY:
            from rich.console import Console
            from rich.progress import Progress

            console = Console(file=sys.stderr)
            self._bar = Progress(console=console, transient=True, disable=not console.is_terminal)
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=1.0)
        if self._bar is not None:
            self._bar.update(self._task, completed=share)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
