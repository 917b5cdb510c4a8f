"""The page's requests: prompt, parameters, output and times; outputs of one request stand together."""

import pytest

from tests.report.synthetic import a_run
from tracellm.report.facts.requests import RequestTimes, request_times, requests
from tracellm.report.html.request_view import requests_view
from tracellm.trace import names
from tracellm.trace.model import Link, Span, Trace
from tracellm.trace.steps import STEP_SPAN


def two_outputs() -> list[Span]:
    """Return a run with the two outputs of request `9`."""
    spans = a_run()
    for index, life in enumerate(span for span in spans if span.name == names.REQUEST_SPAN):
        life.attributes |= {
            names.REQUEST_PARENT: "9", names.REQUEST_INDEX: index, names.GEN_AI_CHOICES: 2,
            names.REQUEST_PARAMS: ["seed=7", "top_k=5"], names.REQUEST_TEXT_PARAMS: ["stop=['=x']"],
        }  # fmt: skip
    return spans


def test_outputs_of_one_request_stand_together():
    """Outputs of one request are one entry with one prompt, n, total tokens, and each output's id and end."""
    [request] = requests_view(Trace(two_outputs()), "en")["requests"]
    assert (request["title"], request["prompt"]) == ("Request 9", "The capital of France is")
    assert request["facts"] == ["6 prompt tokens, 26 generated", "2 outputs"]
    assert [(one["title"], one["text"]) for one in request["outputs"]] == [
        ("Output 1 (0)", " Paris."),
        ("Output 2 (1)", " blue and wide."),
    ]
    assert request["outputs"][0]["facts"][:2] == ["9 tokens", "finish reason: stop (end token or stop string)"]
    assert request["params"] == [
        ("max_tokens", "16"), ("temperature", "0.0"), ("n", "2"), ("seed", "7"), ("top_k", "5"), ("stop", "['=x']")
    ]  # fmt: skip


def test_a_stop_string_is_the_reason():
    """A request that a stop string of its own ended has that as its reason, not the end token."""
    spans = a_run()
    life = next(span for span in spans if span.name == names.REQUEST_SPAN)
    life.attributes[names.REQUEST_STOPPED_BY] = "stop_string"
    assert "finish reason: stop (stop string)" in requests_view(Trace(spans), "en")["requests"][0]["facts"]


def test_requests_of_their_own_stay_apart():
    """Requests without n, or with n = 1, are separate entries."""
    shown = requests_view(Trace(a_run()), "zh")["requests"]
    assert [request["title"] for request in shown] == ["请求 0", "请求 1"]
    assert [len(request["outputs"]) for request in shown] == [1, 1]
    assert any(fact.startswith("排队 ") for fact in shown[0]["facts"])


def test_requests_of_two_engines_are_two_though_they_have_one_id():
    """Requests of two engines with the same id are two entries, each with its prompt and output."""
    spans = a_run()
    for life in (span for span in spans if span.name == names.REQUEST_SPAN):
        life.attributes[names.REQUEST_ID] = "0"
    shown = requests_view(Trace(spans), "en")["requests"]
    assert [(request["title"], len(request["outputs"])) for request in shown] == [("Request 0", 1), ("Request 0", 1)]
    assert shown[0]["prompt"] != shown[1]["prompt"]


def test_priority_is_a_parameter():
    """The entry of a request with a priority has it among the parameters."""
    spans = a_run()
    life = next(span for span in spans if span.name == names.REQUEST_SPAN)
    life.attributes[names.REQUEST_PRIORITY] = -3
    assert ("priority", "-3") in requests(spans)[0].params


def test_times_of_a_request():
    """A request is queued until its first step, in prefill until its first token, then in decode."""
    spans = a_run()
    steps = [span for span in spans if span.name == STEP_SPAN]
    steps[0].attributes[names.STEP_SAMPLED] = ["1"]  # request 0's prompt takes two steps
    life = next(span for span in spans if span.attributes.get(names.REQUEST_ID) == "0")
    request_time = request_times(Trace(spans))["0"]
    assert request_time.queued == pytest.approx((steps[0].start_ns - life.start_ns) / 1e9)
    assert request_time.prefill == pytest.approx((steps[1].end_ns - steps[0].start_ns) / 1e9)
    assert request_time.decode == pytest.approx((steps[8].end_ns - steps[1].end_ns) / 1e9)
    assert request_time.first_token == pytest.approx((steps[1].end_ns - life.start_ns) / 1e9)


def test_an_aborted_request_decodes_no_longer_than_it_lasts():
    """Tokens that steps compute between the caller's abort and its arrival in the engine core do not count."""
    spans = a_run()
    steps = [span for span in spans if span.name == STEP_SPAN]
    life = next(span for span in spans if span.attributes.get(names.REQUEST_ID) == "0")
    life.end_ns = (steps[4].start_ns + steps[4].end_ns) // 2
    request, took = requests([life])[0], request_times(Trace(spans))["0"]
    parts = [took.queued, took.prefill, took.decode]
    assert sum(part for part in parts if part is not None) == pytest.approx(request.seconds)
    life.end_ns = steps[0].start_ns - 1
    assert request_times(Trace(spans))["0"] == RequestTimes(None, None, None, None)


def test_a_request_that_was_never_scheduled_has_no_times():
    """Times that a request did not reach are omitted, not zero."""
    lives = [span for span in a_run() if span.name == names.REQUEST_SPAN]
    assert request_times(Trace(lives))["0"] == RequestTimes(None, None, None, None)


def test_steps_find_their_requests_by_their_links():
    """Requests of two engines with the same id have the times of the steps that link to them."""
    first, second = a_run(), a_run()
    for span in second:
        span.span_id = f"f{span.span_id[1:]}"
        span.start_ns += 10**12
        span.end_ns += 10**12
    for spans in (first, second):
        lives = [span for span in spans if span.name == names.REQUEST_SPAN]
        for span in spans:
            if span.name == STEP_SPAN:
                span.links = [Link(life.trace_id, life.span_id) for life in lives]
    times = request_times(Trace([*first, *second]))
    for spans in (first, second):
        [life] = [span for span in spans if span.attributes.get(names.REQUEST_ID) == "0"]
        assert times[life.span_id] == request_times(Trace(first))["0"]
    assert times["0"] == request_times(Trace(first))["0"]


def test_a_request_says_which_http_request_asked_for_it():
    """A served request has its HTTP request and status first; a script's request has none."""
    spans = a_run()
    life = next(span for span in spans if span.name == names.REQUEST_SPAN)
    http = Span("POST /v1/completions", life.trace_id, "a" * 16, None, life.start_ns, life.end_ns, {
        names.HTTP_METHOD: "POST", names.HTTP_PATH: "/v1/completions", names.HTTP_STATUS: 200
    })  # fmt: skip
    life.parent_span_id = http.span_id
    shown = requests_view(Trace([*spans, http]), "en")["requests"]
    assert shown[0]["facts"][0] == "POST /v1/completions → 200"
    assert not any("POST" in fact for fact in shown[1]["facts"])
