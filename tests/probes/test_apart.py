"""Spans are made and written in a process beside the recorded one, which need not wait for it."""

import errno
import os
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import HANG_GUARD, completed, wait_until
from tracellm import probe
from tracellm.probes.courier import Courier
from tracellm.probes.session import Recording
from tracellm.trace.run_folder import RunFolder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere the recorded process writes itself")
linux = pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes as Linux tells of them")


@probe
def work(number: int) -> int:
    """Something to record."""
    return number


def desk_of(recording: Recording) -> Courier:
    """What stands for the other process."""
    desk = recording._desk
    assert isinstance(desk, Courier)
    return desk


def group_of(recording: Recording) -> int:
    """The process group of the process that writes."""
    process = desk_of(recording)._process
    assert process is not None
    return process.pid


def members(group: int) -> list[Path]:
    """What Linux tells of processes of this group that run; some that have ended may be there still."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, its_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(folder)
    return found


def is_there(group: int) -> bool:
    """Does a process of this group run?"""
    return bool(members(group))


def wait_for(recording: Recording, calls: int) -> None:
    """Until the other process says that it has written so many."""
    wait_until(lambda: desk_of(recording).told().get("spans", 0) >= calls, f"{calls} spans written")


@linux
def test_another_process_writes(tmp_path: Path):
    """The file is written by a process that is gone at the end, and leaves nothing but the file."""
    with Recording(tmp_path) as recording:
        other = group_of(recording)
        for number in range(1000):
            work(number)
        wait_for(recording, 1000)
        assert is_there(other)
        assert len(list((tmp_path / "trace").glob("*.jsonl"))) == 1
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 1000
    assert [file.suffix for file in (tmp_path / "trace").iterdir()] == [".jsonl"]
    wait_until(lambda: not is_there(other), "the process that wrote to end: it closes its pipes a moment before")


def test_its_cost_is_told_apart(tmp_path: Path):
    """What the other process spent is told, and beside it what was spent here."""
    with Recording(tmp_path) as recording:
        for number in range(5000):
            work(number)
    writer = recording.stats["writer"]
    assert writer["spans"] == 5001
    assert writer["seconds"] > 0
    assert writer["seconds_within"] > 0


def test_a_process_that_was_killed_is_told_of_and_done_without(tmp_path: Path):
    """When the other process dies, a problem says so, and what comes after it is recorded all the same."""
    with Recording(tmp_path) as recording:
        work(1)
        wait_for(recording, 1)
        os.killpg(group_of(recording), signal.SIGKILL)
        wait_until(lambda: desk_of(recording)._own, "the recorded process to write itself")
        for number in range(50):
            work(number)
    [problem] = recording.stats["problems"]
    assert problem.startswith("the process that wrote this recording was killed")
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 51


def test_its_end_is_not_the_end(tmp_path: Path):
    """Killed when the recording is about to end, it takes with it no more than it had not written."""
    with Recording(tmp_path) as recording:
        work(1)
        wait_for(recording, 1)
        os.killpg(group_of(recording), signal.SIGKILL)
    assert len(recording.stats["problems"]) == 1
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 1


KILLED = """
import os, signal, sys, time
from tracellm import probe
from tracellm.probes.session import Recording

@probe
def work(number): pass

def round_off():
    rounds = []
    recording._writer._each_round = lambda: rounds.append(1)
    while len(rounds) < 2: time.sleep(0.01)

recording = Recording(sys.argv[1])
recording.start()
work(0)
while recording._desk.told().get("spans", 0) < 1: time.sleep(0.01)
recording._desk._wake = lambda: None  # of what comes now it learns only when this process has ended
round_off()
os.killpg(recording._desk._process.pid, signal.SIGSTOP)  # it is slow
for number in range(1, 2000): work(number)
round_off()
os.killpg(recording._desk._process.pid, signal.SIGCONT)
print(recording._desk._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@linux
def test_what_was_packed_outlives_the_recorded_process(tmp_path: Path):
    """Of a program that is killed, all is written that it had packed, however late that is done."""
    done = completed([sys.executable, "-c", KILLED, tmp_path])
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: not is_there(int(done.stdout)), "the end of the process that writes")
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 2000


def test_a_test_s_clock_is_read_here(tmp_path: Path):
    """With a clock that no other process has, and with a catalog of one's own, the recorded process writes itself."""
    from tracellm.probes.clock import Clock

    options: list[dict[str, Any]] = [{"clock": Clock.counting()}, {"catalog": ()}, {"apart": False}]
    for number, option in enumerate(options):
        with Recording(tmp_path / str(number), **option) as recording:
            assert not isinstance(recording._desk, Courier)


@pytest.mark.parametrize("apart", [True, False])
def test_the_program_changes_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool):
    """A folder's name that is relative means the one that it meant at first."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Recording("run", apart=apart):
        monkeypatch.chdir(tmp_path / "elsewhere")
        work(1)
    assert len(RunFolder.open(tmp_path / "run").trace.named("work")) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_disk_that_was_full_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What could not be written is missing, and told of; what comes after is recorded, of the same functions, too."""
    with Recording(tmp_path) as recording:
        desk = desk_of(recording)
        write, refused = desk._spool.write, threading.Event()

        def refuse(message: bytes) -> None:
            monkeypatch.undo()
            refused.set()
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(desk._spool, "write", lambda message: (refuse if b"work" in message else write)(message))
        work(1)
        assert refused.wait(HANG_GUARD)
        work(2)
    [problem] = recording.stats["problems"]
    assert problem == "the recording cannot be written (No space left on device): part of this run is not recorded"
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 1


