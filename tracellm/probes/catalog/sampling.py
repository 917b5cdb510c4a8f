"""Sampling: which parameters a request asked for, what acts on its logits, and what is left to draw from.

The sampler works on all rows at once, and a row that asks for nothing is changed by nothing. So what acts on a row's
logits is read off its request's parameters, and what that did is counted in the logits that the token was drawn from.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache, lru_cache
from math import inf
from typing import Any, NamedTuple

from tracellm.probes.brief import brief, write
from tracellm.probes.catalog.helpers import argument, plain
from tracellm.probes.spec import Entry
from tracellm.trace import names

__all__ = ["CANDIDATES", "ENTRIES", "Likeliest", "changed_parameters", "likeliest", "processors_of"]

CANDIDATES = 5
"""How many of the likeliest tokens are told."""

_NEIGHBOURS = 64
_LONGEST_VALUE = 300
_TEXTS = ("stop", "bad_words", "structured_outputs", "extra_args")
"""Parameters whose values are a user's texts."""
_SAID_ELSEWHERE = ("n", "output_kind", "guided_decoding", "output_text_buffer_length")

# -- what was asked for -----------------------------------------------------------------------------------------------


def changed_parameters(params: Any, own_stops: frozenset[int] = frozenset()) -> tuple[list[str], list[str]]:
    """The sampling parameters that differ from their defaults, as `name=value`: those without a text, and with one.

    `own_stops` are the stop tokens that the model brings along, which nobody chose.
    """
    plain_values, texts = [], []
    usual = _defaults(type(params))  # type: ignore[arg-type]
    for name, default in usual.items():
        value = getattr(params, name)
        if name == "stop_token_ids":
            value = [token for token in value or () if token not in own_stops] or default
        if value != default:
            if name in _TEXTS:
                texts.append(f"{name}={_structure(value) if name == 'structured_outputs' else value}"[:_LONGEST_VALUE])
            else:
                plain_values.append(f"{name}={value}"[:_LONGEST_VALUE])
    return plain_values, texts


@cache
def _defaults(kind: Callable[[], Any]) -> dict[str, Any]:
    default = kind()
    told = (one.name for one in fields(default) if not one.name.startswith("_") and one.name not in _SAID_ELSEWHERE)
    return {name: getattr(default, name) for name in told}


def _structure(params: Any) -> str:
    """`choice=['yes', 'no']`: what is set of a StructuredOutputsParams."""
    usual = _defaults(type(params))  # type: ignore[arg-type]
    return ", ".join(
        f"{name}={value}" for name, default in usual.items() if (value := getattr(params, name)) != default
    )


# -- what acts on the logits ------------------------------------------------------------------------------------------


def processors_of(params: Any, num_output_tokens: int) -> list[str]:
    """What acts on the logits of a request that has generated so many tokens, in the sampler's order, by the names of
    the parameters that ask for it; a temperature of 1 changes nothing, and greedy rows end before those that cannot
    change which token is the likeliest.
    """
    found = []
    if params.structured_outputs is not None:
        found.append("structured_outputs")
    if params.allowed_token_ids is not None:
        found.append("allowed_token_ids")
    if params.bad_words:
        found.append("bad_words")
    if num_output_tokens < params.min_tokens:
        found.append("min_tokens")
    if params.logit_bias:
        found.append("logit_bias")
    if params.repetition_penalty != 1:
        found.append("repetition_penalty")
    if params.frequency_penalty:
        found.append("frequency_penalty")
    if params.presence_penalty:
        found.append("presence_penalty")
    if params.temperature:
        if params.temperature != 1:
            found.append("temperature")
        if params.min_p:
            found.append("min_p")
        if params.top_k > 0:
            found.append("top_k")
        if params.top_p < 1:
            found.append("top_p")
    return found


