"""What waits for the call around it before it is written."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tracellm.probes.scribe import Written
from tracellm.probes.withheld import Withheld


def written(*calls: tuple[str, int, int]) -> Written:
    """These calls: what is written of each, its number, its parent's."""
    return Written([text for text, _, _ in calls], [call for _, call, _ in calls], [parent for _, _, parent in calls])


def test_a_span_waits_for_its_parent():
    """What is written never lacks the call that made it, unless that ended long ago."""
    step, model, layer = 2, 3, 4
    withheld = Withheld(1, {step})
    release = withheld.release
    assert release(written(("kernel", 5, layer), ("other", 6, step), ("script", 1, 0))) == ["other", "script"]
    withheld.look()
    assert release(written(("layer", layer, model))) == []
    assert release(written(("model", model, step))) == ["kernel", "layer", "model"]
    assert len(withheld) == 0


def test_it_does_not_wait_for_ever():
    """After two looks what has not ended is told of as being under way, or has ended before."""
    withheld = Withheld(1, set())
    assert withheld.release(written(("inner", 9, 8), ("outer", 8, 7))) == []
    withheld.look()
    assert withheld.release(Written()) == []
    withheld.look()
    assert withheld.release(Written()) == ["inner", "outer"]


def test_calls_of_another_process_are_not_waited_for():
    """What was called before this process was, or by no call at all, is written at once."""
    withheld = Withheld(100, set())
    assert withheld.release(written(("child", 100, 7), ("span", 0, 0), ("other", 101, 100))) == [
        "child",
        "span",
        "other",
    ]


def test_what_waits_is_there_at_the_end():
    """The rest is what was never released, in the order in which it ended."""
    withheld = Withheld(1, set())
    withheld.release(written(("first", 3, 2), ("second", 4, 2)))
    assert withheld.rest() == ["first", "second"]
    assert withheld.rest() == []


def test_what_has_ended_is_no_longer_told_of_as_being_under_way():
    """So that what it called later, in a task that outlived it, waits as for any other call."""
    told_open = {2, 3}
    assert Withheld(1, told_open).release(written(("ended", 3, 2))) == ["ended"]
    assert told_open == {2}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=100, max_size=300), st.integers(1, 150))
def test_whatever_is_written_has_its_parent(depths: list[int], size: int):
    """However the calls lie within each other, and in parts of whatever size they come, none is there before another
    that it is within, and in the end all are there, once."""
    stack: list[int] = []
    calls: list[tuple[str, int, int]] = []
    for call, depth in enumerate([*depths, 0], 1):
        while len(stack) > depth:  # these end
            number = stack.pop()
            calls.append((str(number), number, stack[-1] if stack else 0))
        stack.append(call)
    parents = {text: str(parent) for text, _, parent in calls}
    withheld = Withheld(1, set())
    there: list[str] = []
    for begin in range(0, len(calls), size):
        there += withheld.release(written(*calls[begin : begin + size]))
        assert {parents[text] for text in there} - {"0"} <= set(there)
    assert len(withheld) == 0
    assert sorted(there) == sorted(parents)
