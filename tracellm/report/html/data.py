"""The run as data for the page's script: requests and tokens, and each engine's steps with their KV cache changes.

The data is JSON, compressed (RFC 1950) and in base64, in an element that no browser runs. A step holds only what
changed: js/replay.js makes the state of every step from them. js/data.js describes each field.
"""

import base64
import zlib
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec

from tracellm.report.facts.recording_time import recording_by_step
from tracellm.report.facts.requests import RequestFacts, requests
from tracellm.report.facts.startup import engine_config, kv_cache, startup_spans
from tracellm.report.texts import LANGUAGES, texts
from tracellm.trace.model import Span, Trace
from tracellm.trace.ranges import format_ranges
from tracellm.trace.replay import BlockReplay
from tracellm.trace.steps import STEP_SPAN, Sampled, Step, engine_key, steps

__all__ = ["encode", "run_data"]

MOST_CANDIDATES = 400_000
"""Candidates of all sampled tokens; later tokens are shown without theirs."""
MOST_CHARACTERS = 20_000
"""Characters of one prompt or output."""

_TEXTS = ("page.", "step.", "held.", "finish.", "common.")
"""Beginnings of the keys of the texts that the script shows."""

_PARTS = {
    "Scheduler.schedule": "schedule",
    "GPUModelRunner._update_states": "prepare",
    "GPUModelRunner._prepare_inputs": "prepare",
    "GPUModelRunner._model_forward": "forward",
    "GPUModelRunner._sample": "sample",
    "Scheduler.update_from_output": "process",
}
"""Calls within a step, and the part of its time that each is; the rest of the step is none of these."""


def encode(data: Mapping[str, Any]) -> str:
    """Return the data as the page embeds it."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(data), 9)).decode()


def run_data(trace: Trace, lang: str) -> dict[str, Any]:
    """Return everything that the script shows, with its texts in all languages; `lang` is the first to show."""
    people = _Requests(trace)
    engines = _engines(trace, people)
    return {
        "lang": lang,
        "texts": {language: _texts(language) for language in LANGUAGES},
        "engines": engines,
        "requests": people.rows,
        "tokens": people.tokens,
    }


def _texts(lang: str) -> dict[str, str]:
    return {key: value for key, value in texts(lang).items() if key.startswith(_TEXTS)}


class _Requests:
    """Rows of requests, and the number of each by its id: steps name requests by their rows."""

    def __init__(self, trace: Trace) -> None:
        self._start = trace.spans[0].start_ns if trace.spans else 0
        self.rows: list[dict[str, Any]] = []
        self.tokens: dict[int, str] = {}
        self._by_span: dict[str, int] = {}
        self._by_id: dict[str, int] = {}
        for request in requests(trace.spans):
            span = trace.by_id[request.span_id]
            self._by_span[request.span_id] = self._by_id[request.id] = len(self.rows)
            self.rows.append(self._row(request, span))

    def _row(self, request: RequestFacts, span: Span) -> dict[str, Any]:
        self.tokens.update(zip(request.prompt_token_ids, request.prompt_token_texts, strict=False))
        return _without_empty(
            {
                "id": request.id,
                "at": self.microseconds(span.start_ns),
                "us": span.duration_ns // 1000,
                "open": span.open,
                "prompt": request.prompt and request.prompt[:MOST_CHARACTERS],
                "output": request.output and request.output[:MOST_CHARACTERS],
                "promptTokens": request.prompt_token_ids,
                "numPrompt": request.input_tokens,
                "numOutput": request.output_tokens,
                "reason": request.finish_reason,
                "error": request.error,
                "params": request.params,
                "parent": request.parent,
                "index": request.index,
            }
        )

    def microseconds(self, time_ns: int) -> int:
        """Return a time as microseconds since the run's first span."""
        return (time_ns - self._start) // 1000

    def of_step(self, step: Step) -> "_Numbers":
        """Return the numbers of the requests that a step may name; its links decide between requests of one id."""
        linked = {
            self.rows[number]["id"]: number
            for link in step.span.links
            if (number := self._by_span.get(link.span_id)) is not None
        }
        return _Numbers(self, linked)

    def number(self, request_id: str) -> int:
        """Return the number of a request; one without a recorded span gets a row of its own."""
        number = self._by_id.setdefault(request_id, len(self.rows))
        if number == len(self.rows):
            self.rows.append({"id": request_id})
        return number


