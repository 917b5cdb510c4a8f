"""Sampling: which parameters a request asked for, what acts on its logits, and what is left to draw from.

The sampler works on all rows at once, and a row that asks for nothing is changed by nothing. So what acts on a row's
logits is read off its request's parameters, and what that did is counted in the logits that the token was drawn from.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from math import inf
from typing import Any

import msgspec

from tracellm.probes.brief import brief, write
from tracellm.probes.catalog.helpers import argument, plain
from tracellm.probes.spec import Entry
from tracellm.trace import names

__all__ = [
    "CANDIDATES",
    "ENTRIES",
    "Asked",
    "Likeliest",
    "asked_of",
    "chances",
    "changed_parameters",
    "changes_logits",
    "likeliest",
    "processors_of",
    "token_ids",
    "tokens_left",
]

CANDIDATES = 5
"""How many of the likeliest tokens are told."""

_NEIGHBOURS = 64
_LONGEST_VALUE = 300
_TEXTS = ("stop", "bad_words", "structured_outputs", "extra_args")
"""Parameters whose values are a user's texts."""
_SAID_ELSEWHERE = ("n", "output_kind", "guided_decoding", "output_text_buffer_length", "skip_clone")

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
    """What is in a set of parameters in which nothing was set, by name; of vLLM's, which are msgspec's, as of ours."""
    known = fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind)  # type: ignore[arg-type]
    told = [one for one in known if not one.name.startswith("_") and one.name not in _SAID_ELSEWHERE]
    try:
        usual = kind()
    except ValueError:  # some may not be empty
        return {one.name: one.default for one in told}
    return {one.name: getattr(usual, one.name) for one in told}


def _structure(params: Any) -> str:
    """`choice=['yes', 'no']`: what is set of a StructuredOutputsParams."""
    usual = _defaults(type(params))  # type: ignore[arg-type]
    return ", ".join(
        f"{name}={value}" for name, default in usual.items() if (value := getattr(params, name)) != default
    )


# -- what acts on the logits ------------------------------------------------------------------------------------------


Asked = tuple[tuple[str, ...], int, tuple[str, ...]]
"""What a request's parameters want to act on its logits, in the sampler's order, by the names of the parameters:
before `min_tokens`, the number of these, and after."""


def asked_of(params: Any) -> Asked:
    """What is asked for by these parameters; a temperature of 1 changes nothing, and greedy rows end before those that
    cannot change which token is the likeliest."""
    known = _asked.get(id(params))
    if known is not None and known[0] is params:
        return known[1]
    if len(_asked) >= _MOST_ASKED:
        _asked.clear()
    asked = _names(params, _BEFORE_MIN_TOKENS), params.min_tokens, _names(params, _AFTER_MIN_TOKENS)
    if params.temperature:
        asked = (*asked[:2], asked[2] + _names(params, _OF_RANDOM_ROWS))
    _asked[id(params)] = params, asked
    return asked


_asked: dict[int, tuple[Any, Asked]] = {}
"""By the parameters' id, with them, so that no others come to have it: parameters do not change, and steps are many."""
_MOST_ASKED = 1024

_BEFORE_MIN_TOKENS: dict[str, Callable[[Any], bool]] = {
    "structured_outputs": lambda params: params.structured_outputs is not None,
    "allowed_token_ids": lambda params: params.allowed_token_ids is not None,
    "bad_words": lambda params: bool(params.bad_words),
}
_AFTER_MIN_TOKENS: dict[str, Callable[[Any], bool]] = {
    "logit_bias": lambda params: bool(params.logit_bias),
    "repetition_penalty": lambda params: params.repetition_penalty != 1,
    "frequency_penalty": lambda params: bool(params.frequency_penalty),
    "presence_penalty": lambda params: bool(params.presence_penalty),
}
_OF_RANDOM_ROWS: dict[str, Callable[[Any], bool]] = {
    "temperature": lambda params: params.temperature != 1,
    "min_p": lambda params: bool(params.min_p),
    "top_k": lambda params: params.top_k > 0,
    "top_p": lambda params: params.top_p < 1,
}


def _names(params: Any, questions: dict[str, Callable[[Any], bool]]) -> tuple[str, ...]:
    return tuple(name for name, asks in questions.items() if asks(params))


def processors_of(asked: Asked, num_output_tokens: int) -> tuple[str, ...]:
    """What acts on the logits of a request that asked for this and has generated so many tokens."""
    before, min_tokens, after = asked
    return (*before, "min_tokens", *after) if num_output_tokens < min_tokens else before + after


def _capture_drawn(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Of each row, how many tokens were left to draw from, how probable the drawn one was, and the likeliest."""
    logits, metadata = argument(args, kwargs, 1, "logits"), argument(args, kwargs, 2, "sampling_metadata")
    drawn: dict[str, Any] = {"logits": brief(logits)}
    if metadata.temperature is None and not changes_logits(metadata):  # drawn from the model's own: the runner tells
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

    The sampler waits, so there are as few operations as can be, each of which takes some 20 microseconds, however
    small; and those on a few numbers are NumPy's, which are quicker than PyTorch's.
    """
    probabilities = logits.float().softmax(dim=-1)
    if probabilities.is_cpu:
        told = probabilities.numpy()[_rows(len(tokens)), tokens.numpy()][:, 0].tolist()
    else:
        told = probabilities.gather(1, tokens)[:, 0].tolist()
    return {"probabilities": told, "likeliest": likeliest(probabilities)}


def likeliest(probabilities: Any) -> Likeliest:
    """The greatest five of each row of [rows, vocabulary].

    Those of all the greatest of 64 neighbours are found first, as these are found fast; among the five best groups of
    neighbours are the five best. That takes a third of the time of `topk` over a large vocabulary.
    """
    import torch

    rows, vocabulary = probabilities.shape
    count = min(CANDIDATES, vocabulary)
    if vocabulary % _NEIGHBOURS or vocabulary < _NEIGHBOURS * count or not probabilities.is_cpu:
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


def changes_logits(metadata: Any) -> bool:
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
