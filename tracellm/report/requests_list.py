"""All requests of a run as text, for `tracellm show RUN requests`, with whole ids and reasons, so that a search finds
each.

A server's HTTP requests come in the order of arrival, each with the requests that it submitted to the engine below it.
One that was refused has its reason there. A script's requests stand for themselves.
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from textwrap import wrap

from rich.cells import cell_len

from tracellm.report.facts.http_requests import HttpRequest, http_request_of, http_requests
from tracellm.report.facts.messages import ParsedMessage, parsed_messages
from tracellm.report.facts.requests import RequestFacts, RequestTimes, request_times, requests
from tracellm.report.texts import text
from tracellm.report.wording.changes import finish_reason
from tracellm.report.wording.quantities import duration
from tracellm.report.wording.safe_text import visible
from tracellm.trace.model import Trace

__all__ = ["failed_text", "http_text", "message_text", "request_facts", "requests_list"]

_TIME = 10
"""Columns of a time."""
_INDENT = " " * (2 * _TIME + 2)


def requests_list(trace: Trace, lang: str, width: int) -> str:
    """Return all requests, `width` columns wide where ids allow it, ending in a newline."""
    found = {request.span_id: request for request in requests(trace.spans)}
    from_http, times, messages = http_request_of(trace), request_times(trace), parsed_messages(trace)
    others = [trace.by_id[span_id] for span_id in found if span_id not in from_http]
    by_span = {http.span.span_id: http for http in http_requests(trace)}
    spans = sorted([*(http.span for http in by_span.values()), *others], key=attrgetter("start_ns"))
    if not spans:
        return text(lang, "html.requests.none") + "\n"
    heads = [text(lang, f"requests.{name}") for name in ("at", "time", "request")]
    lines = [_line(*heads)]
    start = trace.spans[0].start_ns
    for span in spans:
        http = by_span.get(span.span_id)
        title = http_text(http, lang) if http else text(lang, "html.request", id=visible(found[span.span_id].id))
        took = "" if span.open else duration(span.duration_ns / 1e9)
        lines.append(_line(f"{(span.start_ns - start) / 1e9:,.3f} s", took, title))
        below = _below(found[span.span_id], times, lang) if http is None else _of_http(http, found, times, lang)
        if http is not None and (message := messages.get(span.span_id)) is not None:
            below = [*below, message_text(message, lang)]
        for part in below:
            lines += wrap(
                part,
                width,
                initial_indent=_INDENT,
                subsequent_indent=_INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines) + "\n"


def _line(at: str, took: str, title: str) -> str:
    padded = (" " * (_TIME - cell_len(part)) + part for part in (at, took))
    return " ".join([*padded, title])


def http_text(http: HttpRequest, lang: str) -> str:
    """Return `POST /v1/completions → 400 BadRequestError`, and the client's id."""
    title = _answered(http)
    if http.span.open:
        title = text(lang, "calltree.open", name=title)
    return f"{title} · X-Request-Id {visible(http.client_id)}" if http.client_id else title


def _answered(http: HttpRequest) -> str:
    return f"{visible(http.title)} → {http.answer}" if http.answer else visible(http.title)


def message_text(message: ParsedMessage, lang: str) -> str:
    """Return `parsed into 34 characters of reasoning, a call of weather`."""
    counts = {"reasoning": message.reasoning, "content": message.content}
    parts = [text(lang, f"requests.parsed.{name}", n=count) for name, count in counts.items() if count]
    parts += [text(lang, "requests.parsed.tool_call", name=visible(name)) for name in message.tool_calls]
    return text(lang, "requests.parsed", parts=text(lang, "step.comma").join(parts))


def failed_text(http: HttpRequest, lang: str) -> str:
    """Return `POST /v1/completions → 400 BadRequestError: ...`, with the message of the error if it is recorded."""
    what = _answered(http)
    return text(lang, "requests.failed", what=what, message=visible(http.error)) if http.error else what


def _of_http(
    http: HttpRequest, found: Mapping[str, RequestFacts], times: Mapping[str, RequestTimes], lang: str
) -> Iterator[str]:
    if http.error:
        yield visible(http.error)
    for span_id in http.submitted:
        request = found[span_id]
        facts = " · ".join(_below(request, times, lang))
        yield f"{text(lang, 'html.request', id=visible(request.id))} · {facts}"


def _below(request: RequestFacts, times: Mapping[str, RequestTimes], lang: str) -> list[str]:
    tokens = text(lang, "html.request.tokens", prompt=request.input_tokens or 0, output=request.output_tokens or 0)
    error = [visible(request.error)] if request.error else []
    return [" · ".join([tokens, *request_facts(request, times, lang), *error])]


def request_facts(request: RequestFacts, times: Mapping[str, RequestTimes], lang: str) -> list[str]:
    """Return the finish reason of a request, its time, its steps, and its times in each state."""
    facts = [
        text(lang, "html.request.unfinished")
        if request.ended_by is None
        else text(lang, "html.request.ended", why=finish_reason(request.ended_by, lang)),
        duration(request.seconds),
    ]
    if request.steps is not None:
        facts.append(text(lang, "common.steps", n=request.steps))
    if (took := times.get(request.span_id)) is not None:
        facts += [
            text(lang, f"html.request.{part}", time=duration(seconds))
            for part in ("queued", "prefill", "first_token", "decode")
            if (seconds := getattr(took, part)) is not None
        ]
    return facts
