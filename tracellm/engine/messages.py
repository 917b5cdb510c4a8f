"""What the front half of the engine and the engine core say to each other.

`EngineCoreRequest` goes in (LLMEngine -> client -> EngineCore), `EngineCoreOutputs` come out of every step. They are
msgspec structs of plain values and arrays, because between two processes they travel as bytes.

vLLM: vllm/v1/engine/__init__.py. Left out: multimodal features, LoRA, pooling, the scheduler's statistics.
"""

import enum
import time

import msgspec

from tracellm.engine.model_runner_output import LogprobsLists, LogprobsTensors
from tracellm.engine.sampling_params import SamplingParams

__all__ = [
    "EngineCoreEvent",
    "EngineCoreEventType",
    "EngineCoreOutput",
    "EngineCoreOutputs",
    "EngineCoreRequest",
    "FinishReason",
]


class FinishReason(enum.IntEnum):
    """Why a request ended; `str()` gives the word that `CompletionOutput.finish_reason` holds."""

    STOP = 0
    """The end-of-sequence token, a stop token or a stop string was generated."""
    LENGTH = 1
    """`max_tokens` tokens were generated, or the model's length was reached."""
    ABORT = 2
    """The caller gave the request up."""

    def __str__(self) -> str:
        return self.name.lower()


class EngineCoreRequest(msgspec.Struct, array_like=True, omit_defaults=True):
    """A request as the engine core receives it: tokens instead of text, parameters completed."""

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    eos_token_id: int | None
    """The model's end-of-sequence token; `None` when the tokenizer has none."""
    arrival_time: float
    """Seconds since 1970."""
    client_index: int = 0
    """Which client sent it, so that its outputs go back there."""
    priority: int = 0
    """Lower runs earlier; counts only under the `priority` scheduling policy."""


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


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True):
    """What one step brought for one request."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: LogprobsLists | None = None
    """Of the new tokens, one row for each; `None` when the request asked for none."""
    new_prompt_logprobs_tensors: LogprobsTensors | None = None
    """Of the prompt's tokens from the second on; comes once, with the first new token."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token or stop string that ended it; `None` for the end-of-sequence token and for other reasons."""
    events: list[EngineCoreEvent] | None = None
    """What happened to the request since its last output; `None` when nothing did, or nobody keeps statistics."""
    num_cached_tokens: int = 0
    """How many prompt tokens the prefix cache supplied."""

    @property
    def finished(self) -> bool:
        """Is this the request's last output?"""
        return self.finish_reason is not None


class EngineCoreOutputs(msgspec.Struct, array_like=True, omit_defaults=True):
    """What one step brought for all the requests of one client."""

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = []
    """One entry for each request that got tokens or ended."""
    timestamp: float = 0.0
    """When the step ended, on this machine's monotonic clock, in seconds; set on construction."""

    def __post_init__(self) -> None:
        if self.timestamp == 0.0:
            self.timestamp = time.monotonic()
