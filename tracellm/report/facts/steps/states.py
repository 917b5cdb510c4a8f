"""The state of an engine at each of its steps: block tables, slots, tokens and outputs so far.

A recorded step lists what changed; `StepStates` applies the changes one step after the other. The state is that after
the step's scheduling: requests that finish in the step are in the running queue and have their blocks. The page makes
the same in html/js/run/replay.js.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracellm.report.facts.engines import EngineFacts
from tracellm.report.facts.requests import RequestFacts, RequestsByStep
from tracellm.trace.model import Trace
from tracellm.trace.replay import BlockChanges, BlockReplay, CachedBlock
from tracellm.trace.steps import Sampled, ScheduledRequest, Step

__all__ = ["StepState", "StepStates"]


@dataclass(frozen=True, slots=True)
class StepState:
    """One step of an engine.

    Attributes:
        engine: the engine.
        step: what was recorded of the step.
        tables: KV cache blocks of each request, in the order of its tokens.
        cached: blocks that the prefix cache can find, by their ids.
        changes: changes of the KV cache in this step.
        requests: the recorded request behind each id; ids without one are absent.
        outputs: sampled tokens of each request, those of this step included.
    """

    engine: EngineFacts
    step: Step
    tables: Mapping[str, Sequence[int]]
    cached: Mapping[int, CachedBlock]
    changes: BlockChanges
    requests: Mapping[str, RequestFacts]
    outputs: Mapping[str, Sequence[Sampled]]

    def token(self, request_id: str, position: int) -> tuple[int | None, str | None]:
        """Return id and text of a request's token, by its position from 0; None for what was not recorded."""
        request = self.requests.get(request_id)
        if request is None:
            return None, None
        prompt = request.input_tokens or 0
        if position < prompt:
            ids, texts = request.prompt_token_ids, request.prompt_token_texts
            if position >= len(ids):
                return None, None
            return ids[position], texts[position] if position < len(texts) else None
        made = self.outputs.get(request_id, ())
        if position - prompt >= len(made):
            return None, None
        return made[position - prompt].token_id, made[position - prompt].text

    def slot(self, request_id: str, position: int) -> int | None:
        """Return the slot of a token's key and value: block * block size + offset.

        None if its block is unknown, or if groups of layers have tables of their own.
        """
        size = self.engine.block_size
        groups = self.engine.cache.num_groups if self.engine.cache else 1
        table = self.tables.get(request_id, ())
        if not size or groups != 1 or position // size >= len(table):
            return None
        return table[position // size] * size + position % size

    def slots(self, scheduled: ScheduledRequest) -> list[int | None]:
        """Return the slots that the step writes for a request, one for each token that it computes."""
        first = scheduled.num_computed
        return [self.slot(scheduled.request_id, position) for position in range(first, first + scheduled.num_tokens)]

    def output(self, request_id: str) -> str:
        """Return the text of a request's output so far; empty in a recording without text."""
        return "".join(made.text for made in self.outputs.get(request_id, ()) if made.text is not None)


class StepStates:
    """The states of one engine, by the positions of its steps from 0; cheapest in ascending order."""

    def __init__(self, trace: Trace, engine: EngineFacts) -> None:
        self.engine = engine
        self._trace = trace
        self._restart()

    def _restart(self) -> None:
        self._position = -1
        self._replay = BlockReplay(self.engine.block_size, prefix_caching=self.engine.prefix_caching)
        self._requests = RequestsByStep(self._trace)
        self._outputs: dict[str, list[Sampled]] = {}

    def __len__(self) -> int:
        return len(self.engine.steps)

    def at(self, position: int) -> StepState:
        """Return the state of the step at this position.

        Raises:
            IndexError: the engine has no such step.
        """
        if not 0 <= position < len(self):
            raise IndexError(position)
        if position < self._position:
            self._restart()
        while self._position < position:
            self._position += 1
            self._changes = self._advance(self.engine.steps[self._position])
        return self._now()

    def _advance(self, step: Step) -> BlockChanges:
        changes = self._replay.apply(step)
        self._requests.enter(step)
        for request_id in step.new:
            self._outputs.pop(request_id, None)
        for sampled in step.sampled:
            self._outputs.setdefault(sampled.request_id, []).append(sampled)
        return changes

    def _now(self) -> StepState:
        step = self.engine.steps[self._position]
        here = (*step.running, *step.waiting, *self._replay.tables, *self._outputs)
        return StepState(
            self.engine,
            step,
            {request_id: tuple(table) for request_id, table in self._replay.tables.items()},
            dict(self._replay.cached),
            self._changes,
            {id: request for id in dict.fromkeys(here) if (request := self._requests.get(id)) is not None},
            {request_id: tuple(made) for request_id, made in self._outputs.items()},
        )
