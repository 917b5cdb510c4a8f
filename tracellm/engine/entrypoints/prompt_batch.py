"""The prompts of one call of `LLM.generate` or `encode`, each with its parameters and priority.

In a request's life: before all checks, in `LLM._validate_and_add_requests`.

vLLM: in vllm/entrypoints/llm.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.config.validation import all_are, anything
from tracellm.engine.frontend.preprocess import PromptType
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = ["BatchItem", "Params", "as_batch", "labeled_errors", "make_batch"]

Params: TypeAlias = SamplingParams | PoolingParams


class BatchItem(NamedTuple):
    """One prompt of a call, as the user gave it; the `Processor` validates it."""

    label: str
    """Name of the prompt in messages, such as `prompts[3]`; empty if it is the only one."""
    prompt: Any
    params: Any
    priority: int


def as_batch(prompts: object, method: str) -> list[Any]:
    """Return a prompt, or the prompts, as a list. `method` is the method of `LLM` that was called.

    Raises:
        InvalidRequestError: it is neither.
    """
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    # Iterating bytes gives numbers, and a set has no order for the outputs to follow.
    if isinstance(prompts, (bytes, set, frozenset)) or not isinstance(prompts, Iterable):
        raise InvalidRequestError(
            f"{method} takes a prompt or a list of prompts: strings, "
            f'{{"prompt": text}} or {{"prompt_token_ids": [ids]}}; got {type(prompts).__name__}.'
        )
    return list(prompts)


def make_batch(
    prompts: PromptType | Sequence[PromptType] | None,
    params: Params | Sequence[Params],
    priority: Sequence[int] | None,
    method: str = "generate",
) -> list[BatchItem]:
    """Pair each prompt with its parameters and priority.

    Raises:
        InvalidRequestError: no prompts, or a different number of parameters or priorities.
    """
    is_single = isinstance(prompts, (str, Mapping))
    batch = as_batch(prompts, method)
    all_params: Sequence[Any] = params if isinstance(params, (list, tuple)) else [params] * len(batch)
    if len(all_params) != len(batch):
        kind = "sampling" if method == "generate" else "pooling"
        raise InvalidRequestError(
            f"There are {len(batch)} prompts and {len(all_params)} {kind} parameters: "
            f"give one {kind.capitalize()}Params for all, or one for each prompt."
        )
    if priority is None:
        priority = [0] * len(batch)
    if not isinstance(priority, (list, tuple)) or not all_are(int, anything)(priority):
        raise InvalidRequestError(f"`priority` must be a list of whole numbers, one for each prompt, got {priority!r}.")
    if len(priority) != len(batch):
        raise InvalidRequestError(f"There are {len(batch)} prompts and {len(priority)} priorities: give one for each.")
    labels = [""] if is_single else [f"prompts[{index}]" for index in range(len(batch))]
    return [BatchItem(*item) for item in zip(labels, batch, all_params, priority, strict=True)]


@contextmanager
def labeled_errors(label: str) -> Iterator[None]:
    """Prefix the messages of `InvalidRequestError`s raised in the block, unless the label is empty."""
    try:
        yield
    except InvalidRequestError as error:
        if not label:
            raise
        raise InvalidRequestError(f"{label}: {error}") from None
