"""Signals with several workers, and the death of the engine core: no worker, directory or message too many is left."""

import os
import signal

import pytest

from tests.faults.processes import Program, Server, children_of, wait_until

SCRIPT = """
from tracellm import LLM, SamplingParams
llm = LLM(tensor_parallel_size=2, max_model_len=1024, multiprocess_mode={mode}, num_gpu_blocks_override=257)
while True:
    llm.generate(["a"] * 2, SamplingParams(max_tokens=50, ignore_eos=True), use_tqdm=False)
    print("generated")
"""


def workers_of(pid: int) -> list[int]:
    """Wait for the two workers of the process with the engine core, and return their ids."""

    def workers() -> list[int]:
        found = [child for child, command in children_of(pid).items() if "spawn_main" in command]
        return found if len(found) == 2 else []

    found: list[int] = wait_until(workers, "two workers")
    return found


def test_sigterm_ends_a_script_and_its_workers() -> None:
    """A script that SIGTERM ends while it generates leaves no worker and no directory."""
    with Program.of_code(SCRIPT.format(mode=False)) as program:
        program.lines_until("generated")
        program.send(signal.SIGTERM)
        assert program.end() == -signal.SIGTERM
        assert program.leftovers() == []
        assert program.stderr() == ""


@pytest.mark.parametrize("mode", [False, True], ids=["InprocClient", "SyncMPClient"])
def test_ctrl_c_while_a_worker_does_not_start(mode: bool) -> None:
    """Ctrl-C ends a script whose workers wait for one that is stopped; its traceback is the only one."""
    with Program.of_code(SCRIPT.format(mode=mode)) as program:
        workers = workers_of(program.engine() if mode else program.pid)
        os.kill(workers[0], signal.SIGSTOP)
        program.ctrl_c()
        assert program.end() == -signal.SIGINT
        assert program.leftovers() == []
        assert program.stderr().count("Traceback") == 1
        assert program.stderr().strip().endswith("KeyboardInterrupt")


def test_the_death_of_the_engine_core_ends_its_workers() -> None:
    """After `kill -9` of the engine core of a server, its workers end and no directory is left."""
    with Server("--tensor-parallel-size=2") as server:
        os.kill(server.engine(), signal.SIGKILL)
        assert server.end() == 1
        assert "was killed by SIGKILL" in server.stderr()
        assert "Traceback" not in server.stderr()
        assert server.leftovers() == []
