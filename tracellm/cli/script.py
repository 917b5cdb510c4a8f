"""Running a script as `python SCRIPT ARGS...` would, in this process.

The script becomes `__main__` in `sys.modules`, so pickle and multiprocessing find its classes. What leaves it leaves
this module too: SystemExit, KeyboardInterrupt and any other exception travel on to the interpreter, which gives them
the exit status, the traceback or the signal that it gives a script of its own. Only the frames of tracellm are taken
out of the traceback that is printed.
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

_LONGEST_HEAD = 4096  # bytes; what of a script names its interpreter is in its first two lines
_BY_SHELL = re.compile(r"""'''exec' ("?)(.+?)\1 "\$0" """.rstrip())
"""The second line of a script whose interpreter has too long a path, or spaces in it, for the first."""


@dataclass(frozen=True)
class Script:
    """A program: a file (or a folder or zip file with a `__main__.py`), or a module; and its own arguments."""

    target: str
    is_module: bool
    args: tuple[str, ...]

    @property
    def name(self) -> str:
        """The run's name: the file's, or the module's."""
        return self.target if self.is_module else Path(self.target).name

    @property
    def stem(self) -> str:
        """The name that a run folder starts with."""
        return self.target if self.is_module else Path(self.target).stem

    def found(self) -> "Script":
        """This, or the command of this name where there is no such file, as for `vllm`.

        Raises:
            CommandError: it is neither there nor a command, cannot be read, is a folder without a `__main__.py`, or a
                command of another environment.
        """
        if self.is_module:
            return self  # only importing its packages can print_error, and that is the script's own doing
        if not os.path.lexists(self.target) and (command := _command_path(self.target)) is not None:
            return replace(self, target=str(command))
        self._check()
        return self

    def _check(self) -> None:
        """Refuse a file that cannot be run, before anything is recorded."""
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
    """The script of the command `name`, beside the interpreter or wherever the shell finds it; None where no Python
    runs what is found.

    Raises:
        CommandError: the Python that runs it is not this one.
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
    # Environments share an interpreter, but no folder that it is run from.
    if interpreter.parent.resolve() != Path(sys.executable).parent.resolve():
        raise CommandError("command_foreign", name=name, path=path, python=sys.executable)
    return path


def _interpreter(script: Path) -> str | None:
    """The interpreter of a script, from its first line, or its second."""
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

    `print_error` is called for an exception that is about to be printed, unless the script has set `sys.excepthook`;
    when it returns True it has printed something better than the traceback.
    """
    _become_main(script)
    original = sys.excepthook
    try:
        if script.is_module:
            runpy._run_module_as_main(script.target)  # type: ignore[attr-defined]  # what `python -m` itself calls
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
        if not isinstance(error, SystemExit):  # of that none is printed
            _print_only(error, traceback, plain=sys.excepthook is original, print_error=print_error)
        del traceback  # else the frames, which it leads to, and this one, which leads to it, would keep each other
        ended(error)
        raise
    ended(None)


def _become_main(script: Script) -> None:
    """Give `sys.argv`, `sys.path` and `sys.modules["__main__"]` what `python` would give the script."""
    sys.argv = ["-m" if script.is_module else script.target, *script.args]
    if not sys.flags.safe_path:  # else python put nothing there that could be replaced
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
    """Check for a folder or zip file of which python runs the `__main__`, instead of the file itself."""
    if Path(target).is_dir():
        return True
    try:
        zipimporter(target)
    except ZipImportError:
        return False
    return True


def _absolute(path: str) -> str:
    """The path from the root, not normalised, which is how python has it."""
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
    """Have the interpreter print `error` with this traceback, whatever frames it leaves from here on."""
    hook = sys.excepthook

    def print_exception(kind: type[BaseException], value: BaseException, tb: TracebackType | None) -> None:
        if value is not error:
            hook(kind, value, tb)
            return
        if sys.excepthook is print_exception:  # it is not kept, nor what its frames hold, until modules are empty
            sys.excepthook = hook
        if not (plain and print_error(value)):
            hook(kind, value.with_traceback(traceback), traceback)

    sys.excepthook = print_exception
