"""Tests of the engine core in its own process: its start, its errors and its end."""

import multiprocessing.util
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineDeadError, ModelLoadError
from tracellm.tiny import MODEL_DIR

SETTINGS: dict[str, Any] = {"max_model_len": 1024, "num_gpu_blocks_override": 257}
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=1000, ignore_eos=True)

SCRIPT = f"""
import os, sys
print("the script runs")
from tracellm import LLM, SamplingParams
settings = {SETTINGS!r}
llm = LLM(multiprocess_mode=True, **settings)
resources = llm.llm_engine.engine_core.resources
pid, directory = resources.engine_manager.processes[0].pid, resources.directory
assert os.stat(directory).st_mode & 0o777 == 0o700
print(llm.generate("Once", SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))[0].outputs[0].token_ids)
del llm
print(os.path.exists(f"/proc/{{pid}}/cmdline"), os.path.exists(directory))
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
last = LLM(**settings)
print(type(last.llm_engine.engine_core).__name__, last.llm_engine.engine_core.resources.engine_manager.processes[0].pid)
"""

TOLD_TO_END_WHILE_LOADING = """
import os, signal
from tracellm.engine.core import core_proc

class Closed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

class Loading(core_proc.EngineCoreProc):
    def __init__(self):
        Closed()

    def run_busy_loop(self):
        print("it runs")

    def shutdown(self):
        print("it is shut down")

core_proc.end_with_parent = core_proc.remove_socket_directory = lambda directory: None
Loading.run_engine_core("")
"""


def expected_tokens() -> Any:
    """Return the tokens that the same engine generates in this process."""
    return LLM(multiprocess_mode=False, **SETTINGS).generate("Once", GREEDY)[0].outputs[0].token_ids


def test_a_script_needs_no_guard_and_leaves_nothing(tmp_path: Path) -> None:
    """A script without a `__main__` guard runs once, prints only its own output, and leaves no process or directory."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, tokens, gone, last = done.stdout.splitlines()
    assert (first, tokens, gone) == ("the script runs", str(expected_tokens()), "False False")
    name, pid = last.split()
    assert name == "SyncMPClient"
    assert not Path(f"/proc/{pid}/cmdline").exists()
    assert list(temporary.iterdir()) == []


def test_other_threads_keep_the_script_while_an_engine_core_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that reads `__main__` while the process is spawned finds the script's module."""
    script, found = sys.modules["__main__"], []
    spawn = multiprocessing.util.spawnv_passfds

    def spawn_beside_a_thread(*arguments: Any) -> int:
        thread = threading.Thread(target=lambda: found.append(sys.modules["__main__"]))
        thread.start()
        thread.join()
        return spawn(*arguments)

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", spawn_beside_a_thread)
    llm = LLM(multiprocess_mode=True, **SETTINGS)
    del llm
    assert found
    assert all(module is script for module in found)


def test_told_to_end_where_python_passes_over_exceptions() -> None:
    """SIGTERM inside a finalizer while an engine core loads ends the process without an error message."""
    done = subprocess.run(
        [sys.executable, "-c", TOLD_TO_END_WHILE_LOADING], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "it is shut down\n", "")


def test_the_same_tokens_until_it_is_killed() -> None:
    """The tokens equal those in process; after a kill, current and later calls fail with how the process ended."""
    llm = LLM(multiprocess_mode=True, **SETTINGS)
    client: Any = llm.llm_engine.engine_core
    assert llm.generate("Once", GREEDY)[0].outputs[0].token_ids == expected_tokens()
    assert client.call_utility("get_num_free_blocks") == 256
    original, killed = client.get_output, threading.Event()

    def get_output() -> Any:
        outputs = original()
        if not killed.is_set():
            killed.set()
            os.kill(client.resources.engine_manager.processes[0].pid, signal.SIGKILL)
        return outputs

    client.get_output = get_output
    with pytest.raises(EngineDeadError, match="EngineCore_0 was killed by SIGKILL while it was needed"):
        llm.generate(["Once"] * 3, LONG)
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        llm.generate("Once", GREEDY)
    client.shutdown()
    assert not Path(client.resources.directory).exists()


def test_what_keeps_it_from_starting_is_the_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A damaged weight file raises the same `ModelLoadError` as in process, without a traceback on stderr."""
    for file in Path(MODEL_DIR).iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(b"junk" if file.suffix == ".safetensors" else file.read_bytes())
    messages = []
    for multiprocess_mode in (False, True):
        with pytest.raises(ModelLoadError) as error:
            LLM(str(tmp_path), multiprocess_mode=multiprocess_mode)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert capfd.readouterr().err == ""