def _capture_drawn(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Of each row, how many tokens were left to draw from, how probable the drawn one was, and the likeliest."""
    logits, metadata = argument(args, kwargs, 1, "logits"), argument(args, kwargs, 2, "sampling_metadata")
    sampled, kept = result  # int64 [N], float32 [N, vocabulary]
    if metadata.temperature is not None and not metadata.all_random:
        kept = logits.where((metadata.temperature == 0)[:, None], kept)
    drawn = {"logits": brief(logits), "left": _left(kept)}
    if metadata.temperature is None and not _changes_logits(metadata):
        return drawn  # from the model's own, which the runner's `_sample` tells
    probabilities = kept.softmax(dim=-1)
    return {
        **drawn,
        "probabilities": [probability for [probability] in probabilities.gather(1, sampled[:, None]).tolist()],
        "likeliest": likeliest(probabilities),
    }


def _left(kept: Any) -> list[int]:
    """How many of each row are not minus infinity; to see that none is takes a fraction of the time to count."""
    if kept.numel() and kept.amin().item() > -inf:
        return [kept.shape[-1]] * int(kept.shape[0])
    counts: list[int] = (kept > -inf).sum(dim=-1).tolist()
    return counts


class Likeliest(NamedTuple):
    """The greatest five of each row.

    Attributes:
        probabilities: the greatest first.
        groups: the groups of neighbours with the greatest; None where `places` are the tokens' ids.
        places: where each stands among the neighbours of `groups`, one group after the other.
    """

    probabilities: list[list[float]]
    groups: list[list[int]] | None
    places: list[list[int]]

    def ids(self) -> list[list[int]]:
        """The tokens that are so likely; for after the call."""
        if self.groups is None:
            return self.places
        return [
            [groups[place // _NEIGHBOURS] * _NEIGHBOURS + place % _NEIGHBOURS for place in places]
            for groups, places in zip(self.groups, self.places, strict=True)
        ]


def likeliest(probabilities: Any) -> Likeliest:
    """The greatest five of each row of [rows, vocabulary].

    Those of all the greatest of 64 neighbours are found first, as these are found fast; among the five best groups of
    neighbours are the five best. That takes a third of the time of `topk` over a large vocabulary. The sampler waits,
    so there are as few operations as can be.
    """
    rows, vocabulary = probabilities.shape
    count = min(CANDIDATES, vocabulary)
    if vocabulary % _NEIGHBOURS or vocabulary < _NEIGHBOURS * count:
        values, ids = probabilities.topk(count, dim=-1)
        return Likeliest(values.tolist(), None, ids.tolist())
    groups = probabilities.reshape(-1, _NEIGHBOURS)  # [rows * groups of a row, 64]
    num_groups = vocabulary // _NEIGHBOURS
    best = groups.amax(dim=-1).view(rows, num_groups).topk(count, dim=-1).indices  # [rows, 5]
    of_rows = (best + _first_groups(rows, num_groups, best.device)).flatten()  # [rows * 5]
    among = groups.index_select(0, of_rows).view(rows, count * _NEIGHBOURS)
    values, places = among.topk(count, dim=-1)
    return Likeliest(values.tolist(), best.tolist(), places.tolist())


@lru_cache(maxsize=256)
def _first_groups(rows: int, num_groups: int, device: Any) -> Any:
    """The number of each row's first group, int64 [rows, 1]."""
    import torch

    return (torch.arange(rows, device=device) * num_groups)[:, None]


def _changes_logits(metadata: Any) -> bool:
    """As `Sampler.apply_logits_processors` asks."""
    return (
        metadata.allowed_token_ids_mask is not None
        or bool(metadata.bad_words_token_ids)
        or bool(metadata.logitsprocs.non_argmax_invariant)
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
    *plain("layer", "sample.logits_processor.builtin", "*LogitsProcessor.apply"),
    Entry(
        "tracellm.engine.sample.sampler:Sampler.sample",
        "layer",
        _capture_drawn,
        _drawn,
        gives=_give_drawn,
        gives_to="EngineCore.step_fn",
    ),
    *plain("layer", "sample.sampler", "Sampler.greedy_sample", "Sampler.apply_temperature", "apply_top_k_top_p"),
    *plain("layer", "sample.sampler", "random_sample", "compute_logprobs", "gather_logprobs"),
    *plain("layer", "worker.prompt_logprobs", "InProgressPromptLogprobs.add_chunk"),
)
