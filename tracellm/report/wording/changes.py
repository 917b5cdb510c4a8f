"""Changes from step to step, in words: requests that joined, came back, were preempted, not scheduled, or ended.

A step in which nothing changed is like the one before: a console or a table may show both in one line.
"""

import re
from collections.abc import Iterable
from typing import Any

from tracellm.report.texts import text, texts
from tracellm.report.wording.quantities import clip
from tracellm.report.wording.safe_text import beginning, visible
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.steps import EncoderState, Step

__all__ = [
    "aborted",
    "alike",
    "changes",
    "encoder_cache",
    "encoder_changes",
    "encoder_evicted",
    "endings",
    "finish_reason",
    "held_reason",
    "name_requests",
    "queue_changes",
]

_MOST_NAMES = 6
_MOST_REASONS = 8
_LONGEST_ERROR = 160  # characters


_SAME = (
    names.STEP_KIND,
    names.STEP_REQUESTS,
    names.STEP_PHASES,
    names.STEP_SAMPLED,
    names.STEP_HELD,
    names.STEP_HELD_REASONS,
)
_CHANGED = (
    names.STEP_NEW,
    names.STEP_RESUMED,
    names.STEP_PREEMPTED,
    names.STEP_FINISHED,
    names.STEP_ABORTED,
    names.STEP_ENCODER_REQUESTS,
    names.STEP_ENCODER_EVICTED,
)


def alike(step: Span, before: Span) -> bool:
    """Return whether a step repeats the one before: same kind, same requests, and no change in either.

    Each request must be in the same phase in both, and the same requests must get a token. So the step that ends a
    chunked prefill is never alike. The attributes are compared without `read_step`, which is slower: nearly all steps
    of a long run are alike.
    """
    now, previous = step.attributes, before.attributes
    return all(now.get(name) == previous.get(name) for name in _SAME) and not _changed(step) and not _changed(before)


def _changed(step: Span) -> bool:
    """Return whether requests came or went, or used the prefix cache."""
    get = step.attributes.get
    hits = get(names.STEP_CACHED)
    return bool(step.error or any(map(get, _CHANGED)) or (isinstance(hits, list) and any(hits)))


def _held(step: Step) -> list[tuple[str, str]]:
    return [(held.request_id, held.reason) for held in step.held]


def changes(step: Step, lang: str, before: Step | None = None) -> list[str]:
    """Return a sentence for each change in `step`, with the requests not scheduled unless `before` had the same."""
    return queue_changes(step, lang, before) + endings(step, lang)


def queue_changes(step: Step, lang: str, before: Step | None = None) -> list[str]:
    """Return a sentence for each of the scheduler's changes; for a step without work, its purpose comes first."""
    sentences = []
    if step.kind == "empty" and (ended := [id for id in step.released if id not in step.aborted]):
        sentences.append(text(lang, "step.released", names=name_requests(ended, lang)))
    elif step.is_in_flight:
        requests = name_requests(step.running, lang)
        sentences.append(text(lang, "step.in_flight", names=requests, index=step.output_of))
    for key, ids in (*aborted(step), ("new", step.new), ("resumed", step.resumed), ("preempted", step.preempted)):
        if ids:
            sentences.append(text(lang, f"step.{key}", names=name_requests(ids, lang)))
    hits = [request for request in step.requests if request.prefix_hit_tokens]
    if hits:
        requests = name_requests((request.request_id for request in hits), lang)
        tokens = sum(request.prefix_hit_tokens for request in hits)
        sentences.append(text(lang, "step.prefix_hit", names=requests, tokens=tokens))
    if step.encoder is not None:
        sentences += encoder_changes(step.encoder, lang)
    if before is None or _held(step) != _held(before):
        sentences += _not_scheduled(step, lang)
    if step.encoder is not None and step.encoder.items:
        sentences.append(encoder_cache(step.encoder, lang))
    return sentences


def aborted(step: Step) -> list[tuple[str, list[str]]]:
    """Return the requests that left the queues before a step, by reason: stopped, cancelled, or aborted if unknown."""
    keys = {"stop": "stopped", "abort": "cancelled"}
    by_key: dict[str, list[str]] = {}
    for request_id in step.aborted:
        by_key.setdefault(keys.get(step.abort_reasons.get(request_id, ""), "aborted"), []).append(request_id)
    return list(by_key.items())


