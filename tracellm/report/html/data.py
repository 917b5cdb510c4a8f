"""The run as data for the page's script: requests and tokens, and each engine's steps with their KV cache changes.

The data is JSON, compressed (RFC 1950) and in base64, in an element that no browser runs. A step holds only what
changed: js/run/replay.js makes the state of every step from them. js/run/data.js describes each field.
"""

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tracellm.report.facts.engines import engines
from tracellm.report.facts.http_requests import HttpRequest, refused
from tracellm.report.facts.recording_time import recording_by_step
from tracellm.report.facts.requests import (
    RequestFacts,
    RequestsByStep,
    RequestTimes,
    request_times,
    requests,
)
from tracellm.report.facts.steps.parts import output_times, parts_by_step
from tracellm.report.html.items_data import ItemRows, encoder_row
from tracellm.report.html.model_data import kernel_rows, model_data
from tracellm.report.texts import LANGUAGES, texts
from tracellm.report.wording.quantities import clip
from tracellm.report.wording.request_names import request_names, without_shared_beginning
from tracellm.trace.model import Span, Trace
from tracellm.trace.ranges import format_ranges
from tracellm.trace.replay import BlockReplay
from tracellm.trace.steps import GrammarMask, Sampled, Step, sampled_in_order

__all__ = ["encode", "page_texts", "run_data"]

MOST_CANDIDATES = 400_000
"""Candidates of all sampled tokens; later tokens are shown without theirs."""
MOST_REFUSED = 1000
"""HTTP requests that were refused; the others are counted."""
MOST_CHARACTERS = 20_000
"""Characters of one prompt or output."""

_TEXTS = ("page.", "step.", "held.", "finish.", "common.")
"""Beginnings of the keys of the texts that the views of a run show."""


def encode(content: bytes) -> str:
    """Return content as the page embeds it: compressed, in base64."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def run_data(trace: Trace, variants: Mapping[str, Trace] | None = None, first: Sequence[str] = ()) -> dict[str, Any]:
    """Return everything that the views of a run show.

    Args:
        trace: the run.
        variants: the run's variants by their names; their engines follow those of the run.
        first: ids of the first requests in the list; a request that the run lacks gets a row with its id alone.
    """
    all_requests = _Requests(trace, first)
    candidates = _Candidates(all_requests.tokens)
    rows = _engines(trace, all_requests, candidates)
    for row, engine in zip(rows, engines(trace), strict=True):
        row["model"] = model_data(trace, engine)
    for name, variant in (variants or {}).items():
        model = rows[0]["model"] if rows else {}
        rows += [{**row, "model": model} for row in _engines(variant, all_requests, candidates, what_if=name)]
    all_requests.shorten()
    shown, more = clip(refused(trace), MOST_REFUSED)
    return {
        "engines": rows,
        "requests": all_requests.rows,
        "refused": [_refused(http, all_requests.microseconds(http.span.start_ns)) for http in shown],
        **({"moreRefused": more} if more else {}),
        "tokens": all_requests.tokens,
        "kernels": kernel_rows(trace),
        **all_requests.pictures(),
    }


def _refused(http: HttpRequest, at: int) -> dict[str, Any]:
    """Return the row of an HTTP request that was refused."""
    row = {"id": http.title, "client": http.client_id, "at": at, "answer": http.answer, "error": http.error}
    return _without_empty(row)


def page_texts(lang: str, *more: str) -> dict[str, Any]:
    """Return the script's texts in all languages; `lang` is the first to show, `more` are further prefixes of keys."""
    prefixes = (*_TEXTS, *more)
    return {
        "lang": lang,
        "texts": {
            language: {key: value for key, value in texts(language).items() if key.startswith(prefixes)}
            for language in LANGUAGES
        },
    }


