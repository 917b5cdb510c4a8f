"""`ReasoningParser`, the interface of the reasoning parsers, and `ReasoningParserManager`, the table of their names.

In a request's life: the server divides its output with one, and the engine core finds the end of the reasoning.

vLLM: vllm/reasoning/abs_reasoning_parsers.py. Left out: parsers of users. There a parser gets the whole text so far;
here the next piece, and the prompt, which may begin the reasoning or end it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["ReasoningParser", "ReasoningParserManager"]

_PARSERS = {
    "deepseek_r1": ("deepseek_r1_reasoning_parser", "DeepSeekR1ReasoningParser"),
    "qwen3": ("qwen3_reasoning_parser", "Qwen3ReasoningParser"),
}


class ReasoningParser(ABC):
    """Parser of one output's text, or of the tokens of all outputs."""

    @abstractmethod
    def __init__(self, tokenizer: PreTrainedTokenizerFast, prompt: str = "") -> None:
        """Parse an output after this prompt.

        Raises:
            EngineError: The tokenizer lacks the tokens around the reasoning.
        """

    @abstractmethod
    def extract_reasoning(self, model_output: str) -> tuple[str | None, str | None]:
        """Return the reasoning in a complete text, and the content; None where there is none."""

    @abstractmethod
    def extract_reasoning_streaming(self, delta_text: str, *, finished: bool = False) -> tuple[str, str]:
        """Return what the next piece of text adds to the reasoning, and to the content.

        `finished` is for the last piece, which may be empty: the beginning of a mark is ordinary text then.
        """

    @abstractmethod
    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return the number of an output's tokens that are reasoning, without the tokens around it."""

    @abstractmethod
    def prompt_ends_reasoning(self, prompt_token_ids: Sequence[int]) -> bool:
        """Return whether the prompt leaves no reasoning to the output."""

    @abstractmethod
    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Return whether the reasoning ends in these tokens of an output."""


class ReasoningParserManager:
    """Table of the reasoning parsers; each is imported when it is first asked for."""

    @staticmethod
    def get_reasoning_parser(name: str) -> type[ReasoningParser]:
        """Return the class of a parser.

        Raises:
            KeyError: There is no parser of this name.
        """
        if name not in _PARSERS:
            raise KeyError(f"Reasoning parser '{name}' not found.")
        module, class_name = _PARSERS[name]
        parser: type[ReasoningParser] = getattr(import_module(f"{__package__}.{module}"), class_name)
        return parser

    @staticmethod
    def list_registered() -> list[str]:
        """Return the names of all parsers, in alphabetical order."""
        return sorted(_PARSERS)
