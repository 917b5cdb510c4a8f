"""The HTTP requests of a server's run: how each was answered, and the requests that it submitted to the engine.

A request that was refused has no `llm_request`; its HTTP request is all that is recorded of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracellm.report.wording.titles import http_answer
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace

__all__ = ["HttpRequest", "http_request", "http_request_around", "http_request_of", "http_requests", "refused"]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request.

    Attributes:
        span: its span.
        answer: status, and type of the error: `200`, `400 BadRequestError`; empty if it was not answered.
        error: message of the error; "" without one, or in a recording without text.
        client_id: X-Request-Id of the client, else the one in the response; "" if there is none.
        submitted: ids of the spans of the requests that it submitted to the engine.
    """

    span: Span
    answer: str
    error: str
    client_id: str
    submitted: tuple[str, ...]

    @property
    def title(self) -> str:
        """`POST /v1/completions`."""
        return self.span.name

    @property
    def failed(self) -> bool:
        """Whether the client got an error, or left."""
        return names.ERROR_TYPE in self.span.attributes or self.span.error is not None

    @property
    def client_left(self) -> bool:
        """Whether the client left before all of the response was sent."""
        return self.span.attributes.get(names.ERROR_TYPE) == names.CLIENT_DISCONNECTED


@per_trace
def http_requests(trace: Trace) -> tuple[HttpRequest, ...]:
    """Return the HTTP requests, in the order of arrival."""
    submitted: dict[str, list[str]] = {}
    for span_id, above in _around(trace).items():
        submitted.setdefault(above.span_id, []).append(span_id)
    return tuple(
        http_request(span, submitted.get(span.span_id, ()))
        for span in trace.spans
        if names.HTTP_METHOD in span.attributes
    )


def refused(trace: Trace) -> list[HttpRequest]:
    """Return the HTTP requests that failed before they submitted a request."""
    return [http for http in http_requests(trace) if http.failed and not http.submitted]


def http_request_of(trace: Trace) -> Mapping[str, HttpRequest]:
    """Return the HTTP request that submitted each request, by the span id of the latter."""
    return {span_id: http for http in http_requests(trace) for span_id in http.submitted}


def _around(trace: Trace) -> dict[str, Span]:
    """Return the span of the HTTP request around each request's span."""
    around = ((span.span_id, http_request_around(trace, span)) for span in trace.named(names.REQUEST_SPAN))
    return {span_id: above for span_id, above in around if above is not None}


def http_request_around(trace: Trace, span: Span) -> Span | None:
    """Return the span of the HTTP request above a span; None if there is none."""
    above = trace.parent(span)
    while above is not None and names.HTTP_METHOD not in above.attributes:
        above = trace.parent(above)
    return above


def http_request(span: Span, submitted: Iterable[str] = ()) -> HttpRequest:
    """Return the HTTP request of a span, with the requests that it submitted."""
    get = span.attributes.get
    message = get(names.HTTP_ERROR) or (span.error or "").partition(": ")[2]
    ids = get(names.HTTP_SENT_ID) or get(names.HTTP_GIVEN_ID)
    client_id = str(ids[0]) if isinstance(ids, list) and ids else ""
    return HttpRequest(span, http_answer(span), str(message), client_id, tuple(submitted))
