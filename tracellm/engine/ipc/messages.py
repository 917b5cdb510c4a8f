"""Messages between the front half of the engine and the engine core.

An `EngineCoreRequest` goes in (LLMEngine -> client -> EngineCore), and every step returns `EngineCoreOutputs`. They are
msgspec structs of plain values and arrays. Between processes a struct is encoded as the list of its fields
(serial_utils.py), so the structs have all fields of vLLM 0.11.1 in its order. Fields for features that tracellm lacks
(LoRA) can only be None.

vLLM: vllm/v1/engine/__init__.py. Left out: the messages that reconfigure data parallelism.
"""

import enum
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from tracellm.engine.metrics.stats import SchedulerStats
from tracellm.engine.multimodal.inputs import Array, MultiModalFeatureSpec
from tracellm.engine.pool.pooling_params import PoolingParams
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
    """Reason why a request ended; `str()` gives the value of `CompletionOutput.finish_reason`."""

    STOP = 0
    """The end-of-sequence token, a stop token or a stop string was generated."""
    LENGTH = 1
    """`max_tokens` tokens were generated, or the model's length was reached."""
    ABORT = 2
    """The caller aborted the request."""
    ERROR = 3
    """The request failed alone; `stop_reason` is the error. Not in vLLM 0.11.1, but in later versions."""

    def __str__(self) -> str:
        return self.name.lower()


class EngineCoreRequest(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """A request for the engine core: tokens instead of text, and complete parameters."""

    request_id: str
    prompt_token_ids: list[int]
    """vLLM allows None, for a prompt of embeddings."""
    mm_features: list[MultiModalFeatureSpec] | None
    """Images and sounds of the prompt, in its order; None without any."""
    sampling_params: SamplingParams | None
    """None for pooling."""
    pooling_params: PoolingParams | None
    """None for generation."""
    eos_token_id: int | None
    """The model's end-of-sequence token, or None if the tokenizer has none."""
    arrival_time: float
    """Seconds since 1970."""
    lora_request: None
    """For LoRA."""
    cache_salt: str | None
    """Separates the prefix caches of several users: only requests with the same salt share blocks."""
    data_parallel_rank: int | None
    """The engine core to run it, of several; None leaves the choice to the client."""
    prompt_embeds: None = None
    """For prompts of embeddings."""
    client_index: int = 0
    """The client that sent it and receives its outputs."""
    current_wave: int = 0
    """The wave of several engine cores in which the client sent it; 0 with one."""
    priority: int = 0
    """Lower runs earlier; used only by the `priority` scheduling policy."""
    trace_headers: Mapping[str, str] | None = None
    """W3C trace context (`traceparent`, `tracestate`) of the caller, or None."""

    @property
    def params(self) -> SamplingParams | PoolingParams:
        """Parameters of either kind."""
        params = self.sampling_params or self.pooling_params
        assert params is not None, "a request has either"
        return params

    @property
    def max_tokens(self) -> int:
        """Maximum number of tokens to generate; 0 for pooling."""
        if self.sampling_params is None:
            return 0
        assert self.sampling_params.max_tokens is not None, "set by the Processor"
        return self.sampling_params.max_tokens


class EngineCoreEventType(enum.IntEnum):
    """Events of a request in the scheduler."""

    QUEUED = 1
    """The request entered the waiting queue."""
    SCHEDULED = 2
    """The request left the waiting queue; recorded again after each preemption."""
    PREEMPTED = 3
    """The request lost its blocks and waits again."""


class EngineCoreEvent(msgspec.Struct):
    """An event of a request, recorded if `disable_log_stats=False`."""

    type: EngineCoreEventType
    timestamp: float
    """Seconds on the engine core's monotonic clock, comparable only within the same process."""

    @classmethod
    def new_event(cls, event_type: EngineCoreEventType, timestamp: float | None = None) -> "EngineCoreEvent":
        """Create an event at `timestamp`, or now."""
        return cls(event_type, time.monotonic() if timestamp is None else timestamp)


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """Output of one step for one request."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: LogprobsLists | None = None
    """One row per new token, or None if not requested."""
    new_prompt_logprobs_tensors: LogprobsTensors | None = None
    """Log probabilities of the prompt's tokens from the second on, sent once with the first new token."""
    pooling_output: Array | None = None
    """Result of pooling, a tensor: float32 [values] or [tokens, values], on the host."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token or stop string, or None for the end-of-sequence token and other reasons. With
    `FinishReason.ERROR`, the error message."""
    events: list[EngineCoreEvent] | None = None
    """Events since the last output, or None if there are none or statistics are not collected."""
    kv_transfer_params: None = None
    """For KV caches on other machines."""
    trace_headers: Mapping[str, str] | None = None
    """The `trace_headers` of the request."""
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache."""
    num_nans_in_logits: int = 0
    """Always 0, because NaN in the logits raises an error here."""

    @property
    def finished(self) -> bool:
        """True for the request's last output."""
        return self.finish_reason is not None


class UtilityResult:
    """Result of a utility call: any plain value."""

    def __init__(self, r: Any = None) -> None:
        self.result = r


class UtilityOutput(msgspec.Struct, array_like=True, gc=False):
    """Answer to a utility call, which calls a method of the engine core by name."""

    call_id: int
    """Chosen by the client."""
    failure_message: str | None = None
    """The error message; there is no result then."""
    result: UtilityResult | None = None


class EngineCoreOutputs(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """Outputs of one step for all requests of one client, or the answer to a utility call."""

    engine_index: int = 0
    """The engine core that sent it."""
    outputs: list[EngineCoreOutput] = []
    """One entry per request that got tokens or ended."""
    scheduler_stats: SchedulerStats | None = None
    """Statistics after the step, or None if they are not collected or sent to another client."""
    timestamp: float = 0.0
    """End of the step, in seconds on this machine's monotonic clock; set on construction."""
    utility_output: UtilityOutput | None = None
    """The answer to a utility call; all other fields are empty then."""
    finished_requests: list[str] | None = None
    """Ids in ABORT messages since the last outputs, in order. Later outputs with such an id belong to a new request.
    vLLM has a set here, and only for data parallelism."""
    wave_complete: int | None = None
    """The wave that has ended; for the coordinator of several engine cores (coordinator.py)."""
    start_wave: int | None = None
    """The wave to start, because a request came after the end of its own; for the coordinator."""

    def __post_init__(self) -> None:
        if self.timestamp == 0.0:
            self.timestamp = time.monotonic()


class EngineCoreRequestType(enum.Enum):
    """Type of a message to the engine core: its first frame, a single byte."""

    ADD = b"\x00"
    """An `EngineCoreRequest`."""
    ABORT = b"\x01"
    """A list of request ids."""
    START_DP_WAVE = b"\x02"
    """`(wave, index of an engine core that has started it)`, from the coordinator to all engine cores."""
    UTILITY = b"\x03"
    """`(client_index, call_id, method, args)`."""
    EXECUTOR_FAILED = b"\x04"
    """Internal: a thread or the executor of the engine core has failed."""
    WAKEUP = b"\x05"
    """Internal: the engine core has received SIGTERM."""
