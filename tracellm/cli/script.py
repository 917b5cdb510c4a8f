"""Runs a script in this process as `python SCRIPT ARGS...` would.

The script becomes `__main__` in `sys.modules`, so pickle and multiprocessing find its classes. Its exceptions,
SystemExit and KeyboardInterrupt among them, reach the interpreter, so exit status, traceback and signal are python's.
Only the frames of tracellm are removed from the traceback.
"""

import builtins
import io
import os
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from zipimport import ZipImportError, zipimporter

from tracellm.cli.errors import CommandError

__all__ = ["Script", "run_script"]

_OURS = str(Path(__file__).parent) + os.sep

_LONGEST_HEAD = 4096  # bytes, enough for the first two lines
_BY_SHELL = re.compile(r"""'''exec' ("?)(.+?)\1 "\$0" """.rstrip())
"""Second line of a script whose interpreter's path is too long for the first line, or has spaces."""


@dataclass(frozen=True)
class Script:
    """A program and its arguments. It is a file, a folder or zip file with a `__main__.py`, or a module."""

    target: str
    is_module: bool
    args: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the file or module."""
        return self.target if self.is_module else Path(self.target).name

    @property
    def stem(self) -> str:
        """Beginning of the run folder's name."""
        return self.target if self.is_module else Path(self.target).stem

    def found(self) -> "Script":
        """Return this script, or if there is no such file the command of this name, such as `vllm`.

        Raises:
            CommandError: there is neither, the file cannot be read, the folder has no `__main__.py`, or the command
                belongs to another environment.
        """
        if self.is_module:
            return self  # finding it would import its packages
        if not os.path.lexists(self.target) and (command := _command_path(self.target)) is not None:
            return replace(self, target=str(command))
        self._check()
        return self

    def _check(self) -> None:
        """Check that the file can be run, before anything is recorded."""
        path = Path(self.target)
        if path.is_dir():
            if not (path / "__main__.py").exists():
                raise CommandError("script_is_folder", path=path)
            return
        try:
            path.open("rb").close()
        except FileNotFoundError:
            if self.target == "vllm":
                raise CommandError("vllm_missing", python=sys.executable) from None
            raise CommandError("script_missing", path=path) from None
        except OSError as error:
            raise CommandError("script_unreadable", path=path, reason=error.strerror) from None


def _command_path(name: str) -> Path | None:
    """Return the script of the command `name`, beside the interpreter or on PATH; None if it is not a Python script.

    Raises:
        CommandError: another Python runs it.
    """
    if os.path.dirname(name):
        return None
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.is_file() else shutil.which(name)
    if found is None:
        return None
    path = Path(found)
    interpreter = Path(_interpreter(path) or "")
    if not interpreter.name.startswith("python"):
        return None
    # Environments may share an interpreter, but each has its own bin folder.
    if interpreter.parent.resolve() != Path(sys.executable).parent.resolve():
        raise CommandError("command_foreign", name=name, path=path, python=sys.executable)
    return path


def _interpreter(script: Path) -> str | None:
    """Return the interpreter of a script, from its first or second line."""
    try:
        with script.open("rb") as file:
            lines = os.fsdecode(file.read(_LONGEST_HEAD)).splitlines()
    except OSError:
        return None
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0][2:].split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1 and (found := _BY_SHELL.match(lines[1])):
        return found[2]
    if words[:1] == ["/usr/bin/env"] and len(words) > 1:
        return shutil.which(words[1])
    return words[0] if words else None


def run_script(
    script: Script, *, ended: Callable[[BaseException | None], None], print_error: Callable[[BaseException], bool]
) -> None:
    """Run `script`, then call `ended` with the exception that left it, or None.

    `print_error` is called when an exception is to be printed, unless the script has set `sys.excepthook`. If it
    returns True, no traceback is printed.
    """
    _become_main(script)
    original = sys.excepthook
    try:
        if script.is_module:
            runpy._run_module_as_main(script.target)  # type: ignore[attr-defined]  # as `python -m` does
        elif _has_main(script.target):
            runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        else:
            _run_file(script.target)
    except BaseException as error:
        from tracellm.probes.context.exceptions import without_probes

        without_probes(error)
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OURS):
            traceback = traceback.tb_next
        error.__traceback__ = traceback
        if not isinstance(error, SystemExit):
            _print_only(error, traceback, plain=sys.excepthook is original, print_error=print_error)
        del traceback  # breaks a reference cycle with this frame
        ended(error)
        raise
    ended(None)


def _become_main(script: Script) -> None:
    """Set `sys.argv`, `sys.path` and `sys.modules["__main__"]` as `python` would for the script."""
    sys.argv = ["-m" if script.is_module else script.target, *script.args]
    if not sys.flags.safe_path:  # with safe_path, sys.path[0] is not the script's folder
        if script.is_module:
            sys.path[0] = str(Path.cwd())
        elif _has_main(script.target):
            sys.path[0] = _absolute(script.target)
        else:
            sys.path[0] = os.path.dirname(os.path.realpath(script.target))
    main = ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main


def _has_main(target: str) -> bool:
    """Return whether the target is a folder or zip file, whose `__main__` python runs."""
    if Path(target).is_dir():
        return True
    try:
        zipimporter(target)
    except ZipImportError:
        return False
    return True


def _absolute(path: str) -> str:
    """Return the absolute path, not normalised, as python does."""
    return path if os.path.isabs(path) else f"{os.getcwd()}{os.sep}{path}"


def _run_file(target: str) -> None:
    path = _absolute(target)
    main = sys.modules["__main__"]
    vars(main).update(__loader__=SourceFileLoader("__main__", path), __file__=path, __cached__=None)
    with io.open_code(path) as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), vars(main))


def _print_only(
    error: BaseException, traceback: TracebackType | None, *, plain: bool, print_error: Callable[[BaseException], bool]
) -> None:
    """Make the interpreter print `error` with this traceback, without the frames that are added later."""
    hook = sys.excepthook

    def print_exception(kind: type[BaseException], value: BaseException, tb: TracebackType | None) -> None:
        if value is not error:
            hook(kind, value, tb)
            return
        if sys.excepthook is print_exception:  # drops the frames before the interpreter clears modules
            sys.excepthook = hook
        if not (plain and print_error(value)):
            hook(kind, value.with_traceback(traceback), traceback)

    sys.excepthook = print_exception
