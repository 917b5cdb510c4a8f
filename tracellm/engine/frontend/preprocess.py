"""Preprocessing of prompts: from any accepted form to token ids. The `Processor` calls it once per request.

A prompt is a string, `{"prompt": text}`, or `{"prompt_token_ids": [...]}`, optionally with `"prompt"` as the ids' text.
`"multi_modal_data"` beside them has images and sounds, for which the text has placeholders. `"cache_salt"` keeps the
prompt's cached blocks for prompts with the same salt.
`truncate_prompt_tokens` applies to text only; token ids, and so the conversations of `LLM.chat`, are taken unchanged,
as in vLLM 0.11.1.

vLLM: vllm/inputs/preprocess.py::InputPreprocessor. Left out: encoder-decoder models, embeddings.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from tracellm.engine.config.errors import InvalidRequestError, did_you_mean
from tracellm.engine.config.vllm_config import ModelConfig
from tracellm.engine.multimodal.registry import MULTIMODAL_REGISTRY

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.multimodal.processing import BaseMultiModalProcessor, MultiModalInputs

__all__ = ["InputPreprocessor", "PromptBounds", "PromptType", "TokenInputs", "get_prompt_text"]

PromptType: TypeAlias = str | Mapping[str, Any]

_FORMS = 'a string, {"prompt": text} or {"prompt_token_ids": [ids]}'
_MULTIMODAL_KEYS = ("multi_modal_data", "mm_processor_kwargs", "multi_modal_uuids")
_KEYS = ("prompt", "prompt_token_ids", "cache_salt", *_MULTIMODAL_KEYS)
_UNSUPPORTED_KEYS = ("prompt_embeds",)
_CHARS_PER_TOKEN = 8  # per token of the model's length; shorter texts are tokenized without a check
_SPLITTERS = ("ByteLevel", "Digits", "Split")  # pre-tokenizers that keep all of a text, unless Split removes


class TokenInputs(TypedDict):
    """Prompt as token ids."""

    prompt_token_ids: list[int]


def get_prompt_text(prompt: PromptType) -> str | None:
    """Return the text of an accepted prompt; None for token ids alone."""
    return prompt if isinstance(prompt, str) else prompt.get("prompt")


class InputPreprocessor:
    """Converts prompts to token ids; used by the `Processor`."""

    def __init__(self, model_config: ModelConfig, tokenizer: PreTrainedTokenizerFast | None) -> None:
        """Create it; without a tokenizer (`skip_tokenizer_init`), prompts must be token ids."""
        self.model_config = model_config
        self.tokenizer = tokenizer

    @cached_property
    def mm_processor(self) -> BaseMultiModalProcessor | None:
        """Processor of images and sounds; None for a text model."""
        if self.model_config.multimodal_config is None:
            return None
        return MULTIMODAL_REGISTRY.create_processor(self.model_config, self.tokenizer)

    def preprocess(self, prompt: PromptType, max_length: int | None = None) -> TokenInputs | MultiModalInputs:
        """Convert a prompt to token ids; a text is cut to its last `max_length` tokens, or its first for pooling.

        Raises:
            InvalidRequestError: the prompt has no accepted form, or is text of far too many characters, or an image or
                a sound cannot be used.
        """
        return self._process_decoder_only_prompt(prompt, max_length)

    def has_items(self, prompt: PromptType) -> bool:
        """Return whether a prompt has images or sounds that the model may take."""
        return self.mm_processor is not None and isinstance(prompt, Mapping) and bool(prompt.get("multi_modal_data"))

    def tokenize_beside_items(self, prompt: PromptType) -> PromptType:
        """Return a prompt with images or sounds as token ids, so that a thread can do the rest.

        Raises:
            InvalidRequestError: the prompt has no accepted form.
        """
        _validate_prompt(prompt)
        assert isinstance(prompt, Mapping)
        if "prompt_token_ids" in prompt:
            return prompt
        return {**prompt, "prompt_token_ids": self.tokenize_prompt(prompt["prompt"])}

    def get_eos_token_id(self) -> int | None:
        """Return the tokenizer's end-of-sequence token; None without a tokenizer."""
        return None if self.tokenizer is None else self.tokenizer.eos_token_id

    @cached_property
    def _bounds(self) -> PromptBounds:
        assert self.tokenizer is not None
        return PromptBounds(self.tokenizer)

    def _process_decoder_only_prompt(
        self, prompt: PromptType, max_length: int | None
    ) -> TokenInputs | MultiModalInputs:
        return self._prompt_to_llm_inputs(prompt, max_length)

    def _prompt_to_llm_inputs(self, prompt: PromptType, max_length: int | None) -> TokenInputs | MultiModalInputs:
        _validate_prompt(prompt)
        if isinstance(prompt, str):
            return self._process_text({"prompt": prompt}, max_length)
        if "prompt_token_ids" in prompt:
            return self._process_tokens(prompt, max_length)
        return self._process_text(prompt, max_length)

    def _process_text(self, prompt: Mapping[str, Any], max_length: int | None) -> TokenInputs | MultiModalInputs:
        return self._with_items(prompt, self.tokenize_prompt(prompt["prompt"], max_length=max_length), max_length)

    def _process_tokens(self, prompt: Mapping[str, Any], max_length: int | None) -> TokenInputs | MultiModalInputs:
        token_ids = prompt["prompt_token_ids"]
        if not isinstance(token_ids, (list, tuple)):
            raise InvalidRequestError(f'"prompt_token_ids" must be a list of token ids, got {_describe(token_ids)}.')
        for position, token in enumerate(token_ids):
            if not isinstance(token, int) or isinstance(token, bool):
                raise InvalidRequestError(
                    f'"prompt_token_ids" must be a list of token ids, got {_describe(token)} at position {position}.'
                )
        return self._with_items(prompt, list(token_ids), max_length)

    def _with_items(
        self, prompt: Mapping[str, Any], token_ids: list[int], max_length: int | None
    ) -> TokenInputs | MultiModalInputs:
        """Add the prompt's images and sounds to its tokens, if it has any."""
        if prompt.get("multi_modal_data"):
            return self._process_multimodal(prompt, token_ids, max_length)
        if self.mm_processor is not None:
            self.mm_processor.validate_placeholders(token_ids, {})
        return TokenInputs(prompt_token_ids=token_ids)

    def _process_multimodal(
        self, prompt: Mapping[str, Any], token_ids: list[int], max_length: int | None
    ) -> MultiModalInputs:
        """Process the images and sounds of a prompt with these tokens.

        Raises:
            InvalidRequestError: the model takes none, an item cannot be used, or the prompt would be cut.
        """
        if self.mm_processor is None:
            raise InvalidRequestError(
                f'The prompt has "multi_modal_data", but the model `{self.model_config.served_model_name}` takes text '
                "only."
            )
        if max_length is not None:
            raise InvalidRequestError("`truncate_prompt_tokens` cannot be used for a prompt with images or sounds.")
        mm_kwargs = self.mm_processor.config.mm_processor_kwargs | dict(prompt.get("mm_processor_kwargs") or {})
        return self.mm_processor.apply(
            token_ids, prompt["multi_modal_data"], mm_kwargs, prompt.get("multi_modal_uuids")
        )

    def tokenize_prompt(
        self, text: str, *, add_special_tokens: bool = True, max_length: int | None = None
    ) -> list[int]:
        """Tokenize a text.

        Args:
            text: the text.
            add_special_tokens: add those that the tokenizer puts around every text.
            max_length: maximum number of tokens, special ones included; the first are dropped, or for pooling the last.

        Raises:
            InvalidRequestError: the text is not valid Unicode or has too many characters to fit, or there is no
                tokenizer.
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
        if len(text) <= _CHARS_PER_TOKEN * limit:
            return
        at_least = self._bounds.min_num_tokens(text)
        if at_least > limit:
            raise InvalidRequestError(
                f"This model's maximum context length is {limit} tokens. However, your request has at least {at_least} "
                f"input tokens, as its prompt has {len(text)} characters, and no token is longer than "
                f"{self._bounds.longest_token} bytes. Shorten the prompt."
            )


def _validate_prompt(prompt: object) -> None:
    """Check that a prompt has an accepted form; `_process_tokens` checks the token ids."""
    if isinstance(prompt, str):
        return
    if not isinstance(prompt, Mapping):
        hint = ""
        if isinstance(prompt, bytes):
            hint = " Decode bytes to text first."
        elif isinstance(prompt, int) or (
            isinstance(prompt, (list, tuple)) and prompt and all(isinstance(item, int) for item in prompt)
        ):
            hint = ' Write token ids as {"prompt_token_ids": [...]}.'
        raise InvalidRequestError(f"The prompt must be {_FORMS}, got {_describe(prompt)}.{hint}")
    for key, value in prompt.items():
        if key in _UNSUPPORTED_KEYS and value is not None:
            raise InvalidRequestError(
                f"The prompt has {key!r}, which vLLM supports and tracellm does not: leave it out. It must be {_FORMS}."
            )
        if key not in _KEYS + _UNSUPPORTED_KEYS:
            hint = did_you_mean(str(key), _KEYS)
            raise InvalidRequestError(f"The prompt has an unknown key {key!r}.{hint} It must be {_FORMS}.")
    for key in _MULTIMODAL_KEYS:
        if not isinstance(prompt.get(key) or {}, Mapping):
            raise InvalidRequestError(f'"{key}" must be a dict, got {_describe(prompt[key])}.')
    salt = prompt.get("cache_salt")
    if salt is not None and not (isinstance(salt, str) and salt):
        raise InvalidRequestError(f'"cache_salt" must be a string, not empty, got {_describe(salt)}.')
    _check_encoding(salt or "")
    text = prompt.get("prompt")
    if text is None and "prompt_token_ids" not in prompt:
        raise InvalidRequestError(f"The prompt must be {_FORMS}, got {_describe(prompt)}.")
    if text is not None and not isinstance(text, str):
        raise InvalidRequestError(f'"prompt" must be a string, got {_describe(text)}.')


def _check_encoding(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"The prompt is not valid text: half a surrogate pair ({text[error.start]!a}), position {error.start}. "
            'Read it with encoding="utf-8", or with errors="replace".'
        ) from None


def _describe(value: object) -> str:
    """Return a value's type and beginning, for a message."""
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


