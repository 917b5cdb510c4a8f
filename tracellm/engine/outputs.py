"""What `LLM.generate` returns: one `RequestOutput` for each prompt, in the order of the prompts.

vLLM: vllm/outputs.py. Left out: log probabilities, pooling, LoRA, encoder prompts, metrics, `n > 1`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CompletionOutput", "RequestOutput"]


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
