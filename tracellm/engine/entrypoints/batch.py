"""The prompts of one call of `LLM.generate`, each with its sampling parameters, its priority and its place.

vLLM: vllm/entrypoints/llm.py::LLM._validate_and_add_requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.config.validation import all_are, anything
from tracellm.engine.frontend.preprocess import PromptType
from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = ["BatchItem", "make_batch", "named"]


class BatchItem(NamedTuple):
    """One prompt of the call. Prompt and parameters are as the user gave them; the `Processor` checks these."""

    place: str
    """For messages: `prompts[3]`; empty when the call is about one prompt."""
    prompt: Any
    params: Any
    priority: int


def make_batch(
    prompts: PromptType | Sequence[PromptType] | None,
    params: SamplingParams | Sequence[SamplingParams],
    priority: Sequence[int] | None,
) -> list[BatchItem]:
    """Pair each prompt with its parameters: one for all, or one for each.

    Raises:
        InvalidRequestError: no prompts, or another number of parameters or priorities than prompts.
    """
    one = isinstance(prompts, (str, Mapping))
    # Bytes hold numbers, and a set has no order for the outputs to follow.
    if not one and (isinstance(prompts, (bytes, set, frozenset)) or not isinstance(prompts, Iterable)):
        raise InvalidRequestError(
            "generate takes a prompt or a list of prompts: strings, "
            f'{{"prompt": text}} or {{"prompt_token_ids": [ids]}}; got {type(prompts).__name__}.'
        )
    batch: list[Any] = [prompts] if one else list(cast(Iterable[Any], prompts))
    each: Sequence[Any] = params if isinstance(params, (list, tuple)) else [params] * len(batch)
    if len(each) != len(batch):
        raise InvalidRequestError(
            f"There are {len(batch)} prompts and {len(each)} sampling parameters: "
            "give one SamplingParams for all, or one for each prompt."
        )
    priorities = _check_priority(priority, len(batch))
    places = [""] if one else [f"prompts[{index}]" for index in range(len(batch))]
    return [BatchItem(*item) for item in zip(places, batch, each, priorities, strict=True)]


def _check_priority(priority: Sequence[int] | None, num_prompts: int) -> Sequence[int]:
    if priority is None:
        return [0] * num_prompts
    if not isinstance(priority, (list, tuple)) or not all_are(int, anything)(priority):
        raise InvalidRequestError(f"`priority` must be a list of whole numbers, one for each prompt, got {priority!r}.")
    if len(priority) != num_prompts:
        raise InvalidRequestError(f"There are {num_prompts} prompts and {len(priority)} priorities: give one for each.")
    return priority


@contextmanager
def named(place: str) -> Iterator[None]:
    """Refusals inside the `with` block begin with `place`; empty for the only one."""
    try:
        yield
    except InvalidRequestError as error:
        if not place:
            raise
        raise InvalidRequestError(f"{place}: {error}") from None
