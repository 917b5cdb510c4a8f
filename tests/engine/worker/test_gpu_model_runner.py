"""Tests of the model runner over many steps, with chunked prompts, pauses and preemptions."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import VOCAB_SIZE
from tests.engine.worker.driver import Driver, Job, make_config, record_hidden_states, runner_of, start_executor
from tracellm.engine.core.core import result_of
from tracellm.engine.core.sched.output import CachedRequestData, SchedulerOutput
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.sample.sampling_params import SamplingParams


@pytest.fixture(scope="module")
def executor(qwen2_checkpoint: Path) -> Executor:
    """Start an executor of the Qwen2 checkpoint."""
    return start_executor(make_config(qwen2_checkpoint))


def job(name: str, length: int = 10, **params: Any) -> Job:
    """Make a request with a prompt of `length` tokens that depends on the name only."""
    start = sum(map(ord, name))
    params = {"temperature": 0.0, "max_tokens": 8} | params
    return Job(name, [(start * 31 + i * 7) % VOCAB_SIZE for i in range(length)], SamplingParams(**params))


def test_incomplete_prompts_get_no_token(executor: Executor) -> None:
    """A request gets its first token in the step that completes its prompt, and not before."""
    driver = Driver(executor)
    long, short = job("long-1", 12), job("short-1", 3)
    output = driver.step({"long-1": 5}, [long])
    assert output.sampled_token_ids == [[]]
    assert output.logits_shape == (1, VOCAB_SIZE)
    output = driver.step({"short-1": 3, "long-1": 5}, [long, short])
    assert [len(output.sampled_token_ids[output.req_id_to_index[name]]) for name in ("long-1", "short-1")] == [0, 1]
    assert output.logits_shape == (2, VOCAB_SIZE)
    output = driver.step({"short-1": 1, "long-1": 2}, [long, short])
    assert output.logits_shape == (2, VOCAB_SIZE)
    assert [output.req_id_to_index[name] for name in output.req_ids] == [0, 1]


def test_a_seeded_request_is_the_same_in_any_company(executor: Executor) -> None:
    """A seeded request gets the same tokens alone as among others with chunks, pauses and preemptions."""

    def seeded(name: str) -> Job:
        request = job("seeded", 20, temperature=1.2, seed=11, max_tokens=15, top_k=200)
        request.req_id = name
        return request

    alone = seeded("alone")
    Driver(executor).run([alone], max_chunk=100, pause=0)
    for round in range(3):
        others = [
            job(f"other-{round}-{i}", 5 + 3 * i, temperature=i % 3 * 0.6, seed=[None, 11][i % 2], max_tokens=4 + i)
            for i in range(9)
        ]
        crowded = seeded(f"crowded-{round}")
        Driver(executor, seed=round).run([*others[:5], crowded, *others[5:]])
        assert crowded.output == alone.output
    assert len(set(alone.output)) > 5


def test_a_new_engine_repeats_unseeded_requests(qwen2_checkpoint: Path) -> None:
    """A new engine gives unseeded requests the same tokens for the same work."""
    outputs = []
    for _ in range(2):
        jobs = [job(str(i), temperature=1.0) for i in range(3)]
        Driver(start_executor(make_config(qwen2_checkpoint))).run(jobs)
        outputs.append([j.output for j in jobs])
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_a_preempted_request_goes_on_as_if_nothing_had_happened(executor: Executor, temperature: float) -> None:
    """A preempted request recomputes its tokens in other blocks, and continues with the same tokens."""
    whole, broken = (job("tokens", 10, temperature=temperature, seed=5) for _ in range(2))
    whole.req_id, broken.req_id = f"whole-{temperature}", f"broken-{temperature}"
    Driver(executor).run([whole], pause=0)
    driver, other = Driver(executor, seed=1), job(f"other-{temperature}", 10)
    driver.step({broken.req_id: 10, other.req_id: 10}, [broken, other])
    for _ in range(3):
        driver.step({broken.req_id: 1, other.req_id: 1}, [broken, other])
    driver.preempt_job(broken)
    driver.step({other.req_id: 1}, [broken, other])
    driver.step({broken.req_id: 6, other.req_id: 1}, [broken, other])
    driver.run([broken, other], max_chunk=4, pause=0)
    assert broken.output == whole.output


def test_a_prefix_from_the_cache_is_used_as_it_is(executor: Executor) -> None:
    """A request whose first blocks are cached computes only the rest, and gets the same tokens."""
    driver = Driver(executor)
    first = job("prefix-a", 14)
    driver.step({"prefix-a": 14}, [first])
    second = Job("prefix-b", first.prompt, first.params)
    second.blocks, second.computed = first.blocks[:3], 12  # three blocks of four tokens
    hidden = record_hidden_states(executor)
    driver.step({"prefix-b": 2}, [second])
    assert len(hidden[-1]) == 2
    assert second.output == first.output


def test_a_name_may_be_used_again(executor: Executor) -> None:
    """An aborted request and one with the same id in the next step are separate requests."""
    driver = Driver(executor)
    old = job("again", 9)
    driver.step({"again": 9}, [old])
    driver.finished.add("again")
    new = Job("again", [*old.prompt[:4], 3, 3], old.params)
    driver.step({"again": 6}, [new])
    other = Job("another", new.prompt, new.params)
    Driver(executor, seed=2).run([other], max_chunk=100, pause=0)
    assert new.output == other.output[:1]


def test_ended_requests_are_forgotten(executor: Executor) -> None:
    """A request that ended leaves no state, even if the step that reports it has no tokens."""
    driver = Driver(executor)
    driver.run([job("ended")])
    nothing = SchedulerOutput([], CachedRequestData([], set(), [], dict, [], [], []), {}, 0, list, {"ended"})
    output = executor.execute_model(nothing)
    assert output is not None, "there is nothing to sample"
    assert result_of(output).req_ids == []
    runner = runner_of(executor)
    assert "ended" not in runner.requests
    assert "ended" not in runner.input_batch.req_id_to_index


def test_min_tokens_holds_back_the_stop_token(executor: Executor) -> None:
    """A stop token is not sampled until the output has `min_tokens` tokens."""
    free = job("free", max_tokens=1)
    Driver(executor).run([free])
    held = job("free", max_tokens=3, min_tokens=2, stop_token_ids=free.output)
    held.req_id = "held"
    Driver(executor).run([held])
    assert free.output[0] not in held.output[:2]


def test_a_request_that_masks_every_token_gets_an_error(qwen2_checkpoint: Path) -> None:
    """The error names the request and the parameters that mask tokens, and no token is sampled."""
    driver = Driver(start_executor(make_config(qwen2_checkpoint)))
    stuck = job("stuck", 6, allowed_token_ids=[7], min_tokens=1, stop_token_ids=[7])
    free = job("free-too", 3)
    driver.step({"stuck": 5, "free-too": 3}, [stuck, free])
    errors = driver.step({"stuck": 1, "free-too": 1}, [stuck, free]).errors
    assert list(errors) == ["stuck"]
    assert re.search(r"Request 'stuck': no token is left .*`allowed_token_ids`.*`min_tokens`", errors["stuck"])
    assert (len(stuck.output), len(free.output)) == (0, 2)


def test_incomplete_prompts_leave_their_generator_alone(executor: Executor) -> None:
    """A seeded request gets the same first token however its prompt is chunked."""
    tokens = set()
    for chunks in ([12], [5, 7], [1, 10, 1]):
        driver = Driver(executor)
        request = job(f"seeded-{chunks}", temperature=1.5, seed=4)
        request.prompt = list(range(12))
        other = job(f"other-{chunks}", temperature=1.5, seed=4, max_tokens=9)
        for chunk in chunks:
            driver.step({request.req_id: chunk, other.req_id: 1 if other.computed else 10}, [request, other])
        tokens.add(request.output[0])
    assert len(tokens) == 1


def test_a_request_of_the_longest_length(executor: Executor) -> None:
    """Prompt and output can fill `max_model_len` completely."""
    length = executor.vllm_config.model_config.max_model_len
    longest = job("longest", length - 3, max_tokens=3)
    Driver(executor).run([longest], max_chunk=100)
    assert len(longest.tokens) == length


def test_prefault_writes_the_whole_kv_cache(executor: Executor) -> None:
    """`prefault_kv_cache` zeroes every layer's cache."""
    caches = runner_of(executor).kv_caches
    for cache in caches:
        cache.fill_(1)
    executor.collective_rpc("prefault_kv_cache")
    assert [int(cache.count_nonzero()) for cache in caches] == [0] * len(caches)


