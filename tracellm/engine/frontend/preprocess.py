"""From whatever form a prompt comes in to token ids. Called by the `Processor`, once a request.

A prompt is a string, `{"prompt": text}`, or `{"prompt_token_ids": [...]}`, to which `"prompt": text` may be added as
the text that the ids stand for. With `truncate_prompt_tokens` only the last tokens of a text are kept; token ids, and
so the conversations of `LLM.chat`, are taken as they are, as in vLLM 0.11.1.

vLLM: vllm/inputs/preprocess.py::InputPreprocessor. Left out: encoder-decoder models, multimodal input, embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from tracellm.engine.config.errors import InvalidRequestError, did_you_mean
from tracellm.engine.config.vllm_config import ModelConfig
from tracellm.engine.frontend.prompt_bounds import PromptBounds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["InputPreprocessor", "PromptType", "TokenInputs", "get_prompt_text"]

PromptType: TypeAlias = str | Mapping[str, Any]

_FORMS = 'a string, {"prompt": text} or {"prompt_token_ids": [ids]}'
_KEYS = ("prompt", "prompt_token_ids")
_NOT_HERE = ("cache_salt", "mm_processor_kwargs", "multi_modal_data", "multi_modal_uuids", "prompt_embeds")
_SELDOM_LONGER = 8  # characters of a token; shorter texts are tokenized without asking for their bounds


class TokenInputs(TypedDict):
    """A prompt ready for the model."""

    prompt_token_ids: list[int]


def get_prompt_text(prompt: PromptType) -> str | None:
    """The text of a prompt that `InputPreprocessor` accepted; `None` when it came as token ids alone."""
    return prompt if isinstance(prompt, str) else prompt.get("prompt")


class InputPreprocessor:
    """Tells the forms of a prompt apart, tokenizes text, and truncates."""

    def __init__(self, model_config: ModelConfig, tokenizer: PreTrainedTokenizerFast | None) -> None:
        """Without a tokenizer (`skip_tokenizer_init`), prompts must be token ids."""
        self.model_config = model_config
        self.tokenizer = tokenizer

    def preprocess(self, prompt: PromptType, max_length: int | None = None) -> TokenInputs:
        """Turn a prompt into token ids; of a text, the last `max_length` are kept.

        Raises:
            InvalidRequestError: it has none of the forms above, or is text that is far too long.
        """
        return self._process_decoder_only_prompt(prompt, max_length)

    def get_eos_token_id(self) -> int | None:
        """The tokenizer's end-of-sequence token; `None` without a tokenizer."""
        return None if self.tokenizer is None else self.tokenizer.eos_token_id

    @cached_property
    def _bounds(self) -> PromptBounds:
        assert self.tokenizer is not None
        return PromptBounds(self.tokenizer)

    def _process_decoder_only_prompt(self, prompt: PromptType, max_length: int | None) -> TokenInputs:
        return self._prompt_to_llm_inputs(prompt, max_length)

    def _prompt_to_llm_inputs(self, prompt: PromptType, max_length: int | None) -> TokenInputs:
        if isinstance(prompt, str):
            return self._process_text(prompt, max_length)
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
            if key in _NOT_HERE:
                if prompt[key] is None:
                    continue
                raise InvalidRequestError(
                    f"The prompt has {key!r}, for what vLLM has and tracellm does not: leave it out. "
                    f"It must be {_FORMS}."
                )
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
        return self._process_text(text, max_length)

    def _process_text(self, text: str, max_length: int | None) -> TokenInputs:
        return TokenInputs(prompt_token_ids=self.tokenize_prompt(text, max_length=max_length))

    def _process_tokens(self, token_ids: Sequence[int]) -> TokenInputs:
        if not isinstance(token_ids, (list, tuple)):
            raise InvalidRequestError(f'"prompt_token_ids" must be a list of token ids, got {_describe(token_ids)}.')
        for position, token in enumerate(token_ids):
            if not isinstance(token, int) or isinstance(token, bool):
                raise InvalidRequestError(
                    f'"prompt_token_ids" must be a list of token ids, got {_describe(token)} at position {position}.'
                )
        return TokenInputs(prompt_token_ids=list(token_ids))

    def tokenize_prompt(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[int]:
        """Text to token ids; with `add_special_tokens` among them those that the tokenizer puts around every text.

        Of more than `max_length`, special tokens among them, the first are dropped.

        Raises:
            InvalidRequestError: the string cannot be encoded as UTF-8, or has so many characters that it cannot fit;
                or there is no tokenizer.
        """
        if self.tokenizer is None:
            raise InvalidRequestError(
                "The prompt is text, but the LLM was made with skip_tokenizer_init=True: "
                'write it as {"prompt_token_ids": [ids]}.'
            )
        _check_encoding(text)
        if max_length is None:
            self._check_bounds(text)
        return self.tokenizer.encode(
            text,
            add_special_tokens=add_special_tokens,
            truncation=max_length is not None,
            max_length=max_length,
            verbose=False,
        )

    def _check_bounds(self, text: str) -> None:
        limit = self.model_config.max_model_len
        if len(text) <= _SELDOM_LONGER * limit:
            return
        at_least = self._bounds.min_num_tokens(text)
        if at_least > limit:
            raise InvalidRequestError(
                f"The prompt has {len(text)} characters, which are at least {at_least} tokens (none is longer than "
                f"{self._bounds.longest_token} bytes), but the model's length (`max_model_len`) is {limit}. "
                "Shorten the prompt."
            )


def _check_encoding(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"The prompt is not valid text: half a surrogate pair ({text[error.start]!a}), position {error.start}. "
            'Read it with encoding="utf-8", or with errors="replace".'
        ) from None


def _describe(value: object) -> str:
    """A value's type and how it begins, for a message."""
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
