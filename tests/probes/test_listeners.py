"""Who listens to a recording hears of spans that a process beside it has made, and of no more than need be."""

from pathlib import Path
from typing import Any

import pytest

from tracellm import probe
from tracellm.probes.session import Recording
from tracellm.probes.spec import Probe
from tracellm.probes.wrap import wrap
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder


@probe
def work(number: int) -> int:
    """Something to record."""
    return number


def test_listeners_hear_what_they_want(tmp_path: Path):
    """A listener in the recorded process hears of spans that were made in the other, in their order."""
    heard: list[Span] = []

    class Listener:
        names = frozenset({"work"})

        def __call__(self, span: Span) -> None:
            heard.append(span)

    with Recording(tmp_path, listener=Listener()):
        for number in range(300):
            work(number)
    mine = [span for span in heard if span.name == "work"]
    assert len(mine) == 300
    assert [span.span_id for span in mine] == [span.span_id for span in RunFolder.open(tmp_path).trace.named("work")]


def attributes_of(facts: Any) -> dict[str, Any]:
    """Of a call that has them made by the catalog."""
    return {names.RESULT: str(facts)}


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("in_short", [True, False])
def test_who_listens_need_not_hear_of_what_tells_no_more(tmp_path: Path, in_short: bool, apart: bool):
    """A call that has attributes of its own is heard of, unless they are arguments and result; all are written."""
    heard: list[str] = []

    class Listener:
        names = frozenset({"something else"})

        def __call__(self, span: Span) -> None:
            heard.append(span.name)

    made: dict[str, Any] = {"capture": lambda *_: 1, "attributes": attributes_of, "timed": True}
    told = Probe("told", "step", span_name="told", in_short=in_short, **made)
    call = wrap(lambda: None, told)
    with Recording(tmp_path, catalog=(), listener=Listener(), apart=apart):
        call()
    assert heard.count("told") == (not in_short)
    [span] = RunFolder.open(tmp_path).trace.named("told")
    assert span.attributes[names.RESULT] == "1"
