"""HTTP requests in all reports: every one can be found, a refused one with its reason."""

import io

import pytest

from tests.report.synthetic import a_run
from tests.report.two_runs import folder_of
from tracellm.report.calltree import calltree
from tracellm.report.console import Console
from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.sequence import sequence
from tracellm.report.diff import diff_text
from tracellm.report.facts.http_requests import http_requests
from tracellm.report.html.answer_view import answer_view
from tracellm.report.html.data import run_data
from tracellm.report.html.request_view import requests_view
from tracellm.report.requests_list import requests_list
from tracellm.trace import names
from tracellm.trace.model import Span, Trace

MESSAGE = "max_tokens must be at least 1, got -1."


def http(number: int, status: int, kind: str = "", message: str = "", at: int = 0) -> Span:
    """Return the span of an HTTP request."""
    attributes = {names.HTTP_METHOD: "POST", names.HTTP_PATH: "/v1/completions", names.HTTP_STATUS: status}
    attributes |= {names.LIFELINE: "FastAPI", names.LEVEL: "request", names.RESULT: f"{status} {kind}".strip()}
    if kind:
        attributes[names.ERROR_TYPE] = kind
    if message:
        attributes[names.HTTP_ERROR] = message
    ids = f"{number:032x}", f"{number:016x}"
    span = Span("POST /v1/completions", *ids, None, at, at + 10**6, attributes)
    return span


@pytest.fixture
def trace() -> Trace:
    """A served run: a request, twelve that were refused, and one whose client left; ids in the order of arrival."""
    spans = a_run()
    lives = [span for span in spans if span.name == names.REQUEST_SPAN]
    served = http(1, 200, at=lives[0].start_ns - 5)
    left = http(2, 200, names.CLIENT_DISCONNECTED, at=lives[1].start_ns - 5)
    lives[0].parent_span_id, lives[1].parent_span_id = served.span_id, left.span_id
    served.attributes[names.HTTP_SENT_ID] = ["my-request"]
    after = lives[1].start_ns + 1000
    refused = [http(10 + n, 400, "BadRequestError", MESSAGE, at=after + n) for n in range(11)]
    refused.append(http(30, 404, "NotFoundError", "The model `x` does not exist.", at=after + 20))
    every = [*spans, served, left, *refused]
    for span in every:
        span.process = lives[0].process
    return Trace(every)


def test_who_submitted_what(trace: Trace) -> None:
    """An HTTP request has the requests that it submitted; one without was refused."""
    found = http_requests(trace)
    assert len(found) == 14
    lives = trace.named(names.REQUEST_SPAN)
    assert [(one.answer, one.submitted) for one in found[:2]] == [
        ("200", (lives[0].span_id,)),
        ("200 client_disconnected", (lives[1].span_id,)),
    ]
    assert {one.submitted for one in found[2:]} == {()}


def test_a_group_is_of_one_answer(trace: Trace) -> None:
    """Call tree and sequence diagram never draw a refused request with one that was served."""
    tree = [line.split("  ")[0] for line in calltree(trace).splitlines() if line.startswith("POST")]
    assert tree == [
        "POST /v1/completions → 200",
        "POST /v1/completions → 200 client_disconnected",
        "POST /v1/completions → 400 BadRequestError",
        "POST /v1/completions → 404 NotFoundError",
    ]
    arrows = [line.partition(": ")[2] for line in to_mermaid(sequence(trace)).splitlines() if ": POST" in line]
    assert arrows == [
        "POST /v1/completions → 200",
        "POST /v1/completions → 200 client_disconnected",
        "POST /v1/completions → 400 BadRequestError ×11",
        "POST /v1/completions → 404 NotFoundError",
    ]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_list_has_every_request(trace: Trace, lang: str) -> None:
    """`tracellm show RUN requests` lists all, each with its whole id, the status, and the reason of a refusal."""
    listed = requests_list(trace, lang, 100)
    assert listed.count("POST /v1/completions → ") == 14
    assert listed.count(MESSAGE) == 11
    assert "POST /v1/completions → 200 · X-Request-Id my-request" in listed
    for span in trace.named(names.REQUEST_SPAN):
        title = {"en": "Request", "zh": "请求"}[lang]
        assert f"{title} {span.attributes[names.REQUEST_ID]} · " in listed


