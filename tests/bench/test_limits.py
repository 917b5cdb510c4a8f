"""The roofline model of `tracellm bench`, and its statistics."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from tracellm.bench.figures import Spread, percentile, plain_table
from tracellm.bench.limits import ModelCost, cost_of, ideal_seconds, work_of
from tracellm.bench.machine import Ceilings
from tracellm.bench.workload import Lengths, Workload, parse_lengths, random_workload
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.model_executor.model_loader.weight_files import find_weight_files

COST = ModelCost(weight_bytes=1000, layer_flops=200, head_flops=30, attention_flops=4, kv_bytes=8)
MACHINE = Ceilings(read_bytes_per_second=100.0, flops_per_second=50.0, dtype="float32")
WORKLOADS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 10)), min_size=1, max_size=8).map(
    lambda pairs: Workload([[0] * prompt for prompt, _ in pairs], [length for _, length in pairs])
)


def test_the_cost_of_the_model_inside() -> None:
    """A step reads all tensors, with tied embeddings once, in the checkpoint's 16 bits; each weight costs two FLOPs."""
    config = EngineArgs(dtype="float32").create_model_config()
    cost = cost_of(config)
    (path,) = find_weight_files(config.model).files
    with safe_open(path, "pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        elements = sum(file.get_tensor(name).numel() for name in shapes)
    assert cost.weight_bytes == 2 * elements
    assert cost_of(EngineArgs(dtype="bfloat16").create_model_config()).weight_bytes == 2 * elements
    assert cost.head_flops == 2 * 4096 * 256
    assert cost.kv_bytes == 4 * 2 * 4 * 2 * 64  # bytes, keys and values, layers, heads, head size
    vectors = sum(shape[0] for shape in shapes.values() if len(shape) == 1)
    assert cost.layer_flops + cost.head_flops == 2 * (elements - vectors)


@given(WORKLOADS, st.integers(1, 8))
def test_every_token_is_counted_once(workload: Workload, at_once: int) -> None:
    """For any batch size, each token but a request's last is computed, and each output is sampled."""
    at_all = work_of(ModelCost(0, 200, 30, 0, 0), MACHINE, workload, at_once)
    computed = workload.num_input_tokens + workload.num_output_tokens - len(workload.prompts)
    assert at_all.flops == 200 * computed + 30 * workload.num_output_tokens
    pairs = work_of(ModelCost(0, 0, 0, 1, 0), MACHINE, workload, at_once).flops
    contexts = [len(prompt) + length - 1 for prompt, length in zip(workload.prompts, workload.lengths, strict=True)]
    # A decoded token attends to those before it; the pair with itself is counted within prompts only.
    assert sum(n * (n - 1) // 2 for n in contexts) <= pairs <= sum(n * (n + 1) // 2 for n in contexts)


@given(WORKLOADS, st.integers(1, 8))
def test_more_at_once_takes_no_longer(workload: Workload, at_once: int) -> None:
    """Run one by one, each token takes a step; together, the longest output counts, and the time only falls."""
    alone = work_of(COST, MACHINE, workload, 1)
    together = work_of(COST, MACHINE, workload, at_once)
    everything = work_of(COST, MACHINE, workload, len(workload.lengths))
    assert alone.num_steps == workload.num_output_tokens
    assert everything.num_steps == max(workload.lengths) <= together.num_steps <= alone.num_steps
    assert together.seconds <= alone.seconds * (1 + 1e-9)
    assert together.num_bytes >= COST.weight_bytes * together.num_steps


def test_a_step_takes_the_longer_of_two() -> None:
    """Decoding is bound by reads, and a prompt by computation."""
    assert MACHINE.seconds(100, 50) == 1.0
    assert MACHINE.seconds(1000, 50) == 10.0
    assert MACHINE.seconds(100, 5000) == 100.0
    whole, decode = ideal_seconds(COST, MACHINE, Workload([[0] * 4], [3]), 1)
    assert decode == pytest.approx((1000 + 8 * 4) / 100 + (1000 + 8 * 5) / 100)  # with 4 and 5 tokens in the cache
    assert whole - decode == pytest.approx((4 * 200 + 30 + 10 * 4) / 50)


@given(st.integers(0, 5), st.integers(1, 9), st.integers(0, 9))
def test_workloads(seed: int, least: int, more: int) -> None:
    """The same seed gives the same requests, with lengths and token ids in their bounds."""
    lengths = Lengths(least, least + more)
    made = random_workload(50, 4, lengths, lengths, seed)
    assert made == random_workload(50, 4, lengths, lengths, seed)
    assert all(least <= n <= least + more for n in (*map(len, made.prompts), *made.lengths))
    assert all(0 <= token < 50 for prompt in made.prompts for token in prompt)
    assert parse_lengths("--input-len", str(lengths)) == lengths


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_spreads_and_percentiles(values: list[float]) -> None:
    """The median is the middle percentile, between the quartiles; all are between the values."""
    spread = Spread.of(values)
    assert spread.median == pytest.approx(statistics.median(values))
    assert percentile(values, 50) == pytest.approx(spread.median)
    assert percentile(values, 25) == pytest.approx(spread.low)
    assert (percentile(values, 0), percentile(values, 100)) == (min(values), max(values))


def test_tables_are_straight() -> None:
    """Columns align in a terminal, where a Chinese character takes two columns."""
    assert plain_table(["毫秒", "n"], [["x", "10"], ["结束了", "1"]]) == "毫秒     n\nx       10\n结束了   1"
