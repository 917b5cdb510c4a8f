"""What the engine asks of the library that knows grammars: a backend compiles them, a grammar follows one output.

There is one backend (backend_guidance.py). vLLM: vllm/v1/structured_output/backend_types.py. Left out: taking tokens
back and looking ahead, which speculative decoding needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracellm.engine.sample.sampling_params import StructuredOutputsParams

__all__ = ["StructuredOutputBackend", "StructuredOutputGrammar", "StructuredOutputKey", "StructuredOutputOptions"]


class StructuredOutputOptions(StrEnum):
    """The kinds of constraints; each has the name of its parameter in `StructuredOutputsParams`.

    vLLM: vllm/v1/structured_output/backend_types.py::StructuredOutputOptions.
    """

    JSON = "json"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"
    STRUCTURAL_TAG = "structural_tag"


StructuredOutputKey = tuple[StructuredOutputOptions, str]
"""A kind and its specification: what the constraint is."""


class StructuredOutputGrammar(ABC):
    """The constraint of one request, at the place that its output has reached.

    vLLM: vllm/v1/structured_output/backend_types.py::StructuredOutputGrammar.
    """

    @abstractmethod
    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Go on by these tokens, just sampled. False when they do not conform."""

    @abstractmethod
    def fill_bitmask(self, bitmask: NDArray[np.int32], batch_index: int) -> None:
        """Write into a row of the bitmask [rows, vocabulary / 32] which tokens may come next: bit i % 32 of word
        i // 32 is 1 when token i may."""

    @abstractmethod
    def is_terminated(self) -> bool:
        """Has the end-of-sequence token been accepted? Then nothing constrains what follows (`ignore_eos`)."""


class StructuredOutputBackend(ABC):
    """Compiles constraints for the tokenizer of one model.

    vLLM: vllm/v1/structured_output/backend_types.py::StructuredOutputBackend.
    """

    @abstractmethod
    def compile_grammar(self, params: StructuredOutputsParams) -> StructuredOutputGrammar:
        """The grammar of a constraint, at its beginning. Safe to call in several threads."""

    @abstractmethod
    def allocate_token_bitmask(self, max_num_seqs: int) -> NDArray[np.int32]:
        """A bitmask that allows everything, int32 [max_num_seqs, vocabulary / 32, rounded up]."""
