"""The requests of a run: prompt, output, tokens with their steps, times, and KV cache blocks.

    request = run.requests[0]
    request.first_token_ms, request.tokens[0].step, request.blocks

vLLM: `Request`, vllm/v1/request.py; the states in `timeline` are those of the scheduler's queues.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from tracellm.notebook.rows import Rows
from tracellm.notebook.steps import RunStep, RunSteps
from tracellm.report.facts.engines import engines
from tracellm.report.facts.requests import RequestFacts, RequestsByStep, RequestTimes, request_times, requests
from tracellm.report.texts import Language, text
from tracellm.report.wording.quantities import percent
from tracellm.report.wording.request_names import request_names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace

__all__ = ["OutputToken", "RunRequest", "RunRequests", "Stage"]


@dataclass(frozen=True, slots=True)
class OutputToken:
    """A sampled token; `step` is the number of the step that sampled it. None for what was not recorded."""

    id: int | None
    text: str | None
    probability: float | None
    step: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps in a row in which a request did the same.

    Attributes:
        kind: `waiting`, `prefill`, `decode`, `preempted`, or `idle`: running, but not scheduled.
        first: number of the first step.
        last: number of the last step.
        tokens: tokens computed in them.
    """

    kind: str
    first: int
    last: int
    tokens: int


class RunRequest:
    """One request; see the module."""

    def __init__(self, trace: Trace, facts: RequestFacts, steps: RunSteps, lang: Language) -> None:
        self._trace = trace
        self._lang: Language = lang
        self._facts = facts
        self._steps = steps

    @property
    def id(self) -> str:
        """Its id."""
        return self._facts.id

    @property
    def name(self) -> str:
        """Its short name, without random digits or the middle of a long id."""
        return request_names(self._trace).shorten(self.id)

    @property
    def prompt(self) -> str | None:
        """The prompt; None in a recording without text."""
        return self._facts.prompt

    @property
    def prompt_token_ids(self) -> list[int]:
        """Token ids of the prompt; empty in a recording without text."""
        return list(self._facts.prompt_token_ids)

    @property
    def num_prompt_tokens(self) -> int | None:
        """Length of the prompt in tokens."""
        return self._facts.input_tokens

    @property
    def output(self) -> str | None:
        """The output; None in a recording without text."""
        return self._facts.output

    @property
    def num_output_tokens(self) -> int | None:
        """Length of the output in tokens."""
        return self._facts.output_tokens

    @property
    def finish_reason(self) -> str | None:
        """`stop`, `length`, `abort` or `error`; None for a request that did not end in the recording."""
        return self._facts.finish_reason

    @property
    def params(self) -> dict[str, str]:
        """Sampling parameters that differ from their defaults, and always max_tokens and temperature."""
        return dict(self._facts.params)

    @property
    def steps(self) -> list[RunStep]:
        """The steps that computed some of it."""
        return [step for step in self._own() if self.id in step.scheduled]

    @property
    def tokens(self) -> Rows[OutputToken]:
        """Its sampled tokens, each with the step that it came from."""
        found = [
            OutputToken(made.token_id, made.text, made.probability, step.number)
            for step in self._own()
            if (made := step.sampled.get(self.id)) is not None
        ]
        heads = [text(self._lang, f"cell.{name}") for name in ("step", "token", "probability")]
        return Rows(found, self._lang, [heads[0], f"{heads[1]}<", "id", heads[2]], _token_cells)

    @property
    def timeline(self) -> Rows[Stage]:
        """Its way through the queues; each chunk of a prefill is a stage."""
        lang: Language = self._lang

        def cells(stage: Stage) -> list[str]:
            steps = f"{stage.first}" if stage.first == stage.last else f"{stage.first}-{stage.last}"
            return [text(lang, f"cell.stage.{stage.kind}"), steps, f"{stage.tokens:,}"]

        heads = [text(lang, f"cell.{name}") for name in ("stage", "steps", "computed")]
        return Rows(_stages(self.id, self._own()), lang, [f"{heads[0]}<", *heads[1:]], cells)

    @property
    def blocks(self) -> list[int]:
        """KV cache blocks that it had in the last step that computed some of it, in the order of its tokens."""
        steps = self.steps
        return steps[-1].kv_blocks.get(self.id, []) if steps else []

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that it found in the prefix cache when it joined."""
        return _counts(self._trace)[0][self.span_id]

    @property
    def num_preemptions(self) -> int:
        """Number of times that it lost its KV cache blocks."""
        return _counts(self._trace)[1][self.span_id]

    @property
    def start_ms(self) -> float:
        """Milliseconds from the start of the run to its submission."""
        return (self._trace.by_id[self.span_id].start_ns - self._trace.spans[0].start_ns) / 1e6

    @property
    def first_token_ms(self) -> float | None:
        """Milliseconds from submission to the first token; None if it got none."""
        return _milliseconds(self._times.first_token)

    @property
    def queued_ms(self) -> float | None:
        """Milliseconds from submission to the start of the first step that computed some of it."""
        return _milliseconds(self._times.queued)

    @property
    def prefill_ms(self) -> float | None:
        """Milliseconds from there to the first token."""
        return _milliseconds(self._times.prefill)

    @property
    def decode_ms(self) -> float | None:
        """Milliseconds from the first token to the last one."""
        return _milliseconds(self._times.decode)

    @property
    def _times(self) -> RequestTimes:
        return _times(self._trace)[self._facts.span_id]

    def _own(self) -> Iterator[RunStep]:
        """Yield the steps in which the id is this request's: ids may be used again."""
        yield from (step for step in self._steps if (found := step.request(self.id)) and found.span_id == self.span_id)

    @property
    def span_id(self) -> str:
        """Id of its span in the recording."""
        return self._facts.span_id

    def __str__(self) -> str:
        """Return the request as text: lengths, times, prompt, output, stages and tokens."""
        from tracellm.notebook.request_table import request_text

        return request_text(self, self._lang)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the same, as text and as HTML without a script."""
        from tracellm.notebook.request_table import request_html

        return {"text/plain": str(self), "text/html": request_html(self, self._lang)}

    def __repr__(self) -> str:
        return f"<request {self.id}: {self.num_prompt_tokens} prompt tokens, {self._facts.output_tokens} output tokens>"


class RunRequests(Sequence[RunRequest]):
    """All requests of a run, in the order of submission: `requests[0]` is the first, `requests["7"]` has the id 7."""

    def __init__(self, trace: Trace, steps: RunSteps, lang: Language) -> None:
        self._lang: Language = lang
        self._requests = [RunRequest(trace, facts, steps, lang) for facts in requests(trace.spans)]

    @overload
    def __getitem__(self, key: int | str) -> RunRequest: ...
    @overload
    def __getitem__(self, key: slice) -> list[RunRequest]: ...
    def __getitem__(self, key: int | str | slice) -> RunRequest | list[RunRequest]:
        """Return the request at a position, from 0, or with an id, or a list for a slice.

        Raises:
            IndexError: there is no request at this position.
            KeyError: no request has this id.
        """
        if isinstance(key, str):
            for request in self._requests:
                if request.id == key:
                    return request
            raise KeyError(f"no request {key!r}: the run has {', '.join(request.id for request in self._requests)}")
        if isinstance(key, slice) or -len(self) <= key < len(self):
            return self._requests[key]
        raise IndexError(f"no request at position {key}: the run has {len(self)} requests")

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[RunRequest]:
        return iter(self._requests)

    def __str__(self) -> str:
        """Return the requests as a table."""
        from tracellm.notebook.request_table import requests_text

        return requests_text(self, self._lang)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the table, as text and as HTML without a script."""
        from tracellm.notebook.request_table import requests_html

        return {"text/plain": str(self), "text/html": requests_html(self, self._lang)}

    def __repr__(self) -> str:
        return f"<{len(self)} requests>"


