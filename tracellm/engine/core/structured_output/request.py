"""The structured-output side of one request: its constraint, and the grammar that is compiled from it.

`Request` has one when its sampling parameters ask for it. The grammar is a future at first, while a thread compiles
it; the scheduler leaves the request waiting until it is there.

vLLM: vllm/v1/structured_output/request.py. Left out: reasoning.
"""

import json
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property

from tracellm.engine.core.structured_output.backend_types import (
    StructuredOutputGrammar,
    StructuredOutputKey,
    StructuredOutputOptions,
)
from tracellm.engine.sample.sampling_params import SamplingParams, StructuredOutputsParams

__all__ = ["StructuredOutputRequest", "get_structured_output_key"]

_PATIENCE = 1e-4  # seconds that the scheduler gives a grammar that is almost there


@dataclass
class StructuredOutputRequest:
    """A constraint and, sooner or later, its grammar.

    vLLM: vllm/v1/structured_output/request.py::StructuredOutputRequest.
    """

    params: StructuredOutputsParams
    compiling: Future[StructuredOutputGrammar] | None = None
    """The grammar, which a thread is compiling or has compiled; None before `StructuredOutputManager.grammar_init`."""

    @staticmethod
    def from_sampling_params(sampling_params: SamplingParams) -> "StructuredOutputRequest | None":
        """None when the parameters constrain nothing."""
        params = sampling_params.structured_outputs
        return None if params is None or params.all_constraints_none() else StructuredOutputRequest(params)

    @property
    def grammar(self) -> StructuredOutputGrammar | None:
        """The grammar; None while it is being compiled. Raises what the compilation raised."""
        if self.compiling is None:
            return None
        try:
            return self.compiling.result(timeout=_PATIENCE)
        except TimeoutError:
            return None

    @cached_property  # the scheduler asks in every step, and the specification may be large
    def structured_output_key(self) -> StructuredOutputKey:
        """Which kind of constraint, and its specification."""
        return get_structured_output_key(self.params)


def get_structured_output_key(params: StructuredOutputsParams) -> StructuredOutputKey:
    """Which kind of constraint `params` has, and its specification as a string: what is not a string becomes JSON.

    Raises:
        ValueError: there is none (`json_object=False` is none).
        TypeError: the schema holds something that JSON does not have.
    """
    if params.json is not None:
        return StructuredOutputOptions.JSON, params.json if isinstance(params.json, str) else json.dumps(params.json)
    if params.json_object:
        return StructuredOutputOptions.JSON_OBJECT, '{"type": "object"}'
    if params.regex is not None:
        return StructuredOutputOptions.REGEX, params.regex
    if params.choice is not None:
        return StructuredOutputOptions.CHOICE, json.dumps(params.choice)
    if params.grammar is not None:
        return StructuredOutputOptions.GRAMMAR, params.grammar
    if params.structural_tag is not None:
        return StructuredOutputOptions.STRUCTURAL_TAG, params.structural_tag
    raise ValueError("there is no constraint")
