"""Run folders on disk: making one for a new run, finding an earlier one again, opening and converting it."""

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
"""The parent of run folders without --out, in the current directory."""

_MOST_RUNS = 10
"""The most runs that a message lists."""

_PATIENCE_SECONDS = 1.0
"""Converting that takes longer shows how far it is."""

_WRITTEN = (
    "run.json", "sequence.mmd", "calltree.txt", "report.html",
    *(f"{file_name(format)}{end}" for format in FORMATS for end in ("", ".gz", ".part", ".gz.part")),
    "trace/*.jsonl", "trace/*.records", "trace/*.part", "trace/*.process", "trace/.over", "trace/.measured-*",
    "trace/.lock",
)  # fmt: skip
"""The files that tracellm writes into a run folder, and removes when the folder is used again."""


def new_run_folder(stem: str, out: Path | None) -> Path:
    """Make the folder for a run of the script `stem`, empty of any earlier run: `out`, or a new one in DEFAULT_PARENT.

    Raises:
        CommandError: `out` is a file or holds something else, another run is still recording there, or the folder
            cannot be made or written to.
    """
    if out is not None:
        return _reuse(out)
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
    """Check that an earlier run left this folder: its run.json is one of tracellm's."""
    try:
        manifest = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and "tracellm" in manifest


def find_run(name: str | None) -> Path:
    """The run folder `name`, a path, or the name of a run in DEFAULT_PARENT or of a script that was run, whose newest
    run is meant. Without a name, or for `latest`, it is the newest of all.

    Raises:
        CommandError: there is nothing of this name, or no run at all.
    """
    if name is not None and Path(name).is_dir():
        return Path(name)
    runs = _newest_first()
    if name is not None and Path(name).exists():  # a script that lies here, most likely
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
    """The runs of this name, or of the script of this name."""
    script = re.compile(rf"{re.escape(name.removesuffix('.py'))}-\d{{8}}-\d{{6}}(-\d+)?")
    return (run for run in runs if name == run.name or script.fullmatch(run.name))


def _newest_first() -> list[Path]:
    manifests = [(file.stat().st_mtime_ns, file.parent) for file in DEFAULT_PARENT.glob("*/run.json")]
    return [run for _, run in sorted(manifests, reverse=True)]


def open_run(name: str | None, lang: Language) -> RunFolder:
    """The run `name`, converted and read; what is wrong with it is printed on stderr.

    Raises:
        CommandError: no such run, or a folder that is none.
    """
    run = read_run(name, lang)
    print_problems(run, lang)
    if run.manifest.get("status") == "running":
        print_error(lang, "unfinished")
    return run


def read_run(name: str | None, lang: Language) -> RunFolder:
    """The run `name`, converted and read, its `problems` left to the caller.

    Raises:
        CommandError: no such run, or a folder that is none.
        SystemExit: Ctrl-C while it was converted (130); the records are whole, and the next command converts again.
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
    """Make spans of the records in a run folder that are none yet; problems are printed on stderr."""
    folder = folder.parent if folder.name == MANIFEST else folder
    if not os.path.isdir(folder) or not any((folder / TRACE_FOLDER).glob("*.records")):
        return
    from tracellm.probes.spans.converter import convert_folder, has_records

    if not has_records(folder):
        return
    with ConversionProgress(folder, lang) as progress:
        problems = convert_folder(folder, progress)
    for problem in problems:
        print_error(lang, "problem", problem=problem)


class ConversionProgress:
    """A bar on stderr that shows the share of a conversion that is done, from 0 to 1, where it takes more than a
    second.

    Call it with the share, within a `with` block.
    """

    def __init__(self, folder: Path, lang: Language) -> None:
        self._title = text(lang, "cli.converting", folder=folder)
        self._begin: float | None = None
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, share: float) -> None:
        """Show the share that is done."""
        now = time.monotonic()
        if self._begin is None:
            self._begin = now
        if self._bar is None and now - self._begin > _PATIENCE_SECONDS:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(file=sys.stderr), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=1.0)
        if self._bar is not None:
            self._bar.update(self._task, completed=share)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
