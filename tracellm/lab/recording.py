"""Recorded runs of a lab's script: with the student's files, with the engine's, and the two compared."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracellm.lab.loader import VARIABLE
from tracellm.probes.record.record_file import SUFFIX
from tracellm.report.texts import text
from tracellm.trace.run_folder import TRACE_FOLDER

__all__ = ["Recorded", "compare", "record"]

_TIMEOUT_SECONDS = 180.0
_MAX_RECORDS_BYTES = 5_000_000
"""Size of records that only an endless loop reaches; those of the labs' scripts have at most 1.2 MB."""
_POLL_SECONDS = 0.5
_TRACEBACK_LINES = 12


@dataclass(frozen=True)
class Recorded:
    """A recorded run of a script."""

    path: Path
    """The run folder."""
    status: int
    """Exit status of the script; -1 if it did not end."""
    error: str
    """Last line of stderr if the script failed."""
    traceback: str = ""
    """Last lines of stderr if the script failed, with the innermost frames."""

    def link(self, step: int | None = None) -> str:
        """Return the address of the report, at a step."""
        address = (self.path / "report.html").resolve().as_uri()
        return address if step is None else f"{address}#step={step}"


def record(script: Path, out: Path, lang: str, *, folder: Path | None = None, case: Any = None) -> Recorded:
    """Run a script with `tracellm run --explain` into `out`.

    Args:
        script: the lab's script.
        out: the run folder; an earlier one is replaced.
        lang: language of the reports.
        folder: lab's folder whose files take the engine's place; None for the engine's own.
        case: case that the script runs, as its first argument (a JSON file); None for its default.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    arguments: Sequence[str] = ()
    if case is not None:
        path = out.parent / "case.json"
        path.write_text(json.dumps(case), encoding="utf-8")
        arguments = (str(path.resolve()),)
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if folder is not None:
        environment[VARIABLE] = str(folder.resolve())
    command = [sys.executable, "-m", "tracellm", "run", "--explain", "--quiet", "--lang", lang, "--out", str(out)]
    command += [str(script), *arguments]
    started, stderr = time.monotonic(), None
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            while stderr is None:
                try:
                    stderr = process.communicate(timeout=_POLL_SECONDS)[1]
                except subprocess.TimeoutExpired:
                    if error := _endless(time.monotonic() - started, out, lang):
                        return Recorded(out, -1, error)
        finally:
            process.kill()  # nothing, after its end
    lines = stderr.strip().splitlines()
    if process.returncode == 0 or not lines:
        return Recorded(out, process.returncode, "")
    return Recorded(out, process.returncode, lines[-1], "\n".join(lines[-_TRACEBACK_LINES:]))


def _endless(seconds: float, out: Path, lang: str) -> str:
    """Return the reason to end a run, empty if there is none yet."""
    if seconds > _TIMEOUT_SECONDS:
        return text(lang, "lab.ended_timeout", detail=f"{_TIMEOUT_SECONDS:.0f}")
    if sum(file.stat().st_size for file in (out / TRACE_FOLDER).glob(f"*{SUFFIX}")) > _MAX_RECORDS_BYTES:
        return text(lang, "lab.ended_size", detail=f"{_MAX_RECORDS_BYTES / 1e6:.0f}")
    return ""


def compare(yours: Recorded, reference: Recorded, lang: str) -> Path | None:
    """Write the comparison of two runs as a page beside them; None if a recording is missing or too large for it."""
    page = yours.path.parent / "diff.html"
    page.unlink(missing_ok=True)
    if not all((one.path / "run.json").is_file() for one in (yours, reference)):
        return None
    command = [sys.executable, "-m", "tracellm", "diff", "--lang", lang, "--html", str(page)]
    command += [str(yours.path), str(reference.path)]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(command, capture_output=True, timeout=_TIMEOUT_SECONDS)
    return page if page.is_file() else None
