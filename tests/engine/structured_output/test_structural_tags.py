"""Test of the formats of structural tags against a recording of xgrammar, vLLM's default backend.

tests/fixtures/README.md describes the recording.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.structured_output.conftest import core_of
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.core.structured_output.backend_guidance import GuidanceBackend, validate_guidance_grammar
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = [json.loads(line) for line in (FIXTURES / "structural-tags.jsonl").read_text("utf-8").splitlines()]


def params_of(format: dict[str, Any]) -> StructuredOutputsParams:
    """Make the constraint of a format."""
    return StructuredOutputsParams(structural_tag=json.dumps({"type": "structural_tag", "format": format}))


@pytest.fixture
def backend(llm: LLM) -> GuidanceBackend:
    """The backend of the engine."""
    backend = core_of(llm).scheduler.structured_output_manager.backend
    assert isinstance(backend, GuidanceBackend)
    return backend


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: json.dumps(recorded["format"])[:60])
def test_a_format_allows_what_vllm_allows(backend: GuidanceBackend, recorded: dict[str, Any]) -> None:
    """A format allows the same texts as in vLLM, and one that vLLM refuses is refused."""
    params = params_of(recorded["format"])
    if "refused" in recorded:
        with pytest.raises(InvalidRequestError, match="structural_tag` cannot be used"):
            try_constraint(params, backend)
        return
    try_constraint(params, backend)
    for text, is_accepted in recorded["accepted"].items():
        matcher = backend.compile_grammar(params).ll_matcher
        tokens = backend.ll_tokenizer.tokenize_str(text)
        met = (
            matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()
        )
        assert met == is_accepted, text


def try_constraint(params: StructuredOutputsParams, backend: GuidanceBackend) -> None:
    """Check a constraint as a request's."""
    if (trial := validate_guidance_grammar(params, backend)) is not None:
        trial()


def test_special_tokens_in_a_format(llm: LLM) -> None:
    """The name of a special token in a format is that token, which no text is."""
    text = {"type": "const_string", "value": "a<|im_start|><b>"}
    params = SamplingParams(max_tokens=20, structured_outputs=params_of(text), skip_special_tokens=False)
    [output] = llm.generate("Hello", params, use_tqdm=False)
    assert output.outputs[0].text == "a<|im_start|><b>"
    assert llm.get_tokenizer().convert_tokens_to_ids("<|im_start|>") in output.outputs[0].token_ids


def test_a_schema_in_a_format_is_closed(backend: GuidanceBackend) -> None:
    """A JSON schema in a format is used as one of a request: objects get no other keys."""
    schema = {"type": "object", "properties": {"n": {"type": "boolean"}}, "required": ["n"]}
    matcher = backend.compile_grammar(params_of({"type": "json_schema", "json_schema": schema})).ll_matcher
    tokens = backend.ll_tokenizer.tokenize_str('{"n": true, "other": 1}')
    assert matcher.validate_tokens(tokens) < len(tokens)
