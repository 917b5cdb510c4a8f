"""The backend on llguidance, a library in Rust that follows grammars token by token.

Two users: `StructuredOutputManager` compiles and follows grammars with it, and the `Processor` has it try each
constraint first (`validate_guidance_grammar`), so that one that cannot be followed is refused at once. The module is
imported when the first request asks for structured outputs.

vLLM: vllm/v1/structured_output/backend_guidance.py, and the backend of that name there. Left out: rolling back.
"""

from __future__ import annotations

import warnings
from copy import copy
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import llguidance.numpy
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.core.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputKey,
    StructuredOutputOptions,
)
from tracellm.engine.core.structured_output.request import get_structured_output_key
from tracellm.engine.core.structured_output.serialize import serialize_guidance_grammar, short

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.sample.sampling_params import StructuredOutputsParams

__all__ = ["GuidanceBackend", "GuidanceGrammar", "get_guidance_backend", "validate_guidance_grammar"]

_QUIET = LLParserLimits(verbose_errors=False)  # the usual limits; errors without the parser's state


class GuidanceBackend(StructuredOutputBackend):
    """llguidance for one tokenizer, and for a model whose logits are `vocab_size` wide (the tokenizer's size or more).

    vLLM: vllm/v1/structured_output/backend_guidance.py::GuidanceBackend.

    Raises:
        InvalidRequestError: the tokenizer has no end-of-sequence token, or is of no kind that llguidance knows
            (byte-level BPE, and BPE with byte fallback).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> None:
        self.ll_tokenizer = _make_ll_tokenizer(tokenizer, vocab_size)

    def compile_grammar(self, params: StructuredOutputsParams) -> GuidanceGrammar:
        """The grammar of a constraint, at its beginning.

        Raises:
            EngineError: it cannot be compiled, though the `Processor` has compiled it before.
        """
        key = get_structured_output_key(params)
        matcher = _make_matcher(self.ll_tokenizer, serialize_guidance_grammar(params, key))
        if matcher.is_error():
            raise EngineError(f"{_name(key)} cannot be compiled: {_reason(matcher.get_error())}")
        return GuidanceGrammar(matcher, self.ll_tokenizer.eos_token, _name(key))

    def allocate_token_bitmask(self, max_num_seqs: int) -> NDArray[np.int32]:
        """A bitmask that allows everything, int32 [max_num_seqs, vocabulary / 32, rounded up]."""
        return llguidance.numpy.allocate_token_bitmask(max_num_seqs, self.ll_tokenizer.vocab_size)


class GuidanceGrammar(StructuredOutputGrammar):
    """A matcher of llguidance's, in the state that one request has reached.

    Once the constraint is met and nothing can follow, the matcher is stopped, and its mask has the end-of-sequence
    token alone. It is the same when the matcher fails, because the grammar is too much for it or because it was given a
    token that does not conform; then a warning says so.

    vLLM: vllm/v1/structured_output/backend_guidance.py::GuidanceGrammar.
    """

    def __init__(self, matcher: LLMatcher, eos_token_id: int, name: str) -> None:
        self.ll_matcher = matcher
        self.eos_token_id = eos_token_id
        self.name = name
        self._terminated = False
        self._warned = False

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Go on by these tokens. False when they do not conform."""
        if self.eos_token_id in tokens:
            self._terminated = True
        if self.ll_matcher.is_stopped():
            return True
        accepted = self.ll_matcher.consume_tokens(tokens)
        self._check_error(f"request {request_id}: ")
        return accepted

    def fill_bitmask(self, bitmask: NDArray[np.int32], batch_index: int) -> None:
        """Write the next token's mask into this row."""
        llguidance.numpy.fill_next_token_bitmask(self.ll_matcher, bitmask, batch_index)
        self._check_error()

    def is_terminated(self) -> bool:
        """Has the end-of-sequence token been accepted?"""
        return self._terminated

    def _check_error(self, whose: str = "") -> None:
        """Warn, once, when the matcher has failed, which it never recovers from. vLLM logs the same."""
        if self.ll_matcher.is_error() and not self._warned:
            self._warned = True
            warnings.warn(
                f"{whose}{self.name} cannot be followed any further, and only the end-of-sequence token is allowed "
                f"from here: {_reason(self.ll_matcher.get_error())}",
                stacklevel=3,
            )