class _Requests:
    """Rows of requests; steps name requests by the numbers of their rows."""

    def __init__(self, trace: Trace, first: Sequence[str]) -> None:
        self.trace = trace
        self.tokens: dict[int, str] = {}
        self._names = request_names(trace)
        self.rows: list[dict[str, Any]] = [
            {"id": request_id, "name": self._names.shorten(request_id)} for request_id in first
        ]
        self._reserved = {request_id: number for number, request_id in reversed(list(enumerate(first)))}
        self._start = trace.spans[0].start_ns if trace.spans else 0
        self._times = request_times(trace)
        self._items = ItemRows(trace)
        self._by_span: dict[str, int] = {}
        self._without_span: dict[str, int] = {}
        for request in requests(trace.spans):
            self._by_span[request.span_id] = self._add(request.id, self._row(request, trace.by_id[request.span_id]))

    def _row(self, request: RequestFacts, span: Span) -> dict[str, Any]:
        self.tokens.update(zip(request.prompt_token_ids, request.prompt_token_texts, strict=False))
        return _without_empty(
            {
                "id": request.id,
                "name": self._names.shorten(request.id),
                "at": self.microseconds(span.start_ns),
                "us": span.duration_ns // 1000,
                "open": span.open,
                "prompt": request.prompt and request.prompt[:MOST_CHARACTERS],
                "output": request.output and request.output[:MOST_CHARACTERS],
                "promptTokens": request.prompt_token_ids,
                "items": self._items.rows(request),
                "numPrompt": request.input_tokens,
                "numOutput": request.output_tokens,
                **_microseconds(self._times.get(request.span_id)),
                "reason": request.finish_reason,
                "stoppedBy": request.stopped_by,
                "error": request.error,
                "params": request.params,
                "parent": request.parent,
                "index": request.index,
            }
        )

    def _add(self, request_id: str, row: dict[str, Any]) -> int:
        """Add a row, and return its number: the one reserved for its id, or the next."""
        number = self._reserved.pop(request_id, None)
        if number is None:
            self.rows.append(row)
            return len(self.rows) - 1
        self.rows[number] = row
        return number

    def pictures(self) -> dict[str, Any]:
        """Return the pictures of the requests' items, if there are any."""
        return {"pictures": self._items.pictures} if self._items.pictures else {}

    def shorten(self) -> None:
        """Give each request a name without what all names begin with, up to a separator, for narrow cells."""
        shown = [str(row.get("name", row["id"])) for row in self.rows]
        for row, whole, tiny in zip(self.rows, shown, without_shared_beginning(shown), strict=True):
            if tiny != whole:
                row["tiny"] = tiny

    def microseconds(self, time_ns: int) -> int:
        """Return a time as microseconds since the run's first span."""
        return (time_ns - self._start) // 1000

    def number(self, request: RequestFacts | None, request_id: str) -> int:
        """Return the number of a request; an id whose request has no span gets a row of its own."""
        if request is not None:
            return self._by_span[request.span_id]
        if request_id not in self._without_span:
            row = {"id": request_id, "name": self._names.shorten(request_id)}
            self._without_span[request_id] = self._add(request_id, row)
        return self._without_span[request_id]


def _microseconds(times: RequestTimes | None) -> dict[str, int]:
    """Return the times of a request in microseconds, without those that are unknown."""
    if times is None:
        return {}
    seconds = {"queued": times.queued, "prefill": times.prefill, "first": times.first_token, "decode": times.decode}
    return {name: round(value * 1e6) for name, value in seconds.items() if value is not None}


class _Numbers:
    """Numbers of requests by the ids that one engine uses; `enter` moves to the next step."""

    def __init__(self, all_requests: _Requests) -> None:
        self._all_requests = all_requests
        self._by_step = RequestsByStep(all_requests.trace)
        self.enter = self._by_step.enter

    def __call__(self, request_id: str) -> int:
        return self._all_requests.number(self._by_step.get(request_id), request_id)

    def all(self, request_ids: Iterable[str]) -> list[int]:
        return [self(request_id) for request_id in request_ids]

    def count(self, step: Step) -> None:
        """Add a recorded step's prefix cache hits and preemptions to the rows of its requests."""
        rows = self._all_requests.rows
        for request in step.requests:
            if request.prefix_hit_tokens:
                row = rows[self(request.request_id)]
                key = "hit" if request.request_id in step.new else "hitAgain"
                row[key] = row.get(key, 0) + request.prefix_hit_tokens
        for request_id in step.preempted:
            row = rows[self(request_id)]
            row["preemptions"] = row.get("preemptions", 0) + 1


def _engines(
    trace: Trace, all_requests: _Requests, candidates: "_Candidates", what_if: str = ""
) -> list[dict[str, Any]]:
    """Return the engines, each with its settings and its steps; the steps of a variant have no times."""
    times = recording_by_step(trace), parts_by_step(trace), output_times(trace)
    rows = []
    for engine in engines(trace):
        number = _Numbers(all_requests)
        replay = BlockReplay(engine.block_size, prefix_caching=engine.prefix_caching)
        process = engine.steps[0].span.process
        rows.append(
            {
                "whatIf": what_if,
                "process": process.name if process else "",
                "blockSize": engine.block_size,
                "numGroups": engine.cache.num_groups if engine.cache else 1,
                "prefixCaching": engine.prefix_caching,
                "maxNumSeqs": _as_int(engine.settings.get("max_num_seqs", "")),
                "steps": [
                    _step(step, replay, number, candidates)
                    | ({} if what_if else _recorded(step, number, all_requests, *times))
                    for step in engine.steps
                ],
            }
        )
    return rows


