"""`%load_ext tracellm`: `%%explain` records and explains a cell, `%explain f(x)` a line.

    %%explain --detail step --as run
    LLM().generate("Hello")

The cell runs in the notebook's own names, and shows its last value and its errors as always. The answer is shown below,
and `run` is the run. IPython: `InteractiveShell.run_cell`, IPython/core/interactiveshell.py.
"""

import asyncio
import gc
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from tracellm.cli.errors import CommandError
from tracellm.cli.options import choose_language
from tracellm.notebook.explain import explain
from tracellm.probes.context.exceptions import without_probes

__all__ = ["ExplainMagics", "load_ipython_extension"]

_OPTION = re.compile(r"""--([\w-]+)(?:=|\s+)("[^"]*"|'[^']*'|\S+)\s*""")
_OPTIONS = ("detail", "focus", "lang", "out", "as")


@magics_class
class ExplainMagics(Magics):
    """The magics `%explain` and `%%explain`."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._runs = 0

    @line_cell_magic  # type: ignore[untyped-decorator]
    def explain(self, line: str, cell: str | None = None) -> None:
        """Record and explain a cell, or the code at the end of a line.

        --detail LEVEL   level to record: request, step, layer or kernel
        --focus CLASS    class to record at every level; may be repeated
        --lang en|zh     language of the answer
        --out FOLDER     run folder; default: a temporary one, which is removed when the kernel ends
        --as NAME        variable for the run; default: run
        """
        options, rest = _parse(line)
        code = rest if cell is None else cell
        name = options.get("as", ["run"])[-1]
        if cell is not None and rest:
            raise UsageError(f"%%explain takes only options on its first line: {rest}")
        if not code.strip():
            raise UsageError("nothing to run: give code after %explain, or a cell below %%explain")
        if not name.isidentifier():
            raise UsageError(f"--as {name}: not a name of a variable")
        if _is_loop_running() and self._awaits(code):
            raise UsageError("%explain cannot run await: use `with tracellm.explain() as run:` in a cell of its own")
        single = {key: values[-1] for key, values in options.items() if key in ("lang", "detail")}
        try:
            block = explain(options.get("out", [self._new_folder()])[-1], focus=options.get("focus", ()), **single)  # type: ignore[arg-type]
            run = block.__enter__()
        except CommandError as error:
            raise UsageError(error.message(choose_language(None))) from None
        except RuntimeError as error:  # another recording
            raise UsageError(str(error)) from None
        failure: BaseException | None = None
        try:
            with self._tracebacks_without_probes():
                result = self.shell.run_cell(code)
            failure = result.error_before_exec or result.error_in_exec
        finally:
            self._number_code(code)
            block.__exit__(None if failure is None else type(failure), failure, None)
        if isinstance(failure, KeyboardInterrupt):
            self._forget(failure)
        gc.collect()  # ends the process of an engine that a cell run again has replaced
        self.shell.user_ns[name] = run
        display(run)

    def _awaits(self, code: str) -> bool:
        """Return whether code has an `await` outside of functions."""
        try:
            transformed = self.shell.transform_cell(code)
        except SyntaxError:  # running the code shows it
            return False
        return bool(self.shell.should_run_async(code, transformed_cell=transformed))

    @contextmanager
    def _tracebacks_without_probes(self) -> Iterator[None]:
        """Context in which IPython prints the tracebacks of the program as without the recording."""
        show = self.shell.showtraceback

        def show_program(*args: Any, **kwargs: Any) -> None:
            if (error := sys.exc_info()[1]) is not None:
                without_probes(error)
            show(*args, **kwargs)

        self.shell.showtraceback = show_program
        try:
            yield
        finally:
            del self.shell.showtraceback

    def _number_code(self, code: str) -> None:
        """Give the code the number of this cell in later tracebacks; IPython has given it that of the next one."""
        with suppress(SyntaxError):
            self.shell.compile.cache(self.shell.transform_cell(code), self.shell.displayhook.prompt_count, code)

    def _forget(self, interrupt: KeyboardInterrupt) -> None:
        """Remove the traceback that IPython keeps for `%debug`: its frames would keep the cell's engine alive."""
        error: BaseException | None = interrupt
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__
        sys.last_traceback = self.shell.InteractiveTB.tb = None

    def _new_folder(self) -> str:
        """Return the folder of a run without a name."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tracellm-")
        self._runs += 1
        return str(Path(self._folder.name) / f"run-{self._runs}")


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _parse(line: str) -> tuple[dict[str, list[str]], str]:
    """Return the options at the beginning of a line, and the rest as it is: code has quotes of its own.

    Raises:
        UsageError: an option is unknown or has no value.
    """
    options: dict[str, list[str]] = {}
    rest = line.strip()
    while rest.startswith("--"):
        found = _OPTION.match(rest)
        if found is None or found[1] not in _OPTIONS:
            known = ", ".join(f"--{option}" for option in _OPTIONS)
            raise UsageError(f"{rest.split()[0]}: not an option with a value; options: {known}")
        options.setdefault(found[1], []).append(found[2].strip("\"'"))
        rest = rest[found.end() :]
    return options, rest


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magics; IPython calls this for `%load_ext tracellm`."""
    shell.register_magics(ExplainMagics)
