"""Scheduler without an engine: configurations, requests, and a replacement for the model."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch

from tracellm.engine.config.vllm_config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from tracellm.engine.core.kv_cache.kv_cache_utils import get_request_block_hasher
from tracellm.engine.core.request import Request
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.reasons import CutShort, NotScheduledReason
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.core.structured_output.manager import StructuredOutputManager
from tracellm.engine.ipc.messages import EngineCoreOutputs
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput


def make_spec(block_size: int = 16, sliding_window: int | None = None) -> AttentionSpec:
    """Make the spec of a layer that stores 128 bytes per token."""
    if sliding_window is None:
        return FullAttentionSpec(block_size, num_kv_heads=2, head_size=8, dtype=torch.float32)
    return SlidingWindowSpec(block_size, 2, 8, torch.float32, sliding_window)


def make_config(
    *,
    block_size: int = 16,
    num_gpu_blocks: int | None = 100,
    num_gpu_blocks_override: int | None = None,
    max_model_len: int = 256,
    max_num_batched_tokens: int = 256,
    max_num_seqs: int = 8,
    enable_prefix_caching: bool = True,
    enable_chunked_prefill: bool = True,
    long_prefill_token_threshold: int = 0,
    policy: str = "fcfs",
    disable_chunked_mm_input: bool = False,
    max_tokens_per_mm_item: int = 0,
    max_num_encoder_input_tokens: int | None = None,
    encoder_cache_size: int | None = None,
) -> VllmConfig:
    """Make a full configuration; the model's other settings have no meaning."""
    scheduler_config = SchedulerConfig(
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
        enable_chunked_prefill=enable_chunked_prefill,
        long_prefill_token_threshold=long_prefill_token_threshold,
        policy=policy,
        disable_chunked_mm_input=disable_chunked_mm_input,
    )
    if max_num_encoder_input_tokens is not None:
        scheduler_config.max_num_encoder_input_tokens = max_num_encoder_input_tokens
    if encoder_cache_size is not None:
        scheduler_config.encoder_cache_size = encoder_cache_size
    return VllmConfig(
        model_config=ModelConfig(
            model="none",
            tokenizer="none",
            served_model_name="none",
            dtype=torch.float32,
            seed=0,
            max_model_len=max_model_len,
            hf_config=SimpleNamespace(),
            max_tokens_per_mm_item=max_tokens_per_mm_item,
        ),
        cache_config=CacheConfig(
            block_size=block_size,
            num_gpu_blocks=num_gpu_blocks,
            num_gpu_blocks_override=num_gpu_blocks_override,
            enable_prefix_caching=enable_prefix_caching,
        ),
        scheduler_config=scheduler_config,
        device_config=DeviceConfig(device=torch.device("cpu")),
    )


def make_kv_cache_config(
    num_blocks: int = 100, block_size: int = 16, windows: Sequence[int | None] = (None,)
) -> KVCacheConfig:
    """Make a cache of this many blocks, with a one-layer group for each sliding window; None is full attention."""
    groups = [
        KVCacheGroupSpec([f"layers.{index}"], make_spec(block_size, window)) for index, window in enumerate(windows)
    ]
    return KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)


def make_scheduler(*, windows: Sequence[int | None] = (None,), **settings) -> Scheduler:
    """Make a scheduler with the settings of `make_config`, and a group for each window."""
    config = make_config(**settings)
    cache = config.cache_config
    assert cache.num_gpu_blocks is not None
    kv_cache_config = make_kv_cache_config(cache.num_gpu_blocks, cache.block_size, windows)
    return Scheduler(config, kv_cache_config, StructuredOutputManager(config))


def make_request(
    request_id: str,
    prompt: int | Sequence[int],
    max_tokens: int = 4,
    *,
    block_size: int | None = 16,
    priority: int = 0,
    arrival_time: float = 0.0,
    eos_token_id: int | None = None,
    items: Sequence[tuple[str, int, int]] = (),
    **sampling,
) -> Request:
    """Make a request; a prompt given as a number is that many tokens that no other request has.

    `items` are its images: identifier, offset and length of each.
    """
    if isinstance(prompt, int):
        prompt = [1_000_000 * (1 + int.from_bytes(request_id.encode()) % 9973) + position for position in range(prompt)]
    return Request(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        sampling_params=SamplingParams(max_tokens=max_tokens, **{"ignore_eos": eos_token_id is None} | sampling),
        eos_token_id=eos_token_id,
        arrival_time=arrival_time,
        mm_features=[
            MultiModalFeatureSpec(None, "image", identifier, PlaceholderRange(offset, length))
            for identifier, offset, length in items
        ],
        priority=priority,
        block_hasher=None if block_size is None else get_request_block_hasher(block_size),
    )


def sample(
    scheduler: Scheduler, output: SchedulerOutput, token: Callable[[Request], int] = lambda request: 7
) -> ModelRunnerOutput:
    """Return a model runner's output: a token for each request whose tokens are all computed."""
    req_ids = list(output.num_scheduled_tokens)
    sampled = []
    for req_id in req_ids:
        request = scheduler.requests.get(req_id)
        complete = request is not None and request.num_computed_tokens == request.num_tokens
        sampled.append([token(request)] if request is not None and complete else [])
    return ModelRunnerOutput(
        req_ids=req_ids,
        req_id_to_index={req_id: index for index, req_id in enumerate(req_ids)},
        sampled_token_ids=sampled,
        logprobs=None,
        prompt_logprobs_dict={},
        logits_shape=(len(sampled), 8),
    )


def run_step(
    scheduler: Scheduler, token: Callable[[Request], int] = lambda request: 7
) -> tuple[SchedulerOutput, dict[int, EngineCoreOutputs]]:
    """Schedule, sample and update."""
    output = scheduler.schedule()
    return output, scheduler.update_from_output(output, sample(scheduler, output, token))


def reasons(scheduler: Scheduler, output: SchedulerOutput) -> dict[str, NotScheduledReason | CutShort]:
    """Return the reasons of requests that were not scheduled or were cut short in the scheduler's last step."""
    explained: dict[str, NotScheduledReason | CutShort] = {}
    if output.waiting_reason is not None:
        explained |= {request.request_id: output.waiting_reason for request in scheduler.waiting}
    return {**explained, **output.cut_short, **output.not_scheduled}


def reasons_by_request(scheduler: Scheduler, output: SchedulerOutput) -> dict[str, str]:
    """Return the reasons as strings."""
    return {name: str(reason) for name, reason in reasons(scheduler, output).items()}
