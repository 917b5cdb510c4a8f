"""Sampling: what is left of the logits to draw from, how likely what was drawn is, and what else was likely.

The sampler works on all rows at once, and a row that asks for nothing is changed by nothing. So what acts on a row's
logits is read off its request's parameters (sampling_options.py), and what that did is counted in the logits that the
token was drawn from.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import inf
from typing import Any

from tracellm.probes.catalog.helpers import argument, plain
from tracellm.probes.context.call_context import state
from tracellm.probes.wrapping.probe import Entry
from tracellm.probes.wrapping.summary import brief, write
from tracellm.trace import names

__all__ = [
    "CANDIDATES",
    "ENTRIES",
    "Likeliest",
    "chances",
    "changes_logits",
    "likeliest",
    "token_ids",
    "tokens_left",
]

CANDIDATES = 5
"""How many of the likeliest tokens are told."""

_NEIGHBOURS = 64
_FEW = 32_768
"""Of fewer probabilities `topk` takes no longer than looking among neighbours first, of one small row half as long."""


def _capture_drawn(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Of each row, how many tokens were left to draw from, how probable the drawn one was, and the likeliest."""
    logits, metadata = argument(args, kwargs, 1, "logits"), argument(args, kwargs, 2, "sampling_metadata")
    drawn: dict[str, Any] = {"logits": brief(logits)}
    processors = metadata.logitsprocs.non_argmax_invariant
    if metadata.temperature is None and not changes_logits(metadata, processors):  # the runner tells
        return {**drawn, "left": [logits.shape[1]] * int(logits.shape[0])}
    sampled, kept = result  # int64 [N], float32 [N, vocabulary]
    if metadata.temperature is not None and not metadata.all_random:
        kept = logits.where((metadata.temperature == 0)[:, None], kept)
    return {**drawn, "left": tokens_left(kept), **chances(kept, sampled[:, None])}


def tokens_left(kept: Any) -> list[int]:
    """How many of each row are not minus infinity; to see that none is takes a fraction of the time to count."""
    if kept.numel() and kept.amin().item() > -inf:
        return [kept.shape[-1]] * int(kept.shape[0])
    counts: list[int] = (kept > -inf).sum(dim=-1).tolist()
    return counts


Likeliest = tuple[list[list[float]], list[list[int]] | None, list[list[int]]]
"""The greatest five of each row.

1. Their probabilities, the greatest first.
2. The groups of neighbours with the greatest; None where what follows are the tokens' ids.
3. Where each stands among the neighbours of these groups, one group after the other.
"""


def token_ids(of: Likeliest) -> list[list[int]]:
    """The tokens that are so likely; for after the call."""
    _, of_rows, places_of_rows = of
    if of_rows is None:
        return places_of_rows
    return [
        [groups[place // _NEIGHBOURS] * _NEIGHBOURS + place % _NEIGHBOURS for place in places]
        for groups, places in zip(of_rows, places_of_rows, strict=True)
    ]


def chances(logits: Any, tokens: Any) -> dict[str, Any]:
    """How probable these tokens, int64 [rows, 1], are by the logits [rows, vocabulary], and the `likeliest`.

    Of a long run only the first steps tell it. The sampler waits, so there are as few operations as can be, each of
    which takes some 20 microseconds, however small; and those on a few numbers are NumPy's, which are quicker than
    PyTorch's.
    """
    if state.thinned:
        return {}
    probabilities = logits.float().softmax(dim=-1)
    if probabilities.is_cpu:
        told = probabilities.numpy()[_rows(len(tokens)), tokens.numpy()][:, 0].tolist()
    else:
        told = probabilities.gather(1, tokens)[:, 0].tolist()
    return {"probabilities": told, "likeliest": likeliest(probabilities)}


def likeliest(probabilities: Any) -> Likeliest:
    """The greatest five of each row of [rows, vocabulary].

    Those of all the greatest of 64 neighbours are found first, as these are found fast; among the five best groups of
    neighbours are the five best. That takes half the time of `topk` over 32 rows of 4096, and a sixth over large ones.
    """
    import torch

    rows, vocabulary = probabilities.shape
    count = min(CANDIDATES, vocabulary)
    too_few = rows * vocabulary < _FEW or vocabulary < CANDIDATES * _NEIGHBOURS
    if too_few or vocabulary % _NEIGHBOURS or not probabilities.is_cpu:
        values, ids = probabilities.topk(count, dim=-1)
        return values.tolist(), None, ids.tolist()
    groups = probabilities.reshape(rows, vocabulary // _NEIGHBOURS, _NEIGHBOURS)
    best = groups.amax(dim=-1).topk(count, dim=-1).indices.numpy()  # [rows, 5]
    among = groups.numpy()[_rows(rows), best].reshape(rows, count * _NEIGHBOURS)
    values, places = torch.from_numpy(among).topk(count, dim=-1)
    return values.tolist(), best.tolist(), places.tolist()


@lru_cache(maxsize=256)
def _rows(count: int) -> Any:
    """The numbers of so many rows, int64 [rows, 1]."""
    import numpy

    return numpy.arange(count)[:, None]


def changes_logits(metadata: Any, processors: Sequence[Any]) -> bool:
    """As `Sampler.apply_logits_processors` asks; `processors` may change which token is the likeliest."""
    return (
        metadata.allowed_token_ids_mask is not None
        or bool(metadata.bad_words_token_ids)
        or bool(processors)
        or not metadata.no_penalties
    )


def _drawn(facts: Any) -> dict[str, Any]:
    return {
        names.ARGUMENTS: [f"logits={write(facts['logits'])}"],
        names.RESULT: f"drawn from {', '.join(map(str, facts['left'][:CANDIDATES]))}"
        f"{', ...' if len(facts['left']) > CANDIDATES else ''} tokens",
    }


def _give_drawn(facts: Any) -> dict[str, Any]:
    return {"drawn": facts}


ENTRIES = (
    *plain("step", "sample.sampler", "Sampler.forward"),
    *plain("layer", "sample.sampler", "Sampler.apply_logits_processors", "apply_bad_words", "Sampler.apply_penalties"),
    *plain("layer", "sample.logits_processor", "MinTokensLogitsProcessor.apply", "LogitBiasLogitsProcessor.apply"),
    *plain("layer", "sample.logits_processor", "MinPLogitsProcessor.apply"),
    Entry(
        "tracellm.engine.sample.sampler:Sampler.sample",
        "layer",
        _capture_drawn,
        _drawn,
        gives=_give_drawn,
        gives_to="EngineCore.step_fn",
    ),
    *plain("layer", "sample.sampler", "Sampler.greedy_sample", "Sampler.apply_temperature"),
    Entry("tracellm.engine.model_executor.ops.*:*Ops.apply_top_k_top_p", "layer", span_name="apply_top_k_top_p"),
    *plain("layer", "sample.sampler", "random_sample", "compute_logprobs", "gather_logprobs"),
    *plain("layer", "worker.prompt_logprobs", "InProgressPromptLogprobs.add_chunk"),
)
