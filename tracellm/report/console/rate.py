"""Tokens per second over the last steps, for the live views of a terminal and of a notebook."""

from collections import deque

from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["TokenRate"]

_WINDOW_NS = 2_000_000_000


class TokenRate:
    """Prompt and output tokens of the steps that ended in the last two seconds."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int, int]] = deque()  # end, prompt tokens, output tokens of a step

    def add(self, step: Span) -> None:
        """Count the tokens of a step that has ended."""
        tokens = step.attributes.get(names.STEP_TOKENS) or ()
        phases = step.attributes.get(names.STEP_PHASES) or ()
        prompt = sum(n for n, phase in zip(tokens, phases, strict=False) if phase == "prefill")
        sampled = step.attributes.get(names.STEP_SAMPLED)  # absent in a feed that skipped calls
        output = sum(tokens) - prompt if sampled is None else len(sampled)
        self._recent.append((step.end_ns, prompt, output))
        while self._recent[0][0] < step.end_ns - _WINDOW_NS:
            self._recent.popleft()

    def per_second(self) -> tuple[int, int] | None:
        """Return output and prompt tokens per second; None before two steps have ended."""
        if not self._recent or self._recent[0][0] == self._recent[-1][0]:
            return None
        counted = [*self._recent][1:]  # those of the steps after the first end
        seconds = (self._recent[-1][0] - self._recent[0][0]) / 1e9
        prompt, output = (round(sum(row[i] for row in counted) / seconds) for i in (1, 2))
        return output, prompt
