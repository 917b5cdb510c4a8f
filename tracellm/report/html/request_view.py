"""The page's part about requests: prompt, outputs, parameters, and times."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tracellm.report.facts.http_requests import HttpRequest, http_request_of, refused
from tracellm.report.facts.items.uses import ItemUse, item_uses
from tracellm.report.facts.messages import ParsedMessage, parsed_messages
from tracellm.report.facts.requests import RequestFacts, RequestTimes, request_times, requests
from tracellm.report.html.items_data import item_views
from tracellm.report.requests_list import http_text, message_text, request_facts
from tracellm.report.texts import text
from tracellm.report.wording.quantities import clip, duration
from tracellm.report.wording.safe_text import beginning, visible
from tracellm.trace.model import Trace

__all__ = ["requests_view"]

MOST_REQUESTS = 100
MOST_CHARACTERS = 6000
"""Characters of one prompt or one output."""
MOST_CHARACTERS_IN_ALL = 400_000
"""Characters of all prompts and outputs; beyond that only the beginning of each is shown."""
BEGINNING = 300
_LONGEST_ERROR = 2000
_LONGEST_VALUE = 400

_View = dict[str, Any]


def requests_view(trace: Trace, lang: str) -> _View:
    """Return the requests, each with its texts and its end; the outputs of one with n > 1 stand below it.

    HTTP requests that were refused stand among them, in the order of arrival.
    """
    every: list[RequestFacts | HttpRequest] = [*requests(trace.spans), *refused(trace)]
    every.sort(key=lambda one: one.span.start_ns if isinstance(one, HttpRequest) else trace.by_id[one.span_id].start_ns)
    shown, more = clip(every, MOST_REQUESTS)
    times, http_requests = request_times(trace), http_request_of(trace)
    content = _Texts(lang)
    uses, messages = item_uses(trace), parsed_messages(trace)
    views: list[_View] = []
    for _, family in groupby(shown, key=_family):
        first, *others = family
        if isinstance(first, HttpRequest):
            views.append(_refused(first, lang))
        else:
            own = [first, *(other for other in others if isinstance(other, RequestFacts))]
            http = http_requests.get(first.span_id)
            message = None if http is None else messages.get(http.span.span_id)
            views.append(_request(own, times, http, message, uses, content, lang))
    return {"requests": views, "more_requests": more}


def _family(one: RequestFacts | HttpRequest) -> tuple[str, str | None]:
    """Return a key that the outputs of one request share. Two engines may use a request id for two requests."""
    if isinstance(one, HttpRequest):
        return one.span.span_id, None
    return (one.span_id if one.parent is None else "", one.parent)


def _refused(http: HttpRequest, lang: str) -> _View:
    """Return the view of an HTTP request that submitted no request."""
    return {
        "title": http_text(http, lang),
        "facts": [duration(http.span.duration_ns / 1e9)],
        "prompt": None,
        "media": [],
        "outputs": [],
        "errors": [visible(http.error)] if http.error else [],
        "params": [],
    }


def _request(
    family: Sequence[RequestFacts],
    times: dict[str, RequestTimes],
    http: HttpRequest | None,
    message: ParsedMessage | None,
    uses: Mapping[str, Sequence[ItemUse]],
    content: "_Texts",
    lang: str,
) -> _View:
    """Return the view of one request, or of all those of one request with n > 1."""
    first, alone = family[0], family[0].parent is None
    submitted_by = [] if http is None else [http_text(http, lang)]
    parsed = [] if message is None else [message_text(message, lang)]
    if alone:
        tokens = text(lang, "html.request.tokens", prompt=first.input_tokens or 0, output=first.output_tokens or 0)
        facts = [*submitted_by, tokens, *request_facts(first, times, lang), *parsed]
    else:
        output = sum(request.output_tokens or 0 for request in family)
        facts = [
            *submitted_by,
            text(lang, "html.request.tokens", prompt=first.input_tokens or 0, output=output),
            text(lang, "html.request.outputs", n=len(family)),
            *parsed,
        ]
    return {
        "title": text(lang, "html.request", id=visible(first.parent or first.id)),
        "facts": facts,
        "prompt": content.shown(first.prompt),
        "media": item_views(first, uses.get(first.span_id, ()), lang),
        "outputs": list(_outputs(family, times, content, lang)),
        "errors": [beginning(request.error, _LONGEST_ERROR) for request in family if request.error],
        "params": [(name, beginning(value, _LONGEST_VALUE)) for name, value in first.params],
    }


def _outputs(
    family: Sequence[RequestFacts], times: dict[str, RequestTimes], content: "_Texts", lang: str
) -> Iterable[_View]:
    for request in family:
        if request.parent is None:
            title, facts = text(lang, "html.output"), []
        else:
            title = text(lang, "html.request.output", number=request.index + 1, id=visible(request.id))
            facts = [
                text(lang, "html.request.generated", n=request.output_tokens or 0),
                *request_facts(request, times, lang),
            ]
        yield {"title": title, "facts": facts, "text": content.shown(request.output)}


class _Texts:
    """Prompts and outputs, cut to the page's limit."""

    def __init__(self, lang: str) -> None:
        self._lang = lang
        self._room = MOST_CHARACTERS_IN_ALL

    def shown(self, content: str | None) -> str | None:
        """Return a text, or its beginning and the number of characters left out."""
        if content is None:
            return None
        most = max(BEGINNING, min(MOST_CHARACTERS, self._room))
        self._room -= min(most, len(content))
        shown = visible(content[:most], keep="\n\t")
        more = len(content) - most
        return f"{shown} {text(self._lang, 'html.characters_more', n=more)}" if more > 0 else shown