def test_a_scripts_requests_are_listed() -> None:
    """The list of a run without a server has the requests themselves."""
    listed = requests_list(Trace(a_run()), "en", 100)
    assert [line.split("Request ")[1] for line in listed.splitlines() if "Request " in line] == ["0", "1"]


def test_refused_requests_beyond_a_limit(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has a bounded number of refused requests, and counts the others."""
    monkeypatch.setattr("tracellm.report.html.data.MOST_REFUSED", 3)
    data = run_data(trace)
    assert (len(data["refused"]), data["moreRefused"]) == (3, 9)


@pytest.mark.parametrize(
    ("lang", "sentence", "label"),
    [("en", "; A refused 12 requests.", "refused requests"), ("zh", "；A 拒绝了 12 个请求。", "被拒绝的请求")],
)
def test_refused_requests_of_two_runs(trace: Trace, lang: str, sentence: str, label: str) -> None:
    """A comparison counts refused requests by path and answer; if they are the same, it only names them."""
    served, all_well = folder_of(trace), folder_of(Trace(a_run()))
    text = diff_text(served, all_well, lang=lang, width=200)
    assert text.splitlines()[0].endswith(sentence)
    assert "11 × POST /v1/completions → 400 BadRequestError" in text
    assert "1 × POST /v1/completions → 404 NotFoundError" in text
    text = diff_text(served, served, lang=lang, width=200)
    assert label in text
    assert sentence not in text
    assert "×" not in text
    assert label not in diff_text(all_well, all_well, lang=lang, width=200)


def test_the_same_refusals_in_another_order() -> None:
    """Neither the order of refusals nor a client that left before its request was submitted is a difference."""
    refusals = [(400, "BadRequestError"), (404, "NotFoundError"), (499, names.CLIENT_DISCONNECTED)]
    a = Trace([http(number, *refusal, at=number) for number, refusal in enumerate(refusals)])
    b = Trace([http(number, *refusal, at=number) for number, refusal in enumerate(reversed(refusals[:2]))])
    text = diff_text(folder_of(a), folder_of(b), width=200)
    assert "×" not in text
    assert "refused" not in text.splitlines()[0]


def test_refused_requests_on_the_page(trace: Trace) -> None:
    """The page's list has a row for each refused request, with its reason, in the order of arrival."""
    shown = requests_view(trace, "en")["requests"]
    assert [one["title"] for one in shown[:3]] == [
        "Request 0",
        "Request 1",
        "POST /v1/completions → 400 BadRequestError",
    ]
    assert [one["errors"] for one in shown[2:13]] == [[MESSAGE]] * 11
    rows = run_data(trace)["refused"]
    assert len(rows) == 12
    assert (rows[0]["id"], rows[0]["answer"], rows[0]["error"]) == (
        "POST /v1/completions",
        "400 BadRequestError",
        MESSAGE,
    )
    [group] = [one for one in answer_view(trace, None, None, [], "en")["answer"]["findings"] if "HTTP" in one["title"]]
    assert group["title"] == "12 failed HTTP requests"
    assert group["findings"][0]["sentence"] == f"POST /v1/completions → 400 BadRequestError: {MESSAGE} (11 times)"


def test_refused_requests_on_the_console(trace: Trace) -> None:
    """The console prints each refusal with its reason, and after twenty of them only their number."""
    stream = io.StringIO()
    console = Console("en", stream)
    for span in trace.spans:
        console(span)
    console(http(50, 200))
    for number in range(60, 70):
        console(http(number, 400, "BadRequestError", MESSAGE))
    console.finish({"status": "finished"})
    printed = " ".join(stream.getvalue().split())
    assert printed.count("→ 400 BadRequestError") + printed.count("→ 404 NotFoundError") == 20
    assert "More failed HTTP requests are only counted." in printed
    assert "22 failed HTTP requests" in printed
    assert "client_disconnected" not in printed
