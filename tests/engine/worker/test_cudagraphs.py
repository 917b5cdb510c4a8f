"""Tests of CUDA graphs: the choice of a graph for a step, and the padding."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.ops.implementations import need_triton
from tests.engine.worker.driver import make_config, runner_of, start_executor
from tracellm.engine.config.vllm_config import OpsChoice
from tracellm.engine.worker.cudagraphs import (
    CudaGraphs,
    GraphChoice,
    get_capture_sizes,
    get_eager_reason,
    make_decode_forward,
)


@given(max_num_seqs=st.integers(1, 2000), num_reqs=st.integers(1, 2000))
def test_the_smallest_graph_that_holds_the_batch_is_chosen(max_num_seqs: int, num_reqs: int) -> None:
    """Every batch of up to 512 requests has a graph, with at most 15 rows of padding."""
    sizes = get_capture_sizes(max_num_seqs)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == min(max_num_seqs, 512)
    size, padding, reason = CudaGraphs(sizes).choose(num_reqs, num_reqs)
    if num_reqs > sizes[-1]:
        assert (size, padding, reason) == (None, 0, "too_many_requests")
    else:
        assert size == min(s for s in sizes if s >= num_reqs)
        assert 0 <= padding == size - num_reqs <= 15
        assert reason == "decode"


def test_a_step_with_a_prompt_is_not_replayed() -> None:
    """A step in which a request has two tokens runs eagerly, with the reason `prompt`."""
    assert CudaGraphs([1, 2, 4]).choose(2, 3) == GraphChoice(None, 0, "prompt")


def test_get_eager_reason(qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reason to run eagerly has its message, and without any the result is None."""
    launch = pytest.importorskip("tracellm.engine.model_executor.ops.triton.launch", exc_type=ImportError)
    config = make_config(qwen2_checkpoint)
    config.model_config.enforce_eager = True
    assert get_eager_reason(config) == "enforce_eager=True"
    config.model_config.enforce_eager = False
    assert get_eager_reason(config) == "there are CUDA graphs on a GPU only"
    config.device_config.device = torch.device("cuda")
    assert get_eager_reason(config) == "the operations `torch` plan each step on the host"
    config.ops_choice = OpsChoice("triton", "argument")
    monkeypatch.setattr(launch, "INTERPRETED", True)
    assert "interpreter" in str(get_eager_reason(config))
    monkeypatch.setattr(launch, "INTERPRETED", False)
    assert get_eager_reason(config) is None


def test_padding_reads_and_writes_only_the_null_block(qwen2_checkpoint: Path) -> None:
    """Padding rows become requests of one token in block 0, and the other rows stay unchanged."""
    runner: Any = runner_of(start_executor(make_config(qwen2_checkpoint, max_num_seqs=8)))
    table = runner.input_batch.block_table[0]
    buffers = [runner.input_ids, runner.positions, runner.seq_lens, runner.query_start_loc]
    for buffer in (*buffers, table.block_table, table.slot_mapping):
        buffer.np[:] = 7
    runner.pad_inputs(3, 6)
    assert [buffer.np[:8].tolist() for buffer in buffers] == [
        [7, 7, 7, 0, 0, 0, 7, 7],
        [7, 7, 7, 0, 0, 0, 7, 7],
        [7, 7, 7, 1, 1, 1, 7, 7],
        [7, 7, 7, 3, 4, 5, 6, 7],
    ]
    assert table.block_table.np[:8, 0].tolist() == table.slot_mapping.np[:8].tolist() == [7, 7, 7, 0, 0, 0, 7, 7]


def test_a_graph_may_be_as_large_as_the_largest_step(qwen2_checkpoint: Path) -> None:
    """The buffers hold a graph of `max_num_seqs` requests even if a step has no room for more tokens."""
    config = make_config(qwen2_checkpoint, max_num_seqs=8, max_num_batched_tokens=8)
    runner: Any = runner_of(start_executor(config, num_blocks=8))
    runner.pad_inputs(0, 8)
    assert runner.query_start_loc.np.tolist() == list(range(9))


def test_a_graph_does_not_keep_the_model_runner(qwen2_checkpoint: Path) -> None:
    """The model runner and its KV cache are freed without the garbage collector, although a graph was captured."""
    executor = start_executor(make_config(qwen2_checkpoint, max_num_seqs=8), num_blocks=16)
    runner: Any = runner_of(executor)
    runner.cudagraphs = make_decode_forward(runner, 1)
    gone = [weakref.ref(runner), weakref.ref(runner.kv_caches[0])]
    gc.disable()
    try:
        del runner, executor
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


@pytest.mark.gpu
@pytest.mark.parametrize("eager", [False, True], ids=["replayed", "eager"])
def test_tokens_on_a_gpu_are_those_of_the_cpu(qwen2_checkpoint: Path, eager: bool) -> None:
    """Greedy tokens equal the CPU's in batches that grow and shrink, with graphs and without."""
    from tracellm import LLM, SamplingParams

    need_triton("cuda")
    params = [SamplingParams(temperature=0, max_tokens=3 + i, ignore_eos=True) for i in range(11)]
    prompts = [{"prompt_token_ids": [5 + 3 * i + j for j in range(1 + i)]} for i in range(11)]
    # All of a GPU would be millions of blocks, and the first engine's memory may not be free yet for the second.
    options: dict[str, Any] = {
        "dtype": "float32",
        "max_num_seqs": 11,
        "max_model_len": 64,
        "num_gpu_blocks_override": 99,
        "gpu_memory_utilization": 0.1,
    }
    on_gpu = LLM(qwen2_checkpoint, enforce_eager=eager, attention_backend="triton", **options)
    runner = on_gpu.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner  # type: ignore[attr-defined]
    assert (runner.cudagraphs is None) == eager
    tokens = [output.outputs[0].token_ids for output in on_gpu.generate(prompts, params, use_tqdm=False)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        on_cpu = LLM(qwen2_checkpoint, **options)
        assert tokens == [output.outputs[0].token_ids for output in on_cpu.generate(prompts, params, use_tqdm=False)]
