"""Every attribute name that a span, a process or a run may carry, each defined once: all names are `names.NAME`.

They are defined by subject: `calls` (any call, one that failed, the program's own spans), `processes` (who recorded,
and what crosses between), `requests`, `startup` (client, configuration, model, KV cache), `steps`, `triton` (kernels).
`spans` has the names of spans that are no function's.

Where a standard has a name it is used: OpenTelemetry's `code.*`, `thread.*`, `process.*`, `exception.*`, and `gen_ai.*`
for what a request asked for and used. What only an inference engine knows lives under `tracellm.*`.

Values are what OTLP can hold without nesting: strings, integers, floats, booleans and arrays of one of these.

vLLM has a small counterpart for its own tracing: `vllm/tracing.py::SpanAttributes`.
"""

# ruff: noqa: F403  (the names are many, and each is listed where it is defined)
from tracellm.trace.names.attribute import ATTRIBUTES, Attribute
from tracellm.trace.names.calls import *
from tracellm.trace.names.processes import *
from tracellm.trace.names.requests import *
from tracellm.trace.names.spans import HTTP_SPAN, LAUNCH_SPAN, LEVELS, REQUEST_SPAN, SCRIPT_SPAN, USERS_SPAN, Level
from tracellm.trace.names.startup import *
from tracellm.trace.names.steps import *
from tracellm.trace.names.triton import *

__all__ = [
    "ATTRIBUTES",
    "HTTP_SPAN",
    "LAUNCH_SPAN",
    "LEVELS",
    "PRIVATE",
    "REQUEST_SPAN",
    "SCRIPT_SPAN",
    "USERS_SPAN",
    "Attribute",
    "Level",
]

PRIVATE = frozenset(name for name, attribute in ATTRIBUTES.items() if attribute.private)
"""Names whose values may hold a user's text: left out of a recording made with `--no-text`."""
