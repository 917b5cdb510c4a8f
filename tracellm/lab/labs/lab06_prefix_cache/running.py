"""Runs of the prefix cache, from single hashes to recorded workloads; the results are plain data."""

import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["NO_DTYPE", "Json", "Workload", "make_manager", "make_request", "recordings", "run_recording"]

Json = dict[str, Any]

NO_DTYPE: Any = None
"""In place of a dtype or a device: nothing is computed here, and importing torch would take long."""


@cache
def recordings() -> dict[int, Json]:
    """Return what a real vLLM 0.11.1 decided, by the seed of the workload.

    `recordings.jsonl` has the workloads of tests/fixtures/scheduler-cases.jsonl in which cached blocks are shared, and
    of each step what concerns blocks; steps without new blocks are left out.
    """
    lines = Path(__file__).with_name("recordings.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["seed"]: one for one in map(json.loads, lines)}


def make_manager(block_size: int, num_blocks: int, caching: bool = True) -> Any:
    """Make a KV cache manager with one group, which collects statistics."""
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheManager

    group = KVCacheGroupSpec(["layer"], FullAttentionSpec(block_size, 1, 8, NO_DTYPE))
    return KVCacheManager(KVCacheConfig(num_blocks, [], [group]), caching, log_stats=True)


def make_request(name: str, token_ids: list[int], block_size: int, **params: Any) -> Any:
    """Make a request whose blocks are hashed."""
    from tracellm.engine.core.kv_cache.kv_cache_utils import get_request_block_hasher
    from tracellm.engine.core.request import Request
    from tracellm.engine.sample.sampling_params import SamplingParams

    params = {"max_tokens": 64, "ignore_eos": True} | params
    hasher = get_request_block_hasher(block_size)
    return Request(name, list(token_ids), SamplingParams(**params), None, arrival_time=0.0, block_hasher=hasher)


class Workload:
    """Requests over one manager. It keeps for each block the tokens of which it holds keys and values."""

    def __init__(self, block_size: int, num_blocks: int) -> None:
        self.block_size = block_size
        self.manager = make_manager(block_size, num_blocks)
        self.requests: dict[str, Any] = {}
        self.running: set[str] = set()
        self.content: dict[int, list[int]] = {}
        """For each block, its computed tokens after all tokens before them."""
        self.filled: dict[int, int] = {}
        """For each block, the number of its own tokens among them."""

    def apply(self, operation: Json) -> Json:
        """Execute an operation if it is possible now, and return the state after it."""
        name, kind = operation["request"], operation["do"]
        state: Json = {"skipped": False}
        if kind == "start" and name not in self.running:
            if name not in self.requests:
                self.requests[name] = make_request(name, operation["prompt"], self.block_size)
            state |= self._start(name, operation["tokens"])
        elif kind == "compute" and name in self.running:
            request = self.requests[name]
            self._compute(name, min(operation["tokens"], request.num_tokens - request.num_computed_tokens))
        elif kind == "generate" and name in self.running and self._is_complete(name):
            self.requests[name].append_output_token_ids(operation["token"])
        elif kind in ("end", "preempt") and name in self.running:
            self.running.remove(name)
            self.manager.free(self.requests[name])
            if kind == "preempt":
                self.requests[name].num_computed_tokens = 0
                self.requests[name].num_preemptions += 1
            else:
                del self.requests[name]
        else:
            state["skipped"] = True
        blocks = self.manager.block_pool.blocks
        state["cached"] = [block.block_id for block in blocks if block.block_hash is not None]
        state["filled"] = [[block, count] for block, count in sorted(self.filled.items())]
        return state

    def _is_complete(self, name: str) -> bool:
        request = self.requests[name]
        return bool(request.num_computed_tokens == request.num_tokens)

    def _start(self, name: str, num_tokens: int) -> Json:
        request = self.requests[name]
        computed, num_hits = self.manager.get_computed_blocks(request)
        (blocks,) = computed.get_block_ids()
        state = {
            "hits": num_hits,
            "blocks": list(blocks),
            "tokens": list(request.all_token_ids),
            "holds": [self.content.get(block, []) for block in blocks],
        }
        num_new = min(num_tokens, request.num_tokens - num_hits)
        is_possible = num_new > 0 and num_hits == len(blocks) * self.block_size
        if is_possible and self.manager.allocate_slots(request, num_new, num_hits, computed) is not None:
            self.running.add(name)
            self._computed(name, num_hits + num_new)
        return state

    def _compute(self, name: str, num_tokens: int) -> None:
        request = self.requests[name]
        if num_tokens > 0 and self.manager.allocate_slots(request, num_tokens) is not None:
            self._computed(name, request.num_computed_tokens + num_tokens)

    def _computed(self, name: str, num_tokens: int) -> None:
        """Count the first `num_tokens` tokens as computed, and write the content of their blocks."""
        request, size = self.requests[name], self.block_size
        for index, block in enumerate(self.manager.get_block_ids(name)[0]):
            end = min((index + 1) * size, num_tokens)
            if end > request.num_computed_tokens and end > index * size:
                self.content[block] = list(request.all_token_ids[:end])
                self.filled[block] = end - index * size
        request.num_computed_tokens = num_tokens

    def stats(self) -> list[list[Any]]:
        """Return the statistics of the lookups."""
        return stats_of(self.manager)


def stats_of(manager: Any) -> list[list[Any]]:
    """Return the statistics of a manager's lookups, as pairs of name and number."""
    stats = manager.make_prefix_cache_stats()
    names = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")
    return [[name, getattr(stats, name)] for name in names]


def run_recording(recorded: Json, num_steps: int) -> list[Json]:
    """Run a recorded workload with the scheduler and the recorded tokens; return its steps in the recording's form."""
    from tracellm.engine.core.sched.scheduler import Scheduler
    from tracellm.engine.core.structured_output.manager import StructuredOutputManager
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

    config, cache_config = _make_config(recorded)
    scheduler = Scheduler(config, cache_config, StructuredOutputManager(config))
    for index, one in enumerate(recorded["requests"]):
        scheduler.add_request(
            make_request(str(index), one["prompt_token_ids"], recorded["block_size"], max_tokens=one["max_tokens"])
        )
    steps: list[Json] = []
    while scheduler.has_unfinished_requests() and len(steps) < num_steps:
        output = scheduler.schedule()
        new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        blocks = {one.req_id: one.block_ids[0] for one in new}
        blocks |= {
            name: more[0] for name, more in zip(cached.req_ids, cached.new_block_ids, strict=True) if more and more[0]
        }
        steps.append(
            {
                "new": [[one.req_id, one.num_computed_tokens] for one in new],
                "resumed": [[name, computed[name]] for name in cached.req_ids if name in cached.resumed_req_ids],
                "blocks": blocks,
                "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            }
        )
        names, sampled = list(output.num_scheduled_tokens), []
        for name in names:
            request = scheduler.requests[name]
            is_complete = request.num_computed_tokens == request.num_tokens
            sampled.append([recorded["outputs"][int(name)][request.num_output_tokens]] if is_complete else [])
        rows = {name: row for row, name in enumerate(names)}
        scheduler.update_from_output(output, ModelRunnerOutput(names, rows, sampled, None, {}, (len(names), 8)))
    return steps


def _make_config(recorded: Json) -> tuple[Any, Any]:
    from types import SimpleNamespace

    from tracellm.engine.config.vllm_config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    none, length = "none", recorded["max_model_len"]
    config = VllmConfig(
        ModelConfig(none, none, none, NO_DTYPE, 0, length, hf_config=SimpleNamespace()),
        CacheConfig(block_size=recorded["block_size"], num_gpu_blocks=recorded["num_gpu_blocks"]),
        SchedulerConfig(recorded["max_num_batched_tokens"], recorded["max_num_seqs"], length),
        DeviceConfig(NO_DTYPE),
    )
    group = KVCacheGroupSpec(["layer"], FullAttentionSpec(recorded["block_size"], 1, 8, NO_DTYPE))
    return config, KVCacheConfig(recorded["num_gpu_blocks"], [], [group])
