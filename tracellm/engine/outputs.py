"""What `LLM.generate` returns: one `RequestOutput` for each prompt, in the order of the prompts.

vLLM: vllm/outputs.py. Left out: log probabilities, pooling, LoRA, encoder prompts, `n > 1`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CompletionOutput", "RequestOutput", "RequestStateStats"]


@dataclass
class CompletionOutput:
    """The generated continuation of one prompt."""

    index: int
    """Its place among the request's outputs; 0, as there is one."""
    text: str
    token_ids: Sequence[int]
    """The generated tokens, the end-of-sequence token among them when it was generated."""
    finish_reason: str | None = None
    """`stop`, `length` or `abort`; `None` while it still runs."""
    stop_reason: int | str | None = None
    """The stop string or stop token that ended it; `None` for the end-of-sequence token and other reasons."""

    def finished(self) -> bool:
        """Has the generation ended?"""
        return self.finish_reason is not None


@dataclass
class RequestStateStats:
    """When things happened to a request; collected under `disable_log_stats=False`.

    vLLM: vllm/v1/metrics/stats.py::RequestStateStats. Left out: what only the engine core sees.
    """

    arrival_time: float
    """Seconds since 1970."""
    first_token_latency: float = 0.0
    """Seconds from arrival to the first token."""
    first_token_ts: float = 0.0
    """When the step that brought the first token ended, on the monotonic clock, in seconds."""
    last_token_ts: float = 0.0
    num_generation_tokens: int = 0


@dataclass
class RequestOutput:
    """A request with what was generated for it."""

    request_id: str
    prompt: str | None
    """The prompt's text; `None` when it was given as token ids."""
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int | None = None
    """How many of the prompt's tokens came from the prefix cache."""
    metrics: RequestStateStats | None = None
    """`None` unless `disable_log_stats=False`."""
