"""What the front half of the engine and the engine core say to each other.

`EngineCoreRequest` goes in (LLMEngine -> client -> EngineCore), `EngineCoreOutputs` come out of every step. They are
msgspec structs of plain values, because between two processes they travel as bytes.

vLLM: vllm/v1/engine/__init__.py. Left out: multimodal features, LoRA, pooling, log probabilities, statistics.
"""

import enum
import time

import msgspec

from tracellm.engine.sampling_params import SamplingParams

__all__ = ["EngineCoreOutput", "EngineCoreOutputs", "EngineCoreRequest", "FinishReason"]


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


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True):
    """What one step brought for one request."""

    request_id: str
    new_token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token or stop string that ended it; `None` for the end-of-sequence token and for other reasons."""
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
