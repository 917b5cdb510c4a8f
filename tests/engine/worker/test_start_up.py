"""Tests of the worker's start-up: the KV cache's spec, its size limit and its tensors."""

from pathlib import Path

import pytest
import torch

from tests.engine.worker.driver import make_config, make_kv_cache, runner_of, start_executor
from tracellm.engine.config.errors import EngineError
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.executor.uniproc_executor import UniProcExecutor
from tracellm.engine.worker import memory

GIB = 1024**3


@pytest.fixture(scope="module")
def executor(qwen2_checkpoint: Path) -> Executor:
    """Make an executor without a KV cache."""
    config = make_config(qwen2_checkpoint)
    return Executor.get_class(config)(config)


def test_the_executor_is_the_one_of_one_process(executor: Executor) -> None:
    """The executor is `UniProcExecutor`, and its calls return a list of one result."""
    assert type(executor) is UniProcExecutor
    assert len(executor.collective_rpc("get_kv_cache_spec")) == 1


def test_spec_names_every_layer(executor: Executor) -> None:
    """The spec has the KV cache parameters of each attention layer."""
    (specs,) = executor.get_kv_cache_specs()
    assert list(specs) == [f"model.layers.{i}.self_attn.attn" for i in range(3)]
    spec = specs["model.layers.0.self_attn.attn"]
    assert (spec.block_size, spec.num_kv_heads, spec.head_size, spec.dtype) == (4, 2, 16, torch.float32)


def test_a_new_kv_cache_is_zero(qwen2_checkpoint: Path) -> None:
    """Each value of a new cache is zero, also where the memory of a freed one could be used again."""
    for _ in range(2):
        caches = runner_of(start_executor(make_config(qwen2_checkpoint), num_blocks=7)).kv_caches
        assert all(cache.count_nonzero() == 0 for cache in caches)
        for cache in caches:
            cache.fill_(torch.nan)
        del cache, caches


def test_kv_cache_has_one_tensor_a_layer(qwen2_checkpoint: Path) -> None:
    """Each layer has its own cache, in the layout [2, blocks, block_size, KV heads, head size]."""
    caches = runner_of(start_executor(make_config(qwen2_checkpoint), num_blocks=7)).kv_caches
    assert [tuple(cache.shape) for cache in caches] == [(2, 7, 4, 2, 16)] * 3
    assert len({cache.data_ptr() for cache in caches}) == 3


def test_cpu_memory_is_what_is_useful(executor: Executor) -> None:
    """By default the KV cache has room for `max_num_seqs` requests of maximum length, and the null block."""
    page = 2 * 4 * 2 * 16 * 4  # K and V, tokens, heads, head size, bytes
    assert executor.determine_available_memory() == [(32 * 256 // 4 + 1) * page * 3]


def test_cpu_memory_by_environment(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """`TRACELLM_CPU_KVCACHE_SPACE` sets it in GiB."""
    monkeypatch.setenv("TRACELLM_CPU_KVCACHE_SPACE", "0.5")
    assert executor.determine_available_memory() == [GIB // 2]


@pytest.mark.parametrize("value", ["", "many", "0", "-1", "nan", "inf"])
def test_wrong_cpu_memory_is_refused(executor: Executor, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """A value that is no positive number raises an error that names the variable."""
    monkeypatch.setenv("TRACELLM_CPU_KVCACHE_SPACE", value)
    with pytest.raises(EngineError, match=f"TRACELLM_CPU_KVCACHE_SPACE must be a number.*{value!r}"):
        executor.determine_available_memory()


def test_cpu_memory_is_bounded(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is at most half of the free memory, and at most 4 GiB."""
    monkeypatch.setattr(executor.vllm_config.scheduler_config, "max_num_seqs", 10**9)
    assert executor.determine_available_memory()[0] <= 4 * GIB
    monkeypatch.setattr(memory, "_free_cpu_memory", lambda: GIB)
    assert executor.determine_available_memory() == [GIB // 2]


def test_initialize_cache_stores_the_number_of_blocks(executor: Executor) -> None:
    """The worker stores the number of blocks in the configuration."""
    executor.collective_rpc("initialize_cache", args=(123, 0))
    assert executor.vllm_config.cache_config.num_gpu_blocks == 123


def test_a_batch_too_large_for_the_memory_names_the_settings(qwen2_checkpoint: Path) -> None:
    """An error about the batch's memory names the settings to lower."""
    config = make_config(qwen2_checkpoint)
    executor = Executor.get_class(config)(config)
    config.model_config.max_model_len = 10**15
    with pytest.raises(EngineError, match=r"no memory for the inputs of a step.*max_num_seqs=32 .*lower them"):
        make_kv_cache(executor, num_blocks=7)
