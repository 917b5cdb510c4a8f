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
from tracellm.engine.core.structured_output.structural_tag import grammar_of
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = [json.loads(line) for line in (FIXTURES / "structural-tags.jsonl").read_text("utf-8").splitlines()]

REFUSALS = (
    *("only the last element of a sequence", "needs at least one element", "either all elements of an `or`"),
    *("Invalid value 'const'", "unclosed group", "must start with exactly one of the triggers"),
    *("missing required field `separator`", "missing required field `end`"),
)
ANY = {"type": "any_text"}


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
        with pytest.raises(InvalidRequestError, match="|".join(REFUSALS)):
            try_constraint(params, backend)
        return
    try_constraint(params, backend)
    for text, is_accepted in recorded["accepted"].items():
        assert accepts(backend, recorded["format"], text) == is_accepted, text


def try_constraint(params: StructuredOutputsParams, backend: GuidanceBackend) -> None:
    """Check a constraint as a request's."""
    if (trial := validate_guidance_grammar(params, backend)) is not None:
        trial()


def accepts(backend: GuidanceBackend, format: dict[str, Any], text: str) -> bool:
    """Return whether a format allows a text as a whole output."""
    matcher = backend.compile_grammar(params_of(format)).ll_matcher
    tokens = backend.ll_tokenizer.tokenize_str(text)
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ({"type": "const_string", "value": 'a"\\/\x7f\n\x00\u2028é'}, 'a"\\/\x7f\n\x00\u2028é'),
        ({"type": "regex", "pattern": "a\\\nb/\\/\\\\"}, "a\nb//\\"),
        ({"type": "regex", "pattern": "a\nb"}, "a\nb"),
    ],
)
def test_characters_with_a_meaning_in_the_notation(backend: GuidanceBackend, format: dict[str, Any], text: str) -> None:
    """Quotes, slashes, backslashes and line ends in a format mean themselves."""
    assert accepts(backend, format, text)
    assert not accepts(backend, format, text + "x")


def test_tags_in_tags(backend: GuidanceBackend) -> None:
    """The grammar of tags in tags grows with their number, although a tag can begin in two ways."""
    lengths = []
    for depth in (10, 20):
        format: dict[str, Any] = ANY
        for _ in range(depth):
            tag = {"type": "tag", "begin": "<a>", "content": format, "end": "</a>"}
            format = {"type": "triggered_tags", "triggers": ["<"], "tags": [tag], "at_least_one": True}
        lengths.append(len(grammar_of({"format": format}, dict, backend.is_special)))
    assert lengths[1] < 2.2 * lengths[0]


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ({"type": "tag", "begin": "<a>", "content": ANY, "end": "\n<|im_end|>"}, "text before a special token"),
        (
            {
                "type": "triggered_tags",
                "triggers": ["<|im_"],
                "tags": [{"begin": "<|im_start|>", "content": ANY, "end": "."}],
            },
            "ends within a special token",
        ),
    ],
)
def test_special_tokens_that_cannot_be_found(backend: GuidanceBackend, format: dict[str, Any], expected: str) -> None:
    """A special token that only a part of an end or of a trigger leads to is refused."""
    with pytest.raises(InvalidRequestError, match=expected):
        try_constraint(params_of(format), backend)


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
    assert not accepts(backend, {"type": "json_schema", "json_schema": schema}, '{"n": true, "other": 1}')