class _Numbers:
    """Numbers of requests by the ids that one step uses."""

    def __init__(self, people: _Requests, linked: dict[str, int]) -> None:
        self._people, self._linked = people, linked

    def __call__(self, request_id: str) -> int:
        return self._linked[request_id] if request_id in self._linked else self._people.number(request_id)

    def all(self, request_ids: Iterable[str]) -> list[int]:
        return [self(request_id) for request_id in request_ids]


def _engines(trace: Trace, people: _Requests) -> list[dict[str, Any]]:
    """Return the engines, one per process that ran steps, each with its settings and its steps."""
    startup = startup_spans(trace)
    cache, config = kv_cache(startup), {setting.name: setting.value for setting in engine_config(startup)}
    of_engines: dict[Hashable, list[Step]] = {}
    for step in steps(trace):
        of_engines.setdefault(engine_key(step.span), []).append(step)
    recording, parts = recording_by_step(trace), _parts(trace)
    candidates = _Candidates(people.tokens)
    engines = []
    for own in of_engines.values():
        block_size = cache.block_size if cache is not None else 0
        caching = config.get("enable_prefix_caching", "True") == "True"
        replay = BlockReplay(block_size, prefix_caching=caching)
        engines.append(
            {
                "process": own[0].span.process.name if own[0].span.process else "",
                "blockSize": block_size,
                "numGroups": cache.num_groups if cache is not None else 1,
                "prefixCaching": caching,
                "maxNumSeqs": _as_int(config.get("max_num_seqs", "")),
                "steps": [
                    _step(step, replay, people, candidates, recording.get(step.span.span_id, 0), parts) for step in own
                ],
            }
        )
    return engines


def _as_int(value: str) -> int:
    return int(value) if value.isdigit() else 0


def _step(
    step: Step,
    replay: BlockReplay,
    people: _Requests,
    candidates: "_Candidates",
    recording_ns: int,
    parts: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    blocks, number = replay.apply(step), people.of_step(step)
    return _without_empty(
        {
            "n": step.index,
            "kind": step.kind,
            "at": people.microseconds(step.span.start_ns),
            "us": step.span.duration_ns // 1000,
            "recording": recording_ns // 1000,
            "parts": parts.get(step.span.span_id),
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
            "logits": step.logits_shape,
            "sampled": [candidates.row(number(sampled.request_id), sampled) for sampled in step.sampled],
            "error": step.span.error,
        }
    )


class _Candidates:
    """Rows of sampled tokens: `[request, token id, probability, candidates, probability after processors, ...]`."""

    def __init__(self, tokens: dict[int, str]) -> None:
        self._tokens = tokens
        self._room = MOST_CANDIDATES

    def row(self, request: int, sampled: Sampled) -> list[Any]:
        """Return the row of one sampled token; the text of every token goes to the page's token texts."""
        if sampled.token_id is not None and sampled.text is not None:
            self._tokens[sampled.token_id] = sampled.text
        row = [request, sampled.token_id, sampled.probability, self._listed(sampled.candidates)]
        if sampled.processors:
            drawn = [] if sampled.drawn_listed == sampled.listed else self._listed(sampled.drawn_candidates)
            row += [" ".join(sampled.processors), sampled.tokens_left, sampled.drawn_probability, drawn]
        return row

    def _listed(self, candidates: list[tuple[int, str, float]]) -> list[float]:
        """Return `[token id, probability, token id, probability, ...]`."""
        if self._room <= 0:
            return []
        self._room -= len(candidates)
        self._tokens.update((token_id, piece) for token_id, piece, _ in candidates)
        return [value for token_id, _, probability in candidates for value in (token_id, probability)]


def _parts(trace: Trace) -> dict[str, dict[str, int]]:
    """Return the time of each part of a step, in microseconds without the recording's, by the id of its span."""
    found: dict[str, dict[str, int]] = {}
    for name, part in _PARTS.items():
        for span in trace.named(name):
            step: Span | None = span
            while step is not None and step.name != STEP_SPAN:
                step = trace.parent(step)
            if step is not None:
                times = found.setdefault(step.span_id, {})
                times[part] = times.get(part, 0) + (span.duration_ns - span.recording_ns) // 1000
    return found


def _without_empty(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without fields that are empty, None, zero or false: the script takes these for absent ones."""
    return {name: value for name, value in row.items() if value or (value is not None and name in ("at", "us", "free"))}
