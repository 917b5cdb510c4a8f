"""Tests of engines that fail after their workers have started: one error, and no worker is left."""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import make_checkpoint
from tests.engine.executor.test_multiproc_executor import SETTINGS, are_gone
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError, ModelLoadError
from tracellm.engine.executor.distributed_executor import DistributedExecutor
from tracellm.engine.executor.multiproc_executor import MultiprocExecutor
from tracellm.engine.model_executor.models.utils import check_supports_pp

OUT_OF_MEMORY = [
    ("load_model", "no memory for the weights in the worker of rank 1: .* smaller `dtype`"),
    ("initialize_from_config", "no memory for a KV cache of 50000 blocks in the worker of rank 1: lower `kv_cache"),
    ("execute_model", r"no memory for a step of \d+ tokens in the worker of rank 1: lower `max_num_batched_tokens`"),
]
"""Method in which a worker runs out of memory, and the error."""


def limit_memory(pid: int, num_bytes: int) -> None:
    """Let a process have so many bytes more than it has."""
    limit = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + num_bytes
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


def run_out_of_memory(
    method: str, folder: Path, monkeypatch: pytest.MonkeyPatch, pids: list[int], **settings: Any
) -> None:
    """Run two workers, of which the one of rank 1 has no more memory in this method; add their ids to `pids`."""
    call = DistributedExecutor.collective_rpc

    def collective_rpc(self: Any, name: str, *args: Any, **options: Any) -> Any:
        if name == method:
            workers = [getattr(worker, "process", worker) for worker in self.workers]
            pids.extend(worker.pid for worker in workers)
            limit_memory(workers[1].pid, 8 << 20)
        return call(self, name, *args, **options)

    monkeypatch.setattr(DistributedExecutor, "collective_rpc", collective_rpc)
    folder = make_checkpoint(folder, "qwen2", intermediate_size=60_000)
    blocks = 128 if method == "execute_model" else 50_000
    llm = LLM(folder, tensor_parallel_size=2, **SETTINGS | {"num_gpu_blocks_override": blocks}, **settings)
    prompts = [{"prompt_token_ids": [5] * 48}] * 32  # far more memory than other threads can release meanwhile
    llm.generate(prompts, SamplingParams(max_tokens=2), use_tqdm=False)


@pytest.mark.parametrize(("method", "message"), OUT_OF_MEMORY)
def test_a_worker_out_of_memory(method: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the rank and what to lower, and the other worker ends too."""
    pids: list[int] = []
    with pytest.raises(EngineError, match=message):
        run_out_of_memory(method, tmp_path, monkeypatch, pids)
    assert len(pids) == 2
    assert are_gone(pids)


def test_an_engine_that_fails_after_its_workers_have_started(
    qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A KV cache that is too small ends the workers at once, even while the error is kept."""
    pids: list[int] = []
    start: Callable[[MultiprocExecutor], None] = MultiprocExecutor._start_workers

    def start_workers(self: MultiprocExecutor) -> None:
        start(self)
        pids.extend(worker.process.pid or 0 for worker in self.workers)

    monkeypatch.setattr(MultiprocExecutor, "_start_workers", start_workers)
    settings = {name: value for name, value in SETTINGS.items() if name != "num_gpu_blocks_override"}
    with pytest.raises(EngineError, match="KV cache") as kept:
        LLM(qwen2_checkpoint, tensor_parallel_size=2, kv_cache_memory_bytes=1024, **settings)
    assert len(pids) == 2
    assert are_gone(pids)
    del kept


@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan", ""])
def test_an_invalid_time_limit(value: str, qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit that is no positive number is refused by name, before a process starts."""
    monkeypatch.setenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", value)
    monkeypatch.setattr(MultiprocExecutor, "_start_workers", lambda self: pytest.fail("a process was started"))
    with pytest.raises(EngineError, match=f"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS must be .* it is {value!r}"):
        LLM(qwen2_checkpoint, tensor_parallel_size=2, **SETTINGS)


def test_a_model_without_stages() -> None:
    """A model whose `forward` does not take another stage's results is refused by name."""

    class Whole:
        def forward(self, input_ids: Any, positions: Any) -> Any: ...

    class Divisible(Whole):
        def forward(self, input_ids: Any, positions: Any, intermediate_tensors: Any = None) -> Any: ...

    check_supports_pp(Divisible)  # type: ignore[arg-type]  # only its signature is read
    with pytest.raises(ModelLoadError, match=r"not supported for Whole: .* Leave out `pipeline_parallel_size`"):
        check_supports_pp(Whole)  # type: ignore[arg-type]
