"""Tests of JSON schemas: the texts that they allow, held against a recording of vLLM 0.11.1.

tests/fixtures/record_json_schemas.py makes the recording.
"""

import json
import re
from enum import StrEnum
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import Field, TypeAdapter, ValidationError
from transformers import AutoTokenizer

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.core.structured_output.backend_guidance import GuidanceBackend, validate_guidance_grammar
from tracellm.engine.core.structured_output.json_schema import closed
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = [json.loads(line) for line in (FIXTURES / "json-schemas.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def backend() -> GuidanceBackend:
    """The backend for the tokenizer of the recording."""
    tokenizer = AutoTokenizer.from_pretrained(FIXTURES / "tiny-random-qwen2")
    return GuidanceBackend(tokenizer, len(tokenizer))


def accepts(backend: GuidanceBackend, schema: Any, text: str, **options: Any) -> bool:
    """Return whether the schema's grammar allows this text, and then the end."""
    params = StructuredOutputsParams(json=schema, **options)
    if (check := validate_guidance_grammar(params, backend)) is not None:
        check()
    grammar = backend.compile_grammar(params)
    tokens = backend.ll_tokenizer.tokenize_str(text)
    return grammar.ll_matcher.validate_tokens(tokens) == len(tokens) and (
        grammar.ll_matcher.consume_tokens(tokens) and grammar.ll_matcher.is_accepting()
    )


ALLOWED_DIFFERENCES = {
    **dict.fromkeys((8, 11), "declared keys come before others"),
    **dict.fromkeys((13, 64, 65), "vLLM forgets a required key that is not declared"),
    **dict.fromkeys((56, 57, 58), "vLLM ignores the other half of a merged schema"),
    60: "vLLM allows no spaces in a constant",
}
"""Schemas of the recording, by line, for which texts differ; ours then allows only what the schema allows."""
REFUSED = {70: "not", 71: "if", 72: "dependentRequired", 73: "dependentSchemas"}
"""Keywords that vLLM ignores, by the line of the recording."""


@pytest.mark.parametrize("line", range(len(RECORDED)))
def test_texts_are_allowed_as_in_vllm(backend: GuidanceBackend, line: int) -> None:
    """A text is allowed exactly if vLLM allows it, but never one that the schema forbids."""
    schema, recorded = RECORDED[line]["schema"], RECORDED[line]["accepted"]
    if line in REFUSED:
        with pytest.raises(InvalidRequestError, match=f'these keywords are not supported: .*"{REFUSED[line]}"'):
            accepts(backend, schema, "{}")
        return
    allowed = {text: accepts(backend, schema, text) for text in recorded}
    if line in ALLOWED_DIFFERENCES:
        assert allowed != recorded, "no difference any more"
        valid = jsonschema.Draft202012Validator(schema).is_valid
        assert [text for text in recorded if allowed[text] and not valid(json.loads(text))] == []
    else:
        assert allowed == recorded


def test_merged_schemas_keep_all_their_keys(backend: GuidanceBackend) -> None:
    """Where a schema merges objects, the keys of each are possible."""
    base = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    more = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    for schema in (
        {"allOf": [base, more]},
        {**base, "anyOf": [more]},
        {"$defs": {"B": base}, "$ref": "#/$defs/B", **more},
    ):
        assert accepts(backend, schema, '{"a": 1, "b": 2}')


def test_the_option_closes_what_stays_open(backend: GuidanceBackend) -> None:
    """`disable_additional_properties` also closes objects with keywords that vLLM's default backend lacks."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 2}}}
    text = '{"n": 2, "z": 1}'
    assert accepts(backend, schema, text)
    assert not accepts(backend, schema, text, disable_additional_properties=True)


def test_the_schema_of_a_caller_is_not_changed() -> None:
    """The defaults are written into a copy."""
    schema = {"type": "object", "properties": {"o": {"type": "array", "prefixItems": [{"properties": {"a": {}}}]}}}
    before = json.dumps(schema)
    assert json.dumps(closed(schema)) != before
    assert json.dumps(schema) == before


PROPERTY_NAMES = [json.loads(line) for line in (FIXTURES / "property-names.jsonl").read_text("utf-8").splitlines()]
SEARCHED = (4, 14)
"""Lines whose pattern may match a part of a name, as by the standard; vLLM's xgrammar wants all of it."""


@pytest.mark.parametrize("line", range(len(PROPERTY_NAMES)))
def test_names_of_properties_are_those_of_vllm(backend: GuidanceBackend, line: int) -> None:
    """With `propertyNames` a text is allowed exactly if vLLM 0.32 allows it; what it refuses is refused by name."""
    recorded = PROPERTY_NAMES[line]
    schema, accepted = recorded["schema"], recorded["accepted"]
    if recorded["backend"] == "refused":
        with pytest.raises(InvalidRequestError, match="`propertyNames` "):
            accepts(backend, schema, "{}")
        return
    allowed = {text: accepts(backend, schema, text) for text in accepted}
    if line in SEARCHED:
        assert allowed != accepted, "no difference any more"
        valid = jsonschema.Draft202012Validator(schema).is_valid
        assert allowed == {text: valid(json.loads(text)) for text in accepted}
    else:
        assert allowed == accepted


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"not": {"const": "a"}}, "`propertyNames` with `not` is not supported; const, enum, maxLength"),
        ({"enum": ["a"], "pattern": "a"}, "`propertyNames` with `pattern` and another condition is not supported"),
        ({"$ref": "#/$defs/B"}, "`propertyNames` has the reference '#/$defs/B', which cannot be followed"),
        ({"$ref": "#/$defs/A"}, "`propertyNames` has the reference '#/$defs/A', which cannot be followed"),
        ({"minLength": "1"}, "`propertyNames` has a length that is not an integer"),
        ({"enum": "a"}, "`propertyNames` has an `enum` that is not a list"),
        (["a"], "`propertyNames` must be a schema, got a list"),
        ({"pattern": "("}, "unclosed group"),
    ],
)
def test_what_is_not_supported_for_names_is_refused(backend: GuidanceBackend, names: Any, reason: str) -> None:
    """A condition on names that cannot be kept is refused with its keyword, and so is a reference in a circle."""
    schema = {"type": "object", "propertyNames": names, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    with pytest.raises(InvalidRequestError, match=re.escape(reason)):
        accepts(backend, schema, "{}")


def test_no_name_is_allowed(backend: GuidanceBackend) -> None:
    """Only the empty object is left if no name meets the condition, or if no value is allowed."""
    several: list[dict[str, Any]] = [
        {"propertyNames": False},
        {"propertyNames": {"enum": []}},
        {"propertyNames": {"maxLength": 1, "minLength": 2}},
    ]
    for more in several:
        assert accepts(backend, {"type": "object", **more}, "{}")
        assert not accepts(backend, {"type": "object", **more}, '{"a": 1}')
    assert not accepts(
        backend, {"type": "object", "propertyNames": {"const": "a"}, "additionalProperties": False}, '{"a": 1}'
    )


@pytest.mark.parametrize("key", ["enum", "literal", "length"])
def test_dicts_of_pydantic(backend: GuidanceBackend, key: str) -> None:
    """The schema that pydantic makes of a dict with such keys allows the keys that pydantic accepts, and no others."""
    keys: dict[str, Any] = {
        "enum": StrEnum("Color", ["red", "blue"]),
        "literal": Literal["red", "blue"],
        "length": Annotated[str, Field(min_length=3, max_length=4)],
    }
    adapter: TypeAdapter[Any] = TypeAdapter(GenericAlias(dict, (keys[key], int)))  # type: ignore[arg-type]
    for text in ("{}", '{"red": 1}', '{"blue": 2, "red": 1}', '{"purple": 1}', '{"red": "x"}'):
        try:
            adapter.validate_json(text, strict=True)
            valid = True
        except ValidationError:
            valid = False
        assert accepts(backend, adapter.json_schema(), text) == valid
