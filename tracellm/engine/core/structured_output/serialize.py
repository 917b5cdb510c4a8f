"""Constraints in the notation of llguidance, the library behind backend_guidance.py.

vLLM: vllm/v1/structured_output/backend_guidance.py::serialize_guidance_grammar.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, cast

import llguidance
from llguidance import LLMatcher, StructTag

from tracellm.engine.core.structured_output.backend_types import StructuredOutputKey, StructuredOutputOptions

if TYPE_CHECKING:
    from tracellm.engine.sample.sampling_params import StructuredOutputsParams

__all__ = ["serialize_guidance_grammar", "short"]


def serialize_guidance_grammar(params: StructuredOutputsParams, key: StructuredOutputKey) -> str:
    """The constraint in llguidance's own notation.

    vLLM: vllm/v1/structured_output/backend_guidance.py::serialize_guidance_grammar. There the options of JSON are the
    engine's, and `whitespace_pattern` is for another backend.

    Raises:
        ValueError: it is not well-formed. Not all that is wrong is found here; the matcher finds the rest.
    """
    option, spec = key
    if option in (StructuredOutputOptions.JSON, StructuredOutputOptions.JSON_OBJECT):
        return LLMatcher.grammar_from_json_schema(_json_schema(_load_object(spec), params))
    if option is StructuredOutputOptions.STRUCTURAL_TAG:
        return _structural_tag_grammar(_load_object(spec), params)
    if option is StructuredOutputOptions.CHOICE:
        # One terminal, a word for the lexer: as rules, which the parser follows all at once, 2000 choices are the most.
        return "start: CHOICE\nCHOICE: " + " | ".join(
            json.dumps(choice, ensure_ascii=False) for choice in json.loads(spec)
        )
    # Its names are ours; "grammar" takes both Lark's notation and EBNF as llama.cpp has it (GBNF).
    return llguidance.grammar_from(cast(Literal["regex", "grammar"], option.value), spec)


def _json_schema(schema: dict[str, Any], params: StructuredOutputsParams) -> dict[str, Any]:
    """The schema with the request's options, which llguidance reads from the schema. Those it has already stay."""
    options: dict[str, Any] = {"whitespace_flexible": not params.disable_any_whitespace}
    if params.whitespace_pattern is not None:
        options["whitespace_pattern"] = params.whitespace_pattern
    if params.disable_additional_properties:
        schema = _without_additional_properties(schema)
    return {**schema, "x-guidance": {**options, **schema.get("x-guidance", {})}}


def _without_additional_properties(schema: Any) -> Any:
    """A copy in which every object that names properties has no others, unless it says itself what others it has."""
    if isinstance(schema, list):
        return [_without_additional_properties(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copied = {name: _without_additional_properties(value) for name, value in schema.items()}
    if "properties" in copied or "patternProperties" in copied:
        copied.setdefault("additionalProperties", False)
    return copied


def _structural_tag_grammar(tag: dict[str, Any], params: StructuredOutputsParams) -> str:
    """Free text; as soon as one of `triggers` is written, one of `structures` follows: its begin, JSON, its end.

    vLLM wraps each schema so that llguidance does not find it, and any JSON will do there.
    """
    try:
        triggers, structures = tag["triggers"], tag["structures"]
        tags = []
        for structure in structures:
            begin, end, schema = structure["begin"], structure["end"], _json_schema(structure["schema"], params)
            trigger = next((t for t in triggers if begin.startswith(t)), None)
            if not trigger:
                raise ValueError(f"`begin` {begin!r} does not start with any of the triggers {triggers}.")
            tags.append(StructTag(trigger=trigger, begin=begin, grammar=schema, end=end))
    except (KeyError, TypeError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{what}; it must have `triggers` (strings) and `structures`, each with `begin`, `schema` and `end`."
        ) from None
    if not tags:
        raise ValueError("`structures` is empty.")
    return StructTag.to_grammar(tags)


def _load_object(spec: str) -> dict[str, Any]:
    try:
        loaded = json.loads(spec)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}). Got {short(spec)}.") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"it must be a JSON object. Got {short(spec)}.")
    return loaded


def short(spec: str) -> str:
    """The specification as a message quotes it: its beginning."""
    return repr(spec if len(spec) <= 80 else spec[:77] + "...")
