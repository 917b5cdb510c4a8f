"""Error messages: for bad input to the command, and for an exception that ended a script.

Bad input is one message in the user's language and exit status 2. For an `EngineError`, only the user's line, its
source and the message are printed, without the engine's forty frames; run.json keeps the traceback.
"""

import linecache
import os
import sys
import sysconfig
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tracellm.report.texts import Language, text

__all__ = ["CommandError", "Failure", "describe", "is_users_mistake", "print_error", "print_mistake", "require_posix"]

_TRACELLM = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))

_COMPILED = (".pyx", ".pxd", ".pxi")
"""Sources of Cython. A frame of a compiled library, such as uvloop, has a file name without a folder."""


class CommandError(Exception):
    """Bad input to the command. `key` is the key of a text under `cli.error.`, `values` are its values."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key, values)
        self.key = key
        self.values = values

    def message(self, lang: str) -> str:
        """Return the text of the error."""
        return text(lang, f"cli.error.{self.key}", **self.values)

    def __str__(self) -> str:
        return self.message("en")

    def print(self, lang: Language) -> None:
        """Print the message on stderr."""
        print_error(lang, self.key, **self.values)


def print_error(lang: Language, key: str, **values: Any) -> None:
    """Print the text `cli.error.KEY` on stderr, as one line that begins with `tracellm:`."""
    message = text(lang, f"cli.error.{key}", **values)
    print(text(lang, "cli.error", message=message), file=sys.stderr, flush=True)


def require_posix() -> None:
    """Check that the system has POSIX signals, forks and file locks, as Linux and macOS do.

    Raises:
        CommandError: it is another system.
    """
    if os.name != "posix":
        raise CommandError("posix_only", system=sys.platform)


@dataclass(frozen=True)
class Failure:
    """The entry `error` of run.json; `file`, `line`, `function` and `source` are None if unknown."""

    type: str
    message: str
    file: str | None
    line: int | None
    function: str | None
    source: str | None
    traceback: str

    def as_manifest(self, text: bool) -> dict[str, str | int | None]:
        """Return the entry for run.json. Without `text`, fields that may hold a prompt are empty."""
        entry = asdict(self)
        return entry if text else {**entry, "message": "", "source": None, "traceback": ""}

    @property
    def where(self) -> str | None:
        """`file:line`, relative to the current directory if the file is below it; None if unknown."""
        if self.file is None:
            return None
        file = os.path.relpath(self.file) if Path(self.file).is_relative_to(Path.cwd()) else self.file
        return f"{file}:{self.line}"


def describe(error: BaseException) -> Failure:
    """Return the failure at the user's line: the deepest frame outside of libraries and tracellm."""
    from tracellm.probes.context.notebook_cell import cell_name  # a script without an engine imports no probes

    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    full = "".join(traceback.format_exception(error))
    try:
        message = str(error)
    except Exception:
        message = "<exception str() failed>"  # as python prints it
    if isinstance(error, SyntaxError) and error.filename:
        source = error.text.strip() if error.text else None
        return Failure(name, error.msg, error.filename, error.lineno, None, source, full)
    found = _users_frame(error.__traceback__)
    if found is None:
        return Failure(name, message, None, None, None, None, full)
    file, line = found.tb_frame.f_code.co_filename, found.tb_lineno
    source = linecache.getline(file, line, found.tb_frame.f_globals).strip() or None
    return Failure(name, message, cell_name(file) or file, line, found.tb_frame.f_code.co_qualname, source, full)


def _users_frame(tb: TracebackType | None) -> TracebackType | None:
    users = outside = None
    while tb is not None:
        file = tb.tb_frame.f_code.co_filename
        if not file.startswith((_TRACELLM, "<frozen ", "<string>")):  # <string>: generated code, as of dataclasses
            outside = tb
            if not file.startswith(_LIBRARIES) and not file.endswith(_COMPILED):
                users = tb
        tb = tb.tb_next
    return users or outside


def is_users_mistake(error: BaseException) -> bool:
    """Return whether the error is an `EngineError`, without importing the engine."""
    errors = sys.modules.get("tracellm.engine.config.errors")
    return errors is not None and isinstance(error, errors.EngineError)


def print_mistake(error: BaseException) -> bool:
    """Print an `EngineError` in three lines on stderr and return True; for any other exception return False.

    If vLLM is not installed and the script imports it, add a note on how to install it to the traceback.
    """
    if isinstance(error, ModuleNotFoundError) and error.name == "vllm":
        from tracellm.cli.options import choose_language

        lang = choose_language(None)
        message = text(lang, "cli.error.vllm_missing", python=sys.executable)
        error.add_note(text(lang, "cli.error", message=message))
    if not is_users_mistake(error):
        return False
    failure = describe(error)
    if failure.where:
        print(f"{failure.where}: in {failure.function}", file=sys.stderr)
    if failure.source:
        print(f"    {failure.source}", file=sys.stderr)
    print(f"{type(error).__name__}: {failure.message}", file=sys.stderr)
    return True
