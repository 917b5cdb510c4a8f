"""The workload of a recorded engine: its settings, its requests with their output tokens, and when they came and went.

Time is counted in steps. The steps are divided into periods: one begins when a request arrives and no other is left.
Within a period a request arrives, or is aborted, before the step at which it was in the recording.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracellm.report.facts.engines import EngineFacts
from tracellm.report.facts.startup import KVCache
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import Step, engine_key

__all__ = ["Missing", "Period", "RecordedRequest", "Schedule", "Workload", "read_workload"]

_SETTINGS = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "policy")


class Missing(Exception):
    """The recording lacks what a replay needs; `key` is the key of the text, without its prefix."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


@dataclass(slots=True, eq=False)
class RecordedRequest:
    """A request as it was recorded, with the tokens that were sampled for it.

    `reason` is how it ended in the engine core: stop, length or error; text_stop if the front half found a stop string;
    None if it was aborted or never ended. `num_outputs` of the tokens were its output: under asynchronous scheduling
    one more may have been sampled. In `grammar_steps` steps it waited for its grammar, of the kind `grammar`.
    """

    span: Span
    tokens: list[int | None] = field(default_factory=list)
    num_outputs: int = 0
    reason: str | None = None
    grammar_steps: int = 0
    grammar: str = ""

    @property
    def id(self) -> str:
        """The engine's name of the request."""
        return str(self.span.attributes[names.REQUEST_ID])

    def number(self, name: str) -> int | None:
        """Return an attribute that is a number."""
        value = self.span.attributes.get(name)
        return value if isinstance(value, int) else None

    @property
    def prompt(self) -> list[int]:
        """The recorded token ids of the prompt."""
        return list(self.span.attributes.get(names.REQUEST_PROMPT_TOKENS, ()))

    @property
    def num_prompt(self) -> int:
        """Tokens in the prompt."""
        return self.number(names.GEN_AI_INPUT_TOKENS) or 0

    @property
    def has_all_tokens(self) -> bool:
        """True if all token ids of prompt and output are recorded."""
        return len(self.prompt) == self.num_prompt and None not in self.tokens


@dataclass(slots=True)
class Period:
    """Steps from the arrival of a request, when no other was left, until none is left again.

    `arrivals` and `aborts` are requests by the step before which they come or go, from 0. If `drains`, the engine core
    goes on until its workers have released the last requests, as in a process of its own.
    """

    arrivals: dict[int, list[RecordedRequest]] = field(default_factory=dict)
    aborts: dict[int, list[RecordedRequest]] = field(default_factory=dict)
    drains: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of an engine, recorded or replayed, and its requests in the order of their arrival.

    Each request has the position in `steps` of the step before which it arrived.
    """

    steps: tuple[Step, ...]
    arrivals: tuple[tuple[RecordedRequest, int], ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Settings, periods and schedule of one recorded engine. `settings` have vLLM's names of engine arguments."""

    settings: dict[str, Any]
    chosen: frozenset[str]
    """Settings that the script set itself; the others are defaults."""
    cache: KVCache
    asynchronous: bool
    periods: tuple[Period, ...]
    recorded: Schedule
    vocab_size: int

    @property
    def requests(self) -> list[RecordedRequest]:
        """All requests, in the order of their arrival."""
        return [request for request, _ in self.recorded.arrivals]


def read_workload(trace: Trace, engine: EngineFacts) -> Workload:
    """Return the workload of a recorded engine.

    Raises:
        Missing: the recording lacks settings, requests or schedules, or has images or sounds.
    """
    if engine.cache is None or not all(name in engine.settings for name in _SETTINGS):
        raise Missing("settings")
    if engine.cache.num_groups > 1 and not engine.cache.sliding_windows:
        raise Missing("windows")
    if set(engine.steps[0].running) - set(engine.steps[0].new):
        raise Missing("beginning")
    if any(names.REQUEST_ITEMS in span.attributes for span in trace.named(names.REQUEST_SPAN)):
        raise Missing("items")
    asynchronous = _is_asynchronous(trace, engine)
    requests = _requests(trace, engine)
    periods = _Periods(requests, asynchronous)
    running: dict[str, RecordedRequest] = {}
    for step in engine.steps:
        scheduled = names.STEP_RUNNING in step.span.attributes
        if not scheduled and step.kind != "empty":
            raise Missing("schedules")
        for one, link in zip(step.requests, step.span.links, strict=False):
            if link.span_id not in requests:
                raise Missing("requests")
            running[one.request_id] = requests[link.span_id]
        if not asynchronous:
            _sample(step, running)
        for request_id, reason in step.finished.items():
            if request_id in running:
                running[request_id].reason = reason
                running[request_id].num_outputs = len(running[request_id].tokens)
        if asynchronous:  # the finished requests are of those that the previous step scheduled
            _sample(step, running)
        periods.add(step, scheduled)
    if any(request.reason in ("stop", "length") and not request.num_outputs for request in requests.values()):
        raise Missing("schedules")
    return Workload(
        settings=_settings(engine),
        chosen=engine.chosen,
        cache=engine.cache,
        asynchronous=asynchronous,
        periods=tuple(periods.end()),
        recorded=Schedule(engine.steps, tuple(periods.arrived)),
        vocab_size=max((step.logits_shape[1] for step in engine.steps if len(step.logits_shape) > 1), default=0),
    )


