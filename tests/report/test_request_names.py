"""Short names of requests: they keep what differs, and stand for one request only."""

import pytest

from tests.report.synthetic import a_run
from tracellm.report.calltree import calltree
from tracellm.report.html.data import run_data
from tracellm.report.wording.request_names import LONGEST_REQUEST_NAME, RequestNames
from tracellm.trace import names
from tracellm.trace.model import Trace

HEX = "5f0c4be19d0c4c55a2a36f6a0f4b4a7e"
UUID = "5f0c4be1-9d0c-4c55-a2a3-6f6a0f4b4a7e"


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (["0", "1", "17"], ["0", "1", "17"]),
        ([f"chatcmpl-{HEX}", f"cmpl-{HEX}-0"], ["chatcmpl-5f0c", "cmpl-5f0c-0"]),
        ([f"chatcmpl-{HEX}", f"chatcmpl-{HEX[:4]}9{HEX[5:]}"], ["chatcmpl-5f0c", "chatcmpl-5f0c9"]),
        ([f"chatcmpl-{UUID}"], ["chatcmpl-5f0c"]),
        (
            ["chatcmpl-gateway-eu-west-1-000017", "chatcmpl-gateway-eu-west-1-000018"],
            ["chatcmpl…st-1-000017", "chatcmpl…st-1-000018"],
        ),
        (
            ["chatcmpl-a-0123456789-0123456789", "chatcmpl-b-0123456789-0123456789"],
            ["chatcmpl…-0123456789", "chatcmpl-b-0123456789-0123456789"],
        ),
    ],
)
def test_a_name_keeps_what_differs(ids: list[str], shown: list[str]) -> None:
    """Random digits are cut to four, long ids in the middle, and two ids never get one name."""
    short = RequestNames()
    assert [short.shorten(id) for id in ids] == shown
    assert [short.shorten(id) for id in ids] == shown


def test_names_are_one_to_one() -> None:
    """A thousand ids that begin and end alike get a thousand names, which keep what differs."""
    ids = [f"cmpl-load-test-{number:04}-of-the-nightly-run" for number in range(1000)]
    short = RequestNames()
    shown = [short.shorten(id) for id in ids]
    assert len(set(shown)) == 1000
    assert len(shown[0]) == LONGEST_REQUEST_NAME
    assert shown[1:] == ids[1:]


def test_reasons_have_the_names_too() -> None:
    """Ids in the details of a reason become the names."""
    short = RequestNames()
    assert short.in_details(f"request=chatcmpl-{HEX} cause=no_free_blocks free=3") == (
        "request=chatcmpl-5f0c cause=no_free_blocks free=3"
    )


def test_call_tree_and_page_have_the_same_names() -> None:
    """The call tree's title of a step names its requests as the page does."""
    spans = a_run()
    ids = {"0": f"chatcmpl-{HEX}", "1": "chatcmpl-gateway-eu-west-1-000017"}
    for span in spans:
        for attributes in (span.attributes, *(link.attributes for link in span.links)):
            for name, value in attributes.items():
                if isinstance(value, list) and name.startswith("tracellm.step."):
                    attributes[name] = [ids.get(one, one) for one in value]
                elif name == names.REQUEST_ID:
                    attributes[name] = ids[str(value)]
    trace = Trace(spans)
    assert [row["name"] for row in run_data(trace)["requests"]] == ["chatcmpl-5f0c", "chatcmpl…st-1-000017"]
    assert "requests chatcmpl-5f0c, chatcmpl…st-1-000017 joined" in calltree(trace, width=300)
