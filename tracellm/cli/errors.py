"""Errors, as people see them: bad input to the command, and an exception that ended a script.

Bad input is one message in the reader's language and exit status 2. A mistake that the engine refuses (`EngineError`)
is printed as the user's own line, its source and the message, in place of the forty frames between that line and the
check that found it; the whole traceback is kept in run.json.
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
"""Sources of Cython: a frame of a library that it compiled, uvloop for example, has a file name without a folder."""


class CommandError(Exception):
    """Something the user has to put right. `key` names a text under `cli.error.`, `values` fill it in."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key, values)
        self.key = key
        self.values = values

    def message(self, lang: str) -> str:
        """The problem, its place and the remedy, in one language."""
        return text(lang, f"cli.error.{self.key}", **self.values)

    def __str__(self) -> str:
        return self.message("en")

    def print(self, lang: Language) -> None:
        """Print the message on stderr."""
        print_error(lang, self.key, **self.values)


def print_error(lang: Language, key: str, **values: Any) -> None:
    """Print the text `cli.error.KEY` on stderr, as one line of tracellm's."""
    message = text(lang, f"cli.error.{key}", **values)
    print(text(lang, "cli.error", message=message), file=sys.stderr, flush=True)


def require_posix() -> None:
    """Refuse to run anything where signals, forks and locks of files are not those of Linux and macOS.

    Raises:
        CommandError: the system is another.
    """
    if os.name != "posix":
        raise CommandError("posix_only", system=sys.platform)


@dataclass(frozen=True)
class Failure:
    """The entry `error` of run.json; `file` and the three fields after it are None where no line is known."""

    type: str
    message: str
    file: str | None
    line: int | None
    function: str | None
    source: str | None
    traceback: str

    def as_manifest(self, text: bool) -> dict[str, str | int | None]:
        """The entry for run.json; without `text`, nothing in it can hold the text of a prompt."""
        entry = asdict(self)
        return entry if text else {**entry, "message": "", "source": None, "traceback": ""}

    @property
    def where(self) -> str | None:
        """`file:line`, with the file as seen from the current directory where it lies below it."""
        if self.file is None:
            return None
        file = os.path.relpath(self.file) if Path(self.file).is_relative_to(Path.cwd()) else self.file
        return f"{file}:{self.line}"


def describe(error: BaseException) -> Failure:
    """The failure behind `error`, at the user's own line: the deepest frame that is no library's and not tracellm's."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    full = "".join(traceback.format_exception(error))
    try:
        message = str(error)
    except Exception:  # what python prints for it
        message = "<exception str() failed>"
    if isinstance(error, SyntaxError) and error.filename:
        source = error.text.strip() if error.text else None
        return Failure(name, error.msg, error.filename, error.lineno, None, source, full)
    found = _users_frame(error.__traceback__)
    if found is None:
        return Failure(name, message, None, None, None, None, full)
    file, line = found.tb_frame.f_code.co_filename, found.tb_lineno
    source = linecache.getline(file, line, found.tb_frame.f_globals).strip() or None
    return Failure(name, message, file, line, found.tb_frame.f_code.co_qualname, source, full)


def _users_frame(tb: TracebackType | None) -> TracebackType | None:
    users = outside = None
    while tb is not None:
        file = tb.tb_frame.f_code.co_filename
        if not file.startswith((_TRACELLM, "<frozen ", "<string>")):  # <string>: code that dataclasses and others make
            outside = tb
            if not file.startswith(_LIBRARIES) and not file.endswith(_COMPILED):
                users = tb
        tb = tb.tb_next
    return users or outside


def is_users_mistake(error: BaseException) -> bool:
    """Check for an `EngineError`, the engine's refusal, without importing the engine."""
    errors = sys.modules.get("tracellm.engine.config.errors")
    return errors is not None and isinstance(error, errors.EngineError)


def print_mistake(error: BaseException) -> bool:
    """Print a mistake that the engine refused, in three lines on stderr; for any other exception return False.

    A script that imports vLLM where there is none gets, below its traceback, what to do about it.
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
