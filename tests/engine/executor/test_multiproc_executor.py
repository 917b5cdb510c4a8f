"""Tests of the executor with a process for each worker: results, errors, and the death of workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import HANG_GUARD
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineDeadError, EngineError
from tracellm.engine.executor.multiproc_executor import MultiprocExecutor

SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 64,
    "num_gpu_blocks_override": 32,
    "skip_tokenizer_init": True,
}
PROMPT = {"prompt_token_ids": [5, 6, 7]}


@pytest.fixture
def llm(qwen2_checkpoint: Path) -> Iterator[LLM]:
    """An engine with two workers."""
    llm = LLM(qwen2_checkpoint, tensor_parallel_size=2, **SETTINGS)
    yield llm
    llm.llm_engine.engine_core.shutdown()


def executor_of(llm: LLM) -> MultiprocExecutor:
    """Return the executor of an engine core in this process."""
    client: Any = llm.llm_engine.engine_core
    executor = client.engine_core.model_executor
    assert isinstance(executor, MultiprocExecutor)
    return executor


def are_gone(pids: list[int]) -> bool:
    """Wait a few seconds for the end of processes."""
    for _ in range(100):
        alive = [pid for pid in pids if Path(f"/proc/{pid}").exists() and "Z" not in _state(pid)]
        if not alive:
            return True
        time.sleep(0.05)
    return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return "Z"


def test_workers_have_ranks(llm: LLM) -> None:
    """A collective call returns the results of all workers by rank, or that of one."""
    executor = executor_of(llm)
    blocks = executor.collective_rpc("get_kv_cache_spec")
    assert len(blocks) == 2
    assert executor.collective_rpc("get_kv_cache_spec", unique_reply_rank=1) == blocks[1]
    first = executor.collective_rpc("get_kv_cache_spec", non_block=True)
    second = executor.collective_rpc("get_kv_cache_spec", non_block=True, unique_reply_rank=0)
    third = executor.collective_rpc("get_kv_cache_spec", non_block=True)
    assert third.result() == blocks
    assert second.result() == blocks[0]
    assert first.done()
    assert first.result() == blocks


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "step"])
def test_a_killed_worker_ends_all(llm: LLM, rank: int, busy: bool) -> None:
    """The error names the rank and the signal; no worker and no file is left, and later calls fail at once."""
    executor = executor_of(llm)
    pids = [worker.process.pid or 0 for worker in executor.workers]
    if busy:
        os.kill(pids[1 - rank], signal.SIGSTOP)  # the step cannot end
    os.kill(pids[rank], signal.SIGKILL)
    with pytest.raises(EngineDeadError, match=rf"worker of rank {rank} .* was killed by SIGKILL"):
        llm.generate(PROMPT, SamplingParams(max_tokens=4), use_tqdm=False)
    assert are_gone(pids)
    assert not Path(executor._directory).exists()
    with pytest.raises(EngineDeadError):
        executor.collective_rpc("get_kv_cache_spec")


def test_a_stopped_worker_is_named(qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the timeout the error names the rank that is stopped, and no worker is left."""
    monkeypatch.setenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "0.5")
    llm = LLM(qwen2_checkpoint, tensor_parallel_size=2, **SETTINGS)
    pids = [worker.process.pid or 0 for worker in executor_of(llm).workers]
    os.kill(pids[1], signal.SIGSTOP)
    with pytest.raises(EngineDeadError, match=r"No response to `execute_model` within 0.5 s: rank 1 .* is stopped"):
        llm.generate(PROMPT, SamplingParams(max_tokens=4), use_tqdm=False)
    assert are_gone(pids)


def test_an_error_of_a_worker_reaches_the_caller(llm: LLM) -> None:
    """An exception of a worker is raised here, and ends the workers."""
    executor = executor_of(llm)
    pids = [worker.process.pid or 0 for worker in executor.workers]
    with pytest.raises(RuntimeError, match="no_such_method"):
        executor.collective_rpc("no_such_method")
    assert are_gone(pids)


def test_a_checkpoint_that_cannot_be_loaded(qwen2_checkpoint: Path, tmp_path: Path) -> None:
    """The workers' own error is that of a single worker."""
    for file in qwen2_checkpoint.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    messages = []
    for size in (1, 2):
        with pytest.raises(EngineError) as caught:
            LLM(tmp_path, tensor_parallel_size=size, **SETTINGS)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("mode", [False, True], ids=["InprocClient", "SyncMPClient"])
def test_workers_end_with_the_engine(mode: bool, qwen2_checkpoint: Path) -> None:
    """No worker outlives the engine."""
    llm = LLM(qwen2_checkpoint, tensor_parallel_size=2, multiprocess_mode=mode, **SETTINGS)
    llm.generate(PROMPT, SamplingParams(max_tokens=2), use_tqdm=False)
    client: Any = llm.llm_engine.engine_core
    parent = client.resources.engine_manager.processes[0].pid if mode else os.getpid()
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(workers) >= 2
    llm.llm_engine.engine_core.shutdown()
    assert are_gone(workers)


def test_large_messages_in_both_directions(qwen2_checkpoint: Path) -> None:
    """A large call can be sent while a worker sends a large response to the previous one."""
    llm = LLM(qwen2_checkpoint, pipeline_parallel_size=2, **SETTINGS)
    executor, large = executor_of(llm), bytes(4 << 20)
    executor.collective_rpc("__setattr__", ("blob", large))
    futures = [
        executor.collective_rpc(method, args, non_block=True)
        for _ in range(3)
        for method, args in (("__getattribute__", ("blob",)), ("__setattr__", ("blob", large)))
    ]
    assert [len(future.result()[0] or b"") for future in futures] == [len(large), 0] * 3
    llm.llm_engine.engine_core.shutdown()


def test_an_error_at_the_start_is_the_workers_own(qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends after an error in its start-up is not taken for the cause of the error."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    with pytest.raises(RuntimeError, match="no-such-interface"):
        LLM(qwen2_checkpoint, tensor_parallel_size=2, **SETTINGS)


def test_a_script_that_ends_without_shutdown(qwen2_checkpoint: Path) -> None:
    """A script ends, and its workers with it, even if another finalizer was made before multiprocessing's."""
    script = f"""
import tempfile
early = tempfile.TemporaryDirectory()
from tracellm import LLM
llm = LLM({str(qwen2_checkpoint)!r}, tensor_parallel_size=2, **{SETTINGS!r})
print(*(worker.process.pid for worker in llm.llm_engine.engine_core.engine_core.model_executor.workers))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, encoding="utf-8", timeout=HANG_GUARD, check=True
    )
    assert are_gone([int(pid) for pid in done.stdout.split()])
