"""The structured-output backend on llguidance, a Rust library that follows a grammar token by token.

`StructuredOutputManager` compiles and follows grammars with it. The `Processor` compiles each constraint first
(`validate_guidance_grammar`), so an invalid one is refused at once. The module is imported for the first request with
structured outputs.

vLLM: vllm/v1/structured_output/backend_guidance.py. Left out: rolling back.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import llguidance.numpy
from llguidance import LLMatcher, LLTokenizer, StructTag

from tracellm.engine.config.errors import EngineError, InvalidRequestError, shorten
from tracellm.engine.core.structured_output.json_schema import (
    closed,
    mapped,
    subschemas,
    without_additional_properties,
)
from tracellm.engine.core.structured_output.property_names import with_patterns_of_names
from tracellm.engine.core.structured_output.request import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputKey,
    StructuredOutputOptions,
    get_structured_output_key,
)
from tracellm.engine.core.structured_output.structural_tag import (
    MAX_TAGS,
    SPECIAL_TOKEN,
    constraints_of,
    grammar_of,
    quoted,
)
from tracellm.engine.core.structured_output.trial import (
    Trial,
    TrialLimitError,
    TrialProcess,
    first_error,
    has_bounded_time,
    make_matcher,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.sample.sampling_params import StructuredOutputsParams

__all__ = ["GuidanceBackend", "GuidanceGrammar", "get_guidance_backend", "validate_guidance_grammar"]

_MAX_PROPERTIES = 1000
"""Properties of one object: the time for each token grows with their square, to 20 ms for so many."""
_MAX_CHARACTERS = 2_000_000
"""Characters of a constraint; choices of that length compile in half a second."""
_TOO_COMPLEX = (
    *("too many expressions constructed", "Too many items", "schema too large", "fuel exhausted"),
    *("Current row has", "initial lexer configuration (grammar) too big", "Unable to determine if regex is empty"),
    "panic: ",
)
"""Errors of llguidance at its limits."""
_MAX_CHECKED = 1024
"""Maximum number of constraints whose check is kept."""
_JSON_OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")

# -- following a grammar ----------------------------------------------------------------------------------------------


class GuidanceBackend(StructuredOutputBackend):
    """llguidance for one tokenizer, and for logits of width `vocab_size` (the tokenizer's size or more).

    vLLM: vllm/v1/structured_output/backend_guidance.py::GuidanceBackend.

    Raises:
        InvalidRequestError: the tokenizer has no end-of-sequence token, or llguidance does not support its kind
            (it supports byte-level BPE, and BPE with byte fallback).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> None:
        settings = _ll_settings(tokenizer, vocab_size)
        self.ll_tokenizer = _make_ll_tokenizer(tokenizer, settings)
        self.trial_process = TrialProcess(settings)
        self._checked: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def is_special(self, text: str) -> bool:
        """Return whether a text is the name of a special token."""
        tokens = self.ll_tokenizer.tokenize_str(text, parse_special=True)
        return len(tokens) == 1 and self.ll_tokenizer.is_special_token(tokens[0])

    def checked(self, digest: bytes) -> str | None:
        """Return why a constraint cannot be used; empty if it can, None if it was not checked."""
        with self._lock:
            if digest in self._checked:
                self._checked.move_to_end(digest)
            return self._checked.get(digest)

    def remember(self, digest: bytes, reason: str) -> None:
        """Keep the result of a check; drop that of the least recently used constraint beyond `_MAX_CHECKED`."""
        with self._lock:
            self._checked[digest] = reason
            if len(self._checked) > _MAX_CHECKED:
                self._checked.popitem(last=False)

    def compile_grammar(self, params: StructuredOutputsParams) -> GuidanceGrammar:
        """Compile a constraint, and compute its first mask.

        Raises:
            EngineError: it cannot be compiled, although the `Processor` has compiled it before.
        """
        key = get_structured_output_key(params)
        matcher = make_matcher(self.ll_tokenizer, *serialize_guidance_grammar(params, key, self.is_special))
        if matcher.is_error():
            raise EngineError(f"{_name(key)} cannot be compiled: {_reason(matcher.get_error())}")
        matcher.compute_bitmask()  # takes up to a second, and is kept for the first step
        return GuidanceGrammar(matcher, self.ll_tokenizer.eos_token, _name(key))

    def allocate_token_bitmask(self, max_num_seqs: int) -> NDArray[np.int32]:
        """Create a bitmask that allows everything, int32 [max_num_seqs, vocabulary / 32, rounded up]."""
        return llguidance.numpy.allocate_token_bitmask(max_num_seqs, self.ll_tokenizer.vocab_size)


class GuidanceGrammar(StructuredOutputGrammar):
    """The matcher of one request.

    When the output is complete, the matcher stops, and its mask allows only the end-of-sequence token. The same happens
    when the matcher fails, because a limit is exceeded or a token violates the constraint: then there is an `error`.

    vLLM: vllm/v1/structured_output/backend_guidance.py::GuidanceGrammar.
    """

    def __init__(self, matcher: LLMatcher, eos_token_id: int, name: str) -> None:
        self.ll_matcher = matcher
        self.eos_token_id = eos_token_id
        self.name = name
        self._terminated = False

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance by these tokens. Return False if they violate the constraint."""
        if self.eos_token_id in tokens:
            self._terminated = True
        if self.ll_matcher.is_stopped():
            return True
        return self.ll_matcher.consume_tokens(tokens)

    def fill_bitmask(self, bitmask: NDArray[np.int32], batch_index: int) -> None:
        """Write the mask of the next token into this row."""
        llguidance.numpy.fill_next_token_bitmask(self.ll_matcher, bitmask, batch_index)

    def is_terminated(self) -> bool:
        """Return whether the end-of-sequence token was accepted."""
        return self._terminated

    @property
    def error(self) -> str | None:
        """Reason for the failure of the matcher, or None."""
        if not self.ll_matcher.is_error():
            return None
        return f"{self.name} cannot be followed any further: {_reason(self.ll_matcher.get_error())}"


_lock = threading.Lock()
_backends: WeakValueDictionary[tuple[str, int], GuidanceBackend] = WeakValueDictionary()


def get_guidance_backend(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> GuidanceBackend:
    """Return the backend for this tokenizer, reusing one in use.

    Both halves of an engine in one process share it. For a large vocabulary it takes seconds and some hundred MB.
    """
    key = tokenizer.backend_tokenizer.to_str(), vocab_size
    with _lock:
        backend = _backends.get(key)
        if backend is None:
            backend = _backends[key] = GuidanceBackend(tokenizer, vocab_size)
    return backend


def _ll_settings(tokenizer: PreTrainedTokenizerFast, vocab_size: int) -> tuple[str, int, int]:
    """Return the arguments of `LLTokenizer`: tokenizer.json, number of logits, end-of-sequence token."""
    if tokenizer.eos_token_id is None:
        raise InvalidRequestError(
            "Structured outputs need an end-of-sequence token, which ends the output; this tokenizer has none."
        )
    backend = copy(tokenizer.backend_tokenizer)  # as in llguidance.hf.from_tokenizer, without importing transformers
    backend.no_padding()
    backend.no_truncation()
    return backend.to_str(), vocab_size, tokenizer.eos_token_id


def _make_ll_tokenizer(tokenizer: PreTrainedTokenizerFast, settings: tuple[str, int, int]) -> LLTokenizer:
    try:
        ll_tokenizer = LLTokenizer(*settings)
    except ValueError as error:
        reason = str(error).split(": Some(")[0]
    else:
        tokens = tokenizer.encode("a b", add_special_tokens=False)
        if ll_tokenizer.decode_str(tokens).strip() == tokenizer.decode(tokens).strip():
            return ll_tokenizer
        reason = "its tokens are read wrongly, as a trial shows"  # some decoders, without an error
    raise InvalidRequestError(
        f"Structured outputs do not work with this tokenizer: {reason} (llguidance reads byte-level BPE, and BPE "
        "with byte fallback)."
    )


def validate_guidance_grammar(params: StructuredOutputsParams, backend: GuidanceBackend) -> Callable[[], None] | None:
    """Check that a constraint can be compiled, and that it allows a first token.

    vLLM: vllm/v1/structured_output/backend_guidance.py::validate_guidance_grammar. It has no tokenizer, so special
    tokens and constraints that no text meets are detected only when the request runs.

    Returns:
        None; or if the check may take seconds, a function that does it in a process with limits, and raises as this
        one.

    Raises:
        InvalidRequestError: it is malformed, unsupported by llguidance, or no text meets it; the message names the
            parameter.
    """
    if params.choice is not None and not params.choice:
        raise InvalidRequestError(
            f"Choice '{params.choice}' cannot be an empty list. StructuredOutputsParams: `choice` must hold at least "
            "one string."
        )
    if params.grammar is not None and not params.grammar.strip():
        raise InvalidRequestError(
            "structured_outputs.grammar cannot be an empty string. StructuredOutputsParams: `grammar` must not be "
            f"blank, got {shorten(params.grammar)}."
        )
    option = next(option for option in StructuredOutputOptions if getattr(params, option) is not None)
    with _refusals(option):
        _check_options(params, option)
        key = get_structured_output_key(params)
        if (length := len(key[1])) > _MAX_CHARACTERS:
            raise ValueError(f"it has {length:,} characters, and at most {_MAX_CHARACTERS:,} are possible.")
        digest = sha256(repr((*key, [getattr(params, name) for name in _JSON_OPTIONS])).encode()).digest()
        if reason := backend.checked(digest):
            raise ValueError(reason)
        if reason is not None:
            return None
        trials, is_bounded = _trials(params, key, backend.is_special)
    if is_bounded:
        _try(backend, option, digest, trials, partial(first_error, backend.ll_tokenizer))
        return None
    return partial(_try, backend, option, digest, trials, backend.trial_process.first_error)


@contextmanager
def _refusals(option: StructuredOutputOptions) -> Iterator[None]:
    """Turn errors about a constraint into `InvalidRequestError`."""
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        reason = _reason(str(error))
        raise InvalidRequestError(f"SamplingParams: `structured_outputs.{option}` cannot be used: {reason}") from None


def _check_options(params: StructuredOutputsParams, option: StructuredOutputOptions) -> None:
    json_options = [name for name in _JSON_OPTIONS if getattr(params, name)]
    if json_options and option not in ("json", "json_object", "structural_tag"):
        raise ValueError(f"`{json_options[0]}` is about JSON; leave it out.")
    if params.disable_any_whitespace and params.whitespace_pattern is not None:
        raise ValueError("`disable_any_whitespace` leaves nothing for `whitespace_pattern`; keep one of them.")
    if params.json_object is False:
        raise ValueError("`json_object` must be True or left out, got False.")


def _trials(
    params: StructuredOutputsParams, key: StructuredOutputKey, is_special: Callable[[str], bool]
) -> tuple[dict[Trial, str], bool]:
    """Return the constraints to try, with their texts for messages, and whether that takes a bounded time.

    Raises:
        ValueError: the constraint is malformed.
    """
    trials = {serialize_guidance_grammar(params, key, is_special): key[1]}
    schemas, others = _parts(key)
    is_bounded = (
        key[0] not in (StructuredOutputOptions.GRAMMAR, StructuredOutputOptions.STRUCTURAL_TAG)
        and params.whitespace_pattern is None
        and all(has_bounded_time(one) for schema in schemas for one in subschemas(schema))
    )
    if not is_bounded:  # a lexer gets to the patterns of a schema only after some tokens
        patterns: list[Trial] = [("regex", pattern) for pattern in _repeating_patterns(schemas, params)]
        trials |= {trial: trial[1] for trial in others + patterns}
    return trials, is_bounded


def _try(
    backend: GuidanceBackend,
    option: StructuredOutputOptions,
    digest: bytes,
    trials: dict[Trial, str],
    find_error: Callable[[list[Trial]], tuple[int, str] | None],
) -> None:
    """Try constraints, and remember the result.

    Raises:
        InvalidRequestError: they allow no first token, or take more than the limits allow.
    """
    with _refusals(option):
        if (reason := backend.checked(digest)) is None:  # else another request had the same constraint
            try:
                found = find_error([*trials])
            except TrialLimitError as error:
                reason = str(error)
            else:
                reason = (
                    "" if found is None else f"{_reason(found[1])} Got {shorten([*trials.values()][found[0]], 80)}."
                )
            backend.remember(digest, reason)
        if reason:
            raise ValueError(reason)


def _parts(key: StructuredOutputKey) -> tuple[list[Any], list[Trial]]:
    """Return the JSON schemas of a constraint, and the other constraints in it."""
    if key[0] is StructuredOutputOptions.JSON:
        return [_load_object(key[1])], []
    if key[0] is StructuredOutputOptions.STRUCTURAL_TAG:
        tag = _load_object(key[1])
        if "format" in tag:
            return constraints_of(tag)
        return [structure["schema"] for structure in tag["structures"]], []
    return [], []


def _repeating_patterns(schemas: list[Any], params: StructuredOutputsParams) -> list[str]:
    """Return the patterns of JSON schemas that repeat a part."""
    patterns: dict[Any, None] = {}
    for one in (one for schema in schemas for one in subschemas(_json_schema(schema, params))):
        named = one.get("patternProperties")
        patterns |= dict.fromkeys([one.get("pattern"), *(named if isinstance(named, dict) else ())])
    return [pattern for pattern in patterns if isinstance(pattern, str) and "{" in pattern]


def _name(key: StructuredOutputKey) -> str:
    return f"structured_outputs.{key[0]}={shorten(key[1], 80)}"


def _reason(error: str) -> str:
    """Reduce an error of llguidance to one sentence, without positions and excerpts of its own notation."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    reason = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    if any(limit in reason for limit in _TOO_COMPLEX):
        return (
            "it is too complex: too many properties or alternatives, repetitions such as `{1000}`, or rules that never "
            "end make too many states."
        )
    if reason == "NoExtensionBias":
        return "no text that this tokenizer can write meets it."
    if reason.startswith("at "):  # "at 1(8): "
        reason = reason.partition(": ")[2]
    reason = reason.replace("Unimplemented keys:", "these keywords are not supported:")
    reason = reason.partition("; following special tokens")[0]  # a list of all of them
    return reason if reason.endswith(".") else reason + "."


# -- constraints in llguidance's notation -----------------------------------------------------------------------------


def serialize_guidance_grammar(
    params: StructuredOutputsParams, key: StructuredOutputKey, is_special: Callable[[str], bool]
) -> Trial:
    """Return the constraint and its notation; `is_special` finds the names of special tokens.

    vLLM: vllm/v1/structured_output/backend_guidance.py::serialize_guidance_grammar. There the options of JSON are
    settings of the engine, and `whitespace_pattern` is for another backend.

    Raises:
        ValueError: it is malformed. Other errors are detected by the matcher.
    """
    option, spec = key
    match option:
        case StructuredOutputOptions.REGEX:
            return "regex", spec
        case StructuredOutputOptions.GRAMMAR:
            return "grammar", spec
        case StructuredOutputOptions.STRUCTURAL_TAG:
            tag = _load_object(spec)
            if "format" in tag:
                return "grammars", grammar_of(tag, partial(_json_schema, params=params), is_special)
            return "llguidance", _structural_tag_grammar(tag, params)
        case StructuredOutputOptions.CHOICE:
            # One terminal for the lexer. As rules, which the parser follows in parallel, at most 2000 are possible.
            choices = " | ".join(map(quoted, json.loads(spec)))
            return "llguidance", f"start: CHOICE\nCHOICE: {choices}"
    return "llguidance", LLMatcher.grammar_from_json_schema(_json_schema(_load_object(spec), params))


def _json_schema(schema: dict[str, Any], params: StructuredOutputsParams) -> dict[str, Any]:
    """Return the schema with the request's options, which llguidance reads from it. Its own options take precedence."""
    for one in subschemas(schema):
        if isinstance(properties := one.get("properties"), dict) and len(properties) > _MAX_PROPERTIES:
            raise ValueError(
                f"an object has {len(properties):,} properties, and at most {_MAX_PROPERTIES:,} are possible."
            )
    options: dict[str, Any] = {"whitespace_flexible": not params.disable_any_whitespace, "coerce_one_of": True}
    if params.whitespace_pattern is not None:
        options["whitespace_pattern"] = params.whitespace_pattern
    schema = without_additional_properties(schema) if params.disable_additional_properties else closed(schema)
    if any("propertyNames" in one for one in subschemas(schema)):
        schema = mapped(schema, partial(with_patterns_of_names, root=schema))
    return {**schema, "x-guidance": {**options, **schema.get("x-guidance", {})}}


def _structural_tag_grammar(tag: dict[str, Any], params: StructuredOutputsParams) -> str:
    """Return a grammar for free text in which each of `triggers` starts one of `structures`: its begin, JSON, its end.

    vLLM wraps each schema in a way that llguidance ignores, so any JSON is accepted there.
    """
    try:
        triggers, structures = tag["triggers"], tag["structures"]
        if (most := max(len(triggers), len(structures))) > MAX_TAGS:
            raise ValueError(f"it has {most:,} triggers or structures, and at most {MAX_TAGS:,} are possible.")
        tags = []
        for structure in structures:
            begin, end, schema = structure["begin"], structure["end"], _json_schema(structure["schema"], params)
            trigger = next((t for t in triggers if begin.startswith(t)), None)
            if not trigger:
                raise ValueError(f"`begin` {begin!r} does not start with any of the triggers, {shorten(triggers)}.")
            if trigger[0] + trigger[-1] == "<>" and not SPECIAL_TOKEN.fullmatch(trigger):
                raise ValueError(f"the trigger {trigger!r} is not the name of a special token, such as `<tool_call>`.")
            tags.append(StructTag(trigger=trigger, begin=begin, grammar=schema, end=end))
    except (KeyError, TypeError, AttributeError) as error:
        message = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{message}; it must have `triggers` (strings) and `structures`, each with `begin`, `schema` and `end`."
        ) from None
    if not tags:
        raise ValueError("`structures` is empty.")
    return StructTag.to_grammar(tags)


def _load_object(spec: str) -> dict[str, Any]:
    try:
        loaded = json.loads(spec)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}). Got {shorten(spec, 80)}.") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"it must be a JSON object. Got {shorten(spec, 80)}.")
    return loaded