@per_trace
def _counts(trace: Trace) -> tuple[Counter[str], Counter[str]]:
    """Return the cached prompt tokens and the preemptions of each request, by the id of its span."""
    cached: Counter[str] = Counter()
    preempted: Counter[str] = Counter()
    for engine in engines(trace):
        by_step = RequestsByStep(trace)
        for step in engine.steps:
            by_step.enter(step)
            for scheduled in step.requests:
                if scheduled.request_id in step.new and (request := by_step.get(scheduled.request_id)):
                    cached[request.span_id] += scheduled.prefix_hit_tokens
            preempted.update(request.span_id for id in step.preempted if (request := by_step.get(id)))
    return cached, preempted


@per_trace
def _times(trace: Trace) -> dict[str, RequestTimes]:
    return request_times(trace)


def _token_cells(token: OutputToken) -> list[str]:
    share = "" if token.probability is None else percent(token.probability)
    return [f"{token.step}", "" if token.text is None else repr(token.text), f"{token.id}", share]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _stages(request_id: str, steps: Iterable[RunStep]) -> Iterator[Stage]:
    """Yield the stages of a request; steps of one kind in a row are one, but each chunk of a prefill has its own."""
    now: Stage | None = None
    was_preempted = False
    for step in steps:
        tokens = step.scheduled.get(request_id, 0)
        if tokens:
            kind = step.phases[request_id]
            was_preempted = False
        elif request_id in step.preempted or request_id in step.waiting:
            was_preempted = was_preempted or request_id in step.preempted
            kind = "preempted" if was_preempted else "waiting"
        elif request_id in step.running:
            kind = "idle"
        else:
            continue
        if now is not None and now.kind == kind and kind != "prefill" and now.last == step.number - 1:
            now = Stage(kind, now.first, step.number, now.tokens + tokens)
            continue
        if now is not None:
            yield now
        now = Stage(kind, step.number, step.number, tokens)
    if now is not None:
        yield now
