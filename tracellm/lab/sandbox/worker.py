"""Main program of the student's process: `python -m tracellm.lab.sandbox.worker RESULTS`.

Reads one `Work` from stdin, loads the student's files and runs the cases. Outcomes go to the file descriptor RESULTS;
what the student's code prints goes to stdout and stderr, which the grader only shows.
"""

import os
import sys
import traceback
from pathlib import Path

import msgspec

from tracellm.lab.loader import LoadError, install, read_files
from tracellm.lab.sandbox.limits import isolate, limit
from tracellm.lab.sandbox.outcomes import Begun, Message, NotLoaded, Raised, Value, Work

__all__: list[str] = []


def main() -> None:
    """Run the cases."""
    results = int(sys.argv[1])
    work = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Work)
    isolate(read_only=not work.processes)
    limit(work.memory, work.seconds)
    os.environ["TRACELLM_LAB"] = work.folder  # for processes that the engine starts

    def send(message: Message) -> None:
        data = msgspec.msgpack.encode(message)
        os.write(results, len(data).to_bytes(4, "big"))
        view = memoryview(data)
        while view:
            view = view[os.write(results, view) :]

    files = _files(work.folder)
    try:
        install(files)
        for module in files:
            __import__(module)
    except BaseException as error:
        send(NotLoaded(_describe(error, files)))
        return
    from tracellm.lab.lab import find_lab

    lab = find_lab(work.lab)
    assert lab is not None
    checks = {check.name: check for check in lab.checks}
    for index, (name, case) in enumerate(work.cases):
        send(Begun(index))
        try:
            message: Message = Value(checks[name].run(case))
            msgspec.msgpack.encode(message)
        except BaseException as error:
            message = _describe(error, files)
        send(message)
    sys.stdout.flush()
    os._exit(0)  # threads and exit handlers of the student's code do not matter any more


def _files(folder: str) -> dict[str, Path]:
    try:
        return read_files(Path(folder))
    except LoadError as error:
        sys.exit(str(error))


def _describe(error: BaseException, files: dict[str, Path]) -> Raised:
    paths = {str(path) for path in files.values()}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in paths]
    text = "".join(traceback.format_exception(error))[-4000:]
    if isinstance(error, SyntaxError) and error.filename in paths:
        return Raised(type(error).__name__, error.msg, error.filename or "", error.lineno or 0, "", text)
    try:
        message = str(error)[:500]
    except Exception:
        message = ""
    if not frames:
        return Raised(type(error).__name__, message, traceback=text)
    last = frames[-1]
    return Raised(type(error).__name__, message, last.filename, last.lineno or 0, last.name, text)


if __name__ == "__main__":
    main()
