"""Property test: for any schema, an output that ended by itself is JSON that conforms to it."""

import json
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracellm import SamplingParams
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

_NAMES = st.sampled_from(["a", "b c", "名", "😀", '"', "é\n"])
_VALUES = st.none() | st.booleans() | st.integers(-99, 99) | st.sampled_from(["x", "北京", "\\", "😀😀", ""])
_BOUNDS = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(sorted)


@st.composite
def _strings(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["length", "pattern", "format"]))
    if kind == "length":
        low, high = draw(_BOUNDS)
        return {"type": "string", "minLength": low, "maxLength": high}
    if kind == "pattern":
        return {"type": "string", "pattern": draw(st.sampled_from(["^[a-c]{1,3}$", "^(ü|一)$", "^x?y*$"]))}
    return {"type": "string", "format": draw(st.sampled_from(["date", "time", "ipv4", "uuid"]))}


@st.composite
def _numbers(draw: st.DrawFn) -> dict[str, Any]:
    low, high = sorted(draw(st.tuples(st.integers(-200, 200), st.integers(-200, 200))))
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    return schema | draw(st.sampled_from([{}, {"minimum": low}, {"maximum": high}, {"minimum": low, "maximum": high}]))


def _objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def make(properties: dict[str, Any], optional: set[str], additional: Any) -> dict[str, Any]:
        required = [name for name in properties if name not in optional]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": additional,
        }

    return st.builds(make, st.dictionaries(_NAMES, inner, max_size=3), st.sets(_NAMES), st.just(False) | inner)


def _arrays(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda items, bounds: {"type": "array", "items": items, "minItems": bounds[0], "maxItems": bounds[1]},
        inner,
        _BOUNDS,
    )


_LEAVES = (
    st.builds(lambda value: {"const": value}, _VALUES)
    | st.builds(lambda values: {"enum": values}, st.lists(_VALUES, min_size=1, max_size=4, unique_by=repr))
    | st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["null", "boolean"]}])
    | _numbers()
    | _strings()
)
SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: (
        _objects(inner)
        | _arrays(inner)
        | st.builds(lambda choices: {"anyOf": choices}, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(schemas=st.lists(SCHEMAS, min_size=5, max_size=5), seed=st.integers(0, 2**31))
def test_what_ends_conforms(llm, schemas, seed):
    """Outputs at temperature 2 conform to their schemas, in compact form and with spaces."""
    params = [
        SamplingParams(
            temperature=2.0,
            seed=seed + index,
            max_tokens=120,
            structured_outputs=StructuredOutputsParams(json=schema, disable_any_whitespace=index > 0),
        )
        for index, schema in enumerate(schemas)
    ]
    outputs = llm.generate(["JSON:"] * len(schemas), params, use_tqdm=False)
    for schema, output in zip(schemas, outputs, strict=True):
        completion = output.outputs[0]
        if completion.finish_reason == "stop":
            jsonschema.validate(json.loads(completion.text), schema, jsonschema.Draft202012Validator)