@pytest.mark.parametrize("executable", [None, "/nonexistent/python", shutil.which("true")])
def test_where_no_process_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str | None):
    """The recorded process writes itself, says so, and nothing is missing; no records are left in files."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", executable)
        patch.setattr(Courier, "_hear", lambda desk: True)  # that it has ended is seen late
        recording = Recording(tmp_path)
        recording.start()
        for number in range(300):
            work(number)
        wait_until(lambda: not recording._writer.buffer, "all records to be taken")
    wait_until(lambda: desk_of(recording)._own, "the recorded process to write itself")
    work(300)
    recording.stop()
    [problem] = recording.stats["problems"]
    assert problem.startswith("no process could be started to write this recording")
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 301
    assert [file.suffix for file in (tmp_path / "trace").iterdir()] == [".jsonl"]


def run(program: str, folder: Path, executable: str = sys.executable) -> str:
    """What a program says, which has `work` to do."""
    begin = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from tracellm import probe
from tracellm.probes.session import Recording
folder = Path({str(folder)!r})
@probe
def work(number): pass
"""
    done = completed([executable, "-I", "-c", begin + program])
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_it_finds_what_the_program_finds(tmp_path: Path):
    """Where packages are found only through what the program has added to sys.path, so they are there."""
    program = "with Recording(folder) as recording: work(1)\nassert recording.stats['problems'] == []"
    run(program, tmp_path, executable=sys._base_executable)  # type: ignore[attr-defined]
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 1


WAITS = """
import time
with Recording(folder):
    child = os.fork()
    if not child:
        time.sleep(0.5)  # what a recording starts has ended before
        os._exit(7)
    assert os.wait()[0] == child
"""


def test_a_program_that_waits_for_any_child(tmp_path: Path):
    """It finds none that it has not started."""
    run(WAITS, tmp_path)


FORKS_IN_C = """
import ctypes, signal, time
with Recording(folder) as recording:
    child = ctypes.PyDLL(None).fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    work(1)
assert recording.stats["problems"] == []
assert os.waitpid(child, os.WNOHANG) == (0, 0), "waited for the fork"
os.kill(child, signal.SIGKILL)
"""


def test_a_fork_that_python_knows_nothing_of(tmp_path: Path):
    """The end of a recording does not wait for a process that was forked in C, though it has inherited all pipes."""
    run(FORKS_IN_C, tmp_path)
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 1


CLOSES_ALL = """
import time
recording = Recording(folder)
recording.start()
work(1)
while recording._desk.told().get("spans", 0) < 1: time.sleep(0.02)
os.closerange(3, 1024)
own = [open(folder / f"own-{number}", "w+") for number in range(20)]
while recording._desk._own is None: time.sleep(0.02)
work(2)
recording.stop()
for file in own:
    file.seek(0)
    assert file.read() == ""
    file.write("mine")
    file.close()
assert "the program closed the files of its recording" in " ".join(recording.stats["problems"])
"""


def test_a_program_that_closes_all_files(tmp_path: Path):
    """As daemons do: what it opens then, under the same numbers, is left alone, and recording goes on."""
    run(CLOSES_ALL, tmp_path)
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 2
    assert [file.suffix for file in (tmp_path / "trace").iterdir()] == [".jsonl"]


FORKS = """
with Recording(folder) as recording:
    child = os.fork()
    if not child:
        DO
        recording.stop()
        os._exit(0 if recording._stats is None else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert recording.stats["problems"] == []
print(status, recording.stats["calls"], len(os.listdir(folder / "trace")))
"""


@pytest.mark.parametrize(("does", "said"), [("pass", "0 1 1"), ("work(1)", "3 2 2")])
def test_a_fork_with_nothing_to_record(tmp_path: Path, does: str, said: str):
    """Nothing is started for it, and no file is made; that of another one tells also what it has cost."""
    assert run(FORKS.replace("DO", does), tmp_path) == f"{said}\n"


FORK_LIVES_ON = """
hears, tells = os.pipe()
is_there, comes = os.pipe()
with Recording(folder) as recording:
    child = os.fork()
    if not child:
        os.write(comes, b"x")
        os.read(hears, 1)
        os._exit(0)
    os.read(is_there, 1)
files = [file.suffix for file in (folder / "trace").iterdir()]
os.write(tells, b"x")
os.waitpid(child, 0)
assert recording.stats["problems"] == [], recording.stats["problems"]
print(*files)
"""


def test_a_fork_that_lives_on_with_nothing_to_record(tmp_path: Path):
    """The recording ends in it, and nobody takes it for one that was killed."""
    assert run(FORK_LIVES_ON, tmp_path) == ".jsonl\n"


FORKS_WITH_A_FULL_DISK = """
import time
from tracellm.probes.spool import SpoolWriter
from tracellm.probes.state import state
with Recording(folder) as recording:
    def refuse(spool): raise OSError(28, "No space left on device")
    write, SpoolWriter._finish = SpoolWriter._finish, refuse
    sys.stderr = sys.stdout
    child = os.fork()
    if not child:
        work(1)
        given_up = time.monotonic() + 60
        while state.append is not None and time.monotonic() < given_up: time.sleep(0.01)
        sys.exit(3 if state.append is None else 4)
    SpoolWriter._finish = write
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
told = f"child (pid {child}) was not recorded: [Errno 28] No space left on device"
assert recording.stats["problems"] == [told], recording.stats["problems"]
"""


def test_a_fork_that_cannot_be_recorded(tmp_path: Path):
    """It says so in a line, as does the recording, and goes on without collecting records for nobody."""
    said = run(FORKS_WITH_A_FULL_DISK, tmp_path)
    assert said == "tracellm: what the process child does is not recorded: [Errno 28] No space left on device\n"
