"""`with tracellm.explain() as run:` records and explains the body of the block, in a notebook or a script.

`run` is a `Run`, which can be read after the block. `tracellm run --explain` does the same for a whole script.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tracellm.cli.explanation import Explanation
from tracellm.cli.folders import new_run_folder
from tracellm.cli.options import choose_language, level_of, ring_of, selection_of
from tracellm.notebook.live_line import LiveLine
from tracellm.notebook.run import Run
from tracellm.probes.context.notebook_cell import NOTEBOOK, is_in_notebook
from tracellm.trace.names import Level

__all__ = ["Block", "explain"]

_PYTHONS_OWN = {"": "interactive", "-": "stdin", "-c": "command", "-m": "module"}
"""Names for programs without a file, by what Python puts into `sys.argv[0]`."""


class Block:
    """A block of code to record: a context manager that returns the run."""

    def __init__(self, explanation: Explanation) -> None:
        self._explanation = explanation
        self.run = Run(explanation.folder, explanation.lang)

    def __enter__(self) -> Run:
        """Start recording.

        Raises:
            RuntimeError: another recording is running.
        """
        self._explanation.start()
        self.run.recording = True
        return self.run

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop recording, and write the run folder with its reports."""
        try:
            self._explanation.end(exit_status=0 if error is None else 1, error=error)
        finally:
            self.run.recording = False


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
) -> Block:
    """Record and explain the body of a `with` block: `with tracellm.explain() as run: ...`.

    Args:
        out: run folder: new, empty, or of an earlier run. Default: a new one in `tracellm-runs/`.
        lang: `en` or `zh`. Default: TRACELLM_LANG, then the locale.
        detail: level to record and draw: request, step, layer or kernel. Default: record every level, draw the most
            useful calls.
        focus: classes to record at every level; other classes are recorded to `detail`, by default to steps.
            sequence.mmd shows only these classes, their callers and callees.
        only: record only what matches one of these patterns: a `Class.method`, a `Class`, a function or a module, with
            `*` and `?` as in file names.
        skip: patterns of what is not recorded.
        ring: number of spans to keep for each process, the last ones. Default: all.
        keep_text: False leaves prompts and generated text out of the recording.
        quiet: False prints the console log on stderr, as `tracellm run --explain` does.

    Raises:
        CommandError: the run folder cannot be written, `lang` or `detail` is unknown, a pattern of `only` or `skip`
            matches nothing that can be recorded, or `ring` is less than one.
    """
    language = choose_language(lang)
    detail = level_of(detail)
    selection = selection_of(language, detail, *(_as_list(names) for names in (focus, only, skip)))
    kept = ring_of(ring)
    script = _program_name(sys.argv[0])
    explanation = Explanation(
        new_run_folder(Path(script).stem, None if out is None else Path(out)),
        script=script,
        argv=[script],
        lang=language,
        detail=detail,
        selection=selection,
        ring=kept,
        keep_text=keep_text,
        quiet=quiet,
        console=LiveLine(language) if quiet and is_in_notebook() else None,
    )
    return Block(explanation)


def _program_name(argv0: str) -> str:
    """Return the name of the running program, from `sys.argv[0]`."""
    path = Path(argv0)
    if path.name.endswith("kernel_launcher.py"):  # ipykernel's, and Colab's
        return NOTEBOOK
    if path.name == "__main__.py":  # python -m package
        return path.parent.name
    return _PYTHONS_OWN.get(argv0, path.name)


def _as_list(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names
