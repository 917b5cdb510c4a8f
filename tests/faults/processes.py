"""Programs in processes of their own, started as from a terminal, and their leftovers.

Each program leads a session: Ctrl-C reaches all its processes, as in a terminal, and leftover processes can be found.
Its temporary files have a directory of their own.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

HANG_GUARD = 300.0
"""Seconds after which a hanging test fails. A start may take minutes: it compiles kernels beside other work."""
ENGINE: dict[str, Any] = {"max_model_len": 1024, "num_gpu_blocks_override": 257, "max_num_seqs": 64}
"""Sizes of an engine that starts and fills quickly."""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition is true, and return its value."""
    deadline = time.monotonic() + HANG_GUARD
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {HANG_GUARD:.0f} s for this: {what}"
        time.sleep(0.02)
    return answer


def completed(
    command: Sequence[str | Path], *, within: float = HANG_GUARD, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program as the leader of a session, and return its result with captured output.

    If it does not end, or a child with its output does not, all of them are killed. `subprocess.run` would kill the
    program alone and then read on forever.

    Raises:
        subprocess.TimeoutExpired: it was killed after `within` seconds.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    ) as process:
        try:
            output, errors = process.communicate(timeout=within)
        except BaseException:
            with suppress(ProcessLookupError):  # all have just ended
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def stat_of(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on, or None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def children_of(pid: int) -> dict[int, str]:
    """Return the children of a process, each with its command line."""
    commands = {}
    for child in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        stat = stat_of(child)
        if stat is not None and int(stat[1]) == pid:
            commands[child] = command_of(child)
    return commands


def command_of(pid: int) -> str:
    """Return the command line of a process, empty after its end."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def engine_of(pid: int) -> int | None:
    """Return the engine process that multiprocessing spawned for the process `pid`, if any yet."""
    return next((child for child, command in children_of(pid).items() if "spawn_main" in command), None)


def is_running(pid: int) -> bool:
    """Return whether a process runs or waits; zombies do not count."""
    stat = stat_of(pid)
    return stat is not None and stat[0] not in "ZX"


def session_of(pid: int) -> list[int]:
    """Return all processes of the session led by `pid`, also leftover ones, without zombies."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [one for one in pids if (stat := stat_of(one)) and int(stat[3]) == pid and stat[0] not in "ZX"]


def rss_of(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_of(pid: int) -> float:
    """Return the CPU time of a process in seconds, in user and kernel mode; 0 if there is no such process."""
    stat = stat_of(pid)
    return sum(int(ticks) for ticks in stat[11:13]) / os.sysconf("SC_CLK_TCK") if stat else 0.0


class Program:
    """A running Python program; `with` always ends it."""

    def __init__(self, *arguments: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> None:
        # A short path, as socket paths may have 107 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
        self.temporary = self.directory / "tmp"
        self.temporary.mkdir()
        self.log = self.directory / "stderr"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", *arguments],
                cwd=cwd or self.directory,
                env=os.environ
                | {"TMPDIR": str(self.temporary), "PYTHONWARNINGS": "error::ResourceWarning", "PYTHONFAULTHANDLER": "1"}
                | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                bufsize=0,  # unbuffered, so that `select` detects all output
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @classmethod
    def of_code(cls, code: str, **environment: str) -> Program:
        """Return a running script with this content."""
        handle, path = tempfile.mkstemp(prefix="faults-", suffix=".py", dir="/tmp")
        with os.fdopen(handle, "w") as script:
            script.write(code)
        program = cls(path, environment=environment)
        program.script = Path(path)
        return program

    script: Path | None = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for pid in self.session():
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        self.process.wait(HANG_GUARD)
        assert self.process.stdout is not None
        self.process.stdout.close()
        if error is not None:
            print(f"-- stderr of {self.process.args!r}:\n{self.stderr()}")  # noqa: T201  # pytest shows it
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.script is not None:
            self.script.unlink()

    def session(self) -> list[int]:
        """Return all its processes, also leftover ones, without zombies."""
        return session_of(self.pid)

    def line(self) -> str:
        """Return the next printed line without its end; empty at the end of the output."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], HANG_GUARD)
        assert ready, f"it has printed nothing for {HANG_GUARD:.0f} s; its stderr: {self.stderr()}"
        return self.process.stdout.readline().decode().rstrip("\n")

    def lines_until(self, prefix: str) -> list[str]:
        """Return the printed lines up to the one that begins with `prefix`."""
        lines: list[str] = []
        while not (lines and lines[-1].startswith(prefix)):
            line = self.line()
            assert line or self.process.poll() is None, f"it ended before {prefix!r}; {lines}; {self.stderr()}"
            lines.append(line)
        return lines

    def stderr(self) -> str:
        """Return its stderr so far."""
        return self.log.read_text(errors="replace")

    def engine(self) -> int:
        """Wait for its engine process, and return its id."""
        pid: int = wait_until(lambda: engine_of(self.pid), "an engine process")
        return pid

    def ctrl_c(self) -> None:
        """Send SIGINT to each of its processes, as a terminal does."""
        os.killpg(self.pid, signal.SIGINT)

    def send(self, signum: int) -> None:
        """Send a signal to this process alone."""
        self.process.send_signal(signum)

    def end(self) -> int:
        """Wait for its end, and return the exit status, negative for a signal. If it hangs, its stderr has where."""
        try:
            return self.process.wait(HANG_GUARD)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGABRT)  # faulthandler prints the stack of each thread
            self.process.wait(HANG_GUARD)
            raise

    def leftovers(self) -> list[str]:
        """Return the files left after the end of all its processes; there should be none."""
        wait_until(lambda: not self.session(), "the end of all its processes")
        return sorted(str(path) for path in self.temporary.rglob("*"))


class Server(Program):
    """`tracellm serve` at a free port, ready for requests unless `wait` is False."""

    def __init__(self, *options: str, wait: bool = True, cwd: Path | None = None) -> None:
        sizes = [f"--{name.replace('_', '-')}={value}" for name, value in ENGINE.items()]
        super().__init__("-m", "tracellm", "serve", "--port=0", *sizes, *options, cwd=cwd)
        self.port = 0
        if wait:
            try:
                self.ready()
            except BaseException:
                self.__exit__(*sys.exc_info())
                raise

    def ready(self) -> None:
        """Wait for its address in stderr."""

        def address() -> int:
            assert self.process.poll() is None, f"the server has ended: {self.stderr()}"
            _, separator, address = self.stderr().partition("http://127.0.0.1:")
            return int("".join(c for c in address[:5] if c.isdigit()) or 0) if separator else 0

        self.port = wait_until(address, "the address of the server")

    def __enter__(self) -> Server:
        return self
