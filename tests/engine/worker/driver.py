"""A driver of an executor, in place of the scheduler: chunked prompts, shuffled blocks, random pauses and preemptions.

It follows only the rules that the model runner relies on, and is as irregular as they allow. So a runner that works
here does not depend on the scheduler's habits.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from tracellm.engine.config.hf_config import get_max_model_len
from tracellm.engine.config.vllm_config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from tracellm.engine.core.core import result_of
from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from tracellm.engine.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput


def make_config(
    model: Path,
    *,
    block_size: int = 4,
    dtype: torch.dtype = torch.float32,
    max_model_len: int | None = None,
    **scheduler: Any,
) -> VllmConfig:
    """Make a configuration on the CPU for a checkpoint."""
    hf_config = AutoConfig.from_pretrained(model)
    max_model_len = get_max_model_len(max_model_len, hf_config)
    limits = {"max_num_batched_tokens": 512, "max_num_seqs": 32, "max_model_len": max_model_len, **scheduler}
    return VllmConfig(
        ModelConfig(
            str(model), str(model), str(model), dtype, seed=0, max_model_len=max_model_len, hf_config=hf_config
        ),
        CacheConfig(block_size=block_size),
        SchedulerConfig(**limits),
        DeviceConfig(torch.device("cpu")),
    )


def start_executor(config: VllmConfig, num_blocks: int = 512) -> Executor:
    """Start an executor with a KV cache of this many blocks."""
    executor = Executor.get_class(config)(config)
    make_kv_cache(executor, num_blocks)
    return executor


def make_kv_cache(executor: Executor, num_blocks: int) -> None:
    """Make the worker's KV cache and batch."""
    (specs,) = executor.get_kv_cache_specs()
    spec = next(iter(specs.values()))
    executor.initialize_from_config(
        [
            KVCacheConfig(
                num_blocks,
                [KVCacheTensor(spec.page_size_bytes * num_blocks, [name]) for name in specs],
                [KVCacheGroupSpec(list(specs), spec)],
            )
        ]
    )


def runner_of(executor: Executor) -> Any:
    """Return the executor's model runner."""
    return executor.driver_worker.model_runner  # type: ignore[attr-defined]


def record_hidden_states(executor: Executor) -> list[torch.Tensor]:
    """Return a list to which every step appends its hidden states [tokens, hidden]."""
    runner = runner_of(executor)
    forward, recorded = runner._model_forward, []

    def model_forward(*inputs: Any) -> torch.Tensor:
        recorded.append(forward(*inputs))
        return recorded[-1]

    runner._model_forward = model_forward
    return recorded


@dataclass
class Job:
    """One request of the driver."""

    req_id: str
    prompt: list[int]
    params: SamplingParams
    output: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    is_known: bool = False
    is_preempted: bool = False

    @property
    def tokens(self) -> list[int]:
        """Prompt and output."""
        return self.prompt + self.output

    @property
    def done(self) -> bool:
        """The output has `max_tokens` tokens."""
        return len(self.output) == self.params.max_tokens


class Driver:
    """Runs jobs to their end on one executor; the same seed makes the same decisions.

    Blocks that no job owns are filled with NaN, so that reading one is detected, and are checked for writes.
    """

    def __init__(self, executor: Executor, *, num_blocks: int = 512, seed: int = 0, preempt: float = 0.1) -> None:
        self.executor = executor
        self.block_size = executor.vllm_config.cache_config.block_size
        self.limits = executor.vllm_config.scheduler_config
        self.random = random.Random(seed)
        self.preempt = preempt
        self.free = list(range(1, num_blocks))
        self.random.shuffle(self.free)
        self.finished: set[str] = set()
        for cache in runner_of(executor).kv_caches:
            cache.fill_(torch.nan)

    def run(self, jobs: list[Job], *, max_chunk: int = 16, pause: float = 0.2) -> None:
        """Step until every job is done."""
        waiting = list(jobs)
        while waiting:
            self.step(self._choose(waiting, max_chunk, pause), waiting)
            for job in [job for job in waiting if job.done]:
                waiting.remove(job)
                self._release(job)
                self.finished.add(job.req_id)

    def _choose(self, jobs: list[Job], max_chunk: int, pause: float) -> dict[str, int]:
        """Choose the number of tokens of each job in this step; some get none, and some of those are preempted."""
        plan: dict[str, int] = {}
        budget = self.limits.max_num_batched_tokens
        for job in self.random.sample(jobs, len(jobs)):
            wanted = min(len(job.tokens) - job.computed, self.random.randint(1, max_chunk), budget)
            if self.random.random() < pause or len(plan) == self.limits.max_num_seqs or not wanted:
                if job.is_known and self.random.random() < self.preempt:
                    self.preempt_job(job)
                continue
            plan[job.req_id] = wanted
            budget -= wanted
        return plan or {jobs[0].req_id: 1}

    def step(self, plan: dict[str, int], jobs: list[Job]) -> ModelRunnerOutput:
        """Run one step with these numbers of tokens, and check the shape of its output."""
        by_id = {job.req_id: job for job in jobs}
        new: list[NewRequestData] = []
        cached = CachedRequestData([], set(), [], dict, [], [], [])
        for req_id, count in plan.items():
            job = by_id[req_id]
            needed = -(-(job.computed + count) // self.block_size) - len(job.blocks)
            blocks = [self.free.pop() for _ in range(needed)]
            job.blocks += blocks
            if not job.is_known:
                new.append(NewRequestData(req_id, job.prompt, [], job.params, (list(job.blocks),), job.computed))
                job.is_known = True
                continue
            if job.is_preempted:
                cached.resumed_req_ids.add(req_id)
                job.is_preempted = False
            cached.req_ids.append(req_id)
            cached.new_block_ids.append((blocks,) if blocks else None)
            cached.num_computed_tokens.append(job.computed)
            cached.num_output_tokens.append(len(job.output))
        output = self.executor.execute_model(
            SchedulerOutput(
                scheduled_new_reqs=new,
                scheduled_cached_reqs=cached,
                num_scheduled_tokens=plan,
                total_num_scheduled_tokens=sum(plan.values()),
                count_common_prefix_blocks=lambda: [0],
                finished_req_ids=self.finished,
                not_scheduled={},
            )
        )
        output = result_of(self.executor.sample_tokens(None) if output is None else output)
        self.finished = set()
        assert set(output.req_ids) == set(plan)
        assert runner_of(self.executor).kv_caches[0][:, self.free].isnan().all(), "a free block was written"
        for req_id, count in plan.items():
            job = by_id[req_id]
            job.computed += count
            sampled = output.sampled_token_ids[output.req_id_to_index[req_id]]
            assert len(sampled) == (job.computed == len(job.tokens) and req_id not in output.errors)
            job.output += sampled
        return output

    def preempt_job(self, job: Job) -> None:
        """Preempt a job: free its blocks, and restart it from its first token when it resumes."""
        self._release(job)
        job.is_preempted = True

    def _release(self, job: Job) -> None:
        """Free a job's blocks and fill them with NaN."""
        for cache in runner_of(self.executor).kv_caches:
            cache[:, job.blocks] = torch.nan
        self.free += job.blocks
        self.random.shuffle(self.free)
        job.blocks, job.computed = [], 0
