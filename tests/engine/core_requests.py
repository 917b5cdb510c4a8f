"""Requests to the engine core for tests; all fields not given are empty."""

from typing import Any

from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = ["core_request"]


def core_request(
    request_id: str,
    prompt_token_ids: list[int],
    sampling_params: SamplingParams,
    eos_token_id: int | None = None,
    arrival_time: float = 0.0,
    **more: Any,
) -> EngineCoreRequest:
    """Make an `EngineCoreRequest`."""
    fields: dict[str, Any] = dict.fromkeys(
        ["mm_features", "pooling_params", "lora_request", "cache_salt", "data_parallel_rank"]
    )
    return EngineCoreRequest(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        sampling_params=sampling_params,
        eos_token_id=eos_token_id,
        arrival_time=arrival_time,
        **fields | more,
    )
