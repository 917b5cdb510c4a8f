"""The steps of a run: what ran, what waited and why, the token budget, KV cache blocks, slots and sampled tokens.

    step = run.steps[3]         # the fourth step; `step.number` is its number in the report
    step.waiting, step.reasons  # ['2'], {'2': '4 requests are already running, max_num_seqs is 4'}

The state is that after the step's scheduling, as on the report page: a request that finishes in the step is running and
has its blocks. vLLM: `EngineCore.step`, vllm/v1/engine/core.py, and `SchedulerOutput`, vllm/v1/core/sched/output.py.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from tracellm.notebook.text import Text
from tracellm.report.facts.engines import engines
from tracellm.report.facts.requests import RequestFacts
from tracellm.report.facts.steps.parts import parts_by_step
from tracellm.report.facts.steps.states import StepState, StepStates
from tracellm.report.step_text import step_text
from tracellm.report.texts import Language
from tracellm.report.wording.changes import held_reason
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.steps import Sampled, sampled_in_order

__all__ = ["Batch", "RunStep", "RunSteps"]


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch that the model runner builds for a step, of T tokens in N requests; None for what was not recorded.

    Attributes:
        requests: ids of the N requests, in the order of scheduling; rows of the model runner may have another order.
        input_ids: T token ids.
        positions: T positions in their requests, from 0.
        slot_mapping: T slots that the step writes: KV cache block * block size + offset.
        query_start_loc: N + 1 indexes: request i has the tokens from entry i to entry i + 1.
        seq_lens: N lengths, the step's tokens included.
        block_table: N lists of KV cache blocks.
    """

    requests: list[str]
    input_ids: list[int | None]
    positions: list[int]
    slot_mapping: list[int | None]
    query_start_loc: list[int]
    seq_lens: list[int]
    block_table: list[list[int]]


