"""From whatever form a prompt comes in to token ids. Called by the `Processor`, once a request.

A prompt is a string, `{"prompt": text}`, or `{"prompt_token_ids": [...]}`, to which `"prompt": text` may be added as
the text that the ids stand for.

vLLM: vllm/inputs/preprocess.py::InputPreprocessor. Left out: encoder-decoder models, multimodal input, embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from tracellm.engine.errors import InvalidRequestError, did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["InputPreprocessor", "PromptType", "TokenInputs", "get_prompt_text", "tokenize"]

PromptType: TypeAlias = str | Mapping[str, Any]

_FORMS = 'a string, {"prompt": text} or {"prompt_token_ids": [ids]}'
_KEYS = ("prompt", "prompt_token_ids")


class TokenInputs(TypedDict):
    """A prompt ready for the model."""

    prompt_token_ids: list[int]


def get_prompt_text(prompt: PromptType) -> str | None:
    """The text of a prompt that `InputPreprocessor` accepted; `None` when it came as token ids alone."""
    return prompt if isinstance(prompt, str) else prompt.get("prompt")


class InputPreprocessor:
    """Tells the forms of a prompt apart and tokenizes text."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer

    def preprocess(self, prompt: PromptType) -> TokenInputs:
        """Turn a prompt into token ids.

        Raises:
            InvalidRequestError: it has none of the forms above.
        """
        return self._process_decoder_only_prompt(prompt)

    def get_eos_token_id(self) -> int | None:
        """The tokenizer's end-of-sequence token."""
        return self.tokenizer.eos_token_id

    def _process_decoder_only_prompt(self, prompt: PromptType) -> TokenInputs:
        return self._prompt_to_llm_inputs(prompt)

    def _prompt_to_llm_inputs(self, prompt: PromptType) -> TokenInputs:
        if isinstance(prompt, str):
            return self._process_text(prompt)
        if not isinstance(prompt, Mapping):
            hint = ""
            if isinstance(prompt, bytes):
                hint = " Decode bytes to text first."
            elif isinstance(prompt, int) or (
                isinstance(prompt, (list, tuple)) and prompt and all(isinstance(item, int) for item in prompt)
            ):
                hint = ' Write token ids as {"prompt_token_ids": [...]}.'
            raise InvalidRequestError(f"The prompt must be {_FORMS}, got {_describe(prompt)}.{hint}")
        for key in prompt:
            if key not in _KEYS:
                hint = did_you_mean(str(key), _KEYS)
                raise InvalidRequestError(f"The prompt has a key {key!r} that is not known.{hint} It must be {_FORMS}.")
        text = prompt.get("prompt")
        if text is not None and not isinstance(text, str):
            raise InvalidRequestError(f'"prompt" must be a string, got {_describe(text)}.')
        if "prompt_token_ids" in prompt:
            return self._process_tokens(prompt["prompt_token_ids"])
        if text is None:
            raise InvalidRequestError(f"The prompt must be {_FORMS}, got {_describe(prompt)}.")
        return self._process_text(text)

    def _process_text(self, text: str) -> TokenInputs:
        return TokenInputs(prompt_token_ids=self._tokenize_prompt(text))

    def _process_tokens(self, token_ids: Sequence[int]) -> TokenInputs:
        if not isinstance(token_ids, (list, tuple)):
            raise InvalidRequestError(f'"prompt_token_ids" must be a list of token ids, got {_describe(token_ids)}.')
        for position, token in enumerate(token_ids):
            if not isinstance(token, int) or isinstance(token, bool):
                raise InvalidRequestError(
                    f'"prompt_token_ids" must be a list of token ids, got {_describe(token)} at position {position}.'
                )
        return TokenInputs(prompt_token_ids=list(token_ids))

    def _tokenize_prompt(self, text: str) -> list[int]:
        return tokenize(self.tokenizer, text)


def tokenize(tokenizer: PreTrainedTokenizerFast, text: str, *, add_special_tokens: bool = True) -> list[int]:
    """Text to token ids; with `add_special_tokens` among them those that the tokenizer puts around every text.

    Raises:
        InvalidRequestError: the string cannot be encoded as UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"The prompt is not valid text: half a surrogate pair ({text[error.start]!a}), position {error.start}. "
            'Read it with encoding="utf-8", or with errors="replace".'
        ) from None
    return tokenizer.encode(text, add_special_tokens=add_special_tokens, verbose=False)


def _describe(value: object) -> str:
    """A value's type and how it begins, for a message."""
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
