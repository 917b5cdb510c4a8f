"""One explained run: its recording, manifest (run.json) and reports; of `run`, `serve` and `tracellm.explain()`."""

import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from tracellm import __version__
from tracellm.cli.errors import describe, print_error
from tracellm.cli.explanations_seen import explanations_seen, remember_explanations
from tracellm.cli.folders import ConversionProgress, new_run_folder
from tracellm.cli.options import Convert, Options
from tracellm.cli.reports import (
    matching_classes,
    print_problems,
    recorded_names,
    write_reports,
)
from tracellm.probes.catalog.coverage import vllm_version
from tracellm.probes.install.selection import Selection
from tracellm.probes.recording import Recording
from tracellm.report.console import Console
from tracellm.report.texts import Language
from tracellm.report.wording.problems import problem_text
from tracellm.trace.model import Trace
from tracellm.trace.names import Level
from tracellm.trace.run_folder import SCHEMA, RunFolder, RunFolderError, write_manifest

__all__ = ["Explanation"]

_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")


class Explanation:
    """A recording and the reports made of it; `start` and `end` it."""

    def __init__(
        self,
        folder: Path,
        *,
        script: str,
        argv: Sequence[str],
        lang: Language,
        detail: Level | None = None,
        selection: Selection | None = None,
        ring: int | None = None,
        keep_text: bool = True,
        quiet: bool = False,
        brief: bool = False,
        live: bool = False,
        verbose: bool = False,
        convert: Convert = "now",
        overrides: Mapping[str, Any] | None = None,
        console: Console | None = None,
    ) -> None:
        self.folder = folder.absolute()  # the script may change the directory
        self.lang = lang
        self.shown = folder
        self._detail: Level | None = detail
        selection = selection or Selection.of(detail)
        self._focus = selection.focus
        self._keep_text = keep_text
        self._convert = convert
        self._progress = ConversionProgress(folder, lang)
        self._console = console or _new_console(lang, quiet=quiet, brief=brief, live=live, verbose=verbose)
        self._recording = Recording(
            self.folder,
            script=script,
            text=keep_text,
            listener=self._console,
            selection=selection,
            ring=ring,
            convert=convert == "now",
            progress=self._progress,
        )
        options = {"lang": lang, **selection.as_dict(), "ring": ring, **(overrides or {})}
        self._manifest = _new_manifest(script=script, argv=argv, options=options, text=keep_text)
        self._manifest["probes"] = {"left_out": self._recording.left_out}  # all that a killed run has
        self._started = 0

    @classmethod
    def from_options(
        cls,
        options: Options,
        stem: str,
        *,
        script: str,
        argv: Sequence[str],
        overrides: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the explanation that the command's options describe, with its run folder made.

        Raises:
            CommandError: the run folder cannot be written.
        """
        return cls(
            new_run_folder(stem, options.out),
            script=script,
            argv=argv,
            lang=options.lang,
            detail=options.detail,
            selection=options.selection,
            ring=options.ring,
            keep_text=options.keep_text,
            quiet=options.quiet,
            brief=options.brief,
            live=options.live,
            verbose=options.verbose,
            convert=options.convert,
            overrides=overrides,
        )

    def start(self) -> None:
        """Write the manifest and start recording.

        Raises:
            RuntimeError: another recording is running.
        """
        write_manifest(self.folder, self._manifest)
        self._started = time.perf_counter_ns()
        self._recording.start()

    def end(self, *, exit_status: int, error: BaseException | None = None, terminated: bool = False) -> None:
        """Stop recording, complete the manifest and write the reports. A failure is one line on stderr.

        `terminated`: SIGTERM ends this process.
        """
        try:
            self._end(exit_status, error, terminated)
        finally:
            self._console.close()

    def _end(self, exit_status: int, error: BaseException | None, terminated: bool) -> None:
        with self._progress:
            self._recording.stop(error)
        interrupted = type(error) is KeyboardInterrupt
        if terminated:
            status = "terminated"
        elif interrupted:
            status = "interrupted"
        else:
            status = "failed" if exit_status else "finished"
        self._manifest.update(
            status=status,
            duration_s=round((time.perf_counter_ns() - self._started) / 1e9, 6),
            exit_status=exit_status,
            error=None if error is None or interrupted else describe(error).as_manifest(self._keep_text),
            probes=self._recording.stats,
            processes=self._recording.processes,
        )
        self._manifest["host"]["gpus"] = _gpus()
        try:
            write_manifest(self.folder, self._manifest)
        except OSError as reason:
            print_error(self.lang, "manifest", path=self.shown / "run.json", reason=reason.strerror)
        if self._convert == "later":
            self._finish_console()
            print_error(self.lang, "recorded_only", folder=self.shown)
            return
        try:
            run = RunFolder.open(self.folder)
        except RunFolderError as reason:  # the script removed it
            print_error(self.lang, "run_folder", reason=problem_text(reason.problem, self.lang))
            return
        print_problems(run, self.lang)
        absent = [name for name in self._focus if not matching_classes(name, recorded_names(run))]
        focus = [name for name in self._focus if name not in absent]
        failed = write_reports(run, self.lang, detail=self._detail, focus=focus, shown=self.shown)
        report = None if "report.html" in failed else self.shown / "report.html"
        self._finish_console(report, run.trace)
        for name in absent:
            print_error(self.lang, "focus_absent", value=name)

    def _finish_console(self, report: Path | None = None, trace: Trace | None = None) -> None:
        self._console.finish(self._manifest, report, trace)
        if self._console.has_explained:
            remember_explanations()


def _new_console(lang: Language, *, quiet: bool, brief: bool, live: bool, verbose: bool) -> Console:
    """Return the console for these options; without a fitting terminal, --live has the usual one."""
    if live:
        from tracellm.report.console.live import COLUMNS, LINES, LiveConsole, fits

        if fits(sys.stderr):
            return LiveConsole(lang)
        print_error(lang, "live_terminal", columns=COLUMNS, lines=LINES)
    return Console(lang, quiet=quiet, brief=brief, explain=verbose or not explanations_seen())


# -- run.json ----------------------------------------------------------------------------------------------------------


def _new_manifest(*, script: str, argv: Sequence[str], options: dict[str, Any], text: bool) -> dict[str, Any]:
    """Return the manifest of a run that starts now; `docs/run-folder.md` describes its entries.

    Without `text` the script's arguments are masked, since they may hold prompts.
    """
    return {
        "schema": SCHEMA,
        "tracellm": __version__,
        "status": "running",
        "script": script,
        "argv": [argv[0], *(argv[1:] if text else ["***"] * len(argv[1:]))] if argv else [],
        "cwd": os.getcwd(),
        "started_at": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "duration_s": None,
        "exit_status": None,
        "error": None,
        "versions": {"python": platform.python_version(), **_versions()},
        "host": {
            "name": platform.node(),
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "memory_bytes": _memory(),
            "gpus": [],
        },
        "options": {"text": text, **options},
        "probes": None,
        "processes": [{"pid": os.getpid(), "name": "main"}],
    }


def _gpus() -> list[str]:
    """Return the names of the CUDA devices, if the script has initialized CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, **({"vllm": known} if (known := vllm_version()) else {})}


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
