"""`BaseThinkingReasoningParser`: reasoning between two tokens, such as `<think>` and `</think>`.

vLLM: vllm/reasoning/basic_parsers.py::BaseThinkingReasoningParser. There streams are divided at the tokens and complete
texts at their text, with different results; here both at the text, as for complete texts in vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import EngineError
from tracellm.engine.reasoning.abs_reasoning_parsers import ReasoningParser

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["BaseThinkingReasoningParser", "overlap"]

_MAX_TAIL = 16
"""Tokens of white space that may follow the end of the reasoning in a prompt."""


class BaseThinkingReasoningParser(ReasoningParser):
    """Parser of a text with at most one reasoning part."""

    start_token = "<think>"
    end_token = "</think>"
    starts_in_reasoning: bool
    """True if the text is reasoning without the start token, up to the end token."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, prompt: str = "") -> None:
        self.model_tokenizer = tokenizer
        start, end = map(tokenizer.backend_tokenizer.token_to_id, (self.start_token, self.end_token))
        if start is None or end is None:
            raise EngineError(
                f"{type(self).__name__} reasoning parser could not locate think start/end tokens in the tokenizer! It "
                f"needs {self.start_token} and {self.end_token}: leave out --reasoning-parser, or choose another."
            )
        self.start_token_id: int = start
        self.end_token_id: int = end
        self._in_reasoning = self.starts_in_reasoning
        self._awaited = [self.start_token, self.end_token] if self.starts_in_reasoning else [self.start_token]
        """Tokens that the text may have next; none after the reasoning."""
        if (prompt := prompt.rstrip()).endswith(self.end_token):
            self._in_reasoning, self._awaited = False, []
        elif prompt.endswith(self.start_token):
            self._in_reasoning, self._awaited = True, [self.end_token]
        self._reasoned = self._in_reasoning
        self._at_first = (self._in_reasoning, tuple(self._awaited))
        self._held = ""  # the end of the text, which may begin a token

    def extract_reasoning(self, model_output: str) -> tuple[str | None, str | None]:
        """Return the reasoning and the content of a complete text; None where there is none."""
        reasoning, content = self._split(model_output, finished=True)
        return (reasoning, content or None) if self._reasoned else (None, content)

    def extract_reasoning_streaming(self, delta_text: str, *, finished: bool = False) -> tuple[str, str]:
        """Return what the next piece of text adds to the reasoning, and to the content."""
        return self._split(delta_text, finished)

    def _split(self, new_text: str, finished: bool) -> tuple[str, str]:
        text = self._held + new_text
        parts = {True: "", False: ""}  # by whether it is reasoning
        while found := [(place, token) for token in self._awaited if (place := text.find(token)) >= 0]:
            place, token = min(found)
            parts[self._in_reasoning] += text[:place]
            text = text[place + len(token) :]
            self._in_reasoning = token == self.start_token
            self._awaited = [self.end_token] if self._in_reasoning else []
            self._reasoned = True
        held = 0 if finished else max((overlap(text, token) for token in self._awaited), default=0)
        self._held = text[len(text) - held :]
        parts[self._in_reasoning] += text[: len(text) - held]
        return parts[True], parts[False]

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return the number of an output's tokens that are reasoning, without the start and end tokens.

        vLLM 0.32 counts none for a model that reasons without the start token.
        """
        inside, awaited = self._at_first
        ids = {self.start_token_id: self.start_token, self.end_token_id: self.end_token}
        count = 0
        for token_id in token_ids:
            if ids.get(token_id) in awaited:
                inside = token_id == self.start_token_id
                awaited = (self.end_token,) if inside else ()
            elif inside:
                count += 1
        return count

    def prompt_ends_reasoning(self, prompt_token_ids: Sequence[int]) -> bool:
        """Return whether the prompt ends with the end token, and at most white space after it.

        vLLM looks for the token anywhere, and finds those of earlier messages, too.
        """
        tail = list(prompt_token_ids[-_MAX_TAIL:])
        if self.end_token_id not in tail:
            return False
        after = tail[len(tail) - tail[::-1].index(self.end_token_id) :]
        return not self.model_tokenizer.decode(after).strip()

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Return whether the end token is among these tokens."""
        return self.end_token_id in input_ids


def overlap(text: str, token: str, start: int = 0) -> int:
    """Return the length of the longest end of `text`, from `start`, that may be the beginning of `token`."""
    return next((n for n in range(min(len(token) - 1, len(text) - start), 0, -1) if text.endswith(token[:n])), 0)
