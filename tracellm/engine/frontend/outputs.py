"""What `LLM.generate` returns: one `RequestOutput` for each prompt, in the order of the prompts.

vLLM: vllm/outputs.py. Left out: pooling. What tracellm does not have (LoRA, encoders, images, KV transfer) is there
under vLLM's names, and `None`.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracellm.engine.frontend.logprobs import PromptLogprobs, SampleLogprobs
    from tracellm.engine.metrics.stats import RequestStateStats

__all__ = ["CompletionOutput", "RequestOutput"]


@dataclass(repr=False)
class CompletionOutput:
    """One generated continuation of a prompt.

    vLLM: vllm/outputs.py::CompletionOutput.
    """

    index: int
    """Its place among the request's `n` continuations."""
    text: str
    token_ids: Sequence[int]
    """The generated tokens, the end-of-sequence token among them when it was generated."""
    cumulative_logprob: float | None = None
    """The sum of the generated tokens' log probabilities; `None` unless `logprobs` were asked for."""
    logprobs: SampleLogprobs | None = None
    """For each generated token, by token id, its own log probability and those of the likeliest tokens."""
    finish_reason: str | None = None
    """`stop`, `length`, `abort` or `error`; `None` while it still runs."""
    stop_reason: int | str | None = None
    """The stop string or stop token that ended it, or what went wrong; `None` for the end-of-sequence token and other
    reasons."""
    lora_request: None = None

    def finished(self) -> bool:
        """Has the generation ended?"""
        return self.finish_reason is not None

    def __repr__(self) -> str:
        return (
            f"CompletionOutput(index={self.index}, text={self.text!r}, token_ids={self.token_ids}, "
            f"cumulative_logprob={self.cumulative_logprob}, logprobs={self.logprobs}, "
            f"finish_reason={self.finish_reason}, stop_reason={self.stop_reason})"
        )


@dataclass(repr=False)
class RequestOutput:
    """A request with what was generated for it.

    vLLM: vllm/outputs.py::RequestOutput, where two of them are equal only when they are the same object.
    """

    request_id: str
    prompt: str | None
    """The prompt's text; `None` when it was given as token ids."""
    prompt_token_ids: list[int] | None
    prompt_logprobs: PromptLogprobs | None
    """For each token of the prompt, as `CompletionOutput.logprobs`, `None` for the first; `None` unless asked for."""
    outputs: list[CompletionOutput]
    """The `n` continuations, as far as they have something to say."""
    finished: bool
    metrics: RequestStateStats | None = None
    """When things happened to it; `None` unless `disable_log_stats=False`."""
    lora_request: None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    num_cached_tokens: int | None = None
    """How many of the prompt's tokens came from the prefix cache."""
    multi_modal_placeholders: dict[str, Any] = field(default_factory=dict, kw_only=True)
    kv_transfer_params: None = field(default=None, kw_only=True)

    def add(self, next_output: RequestOutput, aggregate: bool, places: dict[int, int] | None = None) -> None:
        """Merge a later output of the same request into this one.

        Args:
            next_output: the later one.
            aggregate: its continuations are what was added (DELTA); else they are all so far, and replace these.
            places: where in `outputs` each continuation is, by its index, to be kept up to date. Whoever merges often
                passes it, so that of many continuations each is found at once.
        """
        self.finished |= next_output.finished
        if places is None:
            places = self.places()
        for new in next_output.outputs:
            place = places.get(new.index)
            if place is None:
                places[new.index] = len(self.outputs)
                self.outputs.append(new)
            elif aggregate:
                _extend(self.outputs[place], new)
            else:
                self.outputs[place] = new

    def places(self) -> dict[int, int]:
        """Where in `outputs` each continuation is, by its index."""
        return {completion.index: place for place, completion in enumerate(self.outputs)}

    def __repr__(self) -> str:
        names = ["prompt_logprobs", "outputs", "finished", "metrics", "lora_request", "num_cached_tokens"]
        names = ["prompt", "prompt_token_ids", "encoder_prompt", "encoder_prompt_token_ids", *names]
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in [*names, "multi_modal_placeholders"])
        return f"RequestOutput(request_id={self.request_id}, {fields})"


def _extend(completion: CompletionOutput, new: CompletionOutput) -> None:
    """Add to a continuation what came after it."""
    completion.text += new.text
    if not isinstance(completion.token_ids, MutableSequence):
        completion.token_ids = list(completion.token_ids)
    completion.token_ids.extend(new.token_ids)
    if new.logprobs:
        assert completion.logprobs is not None, "a request has log probabilities from its first output on"
        completion.logprobs.extend(new.logprobs)
    completion.cumulative_logprob = new.cumulative_logprob
    completion.finish_reason = new.finish_reason
    completion.stop_reason = new.stop_reason
