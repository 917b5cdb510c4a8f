"""Results of a request: `RequestOutput`, with one `CompletionOutput` for each of its `n` completions.

The `OutputProcessor` makes them; `LLM.generate` returns them, `AsyncLLM.generate` yields them. A request to a pooling
model has a `PoolingRequestOutput` instead.

vLLM: vllm/outputs.py. Left out: classification. Fields of unsupported features (LoRA, encoders, KV transfer) are None.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from tracellm.engine.frontend.logprobs import PromptLogprobs, SampleLogprobs
    from tracellm.engine.metrics.stats import RequestStateStats

__all__ = [
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "PoolingOutput",
    "PoolingRequestOutput",
    "RequestOutput",
    "ScoringOutput",
    "ScoringRequestOutput",
]


@dataclass(repr=False)
class CompletionOutput:
    """A generated continuation of a prompt."""

    index: int
    """Index among the request's `n` completions."""
    text: str
    token_ids: Sequence[int]
    """Generated tokens, including the end-of-sequence token."""
    cumulative_logprob: float | None = None
    """Sum of the generated tokens' log probabilities; None unless `logprobs` was set."""
    logprobs: SampleLogprobs | None = None
    """Per generated token, by token id: its own log probability and those of the likeliest tokens."""
    finish_reason: str | None = None
    """`stop`, `length`, `abort` or `error`; None while running."""
    stop_reason: int | str | None = None
    """Stop string or stop token that ended it, or the message of an error; None otherwise."""
    lora_request: None = None

    def finished(self) -> bool:
        """Return whether the generation has ended."""
        return self.finish_reason is not None

    def __repr__(self) -> str:
        return (
            f"CompletionOutput(index={self.index}, text={self.text!r}, token_ids={self.token_ids}, "
            f"cumulative_logprob={self.cumulative_logprob}, logprobs={self.logprobs}, "
            f"finish_reason={self.finish_reason}, stop_reason={self.stop_reason})"
        )


@dataclass(repr=False)
class RequestOutput:
    """A request and its completions. Compared by value; in vLLM, by identity."""

    request_id: str
    prompt: str | None
    """Text of the prompt; None for a prompt of token ids."""
    prompt_token_ids: list[int] | None
    prompt_logprobs: PromptLogprobs | None
    """Per prompt token, as `CompletionOutput.logprobs`; None for the first token, and unless requested."""
    outputs: list[CompletionOutput]
    """Completions with something new; all `n` of them in a finished `FINAL_ONLY` output."""
    finished: bool
    metrics: RequestStateStats | None = None
    """Times of the request; None unless `disable_log_stats=False`."""
    lora_request: None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    num_cached_tokens: int | None = None
    """Prompt tokens found in the prefix cache."""
    multi_modal_placeholders: dict[str, Any] = field(default_factory=dict, kw_only=True)
    kv_transfer_params: None = field(default=None, kw_only=True)

    def add(self, next_output: RequestOutput, aggregate: bool, positions: dict[int, int] | None = None) -> None:
        """Merge a later output of the same request into this one.

        Args:
            next_output: the later output.
            aggregate: append its completions to these (DELTA); otherwise they replace these.
            positions: result of `positions()`, kept up to date here; passing it speeds up repeated merges.
        """
        self.finished |= next_output.finished
        if positions is None:
            positions = self.positions()
        for new in next_output.outputs:
            position = positions.get(new.index)
            if position is None:
                positions[new.index] = len(self.outputs)
                self.outputs.append(new)
            elif aggregate:
                _extend(self.outputs[position], new)
            else:
                self.outputs[position] = new

    def positions(self) -> dict[int, int]:
        """Return the position in `outputs` of each completion, by its index."""
        return {completion.index: position for position, completion in enumerate(self.outputs)}

    def __repr__(self) -> str:
        names = ["prompt_logprobs", "outputs", "finished", "metrics", "lora_request", "num_cached_tokens"]
        names = ["prompt", "prompt_token_ids", "encoder_prompt", "encoder_prompt_token_ids", *names]
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in [*names, "multi_modal_placeholders"])
        return f"RequestOutput(request_id={self.request_id}, {fields})"


def _extend(completion: CompletionOutput, new: CompletionOutput) -> None:
    """Append a later part to a completion."""
    completion.text += new.text
    if not isinstance(completion.token_ids, MutableSequence):
        completion.token_ids = list(completion.token_ids)
    completion.token_ids.extend(new.token_ids)
    if new.logprobs:
        assert completion.logprobs is not None, "log probabilities begin with the first output"
        completion.logprobs.extend(new.logprobs)
    completion.cumulative_logprob = new.cumulative_logprob
    completion.finish_reason = new.finish_reason
    completion.stop_reason = new.stop_reason


@dataclass(eq=False)
class PoolingOutput:
    """Result of pooling."""

    data: Tensor
    """float32 [values], or [tokens, values] of the task `token_embed`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PoolingOutput) and self.data.equal(other.data)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class EmbeddingOutput:
    """Embedding of a prompt."""

    embedding: list[float]

    @classmethod
    def from_base(cls, pooling_output: PoolingOutput) -> EmbeddingOutput:
        """Convert the result of pooling.

        Raises:
            ValueError: it is not one vector.
        """
        if pooling_output.data.ndim != 1:
            raise ValueError("pooled_data should be a 1-D embedding vector")
        return cls(pooling_output.data.tolist())

    @property
    def hidden_size(self) -> int:
        """Number of values."""
        return len(self.embedding)

    def __repr__(self) -> str:
        return f"EmbeddingOutput(hidden_size={self.hidden_size})"


@dataclass
class ScoringOutput:
    """Similarity of two texts."""

    score: float

    @classmethod
    def from_base(cls, pooling_output: PoolingOutput) -> ScoringOutput:
        """Convert a result of one value.

        Raises:
            ValueError: it has more.
        """
        data = pooling_output.data.squeeze()
        if data.ndim != 0:
            raise ValueError("pooled_data should be a scalar score")
        return cls(data.item())


_O = TypeVar("_O")


@dataclass
class PoolingRequestOutput(Generic[_O]):
    """A request to a pooling model, and its result."""

    request_id: str
    outputs: _O
    """A `PoolingOutput`; in the subclasses, an `EmbeddingOutput` or a `ScoringOutput`."""
    prompt_token_ids: list[int]
    num_cached_tokens: int
    """Prompt tokens found in the prefix cache."""
    finished: bool


class EmbeddingRequestOutput(PoolingRequestOutput[EmbeddingOutput]):
    """A request and its embedding."""

    @classmethod
    def from_base(cls, output: PoolingRequestOutput[PoolingOutput]) -> EmbeddingRequestOutput:
        """Convert the output of a request. Raises `ValueError` if the result is not one vector."""
        return cls(**(vars(output) | {"outputs": EmbeddingOutput.from_base(output.outputs)}))


class ScoringRequestOutput(PoolingRequestOutput[ScoringOutput]):
    """Two requests and the similarity of their prompts."""

    @classmethod
    def from_base(cls, output: PoolingRequestOutput[PoolingOutput]) -> ScoringRequestOutput:
        """Convert an output of one value. Raises `ValueError` if it has more."""
        return cls(**(vars(output) | {"outputs": ScoringOutput.from_base(output.outputs)}))
