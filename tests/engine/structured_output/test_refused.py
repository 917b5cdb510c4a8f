"""Tests of invalid constraints, which are refused before anything runs, with their parameter's name."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

REPEATING = {"type": "string", "pattern": "(a{1000}){1000}"}
TAG = {"begin": "<f>", "schema": {}, "end": ""}

WRONG: dict[str, list[tuple[Any, str]]] = {
    "json": [
        ("{bad", "is not JSON (Expecting property name"),
        ("[]", "must be a JSON object"),
        ({"type": "objekt"}, "Invalid type: objekt"),
        ({"not": {"type": "string"}}, 'these keywords are not supported: ["not"]'),
        ({"type": "array", "uniqueItems": True}, 'these keywords are not supported: ["uniqueItems"]'),
        ({"type": "string", "pattern": "("}, "unclosed group"),
        (REPEATING, "it is too complex: too many properties or alternatives, repetitions"),
        (
            {"type": "object", "propertyNames": {"pattern": "(a{1000}){1000}"}},
            "it is too complex: too many properties or alternatives, repetitions",
        ),
        ({"type": "string", "format": "colour"}, "Unknown format: colour"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum (5) is greater than maximum (3)"),
        ({"$ref": "http://example.org/schema"}, "Resource 'http://example.org/schema' is not present"),
        ({"enum": {1, 2}}, "set is not JSON serializable"),
    ],
    "json_object": [(False, "must be True or left out")],
    "regex": [
        ("(", "unclosed group"),
        ("(?=a)b", "look-ahead and look-behind, is not supported"),
        (r"(a)\1", "backreferences are not supported"),
        ("a^b", "lookarounds not supported"),
        ("a{3,2}", "invalid repetition count range"),
        ("(a{1000}){1000}", "it is too complex: too many properties or alternatives, repetitions"),
        ("a{1000000}", "it is too complex: too many properties or alternatives, repetitions"),
    ],
    "choice": [([], "at least one string")],
    "grammar": [
        ("  \n", "blank"),
        ("start: x", 'unknown name: "x"'),
        ('root ::= "a" | b', "Rule 'b' not found"),
        ("start: <nope>", 'unknown special token: "<nope>".'),
        ("root ::= root", "no text that this tokenizer can write meets it"),
        ("hello", "Expected ::="),
        ("start: A\nA: /(a{1000}){1000}/", "it is too complex: too many properties or alternatives, repetitions"),
        ('start: ("a"{1000}){1000}', "it is too complex: too many properties or alternatives, repetitions"),
        ('start: "a"?' + ' "a"?' * 3000, "it is too complex: too many properties or alternatives, repetitions"),
    ],
    "structural_tag": [
        ("<f>", "is not JSON"),
        ("{}", "'triggers' is missing"),
        ('{"format": null}', "Expected `object`, got `null`"),
        (json.dumps({"format": {"type": "regex", "pattern": "(a{1000}){1000}"}}), "it is too complex"),
        (json.dumps({"format": {"type": "grammar", "grammar": "root ::= b"}}), "Rule 'b' not found"),
        (json.dumps({"format": {"type": "json_schema", "json_schema": REPEATING}}), "it is too complex"),
        (json.dumps({"format": {"type": "json_schema", "json_schema": False}}), "the schema `false` allows nothing"),
        (
            json.dumps({"format": {"type": "or", "elements": [{"type": "any_text"}] * 1000}}),
            "more than 1,000 formats and",
        ),
        (
            json.dumps({"format": {"type": "triggered_tags", "triggers": ["<"] * 1000, "tags": []}}),
            "more than 1,000 formats and triggers",
        ),
        (
            json.dumps(
                {
                    "format": {
                        "type": "or",
                        "elements": [
                            {"type": "regex", "pattern": "start: /a/\n//(a{1000}){1000}"},
                            {"type": "grammar", "grammar": "start: /a/\n//(a{1000}){1000}"},
                        ],
                    }
                }
            ),
            "it is too complex",
        ),
        (json.dumps({"triggers": ["<f"], "structures": []}), "`structures` is empty"),
        (json.dumps({"triggers": ["<g"], "structures": [TAG]}), "'<f>' does not start with any of the triggers"),
        (json.dumps({"triggers": ["<f"], "structures": [TAG | {"schema": {"type": "x"}}]}), "Invalid type: x"),
        (
            json.dumps({"triggers": ["<f"], "structures": [TAG | {"schema": REPEATING}]}),
            "it is too complex: too many properties or alternatives, repetitions",
        ),
        (
            json.dumps({"triggers": ["<f"], "structures": [TAG | {"schema": 3}]}),
            "each with `begin`, `schema` and `end`",
        ),
    ],
}
CASES = [(name, value, reason) for name, cases in WRONG.items() for value, reason in cases]


@pytest.mark.parametrize(("name", "value", "reason"), CASES, ids=[f"{name}={value!r}"[:40] for name, value, _ in CASES])
def test_it_is_refused_by_name(llm, name, value, reason):
    """The message names the parameter and the problem in one line, and nothing is left in the engine."""
    params = SamplingParams(structured_outputs=StructuredOutputsParams(**{name: value}))
    with pytest.raises(InvalidRequestError) as refused:
        llm.generate("Hello", params, use_tqdm=False)
    message = str(refused.value)
    assert name in message
    assert reason in message
    assert len(message.splitlines()) == 1
    assert len(message) < 400
    assert not llm.llm_engine.has_unfinished_requests()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"regex": "a", "disable_any_whitespace": True},
            "`structured_outputs.regex`.*`disable_any_whitespace` is about",
        ),
        (
            {"choice": ["a"], "whitespace_pattern": " "},
            "`structured_outputs.choice`.*`whitespace_pattern` is about JSON",
        ),
        ({"json_object": True, "whitespace_pattern": "("}, "`structured_outputs.json_object`.*unclosed group"),
        (
            {"json_object": True, "whitespace_pattern": " ", "disable_any_whitespace": True},
            "`disable_any_whitespace` leaves nothing for `whitespace_pattern`",
        ),
    ],
)
def test_options_that_mean_nothing_are_refused(llm, options, reason):
    """JSON options are refused without JSON, or if they contradict each other."""
    with pytest.raises(InvalidRequestError, match=reason):
        llm.generate("Hello", SamplingParams(structured_outputs=StructuredOutputsParams(**options)), use_tqdm=False)


def test_one_bad_constraint_refuses_the_call(llm):
    """One invalid constraint refuses the whole call, and the next call works."""
    good, bad = (SamplingParams(structured_outputs=StructuredOutputsParams(regex=r)) for r in ("[ab]", "["))
    with pytest.raises(EngineError, match="unclosed character class"):
        llm.generate(["a", "b"], [good, bad], use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()
    assert llm.generate("a", good, use_tqdm=False)[0].outputs[0].text in ("a", "b")


def test_without_a_tokenizer_there_are_none(qwen2_checkpoint):
    """Without a tokenizer constraints are refused."""
    llm = LLM(str(qwen2_checkpoint), skip_tokenizer_init=True, num_gpu_blocks_override=50)
    params = SamplingParams(structured_outputs=StructuredOutputsParams(json_object=True), detokenize=False)
    with pytest.raises(InvalidRequestError, match=r"`structured_outputs` need the tokenizer"):
        llm.generate({"prompt_token_ids": [1, 2]}, params, use_tqdm=False)


def test_the_library_is_imported_when_it_is_needed(qwen2_checkpoint):
    """An engine without structured outputs does not import llguidance, and starts no thread for it."""
    code = f"""
import sys, threading
from tracellm import LLM, SamplingParams
from tracellm.engine.sample.sampling_params import StructuredOutputsParams
llm = LLM({str(qwen2_checkpoint)!r}, num_gpu_blocks_override=50)
grammar_threads = lambda: [thread.name for thread in threading.enumerate() if thread.name.startswith("grammar")]
llm.generate("a", SamplingParams(max_tokens=2), use_tqdm=False)
print("llguidance" in sys.modules, len(grammar_threads()))
llm.generate("a", SamplingParams(max_tokens=2, structured_outputs=StructuredOutputsParams(regex="a")), use_tqdm=False)
print("llguidance" in sys.modules, len(grammar_threads()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["False 0", "True 1"], done.stderr
