"""Incremental detokenization: turn a request's tokens into text step by step, and find stop strings in it.

A character may be spread over several tokens; its text appears with its last token and then never changes. When the
generation ends inside a character, the rest becomes U+FFFD, as if all tokens were decoded at once (vLLM drops it).

vLLM: vllm/v1/engine/detokenizer.py. Left out: SlowIncrementalDetokenizer, for tokenizers written in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracellm.engine.ipc.messages import EngineCoreRequest

if TYPE_CHECKING:
    from tokenizers.decoders import DecodeStream
    from transformers import PreTrainedTokenizerFast

__all__ = ["FastIncrementalDetokenizer", "IncrementalDetokenizer", "check_stop_strings"]

# Number of the prompt's last tokens to decode before the first generated one, at least and at most.
_CONTEXT = 4
_MAX_CONTEXT = 23


class IncrementalDetokenizer:
    """Detokenizer that only collects the tokens, for `detokenize=False`."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []

    @property
    def output_token_ids(self) -> list[int]:
        """Tokens generated so far."""
        return self.token_ids

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        """Add the tokens of one step.

        Args:
            new_token_ids: the new tokens.
            stop_terminated: whether the last one is a stop token, which is left out of the text.

        Returns:
            The stop string that appeared, or None.
        """
        self.token_ids.extend(new_token_ids)
        return None

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        """Return the text so far, or with `delta` the text since the last call."""
        return ""

    @classmethod
    def from_new_request(
        cls, tokenizer: PreTrainedTokenizerFast | None, request: EngineCoreRequest
    ) -> IncrementalDetokenizer:
        """Create the detokenizer for a request; without a tokenizer, one that makes no text."""
        return IncrementalDetokenizer() if tokenizer is None else FastIncrementalDetokenizer(tokenizer, request)


class FastIncrementalDetokenizer(IncrementalDetokenizer):
    """Detokenizer on the tokenizers library's `DecodeStream`, which holds back unfinished characters."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, request: EngineCoreRequest) -> None:
        super().__init__()
        params = request.sampling_params
        assert params is not None, "pooling makes no text"
        self.stop = list(params.stop or ())
        self.min_tokens = params.min_tokens
        self.include_stop_str_in_output = params.include_stop_str_in_output
        self.stop_buffer_length = params.output_text_buffer_length
        self.skip_special_tokens = params.skip_special_tokens
        self.output_text = ""
        self._last_output_text_offset = 0

        self.tokenizer = tokenizer.backend_tokenizer
        self._added_tokens: dict[int, str] = {}  # written without the decoder's spaces
        if not params.skip_special_tokens and not params.spaces_between_special_tokens:
            added_tokens = self.tokenizer.get_added_tokens_decoder()
            self._added_tokens = {token_id: token.content for token_id, token in added_tokens.items()}
        self._after_added_token = False
        self._context = self._prompt_suffix(request.prompt_token_ids)
        self._decoded: list[int] = []  # generated tokens that are part of the text
        self._num_held_back = 0  # number of those at the end that have no text yet
        self.stream = self._new_stream()
        for token_id in self._context:
            self._step(token_id)

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        """Decode new tokens and search the added text for stop strings."""
        if not new_token_ids:
            return None
        without_text = 1 if stop_terminated and not self.include_stop_str_in_output else 0
        stop_check_offset = len(self.output_text)
        for index, token_id in enumerate(new_token_ids):
            self.token_ids.append(token_id)
            if index < len(new_token_ids) - without_text:
                self.output_text += self.decode_next(token_id)
            if len(self.token_ids) <= self.min_tokens:
                stop_check_offset = len(self.output_text)
        if not self.stop or len(self.token_ids) <= self.min_tokens:
            return None
        found = check_stop_strings(
            self.output_text, len(self.output_text) - stop_check_offset, self.stop, self.include_stop_str_in_output
        )
        if found is None:
            return None
        stop_string, end = found
        self.output_text = self.output_text[:end]
        self._num_held_back = 0
        return stop_string

    def decode_next(self, token_id: int) -> str:
        """Return the text that this token completes; empty while a character is unfinished."""
        self._decoded.append(token_id)
        self._num_held_back += 1
        text = self._step(token_id)
        added_token = self._added_tokens.get(token_id)
        if added_token is not None and self._after_added_token:
            text = added_token
        self._after_added_token = added_token is not None
        if text is None:
            return ""
        self._num_held_back = 0
        return text

    def _step(self, token_id: int) -> str | None:
        """Return the text that this token completes, or None. Invalid bytes never raise; their text may be left out."""
        try:
            return self.stream.step(self.tokenizer, token_id)
        except Exception as error:
            # With byte fallback, invalid bytes can change how earlier bytes decode. Leave them out, as vLLM does.
            if "Invalid prefix" not in str(error):
                raise
            self.stream = self._new_stream()
            return self.stream.step(self.tokenizer, token_id)

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        """Return the text so far, holding back characters that may begin a stop string until the end."""
        if finished:
            self.output_text += self._take_held_back()
        end = len(self.output_text) - (0 if finished else self.stop_buffer_length)
        if not delta:
            return self.output_text[: max(end, 0)]
        start = self._last_output_text_offset
        if start >= end:
            return ""
        self._last_output_text_offset = end
        return self.output_text[start:end]

    def _take_held_back(self) -> str:
        """Return the text of the tokens at the end whose character is unfinished."""
        if not self._num_held_back:
            return ""
        shown, held_back = self._decoded[: -self._num_held_back], self._decoded[-self._num_held_back :]
        self._num_held_back = 0
        before, text = self._decode(self._context + shown), self._decode(self._context + shown + held_back)
        return text[len(before) :] if text.startswith(before) else self._decode(held_back)

    def _decode(self, token_ids: list[int]) -> str:
        return self.tokenizer.decode(token_ids, skip_special_tokens=self.skip_special_tokens)

    def _new_stream(self) -> DecodeStream:
        from tokenizers.decoders import DecodeStream

        return DecodeStream(skip_special_tokens=self.skip_special_tokens)

    def _prompt_suffix(self, prompt_token_ids: list[int]) -> list[int]:
        """Return the end of the prompt from a character boundary on; all of it if there is none."""
        for length in range(_CONTEXT, min(len(prompt_token_ids), _MAX_CONTEXT) + 1):
            suffix = prompt_token_ids[-length:]
            if "\ufffd" not in self.tokenizer.decode(suffix):
                return suffix
        return prompt_token_ids


def check_stop_strings(
    output_text: str, new_char_count: int, stop: list[str], include_in_output: bool
) -> tuple[str, int] | None:
    """Search for a stop string that ends in the last `new_char_count` characters; the first in the list wins.

    Returns:
        The stop string and the length to cut the text to (after it with `include_in_output`), or None.
    """
    if not new_char_count:
        return None
    for stop_string in stop:
        start = len(output_text) - new_char_count - len(stop_string) + 1
        index = output_text.find(stop_string, max(start, 0))
        if index >= 0:
            return stop_string, index + (len(stop_string) if include_in_output else 0)
    return None
