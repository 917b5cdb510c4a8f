"""`MistralToolParser`: calls as Mistral's models write them, `[TOOL_CALLS]` and a JSON list.

vLLM: vllm/entrypoints/openai/tool_parsers/mistral_tool_parser.py::MistralToolParser. Left out: the later form
`[TOOL_CALLS]name{...}`, for which vLLM needs the tokenizer of `mistral_common`.
"""

from __future__ import annotations

from random import choices
from string import ascii_letters, digits
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import EngineError
from tracellm.engine.entrypoints.openai.tool_parsers.abstract_tool_parser import ToolParser
from tracellm.engine.entrypoints.openai.tool_parsers.text_reader import MalformedError, Reading

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["MistralToolParser"]

_START = "[TOOL_CALLS]"


class MistralToolParser(ToolParser):
    """Parser of `[TOOL_CALLS][{"name": ..., "arguments": ...}, ...]`.

    Raises:
        EngineError: The tokenizer has no token `[TOOL_CALLS]`.
    """

    keeps_special_tokens = True

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None) -> None:
        super().__init__(tokenizer)
        if tokenizer is not None and tokenizer.backend_tokenizer.token_to_id(_START) is None:
            raise EngineError("Mistral Tool Parser could not locate the tool call token in the tokenizer!")

    def _make_id(self) -> str:
        """Return nine letters and digits, which Mistral's chat templates require."""
        return "".join(choices(ascii_letters + digits, k=9))

    def _read(self) -> Reading[None]:
        while (yield from self._text_until((_START,))):
            yield from self.reader.skip_space()
            self.reader.mark = self.reader.position
            try:
                yield from self._json_calls()
            except MalformedError:
                self._give_up()