def _not_scheduled(step: Step, lang: str) -> list[str]:
    """Return the requests that were not scheduled, or got fewer tokens than they needed, with the reasons."""
    scheduled = {request.request_id for request in step.requests}
    groups: dict[tuple[str, str], list[str]] = {}
    group = "", ""
    for held in step.held:
        key = "step.cut_short" if held.request_id in scheduled else "step.not_scheduled"
        group = key, held_reason(held.reason, held.details, lang, held.request_id)
        groups.setdefault(group, []).append(held.request_id)
    unnamed = {group: step.num_waiting - len(step.waiting)}
    shown, more = clip(list(groups.items()), _MOST_REASONS)
    sentences = [
        text(lang, group[0], names=name_requests(ids, lang, unnamed.get(group, 0)), why=group[1])
        for group, ids in shown
    ]
    return [*sentences, text(lang, "step.not_scheduled_more", n=more)] if more else sentences


def encoder_changes(encoder: EncoderState, lang: str) -> list[str]:
    """Return which images and sounds a step encodes, with the budget, and the identifiers that it evicts."""
    sentences = []
    if encoder.items:
        items: dict[str, list[str]] = {}
        for encoded in encoder.items:
            items.setdefault(encoded.request_id, []).append(str(encoded.item))
        shown, more = clip(list(items.items()), _MOST_NAMES)
        listed = [
            text(lang, "step.encoded.items", items=", ".join(indices), request=name_requests([request_id], lang))
            for request_id, indices in shown
        ]
        if more:
            listed.append(text(lang, "step.encoded.more", n=more))
        numbers = {"tokens": encoder.num_tokens, "budget": encoder.budget}
        sentences.append(text(lang, "step.encoded", items=text(lang, "step.comma").join(listed), **numbers))
    return [*sentences, encoder_evicted(encoder, lang)] if encoder.evicted else sentences


def encoder_cache(encoder: EncoderState, lang: str, key: str = "step.encoder_cache") -> str:
    """Return the state of the encoder cache after a step's scheduling, in the words of `key`."""
    needed = encoder.cache_size - encoder.cache_free - encoder.cache_freeable
    numbers = {"size": encoder.cache_size, "free": encoder.cache_free, "freeable": encoder.cache_freeable}
    return text(lang, key, needed=needed, **numbers)


def encoder_evicted(encoder: EncoderState, lang: str, key: str = "step.encoder_evicted") -> str:
    """Return the identifiers that left the encoder cache, in the words of `key`."""
    shown, more = clip(list(map(visible, encoder.evicted)), _MOST_NAMES)
    return text(lang, key, ids=text(lang, "step.comma").join(shown) + (" …" if more else ""))


def endings(step: Step, lang: str) -> list[str]:
    """Return the requests that ended with the step, and the reasons; last, the error of the step itself."""
    ended: dict[str, list[str]] = {}
    for request, reason in step.finished.items():
        ended.setdefault(reason, []).append(request)
    sentences = [
        text(lang, "step.finished", names=name_requests(ids, lang), why=finish_reason(reason, lang))
        for reason, ids in ended.items()
    ]
    if step.span.error is not None:
        sentences.append(text(lang, "step.failed", error=beginning(step.span.error, _LONGEST_ERROR)))
    return sentences


def name_requests(ids: Iterable[str], lang: str, unnamed: int = 0) -> str:
    """Return `request 3`, `requests 3, 4, 7`, or `requests 0, 1, 2, 3, 4, 5 and 20 more`.

    `unnamed` is added to the number of the others.
    """
    everyone = [visible(id) for id in ids]
    shown, more = clip(everyone, _MOST_NAMES)
    named = text(lang, "step.comma").join(shown)
    if more + unnamed:
        return text(lang, "step.names_more", names=named, more=more + unnamed)
    return text(lang, "step.name" if len(everyone) == 1 else "step.names", names=named)


def held_reason(code: str, details: str, lang: str, request_id: str = "") -> str:
    """Return why a request was not scheduled, with the numbers behind it; an unknown code is returned as it is."""
    values: dict[str, Any] = {name: visible(value) for name, value in re.findall(r"(\w+)=(\S+)", details)}
    if values.get("running", "").isdigit():
        values["running"] = int(values["running"])
    if (cause := f"held.cause.{values.get('cause')}") in texts(lang):
        values["cause"] = text(lang, cause)
    if code == "preempted" and values.get("by") == visible(request_id):
        code = "preempted_itself"
    try:
        return text(lang, f"held.{code}", **values)
    except KeyError:
        return visible(f"{code} ({details})" if details else code)


def finish_reason(code: str, lang: str) -> str:
    """Return why a request ended, in words if the code is known: stop, length, abort."""
    key = f"finish.{code}"
    return text(lang, key) if key in texts(lang) else visible(code)
