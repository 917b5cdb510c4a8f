"""What the front half of the engine and the engine core say to each other.

`EngineCoreRequest` goes in (LLMEngine -> client -> EngineCore), `EngineCoreOutputs` come out of every step. They are
msgspec structs of plain values and arrays, because between two processes they travel as bytes (serial_utils.py): a
struct as the list of its fields, in their order. So there are all fields that vLLM 0.11.1 has, in its order; those for
what tracellm does not have (multimodal input, LoRA, pooling, data parallelism) can only be `None` or 0.

vLLM: vllm/v1/engine/__init__.py. Left out: the messages that reconfigure data parallelism.
"""

import enum
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from tracellm.engine.metrics.stats import SchedulerStats
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker.model_runner_output import LogprobsLists, LogprobsTensors

__all__ = [
    "EngineCoreEvent",
    "EngineCoreEventType",
    "EngineCoreOutput",
    "EngineCoreOutputs",
    "EngineCoreRequest",
    "EngineCoreRequestType",
    "FinishReason",
    "UtilityOutput",
    "UtilityResult",
]


class FinishReason(enum.IntEnum):
    """Why a request ended; `str()` gives the word that `CompletionOutput.finish_reason` holds."""

    STOP = 0
    """The end-of-sequence token, a stop token or a stop string was generated."""
    LENGTH = 1
    """`max_tokens` tokens were generated, or the model's length was reached."""
    ABORT = 2
    """The caller gave the request up."""
    ERROR = 3
    """The request alone cannot go on; `stop_reason` says why. vLLM 0.11.1 does not have it, later versions do."""

    def __str__(self) -> str:
        return self.name.lower()


class EngineCoreRequest(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """A request as the engine core receives it: tokens instead of text, parameters completed."""

    request_id: str
    prompt_token_ids: list[int]
    """vLLM allows `None`, for a prompt that is embeddings."""
    mm_features: None
    """For multimodal input."""
    sampling_params: SamplingParams
    """vLLM allows `None`, for pooling."""
    pooling_params: None
    """For pooling."""
    eos_token_id: int | None
    """The model's end-of-sequence token; `None` when the tokenizer has none."""
    arrival_time: float
    """Seconds since 1970."""
    lora_request: None
    """For LoRA."""
    cache_salt: None
    """For keeping the prefix caches of several users apart."""
    data_parallel_rank: None
    """For data parallelism."""
    prompt_embeds: None = None
    """For prompts that are embeddings."""
    client_index: int = 0
    """Which client sent it, so that its outputs go back there."""
    current_wave: int = 0
    """For data parallelism: always 0."""
    priority: int = 0
    """Lower runs earlier; counts only under the `priority` scheduling policy."""
    trace_headers: Mapping[str, str] | None = None
    """W3C trace context (`traceparent`, `tracestate`) of the call that brought the request; `None` when nobody traces.
    """


class EngineCoreEventType(enum.IntEnum):
    """What happened to a request in the scheduler."""

    QUEUED = 1
    """It entered the waiting queue."""
    SCHEDULED = 2
    """It left the waiting queue and runs; again after each preemption."""
    PREEMPTED = 3
    """It lost its blocks, and waits again."""


class EngineCoreEvent(msgspec.Struct):
    """One such happening; recorded under `disable_log_stats=False`."""

    type: EngineCoreEventType
    timestamp: float
    """On the engine core's monotonic clock, in seconds: to be compared with times from the same process only."""

    @classmethod
    def new_event(cls, event_type: EngineCoreEventType, timestamp: float | None = None) -> "EngineCoreEvent":
        """An event that happened at `timestamp`, or now."""
        return cls(event_type, time.monotonic() if timestamp is None else timestamp)


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one step brought for one request."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: LogprobsLists | None = None
    """Of the new tokens, one row for each; `None` when the request asked for none."""
    new_prompt_logprobs_tensors: LogprobsTensors | None = None
    """Of the prompt's tokens from the second on; comes once, with the first new token."""
    pooling_output: None = None
    """For pooling."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token or stop string that ended it; `None` for the end-of-sequence token and for other reasons. With
    `FinishReason.ERROR`: what went wrong."""
    events: list[EngineCoreEvent] | None = None
    """What happened to the request since its last output; `None` when nothing did, or nobody keeps statistics."""
    kv_transfer_params: None = None
    """For KV caches on other machines."""
    trace_headers: Mapping[str, str] | None = None
    """The request's own."""
    num_cached_tokens: int = 0
    """How many prompt tokens the prefix cache supplied."""
    num_nans_in_logits: int = 0
    """How many logits are no numbers (NaN): always 0, as such a step raises here."""

    @property
    def finished(self) -> bool:
        """Is this the request's last output?"""
        return self.finish_reason is not None


class UtilityResult:
    """What a utility call returned: any plain value, of a type that only the caller knows."""

    def __init__(self, r: Any = None) -> None:
        self.result = r


class UtilityOutput(msgspec.Struct, array_like=True, gc=False):
    """The answer to a utility call, a method of the engine core that a client called by its name."""

    call_id: int
    """As the client numbered the call."""
    failure_message: str | None = None
    """What went wrong; then there is no result."""
    result: UtilityResult | None = None


class EngineCoreOutputs(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one step brought for all the requests of one client, or the answer to a utility call of it."""

    engine_index: int = 0
    """Which engine core sent it; there is one, 0."""
    outputs: list[EngineCoreOutput] = []
    """One entry for each request that got tokens or ended."""
    scheduler_stats: SchedulerStats | None = None
    """The scheduler after the step; `None` when nobody keeps statistics, or another client's outputs carry them."""
    timestamp: float = 0.0
    """When the step ended, on this machine's monotonic clock, in seconds; set on construction."""
    utility_output: UtilityOutput | None = None
    """The answer; then there is nothing else."""
    finished_requests: list[str] | None = None
    """The ids that were in ABORT messages since the last outputs, in their order: from here on outputs under such an id
    are of a later request. vLLM has a set here, and only for data parallelism."""
    wave_complete: None = None
    """For data parallelism."""
    start_wave: None = None
    """For data parallelism."""

    def __post_init__(self) -> None:
        if self.timestamp == 0.0:
            self.timestamp = time.monotonic()


class EngineCoreRequestType(enum.Enum):
    """What a message to the engine core is about: its first frame, a single byte."""

    ADD = b"\x00"
    """An `EngineCoreRequest`."""
    ABORT = b"\x01"
    """A list of request ids."""
    START_DP_WAVE = b"\x02"
    """For data parallelism; refused."""
    UTILITY = b"\x03"
    """`(client_index, call_id, method, args)`."""
    EXECUTOR_FAILED = b"\x04"
    """Never sent: a thread or the executor tells the engine core so that it cannot go on."""
    WAKEUP = b"\x05"
    """Never sent: the engine core tells itself so that SIGTERM has come."""
