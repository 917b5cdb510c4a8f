"""The attributes of requests, messages and steps in a big trace."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["Request", "message_attributes", "request_attributes", "step_attributes"]

_BLOCK = 16  # tokens in a KV block
_BLOCKS = 32_768
_OTHERS = '[7, " seven", 0.01], [8, " eight", 0.008], [9, " nine", 0.005], [5, " five", 0.001]'


@dataclass(eq=False, slots=True)
class Request:
    """A running request: its span, the length of its prompt and the tokens to generate."""

    id: str
    span: Span
    prompt: int
    max_tokens: int
    computed: int = 0
    steps: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens in its next step."""
        return 1 if self.computed else self.prompt

    @property
    def takes_block(self) -> bool:
        """True if its next step needs a KV block."""
        return self.computed == 0 or self.computed % _BLOCK == 0

    @property
    def ends(self) -> bool:
        """True if its next step is its last."""
        return self.steps + 1 >= self.max_tokens


def message_attributes(kind: str, number: int, operation: str) -> dict[str, Any]:
    """Return the attributes of a span that encodes or decodes a message."""
    return {
        names.MESSAGE_SYSTEM: "zeromq",
        names.MESSAGE_OPERATION: operation,
        names.MESSAGE_TYPE: kind,
        names.MESSAGE_ID: f"{kind} {number}",
        names.MESSAGE_BYTES: 312,
        names.MESSAGE_FRAMES: 1,
    }


def request_attributes(request: Request) -> dict[str, Any]:
    """Return the attributes of a request's span."""
    return {
        names.LIFELINE: "request",
        names.LEVEL: "request",
        names.REQUEST_ID: request.id,
        names.GEN_AI_RESPONSE_ID: request.id,
        names.GEN_AI_MODEL: "tiny",
        names.GEN_AI_OPERATION: "text_completion",
        names.REQUEST_PROMPT_TOKENS: list(range(300, 300 + request.prompt)),
        names.GEN_AI_INPUT_TOKENS: request.prompt,
        names.REQUEST_PARAMS: ["temperature=0", f"max_tokens={request.max_tokens}"],
        names.REQUEST_TEXT_PARAMS: [],
        names.REQUEST_PROMPT: f"question {request.id} " * 3,
        names.GEN_AI_MAX_TOKENS: request.max_tokens,
        names.GEN_AI_TEMPERATURE: 0.0,
        names.REQUEST_STEPS: request.steps,
        names.REQUEST_OUTPUT: f" answer {request.id}" * 5,
        names.GEN_AI_OUTPUT_TOKENS: request.steps,
        names.GEN_AI_FINISH_REASONS: ["length" if request.steps >= request.max_tokens else "abort"],
    }


def step_attributes(
    index: int, running: Sequence[Request], joined: Sequence[Request], waiting: Sequence[Request], draw: random.Random
) -> dict[str, Any]:
    """Return the attributes of a step's span, with all that a replay needs."""
    ids = [request.id for request in running]
    tokens = [draw.randrange(4096) for _ in running]
    probabilities = [round(draw.random(), 6) for _ in running]
    ending = [request.id for request in running if request.ends]
    prefills = sum(not request.computed for request in running)
    num_blocks = sum(-(-(request.computed + request.tokens) // _BLOCK) for request in running)
    request_lists = names.STEP_RESUMED, names.STEP_PREEMPTED, names.STEP_RELEASED, names.STEP_ABORTED
    held_lists = names.STEP_HELD, names.STEP_HELD_REASONS, names.STEP_HELD_DETAILS
    return {
        names.STEP_INDEX: index,
        names.STEP_KIND: "decode" if not prefills else "prefill" if prefills == len(running) else "mixed",
        names.STEP_REQUESTS: ids,
        names.STEP_TOKENS: [request.tokens for request in running],
        names.STEP_COMPUTED: [request.computed for request in running],
        names.STEP_PHASES: ["decode" if request.computed else "prefill" for request in running],
        names.STEP_CACHED: [0] * len(running),
        names.STEP_CACHED_BLOCKS: [""] * len(running),
        names.STEP_NEW_BLOCKS: [str(index * 7 % _BLOCKS + 1) if request.takes_block else "" for request in running],
        names.STEP_NEW: [request.id for request in joined],
        names.STEP_RUNNING: ids,
        names.STEP_WAITING: [request.id for request in waiting],
        **{name: [] for name in (*request_lists, *held_lists)},
        names.STEP_BUDGET: 4096,
        names.STEP_BLOCKS_FREE: _BLOCKS - num_blocks,
        names.STEP_BLOCKS_TOTAL: _BLOCKS,
        names.STEP_FINISHED: ending,
        names.STEP_FINISH_REASONS: ["length"] * len(ending),
        names.STEP_LOGITS: [len(running), 4096],
        names.STEP_SAMPLED: ids,
        names.STEP_SAMPLED_IDS: tokens,
        names.STEP_SAMPLED_PROBS: probabilities,
        names.STEP_SAMPLED_TEXTS: [f" token{token}" for token in tokens],
        names.STEP_CANDIDATES: [
            f'[[{token}, " token{token}", {probability}], {_OTHERS}]'
            for token, probability in zip(tokens, probabilities, strict=True)
        ],
    }