class PromptBounds:
    """Lower bound on the number of tokens of a text, so a prompt that is far too long is rejected untokenized.

    A byte-level tokenizer covers each byte by a token: a text has at least its bytes divided by the longest token's.
    vLLM does the same since vllm/renderers/params.py (`max_chars_per_token`); 0.11.1 tokenizes every prompt.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        from tokenizers.pre_tokenizers import ByteLevel

        backend = tokenizer.backend_tokenizer
        normalizers = _parts(backend.normalizer, "normalizers")
        splitters = _parts(backend.pre_tokenizer, "pretokenizers")
        added_tokens = list(backend.get_added_tokens_decoder().values())
        vocabulary = backend.get_vocab()
        covers_every_byte = (
            all(part["type"] == "NFC" for part in normalizers)
            and all(part["type"] in _SPLITTERS and part.get("behavior") != "Removed" for part in splitters)
            and any(part["type"] == "ByteLevel" for part in splitters)
            and not any(token.lstrip or token.rstrip for token in added_tokens)  # they swallow spaces
            and set(ByteLevel.alphabet()) <= vocabulary.keys()
        )
        self.composes = bool(normalizers)
        self.longest_token: int | None = None
        """Length of the longest token in bytes; None if the tokenizer gives no bound."""
        if covers_every_byte:
            # A character in the vocabulary stands for a byte; added tokens are plain text.
            self.longest_token = max(map(len, [*vocabulary, *(token.content.encode() for token in added_tokens)]))

    def min_num_tokens(self, text: str) -> int:
        """Return the least number of tokens that the text can have; 0 without a bound."""
        if self.longest_token is None:
            return 0
        num_bytes = len((unicodedata.normalize("NFC", text) if self.composes else text).encode())
        return -(-num_bytes // self.longest_token)


def _parts(component: Any, name: str) -> list[dict[str, Any]]:
    """Return the parts of a tokenizer's component as in tokenizer.json; empty for no component."""
    if component is None:
        return []
    state = json.loads(component.__getstate__())
    return state[name] if state["type"] == "Sequence" else [state]
