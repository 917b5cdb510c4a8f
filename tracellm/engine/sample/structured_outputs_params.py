"""Which form a request's output must have: one constraint, a JSON schema, a regular expression, a choice or a grammar.

A part of `SamplingParams` (its `structured_outputs`), checked when it is made. `structured_output/` turns it into a
mask over the vocabulary at each step.

vLLM: vllm/sampling_params.py::StructuredOutputsParams. Left out: the choice of a backend, as there is one.
"""

import warnings
from dataclasses import dataclass
from typing import Any

from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.validation import Rule, all_are, anything, reject_unknown_fields, verify

__all__ = ["GuidedDecodingParams", "StructuredOutputsParams"]

_CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_RULES = (
    Rule("json", (str, dict), anything, "a JSON schema, as a dict or a string, or None"),
    Rule("regex", str, anything, "a regular expression, or None"),
    Rule("choice", (list, tuple), all_are(str, anything), "a list of strings, or None"),
    Rule("grammar", str, anything, "a context-free grammar as a string, or None"),
    Rule("json_object", bool, anything, "True or False, or None"),
    Rule("disable_fallback", bool, anything, "True or False"),
    Rule("disable_any_whitespace", bool, anything, "True or False"),
    Rule("disable_additional_properties", bool, anything, "True or False"),
    Rule("whitespace_pattern", str, anything, "a regular expression, or None"),
    Rule("structural_tag", str, anything, "a structural tag, JSON as a string, or None"),
)


@dataclass
class StructuredOutputsParams:
    """One constraint on the output of a request, and how to read it; names and defaults as in vLLM.

    Raises:
        EngineError: more than one constraint, an unknown name, or a value of the wrong type.
    """

    json: str | dict[str, Any] | None = None
    """A JSON schema: the output is JSON that conforms to it."""
    regex: str | None = None
    """A regular expression that the whole output matches."""
    choice: list[str] | None = None
    """The output is one of these strings."""
    grammar: str | None = None
    """A context-free grammar, in EBNF or in Lark's form."""
    json_object: bool | None = None
    """`True`: the output is some JSON object."""
    disable_fallback: bool = False
    """Accepted for vLLM's sake; there is one backend, and nothing to fall back to."""
    disable_any_whitespace: bool = False
    """JSON without spaces and line breaks between its parts."""
    disable_additional_properties: bool = False
    """JSON objects have only the properties that the schema names."""
    whitespace_pattern: str | None = None
    """What may stand between the parts of JSON, as a regular expression."""
    structural_tag: str | None = None
    """Tags that open a constrained section within free text, as JSON."""

    def __new__(cls, *args: object, **kwargs: object) -> "StructuredOutputsParams":
        """Refuse unknown names before `__init__` does, with what is accepted."""
        reject_unknown_fields(cls, kwargs)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        owner = type(self).__name__
        verify(owner, self, _RULES)
        given = {name: getattr(self, name) for name in _CONSTRAINTS if getattr(self, name) is not None}
        if len(given) > 1:
            listed = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise EngineError(
                f"{owner} takes only one kind of constraint, got {len(given)}: {listed}. Keep one of them."
            )
        if self.choice is not None:
            self.choice = list(self.choice)

    def all_constraints_none(self) -> bool:
        """Is there no constraint at all? Then the request runs as without structured outputs."""
        return all(getattr(self, name) is None for name in _CONSTRAINTS)


class GuidedDecodingParams(StructuredOutputsParams):
    """The older name of `StructuredOutputsParams`; deprecated in vLLM 0.11, and gone in 0.12."""

    def __post_init__(self) -> None:
        warnings.warn(
            "GuidedDecodingParams is deprecated, as in vLLM 0.11: use StructuredOutputsParams.",
            DeprecationWarning,
            stacklevel=3,
        )
        super().__post_init__()
