"""Predictions about a run, compared with its recording: the right value, and the reason for it.

    run.predict("blocks", 3, request="1")   # ✗ You said 3. Request 1 has 4 KV cache blocks: 52 tokens, 16 in a block.

The lessons in notebooks/ ask with it. The report page asks its own questions (html/js/steps/questions.js).
"""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from tracellm.cli.errors import CommandError
from tracellm.report.facts.engines import engines
from tracellm.report.texts import Language, text, texts
from tracellm.report.wording.quantities import percent

if TYPE_CHECKING:
    from tracellm.notebook.requests import RunRequest
    from tracellm.notebook.run import Run
    from tracellm.notebook.steps import RunStep

__all__ = ["QUESTIONS", "Answer", "answer"]

MOST_REASONS = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a prediction; a notebook shows it as a sentence.

    Attributes:
        said: the prediction; `...` for none yet.
        value: the recorded value.
        reason: a sentence with the value and its reason.
    """

    said: Any
    value: Any
    reason: str
    lang: Language

    @property
    def right(self) -> bool:
        """True if the prediction is the recorded value."""
        return not isinstance(self.said, EllipsisType) and bool(self.said == self.value)

    def __str__(self) -> str:
        if isinstance(self.said, EllipsisType):
            return text(self.lang, "predict.open")
        key = "predict.right" if self.right else "predict.wrong"
        return text(self.lang, key, said=repr(self.said), reason=self.reason)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the sentence, as text and as HTML."""
        colour = "128,128,128" if isinstance(self.said, EllipsisType) else "0,158,115" if self.right else "213,94,0"
        style = f"border-left:4px solid rgb({colour});padding:4px 12px;margin:4px 0"
        return {"text/plain": str(self), "text/html": f'<div style="{style}">{escape(str(self))}</div>'}


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question about a run, with the request and the step that it is about."""

    run: "Run"
    request_key: int | str | None
    step_number: int | None
    what: str

    @property
    def request(self) -> "RunRequest":
        if self.request_key is None:
            raise CommandError("predict_needs", what=self.what, name="request")
        return self.run.requests[self.request_key]

    @property
    def step(self) -> "RunStep":
        if self.step_number is None:
            raise CommandError("predict_needs", what=self.what, name="step")
        return self.run.steps.number(self.step_number)

    def text(self, **values: Any) -> str:
        return text(self.run.lang, f"predict.{self.what}", **values)

    def more(self, key: str, **values: Any) -> str:
        return text(self.run.lang, f"predict.{key}", **values)


def answer(run: "Run", what: str, said: Any, request: int | str | None, step: int | None) -> Answer:
    """Return the answer to a prediction; `Run.predict` documents it."""
    if what not in QUESTIONS:
        raise CommandError("predict_unknown", what=what, known=", ".join(QUESTIONS))
    value, reason = QUESTIONS[what](_Asked(run, request, step, what))
    return Answer(said, value, reason, run.lang)


def _client(asked: _Asked) -> tuple[str, str]:
    client = asked.run.client
    choice = client.choice if client else ""
    key = f"client.rule.{choice}"
    rule = asked.more("rule", rule=text(asked.run.lang, key)) if key in texts(asked.run.lang) else ""
    return choice, asked.text(client=choice, rule=rule)


def _processes(asked: _Asked) -> tuple[int, str]:
    names = [process.name for process in asked.run.processes]
    return len(names), asked.text(n=len(names), names=", ".join(names))


def _steps(asked: _Asked) -> tuple[int, str]:
    kinds = [step.kind for step in asked.run.steps]
    prefills, decodes = len([kind for kind in kinds if kind in ("prefill", "mixed")]), kinds.count("decode")
    empty = kinds.count("empty")
    more = asked.more("empty", n=empty) if empty else ""
    return len(kinds), asked.text(n=len(kinds), prefills=prefills, decodes=decodes, more=more)


def _batch(asked: _Asked) -> tuple[int, str]:
    step = asked.step
    why = "".join(
        asked.more("because", request=request, why=reason) for request, reason in [*step.reasons.items()][:MOST_REASONS]
    )
    size = len(step.scheduled)
    return size, asked.text(n=size, step=step.number, names=", ".join(step.scheduled), why=why)


def _tokens(asked: _Asked) -> tuple[int, str]:
    step = asked.step
    values = {"n": step.tokens, "budget": step.budget, "prefill": step.prefill, "decode": step.decode}
    return step.tokens, asked.text(step=step.number, **values)


def _blocks(asked: _Asked) -> tuple[int, str]:
    request = asked.request
    steps, blocks = request.steps, request.blocks
    tokens = steps[-1].positions[request.id].stop if steps else 0
    size = engines(asked.run.trace)[steps[-1].engine].block_size if steps else 0
    return len(blocks), asked.text(request=request.id, n=len(blocks), tokens=tokens, size=size)


def _cached(asked: _Asked) -> tuple[int, str]:
    request = asked.request
    steps = request.steps
    hit = steps[0].prefix_hits.get(request.id, 0) if steps else 0
    size = engines(asked.run.trace)[steps[0].engine].block_size if steps else 0
    return hit, asked.text(request=request.id, n=hit, prompt=request.num_prompt_tokens, size=size)


def _waits(asked: _Asked) -> tuple[int, str]:
    request = asked.request
    waited = [stage for stage in request.timeline if stage.kind == "waiting"]
    number = sum(stage.last - stage.first + 1 for stage in waited)
    reason = asked.run.steps.number(waited[-1].last).reasons.get(request.id) if waited else None
    why = asked.more("last", why=reason) if reason else ""
    return number, asked.text(request=request.id, n=number, why=why)


def _preemptions(asked: _Asked) -> tuple[int, str]:
    found = [(step.number, request) for step in asked.run.steps for request in step.preempted]
    listed = "".join(asked.more("preemption", step=step, request=one) for step, one in found)
    return len(found), asked.text(n=len(found), listed=listed)


def _slot(asked: _Asked) -> tuple[int | None, str]:
    step, request = asked.step, asked.request
    size = engines(asked.run.trace)[step.engine].block_size
    slot = step.slot_mapping.get(request.id, [None])[-1]
    if slot is None:
        return None, asked.more("slot.none", request=request.id, step=step.number)
    position = step.positions[request.id].stop - 1
    block, offset = divmod(slot, size)
    return slot, asked.text(position=position, block=block, size=size, offset=offset, slot=slot)


def _token(asked: _Asked) -> tuple[str | None, str]:
    step, request = asked.step, asked.request
    sampled = step.sampled.get(request.id)
    if sampled is None:
        return None, asked.more("token.none", request=request.id, step=step.number)
    share = sampled.probability
    chance = "" if share is None else asked.more("chance", share=percent(share))
    return sampled.text, asked.text(request=request.id, step=step.number, token=repr(sampled.text), chance=chance)


def _finish(asked: _Asked) -> tuple[str | None, str]:
    request = asked.request
    reason = request.finish_reason
    values = {"n": request.num_output_tokens or 0, "params": ", ".join(f"{k}={v}" for k, v in request.params.items())}
    return reason, asked.text(request=request.id, reason=repr(reason), **values)


QUESTIONS: dict[str, Callable[[_Asked], tuple[Any, str]]] = {
    "client": _client,
    "processes": _processes,
    "steps": _steps,
    "batch": _batch,
    "tokens": _tokens,
    "blocks": _blocks,
    "cached": _cached,
    "waits": _waits,
    "preemptions": _preemptions,
    "slot": _slot,
    "token": _token,
    "finish": _finish,
}
"""Functions that return the recorded value and a sentence with its reason, by the names that `Run.predict` takes."""
