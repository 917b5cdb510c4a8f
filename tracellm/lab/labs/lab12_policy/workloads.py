"""Workloads, and their runs in virtual time.

A run uses the engine's own scheduler and KV cache manager, without a model. A step takes

    STEP + TOKEN * (tokens of the step) + REQUEST * (requests of the step)

seconds. The constants are those of a model with 8 billion parameters in bfloat16 on one H100 GPU, by arithmetic: each
step reads 16 GB of weights at 3.35 TB/s; a token takes 16 GFLOP at 400 TFLOP/s, some 40 percent of the peak; each
request reads the keys and values of some 1,000 tokens of 128 KiB. So a step with one token takes hardly less time than
one with a hundred, and an output token, with 7 other requests in its step, costs as much as 16 tokens of a prompt.
"""

from collections.abc import Callable
from random import Random
from typing import Any

__all__ = [
    "BUDGET",
    "MAX_NUM_SEQS",
    "REQUEST",
    "STEP",
    "TOKEN",
    "alone",
    "long",
    "measure",
    "medium",
    "run_workload",
    "short",
]

STEP, TOKEN, REQUEST = 0.0048, 0.00004, 0.00004
"""Seconds of a step, of each token and of each request in it."""

BUDGET, MAX_NUM_SEQS = 256, 8
_BLOCK = 16
_EOS = 1
_MOST_STEPS = 4000


