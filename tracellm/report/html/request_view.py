"""The page's part about requests: prompt, outputs, parameters, and times."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tracellm.report.facts.item_uses import ItemUse, item_uses
from tracellm.report.facts.requests import RequestFacts, RequestTimes, request_times, requests
from tracellm.report.html.items_data import item_views
from tracellm.report.texts import text
from tracellm.report.wording.changes import finish_reason
from tracellm.report.wording.quantities import clip, duration
from tracellm.report.wording.safe_text import beginning, visible
from tracellm.report.wording.titles import call_title
from tracellm.trace import names
from tracellm.trace.model import Trace

__all__ = ["requests_view"]

MOST_REQUESTS = 100
MOST_CHARACTERS = 6000
"""Characters of one prompt or one output."""
MOST_CHARACTERS_IN_ALL = 400_000
"""Characters of all prompts and outputs; beyond that only the beginning of each is shown."""
BEGINNING = 300
_LONGEST_PATH = 80
_LONGEST_ERROR = 2000
_LONGEST_VALUE = 400

_View = dict[str, Any]


def requests_view(trace: Trace, lang: str) -> _View:
    """Return the requests, each with its texts and its end; the outputs of one with n > 1 stand below it."""
    shown, more = clip(requests(trace.spans), MOST_REQUESTS)
    times = request_times(trace)
    http_requests = {request.span_id: _http_request(trace, request) for request in shown}
    # two engines may use request id for two requests
    families = groupby(shown, key=lambda request: (request.span_id if request.parent is None else "", request.parent))
    content = _Texts(lang)
    uses = item_uses(trace)
    shown_requests = [_request(list(family), times, http_requests, uses, content, lang) for _, family in families]
    return {"requests": shown_requests, "more_requests": more}


def _http_request(trace: Trace, request: RequestFacts) -> list[str]:
    """Return the HTTP request that submitted it: `POST /v1/completions → 200`; empty if a script did."""
    above = trace.by_id.get(request.span_id)
    while above is not None and names.HTTP_METHOD not in above.attributes:
        above = trace.parent(above)
    return [] if above is None else [call_title(above, _LONGEST_PATH, 0)]


def _request(
    family: Sequence[RequestFacts],
    times: dict[str, RequestTimes],
    http_requests: dict[str, list[str]],
    uses: Mapping[str, Sequence[ItemUse]],
    content: "_Texts",
    lang: str,
) -> _View:
    """Return the view of one request, or of all those of one request with n > 1."""
    first, alone = family[0], family[0].parent is None
    if alone:
        tokens = text(lang, "html.request.tokens", prompt=first.input_tokens or 0, output=first.output_tokens or 0)
        facts = [*http_requests[first.span_id], tokens, *_facts(first, times, lang)]
    else:
        output = sum(request.output_tokens or 0 for request in family)
        facts = [
            *http_requests[first.span_id],
            text(lang, "html.request.tokens", prompt=first.input_tokens or 0, output=output),
            text(lang, "html.request.outputs", n=len(family)),
        ]
    return {
        "id": visible(first.parent or first.id),
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
            facts = [text(lang, "html.request.generated", n=request.output_tokens or 0), *_facts(request, times, lang)]
        yield {"title": title, "facts": facts, "text": content.shown(request.output)}


def _facts(request: RequestFacts, times: dict[str, RequestTimes], lang: str) -> list[str]:
    """Return the finish reason of a request, and its times."""
    facts = [
        text(lang, "html.request.unfinished")
        if request.finish_reason is None
        else text(lang, "html.request.ended", why=finish_reason(request.finish_reason, lang)),
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
