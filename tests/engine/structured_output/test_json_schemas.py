"""Tests of JSON schemas: the texts that they allow, held against a recording of vLLM 0.11.1.

tests/fixtures/record_json_schemas.py makes the recording.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
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
    validate_guidance_grammar(params, backend)
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
