"""Tests of the processes of the engine."""

import subprocess
import sys
from pathlib import Path

from tests.faults.processes import is_running, wait_until
from tracellm.engine.ipc.spawn import EngineProcess


def work(path: str) -> None:
    """Start a process that starts another one, whose id it writes to a file, and wait for it."""
    inner = f"import os, time; open({path!r}, 'w').write(f'{{os.getpid()}}.'); time.sleep(1000)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    subprocess.run([sys.executable, "-c", outer], check=False)


def test_a_killed_process_leaves_no_process(tmp_path: Path) -> None:
    """`kill` ends the processes that the process has started, and those that they have."""
    path = tmp_path / "pid"
    process = EngineProcess(target=work, args=(str(path),))
    process.start()
    pid = int(
        wait_until(lambda: path.exists() and path.read_text().endswith(".") and path.read_text()[:-1], "the process")
    )
    process.kill()
    process.join()
    wait_until(lambda: not is_running(pid), "the end of the process")