def _as_int(value: str) -> int:
    return int(value) if value.isdigit() else 0


def _recorded(
    step: Step,
    number: _Numbers,
    all_requests: _Requests,
    recording: Mapping[str, int],
    parts: Mapping[str, Mapping[str, int]],
    outputs: Mapping[str, int],
) -> dict[str, Any]:
    """Return the times of a recorded step, and count it in the rows of its requests."""
    number.count(step)
    return _without_empty(
        {
            "at": all_requests.microseconds(step.span.start_ns),
            "us": step.span.duration_ns // 1000,
            "recording": recording.get(step.span.span_id, 0) // 1000,
            "parts": {part: time // 1000 for part, time in parts.get(step.span.span_id, {}).items()},
            "outputs": outputs.get(step.span.span_id, 0) // 1000,
        }
    )


def _step(step: Step, replay: BlockReplay, number: _Numbers, candidates: "_Candidates") -> dict[str, Any]:
    blocks = replay.apply(step)
    number.enter(step)
    return _without_empty(
        {
            "n": step.index,
            "kind": step.kind,
            "budget": step.token_budget,
            "free": step.blocks_free,
            "total": step.blocks_total,
            "scheduled": [
                [
                    number(request.request_id),
                    request.num_tokens,
                    request.num_computed,
                    int(request.phase == "decode"),
                    request.prefix_hit_tokens,
                ]
                for request in step.requests
            ],
            "blocks": [
                [number(request.request_id), format_ranges(request.cached_blocks), format_ranges(request.new_blocks)]
                for request in step.requests
                if request.cached_blocks or request.new_blocks
            ],
            "running": number.all(step.running),
            "waiting": number.all(step.waiting),
            "moreWaiting": step.num_waiting - len(step.waiting),
            "held": [[number(held.request_id), held.reason, held.details] for held in step.held],
            "new": number.all(step.new),
            "resumed": number.all(step.resumed),
            "preempted": number.all(step.preempted),
            "aborted": number.all(step.aborted),
            "finished": [[number(request_id), reason] for request_id, reason in step.finished.items()],
            "released": number.all(blocks.released),
            "evicted": blocks.evicted,
            "cached": [[cached.block, number(cached.request_id), cached.index] for cached in blocks.cached],
            "inconsistent": not blocks.consistent,
            "encoder": step.encoder and encoder_row(step.encoder, number),
            "logits": step.logits_shape,
            "inFlight": step.output_of if step.is_in_flight else 0,
            "sampled": [candidates.row(number(sampled.request_id), sampled) for sampled in sampled_in_order(step)],
            "error": step.span.error,
        }
    )


class _Candidates:
    """Rows of sampled tokens: `[request, token id, probability, candidates]`.

    With processors come their names, the tokens left, the probability and the candidates after them; with a grammar,
    its mask.
    """

    def __init__(self, tokens: dict[int, str]) -> None:
        self._tokens = tokens
        self._room = MOST_CANDIDATES

    def row(self, request: int, sampled: Sampled) -> list[Any]:
        """Return the row of one sampled token; the text of every token goes to the page's token texts."""
        if sampled.token_id is not None and sampled.text is not None:
            self._tokens[sampled.token_id] = sampled.text
        row: list[Any] = [request, sampled.token_id, sampled.probability, self._listed(sampled.candidates)]
        if sampled.processors:
            drawn = [] if sampled.drawn_listed == sampled.listed else self._listed(sampled.drawn_candidates)
            row += [", ".join(sampled.processors), sampled.tokens_left, sampled.drawn_probability, drawn]
        if sampled.grammar is not None:
            row += [None] * (8 - len(row)) + [self._mask(sampled.grammar)]
        return row

    def _mask(self, mask: GrammarMask) -> list[Any]:
        """Return `[number of allowed tokens, their probability, likeliest token, forbidden or not, allowed ones]`."""
        forbidden = mask.forbidden is not None and self._room > 0
        first = self._listed([] if mask.likeliest is None else [mask.likeliest])
        return [mask.num_allowed, mask.share, first, forbidden, self._listed(mask.allowed)]

    def _listed(self, candidates: list[tuple[int, str, float]]) -> list[float]:
        """Return `[token id, probability, token id, probability, ...]`."""
        if self._room <= 0:
            return []
        self._room -= len(candidates)
        self._tokens.update((token_id, piece) for token_id, piece, _ in candidates)
        return [value for token_id, _, probability in candidates for value in (token_id, probability)]


def _without_empty(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without fields that are empty, None, zero or false: the script takes these for absent ones."""
    return {name: value for name, value in row.items() if value or (value is not None and name in ("at", "us", "free"))}
