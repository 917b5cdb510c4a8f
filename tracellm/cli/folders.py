"""Run folders on disk: making one for a new run, finding an earlier one again."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from tracellm.cli.errors import CommandError
from tracellm.report.export import FORMATS, file_name
from tracellm.report.wording.quantities import clip

__all__ = ["DEFAULT_PARENT", "find_run", "new_run_folder"]

DEFAULT_PARENT = Path("tracellm-runs")
"""Where runs go that were not told otherwise, in the current directory."""

_MOST_RUNS = 10
"""How many runs a message lists."""

_WRITTEN = (
    "run.json", "sequence.mmd", "calltree.txt", "report.html",
    *(f"{file_name(format)}{end}" for format in FORMATS for end in ("", ".gz", ".part", ".gz.part")),
    "trace/*.jsonl", "trace/*.part", "trace/*.process", "trace/.over", "trace/.measured-*",
)  # fmt: skip
"""What tracellm writes into a run folder, and removes when the folder is used again."""


def new_run_folder(stem: str, out: Path | None) -> Path:
    """Make the folder for a run of the script `stem`, empty of any earlier run: `out`, or a new one in DEFAULT_PARENT.

    Raises:
        CommandError: `out` is a file or holds something else, or the folder cannot be made or written to.
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
    """Whether an earlier run left this folder: its run.json is one of tracellm's."""
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
    """Those that are called so, or are of a script that is."""
    script = re.compile(rf"{re.escape(name.removesuffix('.py'))}-\d{{8}}-\d{{6}}(-\d+)?")
    return (run for run in runs if name == run.name or script.fullmatch(run.name))


def _newest_first() -> list[Path]:
    manifests = [(file.stat().st_mtime_ns, file.parent) for file in DEFAULT_PARENT.glob("*/run.json")]
    return [run for _, run in sorted(manifests, reverse=True)]