def test_dummy_run_needs_no_kv_cache(qwen2_checkpoint: Path) -> None:
    """`profile_run` needs no KV cache, and runs the largest number of tokens of a step."""
    config = make_config(qwen2_checkpoint, max_num_batched_tokens=64)
    executor = Executor.get_class(config)(config)
    hidden = record_hidden_states(executor)
    runner_of(executor).profile_run()
    assert hidden[0].shape == (64, config.model_config.get_hidden_size())


@pytest.mark.gpu
def test_cuda_gives_the_same_tokens(qwen2_checkpoint: Path, executor: Executor) -> None:
    """Requests get the same greedy tokens on a GPU as on the CPU."""
    config = make_config(qwen2_checkpoint)
    config.device_config.device = torch.device("cuda:0")
    on_gpu = start_executor(config)
    (available,) = on_gpu.determine_available_memory()
    assert 0 < available < torch.cuda.get_device_properties(0).total_memory
    here, there = ([job(f"{where}-{i}", 5 + 4 * i) for i in range(8)] for where in ("cpu", "gpu"))
    for a, b in zip(here, there, strict=True):
        b.prompt = a.prompt
    Driver(executor).run(here)
    Driver(on_gpu, seed=5).run(there)
    assert [j.output for j in here] == [j.output for j in there]
