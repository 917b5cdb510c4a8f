"""The constraint of one request, and the interfaces of the grammar and of the backend that compiles it.

`Request` has a `StructuredOutputRequest` if its sampling parameters constrain the output. A thread compiles the
grammar, and the scheduler skips the request until it is ready.

vLLM: vllm/v1/structured_output/request.py and backend_types.py. Left out: removing tokens and looking ahead, for
speculative decoding.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from tracellm.engine.sample.sampling_params import SamplingParams, StructuredOutputsParams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "StructuredOutputBackend",
    "StructuredOutputGrammar",
    "StructuredOutputKey",
    "StructuredOutputOptions",
    "StructuredOutputRequest",
    "get_structured_output_key",
]

_GRAMMAR_TIMEOUT = 1e-4
"""Seconds that the scheduler waits for a grammar that is almost compiled."""


class StructuredOutputOptions(StrEnum):
    """Kinds of constraints, named like the parameters of `StructuredOutputsParams`.

    vLLM: vllm/v1/structured_output/backend_types.py::StructuredOutputOptions.
    """

    JSON = "json"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"


StructuredOutputKey = tuple[StructuredOutputOptions, str]
"""The kind of a constraint, and its specification."""


class StructuredOutputGrammar(ABC):
    """The compiled constraint of one request, and the state that its output has reached.

    vLLM: vllm/v1/structured_output/backend_types.py::StructuredOutputGrammar.
    """

    @abstractmethod
    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advance by the sampled tokens. Return False if they violate the constraint."""

    @abstractmethod
    def fill_bitmask(self, bitmask: NDArray[np.int32], batch_index: int) -> None:
        """Write the allowed next tokens into a row of the bitmask [rows, vocabulary / 32].

        Bit i % 32 of word i // 32 is 1 if token i is allowed.
        """

    @property
    def error(self) -> str | None:
        """Reason that the constraint cannot be followed further, which ends the request by an error; usually None."""
        return None

    @abstractmethod
    def is_terminated(self) -> bool:
        """Return whether the end-of-sequence token was accepted. Later tokens (`ignore_eos`) are unconstrained."""


class StructuredOutputBackend(ABC):
    """Compiler of constraints for the tokenizer of one model.

    vLLM: vllm/v1/structured_output/backend_types.py::StructuredOutputBackend.
    """

    @abstractmethod
    def compile_grammar(self, params: StructuredOutputsParams) -> StructuredOutputGrammar:
        """Compile a constraint. Thread-safe."""

    @abstractmethod
    def allocate_token_bitmask(self, max_num_seqs: int) -> NDArray[np.int32]:
        """Create a bitmask that allows everything, int32 [max_num_seqs, vocabulary / 32, rounded up]."""


@dataclass
class StructuredOutputRequest:
    """The constraint of one request, and its grammar when it is compiled.

    vLLM: vllm/v1/structured_output/request.py::StructuredOutputRequest.
    """

    params: StructuredOutputsParams
    compiling: Future[StructuredOutputGrammar] | None = None
    """The grammar; None before `StructuredOutputManager.grammar_init`."""
    reasoning_ended: bool = True
    """False while the output is reasoning, to which the grammar does not apply."""

    @staticmethod
    def from_sampling_params(sampling_params: SamplingParams | None) -> StructuredOutputRequest | None:
        """Return the constraint of these parameters, or None."""
        params = None if sampling_params is None else sampling_params.structured_outputs
        return None if params is None or params.all_constraints_none() else StructuredOutputRequest(params)

    @property
    def grammar(self) -> StructuredOutputGrammar | None:
        """The grammar, or None while it is being compiled. Raises the error of the compilation."""
        if self.compiling is None:
            return None
        try:
            return self.compiling.result(timeout=_GRAMMAR_TIMEOUT)
        except TimeoutError:
            return None

    @cached_property  # read in each step until the grammar is compiled
    def structured_output_key(self) -> StructuredOutputKey:
        """The kind of the constraint, and its specification."""
        return get_structured_output_key(self.params)


def get_structured_output_key(params: StructuredOutputsParams) -> StructuredOutputKey:
    """Return the kind of the constraint, and its specification as a string (JSON, where it is not a string).

    Raises:
        ValueError: there is no constraint (`json_object=False` is none).
        TypeError: the schema cannot be encoded as JSON.
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
