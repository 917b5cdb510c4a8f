"""Texts to token ids while others wait: short ones at once, long ones in a thread.

vLLM: vllm/utils/async_utils.py::AsyncMicrobatchTokenizer, which puts everything into a thread, several texts at a time.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from tracellm.engine.frontend.preprocess import InputPreprocessor

__all__ = ["AsyncTokenizer", "EnginePrompt"]

EnginePrompt = dict[str, Any]
"""`{"prompt": text, "prompt_token_ids": [ids]}`."""

_LONG = 1 << 16
"""Characters. A text of that length takes some hundredths of a second."""
_MOST_SPECIAL_TOKENS = 64


class AsyncTokenizer:
    """Tokenizes for the server; one for all of its parts, since two threads must not share a tokenizer."""

    def __init__(self, preprocessor: InputPreprocessor) -> None:
        self.preprocessor = preprocessor
        self._of_the_thread: InputPreprocessor | None = None
        self._one_at_a_time = asyncio.Lock()

    async def tokenize(
        self, text: str, *, add_special_tokens: bool, max_length: int | None = None, bounded: bool = True
    ) -> EnginePrompt:
        """A text as a prompt; of more than `max_length` tokens the last are kept.

        Args:
            text: the text.
            add_special_tokens: put the tokens around it that the tokenizer puts around every text.
            max_length: see above; `None` keeps all.
            bounded: refuse a text that is too long for the model before it is tokenized.

        Raises:
            InvalidRequestError: it is no valid text, or too long.
        """
        if not bounded and max_length is None:
            max_length = len(text.encode(errors="replace")) + _MOST_SPECIAL_TOKENS  # no text has so many tokens

        def tokenize(preprocessor: InputPreprocessor) -> list[int]:
            return preprocessor.tokenize_prompt(text, add_special_tokens=add_special_tokens, max_length=max_length)

        if len(text) <= _LONG:
            token_ids = tokenize(self.preprocessor)
        else:
            async with self._one_at_a_time:
                if self._of_the_thread is None:
                    own = copy.deepcopy(self.preprocessor.tokenizer)
                    self._of_the_thread = InputPreprocessor(self.preprocessor.model_config, own)
                token_ids = await asyncio.to_thread(tokenize, self._of_the_thread)
        return {"prompt": text, "prompt_token_ids": token_ids}
