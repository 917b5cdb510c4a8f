"""Main program of the student's process: `python -m tracellm.lab.sandbox.worker RESULTS`.

Reads one `Work` from stdin, loads the student's files and runs the cases. Outcomes go to the file descriptor RESULTS;
what the student's code prints goes to stdout and stderr, which the grader only shows.
"""

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tracellm.lab.checks import Check
from tracellm.lab.lab import find_lab
from tracellm.lab.loader import LAB_FILE, VARIABLE, install
from tracellm.lab.sandbox.guard import Guard
from tracellm.lab.sandbox.jail import enter
from tracellm.lab.sandbox.limits import limit, num_threads
from tracellm.lab.sandbox.outcomes import Begun, Message, NotLoaded, Raised, Started, Tampered, Value, Work

__all__ = ["extra_checks"]

_LARGEST_FILE = 1 << 20


def main() -> None:
    """Run the cases."""
    results = int(sys.argv[1])
    work = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Work)
    lab = find_lab(work.lab)
    assert lab is not None
    checks = {check.name: check for check in (*lab.checks, *extra_checks(work.checks))}
    files = {module: Path(work.folder, name) for module, name in work.files.items()}
    threads = num_threads()
    isolation = enter(Path(work.folder), _contents(work, lab.sheets), work.strongest, _kernels(work.kernels))
    limit(work.memory, work.seconds, threads)
    os.environ[VARIABLE] = work.folder  # for processes that the engine starts
    process, write, length, encode = os.getpid(), os.write, len, msgspec.msgpack.encode

    def send(message: Message) -> None:
        if os.getpid() != process:
            os._exit(0)  # a copy of this process, which the student's code has made
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        data = encode(message)
        data = work.word + length(data).to_bytes(4, "big") + data
        while data:
            data = data[write(results, data) :]

    send(Started(isolation))
    gc.disable()  # the imports make many objects that stay: collections would take a tenth of their time
    install(files)
    guard = Guard([str(path) for path in files.values()])
    try:
        for module in files:
            __import__(module)
        failed = None
    except BaseException as error:
        failed = NotLoaded(_describe(error, files))
    gc.enable()
    if name := guard.changed():
        send(Tampered(name))
    elif failed is not None:
        send(failed)
    if name or failed is not None:
        work.cases.clear()
    for index, (name, case) in enumerate(work.cases):
        send(Begun(index))
        try:
            message: Message = Value(checks[name].run(case))
            msgspec.msgpack.encode(message)
        except BaseException as error:
            message = _describe(error, files)
        if changed := guard.changed():
            message = Tampered(changed)
        send(message)
    os._exit(0)  # threads and exit handlers of the student's code do not matter any more


def extra_checks(source: str) -> tuple[Check, ...]:
    """Return the `CHECKS` of a source text."""
    names: dict[str, Any] = {"__name__": "tracellm.lab.labs.twist"}
    exec(compile(source, "<checks>", "exec"), names)
    return tuple(names.get("CHECKS", ()))


def _contents(work: Work, sheets: Sequence[str]) -> dict[str, bytes]:
    """Return the files of the folder that the student's process sees."""
    found = {}
    for name in (*work.files.values(), LAB_FILE, *sheets):
        with contextlib.suppress(OSError), Path(work.folder, name).open("rb") as file:
            found[name] = file.read(_LARGEST_FILE)
    return found


def _kernels(folder: str) -> dict[Path, bytes]:
    """Return the compiled kernels; none if they cannot be read."""
    with contextlib.suppress(OSError):
        return {path: path.read_bytes() for path in Path(folder).glob("*.so")}
    return {}


def _describe(error: BaseException, files: dict[str, Path]) -> Raised:
    paths = {str(path) for path in files.values()}
    try:
        kind, frames = type(error).__name__, traceback.extract_tb(error.__traceback__)
        shown, message = "".join(traceback.format_exception(error))[-4000:], str(error)[:500]
    except BaseException:  # an exception of the student's own making may do anything
        return Raised("Exception", "")
    kind, message, shown = (text.encode(errors="replace").decode() for text in (kind, message, shown))
    if isinstance(error, SyntaxError) and error.filename in paths:
        return Raised(kind, str(error.msg), error.filename or "", error.lineno or 0, "", shown)
    last = next((frame for frame in reversed(frames) if frame.filename in paths), None)
    if last is None:
        return Raised(kind, message, traceback=shown)
    return Raised(kind, message, last.filename, last.lineno or 0, last.name, shown)


if __name__ == "__main__":
    main()