_backends: WeakValueDictionary[tuple[str, int], GuidanceBackend] = WeakValueDictionary()


def get_guidance_backend(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> GuidanceBackend:
    """As `GuidanceBackend(tokenizer, vocab_size)`; one that is in use already is taken.

    So both halves of an engine in one process have the same: for a large vocabulary it takes seconds, and some hundred
    megabytes.
    """
    key = tokenizer.backend_tokenizer.to_str(), vocab_size
    backend = _backends.get(key)
    if backend is None:
        backend = _backends[key] = GuidanceBackend(tokenizer, vocab_size)
    return backend


def _make_ll_tokenizer(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> LLTokenizer:
    if tokenizer.eos_token_id is None:
        raise InvalidRequestError(
            "Structured outputs need an end-of-sequence token, which ends the output; this tokenizer has none."
        )
    backend = copy(tokenizer.backend_tokenizer)  # as llguidance.hf.from_tokenizer does, which imports transformers
    backend.no_padding()
    backend.no_truncation()
    try:
        ll_tokenizer = LLTokenizer(backend.to_str(), n_vocab=vocab_size, eos_token=tokenizer.eos_token_id)
    except ValueError as error:
        reason = str(error).split(": Some(")[0]
    else:
        tokens = tokenizer.encode("a b", add_special_tokens=False)
        if ll_tokenizer.decode_str(tokens).strip() == tokenizer.decode(tokens).strip():
            return ll_tokenizer
        reason = "its tokens are read wrongly, as a trial shows"  # of some decoders, and without an error
    raise InvalidRequestError(
        f"Structured outputs do not work with this tokenizer: {reason} (llguidance reads byte-level BPE, and BPE "
        "with byte fallback)."
    )


def validate_guidance_grammar(params: StructuredOutputsParams, backend: GuidanceBackend) -> None:
    """Try a constraint: compile it, and look for a first token.

    vLLM: vllm/v1/structured_output/backend_guidance.py::validate_guidance_grammar, which has no tokenizer, and so finds
    out about special tokens, and about constraints that no text meets, only when the request runs.

    Raises:
        InvalidRequestError: it is not well-formed, needs what llguidance does not have, or no text meets it; the
            message names the parameter.
    """
    option = next(option for option in StructuredOutputOptions if getattr(params, option) is not None)
    try:
        _check_options(params, option)
        key = get_structured_output_key(params)
        matcher = _make_matcher(backend.ll_tokenizer, serialize_guidance_grammar(params, key))
        if not matcher.is_error():
            matcher.compute_bitmask()
        if matcher.is_error():
            raise ValueError(f"{_reason(matcher.get_error())} Got {short(key[1])}.")
    except (ValueError, TypeError, RecursionError) as error:
        reason = _reason(str(error))
        raise InvalidRequestError(f"SamplingParams: `structured_outputs.{option}` cannot be used: {reason}") from None


_JSON_OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


def _check_options(params: StructuredOutputsParams, option: StructuredOutputOptions) -> None:
    about_json = [name for name in _JSON_OPTIONS if getattr(params, name)]
    if about_json and option not in ("json", "json_object", "structural_tag"):
        raise ValueError(f"`{about_json[0]}` is about JSON; leave it out.")
    if params.disable_any_whitespace and params.whitespace_pattern is not None:
        raise ValueError("`disable_any_whitespace` leaves nothing for `whitespace_pattern`; keep one of them.")
    if params.json_object is False:
        raise ValueError("False asks for nothing; use True, or leave it out.")


def _make_matcher(ll_tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    return LLMatcher(ll_tokenizer, grammar, log_level=0, limits=_QUIET)


def _name(key: StructuredOutputKey) -> str:
    return f"structured_outputs.{key[0]}={short(key[1])}"


def _reason(error: str) -> str:
    """What llguidance says is wrong, as one sentence: without positions in its own notation, and pictures of them."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    said = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    if said == "NoExtensionBias":
        return "no text that this tokenizer can write meets it."
    if said.startswith("at "):  # "at 1(8): "
        said = said.partition(": ")[2]
    said = said.replace("Unimplemented keys:", "these keywords are not supported:")
    said = said.partition("; following special tokens")[0]  # and it lists them all
    return said if said.endswith(".") else said + "."
