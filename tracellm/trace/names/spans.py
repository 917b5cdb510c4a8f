"""Names of spans that are no function's, and the levels that a call can sit at."""

from typing import Literal

__all__ = ["HTTP_SPAN", "LAUNCH_SPAN", "LEVELS", "REQUEST_SPAN", "SCRIPT_SPAN", "USERS_SPAN", "Level"]

Level = Literal["request", "step", "layer", "kernel"]
"""Depth of a call in the engine: once a request, once a step, once a layer of the model, once an operation."""

LEVELS: tuple[Level, ...] = ("request", "step", "layer", "kernel")
"""The levels from the coarsest to the finest; a recording or a drawing "to level X" holds X and all before it."""

REQUEST_SPAN = "llm_request"
"""The name of a span that is a request's life, from its submission to its end: a root of its own, and no call."""

USERS_SPAN = "a span of the program's own"
"""Placeholder for the names of spans that the program opened with OpenTelemetry: they have the attribute SCOPE."""

SCRIPT_SPAN = "the script"
"""Placeholder for the names of spans of scripts: their files' names."""

LAUNCH_SPAN = "<kernel>"
"""Name of the span of a Triton kernel's launch: `paged_attention_v1_kernel`."""

HTTP_SPAN = "<method> <path>"
"""Name of the span of an HTTP request to the server: `POST /v1/completions`."""
