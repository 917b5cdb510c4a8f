"""The messages that a server made of outputs: how much reasoning and content, and which tool calls.

The parsers' spans stand below the HTTP request: one for a complete text, or one for each piece of a stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tracellm.report.facts.http_requests import http_request_around
from tracellm.report.facts.requests import as_int, as_list
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace

__all__ = ["ParsedMessage", "parsed_messages"]

_PARSED = {names.PARSED_REASONING, names.PARSED_CONTENT, names.PARSED_TOOL_CALLS}


@dataclass(slots=True)
class ParsedMessage:
    """Characters of reasoning and content, and the names of the called functions, one for each call."""

    reasoning: int = 0
    content: int = 0
    tool_calls: tuple[str, ...] = ()


@per_trace
def parsed_messages(trace: Trace) -> Mapping[str, ParsedMessage]:
    """Return what was found in the outputs of each HTTP request, by the id of its span; for n > 1, in all of them.

    A parser of tool calls gets the content that one of reasoning has found: the content of both counts once.
    """
    by_reasoning: dict[str, ParsedMessage] = {}
    found: dict[str, ParsedMessage] = {}
    for span in trace.spans:
        if _PARSED.isdisjoint(span.attributes) or (http := http_request_around(trace, span)) is None:
            continue
        by_kind = by_reasoning if ".extract_reasoning" in span.name else found
        message = by_kind.setdefault(http.span_id, ParsedMessage())
        message.reasoning += as_int(span.attributes.get(names.PARSED_REASONING)) or 0
        message.content += as_int(span.attributes.get(names.PARSED_CONTENT)) or 0
        message.tool_calls += tuple(map(str, as_list(span.attributes.get(names.PARSED_TOOL_CALLS))))
    for span_id, first in by_reasoning.items():
        found.setdefault(span_id, ParsedMessage(content=first.content)).reasoning += first.reasoning
    return found