def alone(request: dict[str, Any]) -> float:
    """Return the seconds that a request takes in an engine without other requests."""
    chunks = -(-request["prompt"] // BUDGET)
    steps = chunks + request["output"] - 1
    return steps * (STEP + REQUEST) + (request["prompt"] + request["output"] - 1) * TOKEN


# -- generation --------------------------------------------------------------------------------------------------------


def short(random: Random, at: float, **more: Any) -> dict[str, Any]:
    """Return a request like a chat message."""
    return _request(random, at, random.randint(20, 120), random.randint(4, 12), **more)


def medium(random: Random, at: float, **more: Any) -> dict[str, Any]:
    """Return a request like a question with some context."""
    return _request(random, at, random.randint(100, 300), random.randint(8, 20), **more)


def long(random: Random, at: float, **more: Any) -> dict[str, Any]:
    """Return a request like a summary of a document."""
    return _request(random, at, random.randint(300, 900), random.randint(24, 40), **more)


def _request(random: Random, at: float, prompt: int, max_tokens: int, **more: Any) -> dict[str, Any]:
    output = random.randint(max_tokens // 2, max_tokens)
    return {"at": round(at, 4), "prompt": prompt, "max_tokens": max_tokens, "output": output, **more}


# -- the run -----------------------------------------------------------------------------------------------------------


def run_workload(case: dict[str, Any], make_queue: Callable[[], Any]) -> dict[str, Any]:
    """Run a workload with this queue of waiting requests.

    Returns:
        `requests`: of each its first token's time, its last token's and its number of output tokens. `shares`: seconds
        of service by tenant, until the first tenant has nothing left. `problem`: what kept the run from its end.
    """
    from tracellm.engine.core.request import Request
    from tracellm.engine.sample.sampling_params import SamplingParams
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

    scheduler = _make_scheduler(case["num_blocks"])
    scheduler.waiting = make_queue()
    requests = case["requests"]
    done: list[list[float]] = [[0.0, 0.0, 0] for _ in requests]
    left = dict.fromkeys((one.get("tenant", 0) for one in requests), 0)
    for one in requests:
        left[one.get("tenant", 0)] += 1
    served, shares = dict.fromkeys(left, 0.0), None
    pending = sorted(range(len(requests)), key=lambda index: requests[index]["at"])
    now, problem = 0.0, None
    for _ in range(_MOST_STEPS):
        if not scheduler.has_unfinished_requests():
            if not pending:
                break
            now = max(now, requests[pending[0]]["at"])
        while pending and requests[pending[0]]["at"] <= now:
            index = pending.pop(0)
            one = requests[index]
            params = SamplingParams(max_tokens=one["max_tokens"])
            request = Request(
                str(index),
                [2] * one["prompt"],
                params,
                _EOS,
                one.get("tenant", 0),
                arrival_time=one["at"],
                priority=one.get("priority", 0),
            )
            scheduler.add_request(request)
        step = scheduler.schedule()
        scheduled = step.num_scheduled_tokens
        if len(set(scheduler.running)) < len(scheduler.running):
            twice = next(one for one in scheduler.running if scheduler.running.count(one) > 1)
            problem = ["twice", round(now, 4), twice.request_id]
            break
        if not scheduled:
            problem = ["stuck", round(now, 4), len(scheduler.waiting), len(scheduler.running)]
            break
        now += STEP + TOKEN * sum(scheduled.values()) + REQUEST * len(scheduled)
        sampled: list[list[int]] = []
        for name, num_tokens in scheduled.items():
            index, request = int(name), scheduler.requests[name]
            tenant = requests[index].get("tenant", 0)
            served[tenant] += STEP / len(scheduled) + TOKEN * num_tokens + REQUEST
            sampled.append([])
            if request.num_computed_tokens == request.num_tokens:
                done[index][2] += 1
                last = done[index][2] == requests[index]["output"]
                sampled[-1].append(_EOS if last else 2)
                done[index][0] = done[index][0] or now
                if last:
                    done[index][1] = now
                    left[tenant] -= 1
                    if not left[tenant] and shares is None:
                        shares = dict(served)
        rows = {name: row for row, name in enumerate(scheduled)}
        scheduler.update_from_output(step, ModelRunnerOutput(list(rows), rows, sampled, None, {}, (len(rows), 3)))
    else:
        problem = ["endless", round(now, 4), len(scheduler.waiting), len(scheduler.running)]
    return {
        "requests": done,
        "shares": {str(tenant): share for tenant, share in (shares or served).items()},
        "problem": problem,
        "used": case["num_blocks"] - 1 - scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
    }


def _make_scheduler(num_blocks: int) -> Any:
    from tracellm.engine.config.vllm_config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from tracellm.engine.core.sched.scheduler import Scheduler
    from tracellm.engine.core.structured_output.manager import StructuredOutputManager

    unused: Any = None
    config = VllmConfig(
        ModelConfig("", "", "", dtype=unused, seed=0, max_model_len=2048, hf_config=unused),
        CacheConfig(_BLOCK, num_gpu_blocks=num_blocks, enable_prefix_caching=False),
        SchedulerConfig(BUDGET, MAX_NUM_SEQS, 2048),
        DeviceConfig(unused),
    )
    group = KVCacheGroupSpec(["layers.0"], FullAttentionSpec(_BLOCK, 1, 1, unused))
    return Scheduler(config, KVCacheConfig(num_blocks, [], [group]), StructuredOutputManager(config))


# -- figures -----------------------------------------------------------------------------------------------------------


def measure(case: dict[str, Any], output: dict[str, Any]) -> dict[str, float]:
    """Return the figures of a run whose requests have all ended.

    A request's slowdown is its latency divided by its latency in an empty engine. `fairness` is Jain's index of the
    tenants' shares: 1 if all are equal, 1/n if one of n tenants has everything.
    """
    requests, done = case["requests"], output["requests"]
    latencies = [end - one["at"] for one, (_, end, _) in zip(requests, done, strict=True)]
    slowdowns = sorted(latency / alone(one) for one, latency in zip(requests, latencies, strict=True))
    urgent = [first - one["at"] for one, (first, _, _) in zip(requests, done, strict=True) if not one.get("priority")]
    shares = list(output["shares"].values())
    return {
        "slowdown": sum(slowdowns) / len(slowdowns),
        "p95": slowdowns[max(0, -(-95 * len(slowdowns) // 100) - 1)],
        "longest": max(latencies),
        "ttft": sum(urgent) / len(urgent),
        "fairness": sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)),
        "total": max(end for _, end, _ in done),
    }