def _is_asynchronous(trace: Trace, engine: EngineFacts) -> bool:
    first = engine.steps[0].span
    found = [
        bool(span.attributes[names.SCHEDULER_ASYNC])
        for span in trace.spans
        if names.SCHEDULER_ASYNC in span.attributes
        and engine_key(span) == engine_key(first)
        and span.start_ns <= first.start_ns
    ]
    return bool(found) and found[-1]


def _settings(engine: EngineFacts) -> dict[str, Any]:
    assert engine.cache is not None
    given = engine.settings
    return {
        "max_num_batched_tokens": int(given["max_num_batched_tokens"]),
        "max_num_seqs": int(given["max_num_seqs"]),
        "num_gpu_blocks_override": engine.cache.num_blocks,
        "block_size": engine.cache.block_size,
        "max_model_len": int(given["max_model_len"]),
        "enable_prefix_caching": engine.prefix_caching,
        "enable_chunked_prefill": given["enable_chunked_prefill"] == "True",
        "scheduling_policy": given["policy"],
        "long_prefill_token_threshold": int(given.get("long_prefill_token_threshold", 0)),
    }


def _requests(trace: Trace, engine: EngineFacts) -> dict[str, RecordedRequest]:
    """Return the engine's requests by the ids of their spans, in the order of submission.

    A request belongs to the engine whose steps link to it. One that was never scheduled belongs to the engine that had
    a request of its id in a queue.
    """
    linked = {link.span_id for step in engine.steps for link in step.span.links}
    elsewhere = {link.span_id for span in trace.named("EngineCore.step_fn") for link in span.links} - linked
    queued = {request_id for step in engine.steps for request_id in (*step.waiting, *step.aborted)}
    return {
        span.span_id: RecordedRequest(span, grammar=_grammar(span))
        for span in trace.named(names.REQUEST_SPAN)
        if span.span_id in linked or (span.span_id not in elsewhere and span.attributes[names.REQUEST_ID] in queued)
    }


def _grammar(span: Span) -> str:
    """Return the kind of constraint that a request's parameters have, such as `json`, or ""."""
    params = map(str, span.attributes.get(names.REQUEST_TEXT_PARAMS, ()))
    return next((param.split("=")[1] for param in params if param.startswith("structured_outputs=")), "")


def _sample(step: Step, running: Mapping[str, RecordedRequest]) -> None:
    for sampled in step.sampled:
        if sampled.request_id in running:
            running[sampled.request_id].tokens.append(sampled.token_id)


class _Periods:
    """Finds the periods from the numbers of requests in the queues, which are recorded even for long queues."""

    def __init__(self, requests: Mapping[str, RecordedRequest], asynchronous: bool) -> None:
        self._in_flight = 1 if asynchronous else 0
        """Tokens sampled for a request that its output lacks when it leaves."""
        self.arrived: list[tuple[RecordedRequest, int]] = []
        self._position = 0
        self._coming = list(requests.values())[::-1]
        self._here: dict[str, RecordedRequest] = {}
        self._periods: list[Period] = []
        self._left = 0
        self._offset = 0

    def add(self, step: Step, scheduled: bool) -> None:
        """Add the next step; one that scheduled nothing new only processed the outputs of the step before."""
        if scheduled:
            self._add_queues(step)
        elif self._periods:
            self._periods[-1].drains = True
        self._left -= len(step.finished)
        for request_id in step.finished:
            self._here.pop(request_id, None)
        self._offset += 1
        self._position += 1

    def _add_queues(self, step: Step) -> None:
        in_queues = len(step.running) + step.num_waiting
        num_arrived = in_queues + len(step.aborted) - self._left
        if num_arrived > len(self._coming):
            raise Missing("requests")
        if num_arrived > 0 and self._left == 0:
            self._periods.append(Period())
            self._offset = 0
        if not self._periods:
            raise Missing("requests")
        arrived = [self._coming.pop() for _ in range(num_arrived)]
        if arrived:
            self._periods[-1].arrivals[self._offset] = arrived
            self.arrived += [(request, self._position) for request in arrived]
            self._here |= {request.id: request for request in arrived}
        for request_id in step.aborted:
            self._leave(self._here.pop(request_id, None))
        for held in step.held:
            if held.reason == "grammar" and held.request_id in self._here:
                self._here[held.request_id].grammar_steps += 1
                self._here[held.request_id].grammar = held.details.removeprefix("kind=")
        self._periods[-1].drains = in_queues == 0
        self._left = in_queues

    def _leave(self, request: RecordedRequest | None) -> None:
        if request is None:
            raise Missing("requests")
        request.num_outputs = len(request.tokens)
        if "stop" in request.span.attributes.get(names.GEN_AI_FINISH_REASONS, ()):
            request.reason = "text_stop"
            request.num_outputs -= self._in_flight
        else:
            self._periods[-1].aborts.setdefault(self._offset, []).append(request)

    def end(self) -> Sequence[Period]:
        """Return the periods. Requests under way at the recording's end leave there."""
        for request in self._here.values():
            request.num_outputs = len(request.tokens)
            self._periods[-1].aborts.setdefault(self._offset, []).append(request)
        return self._periods