class RunStep:
    """One step of an engine; see the module."""

    def __init__(self, trace: Trace, states: StepStates, position: int, engine: int, lang: Language) -> None:
        self._trace = trace
        self._states = states
        self._step = states.engine.steps[position]
        self._position = position
        self._lang: Language = lang
        self.engine = engine
        """Index of its engine in the run, from 0."""

    @cached_property
    def _state(self) -> StepState:
        return self._states.at(self._position)

    @property
    def number(self) -> int:
        """Its number in the report and in `tracellm show RUN step N`, from 1."""
        return self._step.index

    @property
    def span_id(self) -> str:
        """Id of its span in the recording."""
        return self._step.span.span_id

    @property
    def kind(self) -> str:
        """`prefill`, `decode`, `mixed`, `empty`, or `unknown` if its scheduling was not recorded."""
        return self._step.kind

    @property
    def start_ms(self) -> float:
        """Milliseconds from the start of the run."""
        return (self._step.span.start_ns - self._trace.spans[0].start_ns) / 1e6

    @property
    def duration_ms(self) -> float:
        """Milliseconds in `EngineCore.step_fn`."""
        return self._step.span.duration_ns / 1e6

    @property
    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of each part of the step: schedule, forward, sample and others."""
        parts = parts_by_step(self._trace).get(self._step.span.span_id, {})
        return {part: time / 1e6 for part, time in parts.items()}

    # -- scheduling ----------------------------------------------------------------------------------------------------

    @property
    def budget(self) -> int:
        """Tokens that the step may compute at most: max_num_batched_tokens."""
        return self._step.token_budget

    @property
    def tokens(self) -> int:
        """Tokens that it computes."""
        return self._step.num_tokens

    @property
    def prefill(self) -> int:
        """Tokens of prefills among them."""
        return self.tokens - self.decode

    @property
    def decode(self) -> int:
        """Tokens of decodes among them."""
        return sum(request.num_tokens for request in self._step.requests if request.phase == "decode")

    @property
    def scheduled(self) -> dict[str, int]:
        """Tokens of each scheduled request."""
        return {request.request_id: request.num_tokens for request in self._step.requests}

    @property
    def phases(self) -> dict[str, str]:
        """Phase of each scheduled request: `prefill` or `decode`."""
        return {request.request_id: request.phase for request in self._step.requests}

    @property
    def positions(self) -> dict[str, range]:
        """Positions that the step computes of each scheduled request, from 0."""
        return {
            request.request_id: range(request.num_computed, request.num_computed + request.num_tokens)
            for request in self._step.requests
        }

    @property
    def running(self) -> list[str]:
        """Ids of the requests in the running queue, in its order."""
        return list(self._step.running)

    @property
    def waiting(self) -> list[str]:
        """Ids of the requests in the waiting queue, in its order; of a long queue the beginning."""
        return list(self._step.waiting)

    @property
    def num_waiting(self) -> int:
        """Length of the waiting queue."""
        return self._step.num_waiting

    @property
    def reasons(self) -> dict[str, str]:
        """The reason for each request that was not scheduled, or got fewer tokens than it needed, as a sentence."""
        return {
            held.request_id: held_reason(held.reason, held.details, self._lang, held.request_id)
            for held in self._step.held
        }

    @property
    def reason_codes(self) -> dict[str, str]:
        """The same reasons as codes, such as `max_num_seqs`."""
        return {held.request_id: held.reason for held in self._step.held}

    @property
    def new(self) -> list[str]:
        """Ids of the requests that joined in this step."""
        return list(self._step.new)

    @property
    def resumed(self) -> list[str]:
        """Ids of the preempted requests that came back."""
        return list(self._step.resumed)

    @property
    def preempted(self) -> list[str]:
        """Ids of the requests that lost their KV cache blocks."""
        return list(self._step.preempted)

    @property
    def finished(self) -> dict[str, str]:
        """Finish reason of each request that ended in this step."""
        return dict(self._step.finished)

    @property
    def prefix_hits(self) -> dict[str, int]:
        """Prompt tokens found in the prefix cache in this step, for each request that has any."""
        return {request.request_id: hits for request in self._step.requests if (hits := request.prefix_hit_tokens)}

    # -- KV cache and batch --------------------------------------------------------------------------------------------

    @property
    def kv_blocks(self) -> dict[str, list[int]]:
        """KV cache blocks of each request, in the order of its tokens."""
        return {request_id: list(table) for request_id, table in self._state.tables.items()}

    @property
    def new_blocks(self) -> dict[str, list[int]]:
        """KV cache blocks that each request got in this step."""
        return {request.request_id: list(blocks) for request in self._step.requests if (blocks := request.new_blocks)}

    @property
    def free_blocks(self) -> int:
        """KV cache blocks that no request has."""
        return self._step.blocks_free

    @property
    def total_blocks(self) -> int:
        """KV cache blocks that requests can have: all but the null block."""
        return self._step.blocks_total

    @property
    def cached_blocks(self) -> list[int]:
        """KV cache blocks that the prefix cache can find, in use or free."""
        return sorted(self._state.cached)

    @property
    def slot_mapping(self) -> dict[str, list[int | None]]:
        """Slots that the step writes for each scheduled request; None for those that were not recorded."""
        return {request.request_id: self._state.slots(request) for request in self._step.requests}

    @property
    def batch(self) -> Batch:
        """The batch of the model runner."""
        scheduled = self._step.requests
        places = [
            (request.request_id, request.num_computed + offset)
            for request in scheduled
            for offset in range(request.num_tokens)
        ]
        starts = [0]
        for request in scheduled:
            starts.append(starts[-1] + request.num_tokens)
        return Batch(
            requests=[request.request_id for request in scheduled],
            input_ids=[self._state.token(*place)[0] for place in places],
            positions=[position for _, position in places],
            slot_mapping=[self._state.slot(*place) for place in places],
            query_start_loc=starts,
            seq_lens=[request.num_computed + request.num_tokens for request in scheduled],
            block_table=[list(self._state.tables.get(request.request_id, ())) for request in scheduled],
        )

    # -- tokens --------------------------------------------------------------------------------------------------------

    @property
    def sampled(self) -> dict[str, Sampled]:
        """The sampled token of each request: id, text, probability, and the likeliest candidates."""
        return {sampled.request_id: sampled for sampled in sampled_in_order(self._step)}

    @property
    def outputs(self) -> dict[str, str]:
        """Text of each request's output so far; empty in a recording without text."""
        return {request_id: self._state.output(request_id) for request_id in self._state.outputs}

    def request(self, request_id: str) -> RequestFacts | None:
        """Return the recorded request that has this id in the step, if any."""
        return self._state.requests.get(request_id)

    # -- display -------------------------------------------------------------------------------------------------------

    def text(self, width: int = 100) -> str:
        """Return the step as text, as `tracellm show RUN step N` prints it, lines of at most `width` columns."""
        return step_text(self._trace, self.number, lang=self._lang, width=width)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the step as text, and as HTML without a script."""
        from tracellm.notebook.step_picture import step_html

        order = [str(span.attributes.get(names.REQUEST_ID, "")) for span in self._trace.named(names.REQUEST_SPAN)]
        return {"text/plain": self.text(), "text/html": step_html(self, order, self._lang)}

    def __repr__(self) -> str:
        """Return one line: number, kind, tokens and queues."""
        return (
            f"<step {self.number}: {self.kind}, {self.tokens} tokens of {len(self._step.requests)} requests, "
            f"{self.num_waiting} waiting>"
        )


class RunSteps(Sequence[RunStep]):
    """All steps of a run, engine by engine, in the order they ran: `steps[0]` is the first, `number(7)` step 7."""

    def __init__(self, trace: Trace, lang: Language, table: Callable[[], str]) -> None:
        self._table = table
        self._lang: Language = lang
        self._steps = [
            RunStep(trace, states, position, engine, lang)
            for engine, facts in enumerate(engines(trace))
            for states in [StepStates(trace, facts)]
            for position in range(len(states))
        ]

    @overload
    def __getitem__(self, index: int) -> RunStep: ...
    @overload
    def __getitem__(self, index: slice) -> list[RunStep]: ...
    def __getitem__(self, index: int | slice) -> RunStep | list[RunStep]:
        """Return the step at a position, from 0, or a list for a slice.

        Raises:
            IndexError: there is no such step.
        """
        if isinstance(index, slice) or -len(self) <= index < len(self):
            return self._steps[index]
        raise IndexError(f"no step at position {index}: the run has {len(self)} steps, at 0 to {len(self) - 1}")

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[RunStep]:
        return iter(self._steps)

    def number(self, number: int) -> RunStep:
        """Return the step with this number in the report; of several engines, the first that has it.

        Raises:
            KeyError: no engine has such a step.
        """
        for step in self._steps:
            if step.number == number:
                return step
        raise KeyError(f"no step {number}: the run has {len(self)} steps")

    def __str__(self) -> str:
        """Return the table of the steps, as `tracellm show RUN steps` prints it."""
        return self._table()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the table, as text and as HTML."""
        return Text(str(self), self._lang)._repr_mimebundle_()

    def __repr__(self) -> str:
        return f"<{len(self)} steps>"
