"""One explained run: the recording, its manifest and the reports, for the command line and for notebooks alike.

In a notebook: `with tracellm.explain() as run: LLM().generate("Hello")`, and then `print(run.calltree())`.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tracellm.cli.failure import describe
from tracellm.cli.folders import new_run_folder
from tracellm.cli.language import choose_language
from tracellm.cli.manifest import gpus, new_manifest
from tracellm.cli.render import calltree_text, sequence_text, steps_text, tell, tell_problems, write_reports
from tracellm.cli.selection import level_of, ring_of, selection_of
from tracellm.probes.selection import Selection
from tracellm.probes.session import Recording
from tracellm.report.console import Console
from tracellm.report.texts import Language
from tracellm.report.wording.problems import problem_text
from tracellm.trace.names import Level
from tracellm.trace.run_folder import RunFolder, RunFolderError, write_manifest

__all__ = ["Explanation", "explain"]


class Explanation:
    """A recording, then the run folder that it left; `start` and `end` it, or use it in a `with` statement."""

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
        substitutes: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder.absolute()  # the script may change the directory
        self.lang = lang
        self._shown = folder
        self._detail: Level | None = detail
        selection = selection or Selection.of(detail)
        self._focus = selection.focus
        self._keep_text = keep_text
        self._console = Console(lang, quiet=quiet)
        self._recording = Recording(
            self.folder, script=script, text=keep_text, listener=self._console, selection=selection, ring=ring
        )
        options = {"lang": lang, **selection.as_dict(), "ring": ring, **(substitutes or {})}
        self._manifest = new_manifest(script=script, argv=argv, options=options, text=keep_text)
        self._manifest["probes"] = {"left_out": self._recording.left_out}  # of a run that is killed this is all
        self._started = 0

    def start(self) -> None:
        """Write the manifest and begin to record.

        Raises:
            RuntimeError: something is being recorded already.
        """
        write_manifest(self.folder, self._manifest)
        self._started = time.perf_counter_ns()
        self._recording.start()

    def end(self, *, exit_status: int, error: BaseException | None = None) -> None:
        """Stop recording, finish the manifest and write the reports; what fails is told on stderr in a line each."""
        self._recording.stop(error)
        interrupted = type(error) is KeyboardInterrupt
        self._manifest.update(
            status="interrupted" if interrupted else "failed" if exit_status else "finished",
            duration_s=round((time.perf_counter_ns() - self._started) / 1e9, 6),
            exit_status=exit_status,
            error=None if error is None or interrupted else describe(error).as_manifest(self._keep_text),
            probes=self._recording.stats,
            processes=self._recording.processes,
        )
        self._manifest["host"]["gpus"] = gpus()
        try:
            write_manifest(self.folder, self._manifest)
        except OSError as reason:
            tell(self.lang, "manifest", path=self._shown / "run.json", reason=reason.strerror)
        try:
            run = RunFolder.open(self.folder)
        except RunFolderError as reason:  # the script has removed it
            tell(self.lang, "run_folder", reason=problem_text(reason.problem, self.lang))
            return
        tell_problems(run, self.lang)
        failed = write_reports(run, self.lang, detail=self._detail, focus=self._focus, shown=self._shown)
        self._console.finish(self._manifest, None if "report.html" in failed else self._shown / "report.html")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end(exit_status=0 if error is None else 1, error=error)

    def __repr__(self) -> str:
        """What a notebook shows for it: where the run is, and what to ask it for."""
        return f"<tracellm run in {self._shown}: print(run.calltree()), run.sequence(), run.steps(); report.html>"

    def calltree(self) -> str:
        """The call tree, from your line down to the kernels. After the `with` block, as are the two below."""
        return calltree_text(RunFolder.open(self.folder), self.lang)

    def sequence(self, *, detail: Level | None = None, focus: str | Sequence[str] = ()) -> str:
        """The sequence diagram, as Mermaid; `focus` names the classes to show, with their callers and callees.

        Raises:
            CommandError: there is no level `detail`, or no call of the run is one of a class in `focus`.
        """
        run = RunFolder.open(self.folder)
        return sequence_text(run, self.lang, detail=level_of(detail), focus=_texts(focus))

    def steps(self) -> str:
        """The engine's steps as a table."""
        return steps_text(RunFolder.open(self.folder), self.lang)


def explain(
    out: str | os.PathLike[str] | None = None,
    *,
    lang: str | None = None,
    detail: Level | None = None,
    focus: str | Sequence[str] = (),
    only: str | Sequence[str] = (),
    skip: str | Sequence[str] = (),
    ring: int | None = None,
    keep_text: bool = True,
    quiet: bool = True,
) -> Explanation:
    """Record what runs in the `with` block, and explain it: `with tracellm.explain() as run: ...`.

    Args:
        out: the run folder: new, empty, or of an earlier run. By default a new one in `tracellm-runs/`.
        lang: `en` or `zh`; by default what TRACELLM_LANG or the locale says.
        detail: how deep to record and to draw: request, step, layer or kernel. By default everything is recorded, and
            what tells most is drawn.
        focus: classes that are recorded at every level, everything else down to `detail`, or else to steps;
            sequence.mmd shows them only, with what calls them and what they call.
        only: record nothing but what matches one of these: a `Class.method`, a `Class`, a function or a module, with
            `*` and `?` as in file names.
        skip: record nothing that matches one of these.
        ring: how many spans of each process to keep, the last ones; all by default.
        keep_text: False leaves prompts and generated text out of the recording.
        quiet: False shows the console log, on stderr, as `tracellm run --explain` does.

    Raises:
        CommandError: the run folder cannot be written, `lang` is no language there are texts in, there is no level
            `detail`, `only` or `skip` names nothing that can be recorded, or `ring` is less than one.
    """
    language = choose_language(lang)
    detail = level_of(detail)
    selection = selection_of(language, detail, *(_texts(one) for one in (focus, only, skip)))
    kept = ring_of(ring)
    script = Path(sys.argv[0]).name if sys.argv[0] and "ipykernel" not in sys.argv[0] else "notebook"
    return Explanation(
        new_run_folder(Path(script).stem, None if out is None else Path(out)),
        script=script,
        argv=[script],
        lang=language,
        detail=detail,
        selection=selection,
        ring=kept,
        keep_text=keep_text,
        quiet=quiet,
    )


def _texts(one_or_more: str | Sequence[str]) -> Sequence[str]:
    """`"Scheduler"` is one name, and not nine."""
    return [one_or_more] if isinstance(one_or_more, str) else one_or_more
