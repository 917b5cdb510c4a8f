"""The garbage collector is held while a trace is read, and has nothing to catch up on afterwards."""

import gc
from collections.abc import Iterator

import pytest

from tracellm.trace.gc_pause import gc_paused


@pytest.fixture
def started() -> Iterator[None]:
    """The collector is on and nothing frozen, whatever was before."""
    was_on = gc.isenabled()
    gc.enable()
    gc.unfreeze()
    yield
    (gc.enable if was_on else gc.disable)()


def test_what_was_made_meanwhile_is_not_looked_through_soon(started: None):
    """What is made while the collector is held is among the old afterwards, and the collector is on again."""
    with gc_paused():
        assert not gc.isenabled()
        made: list[list[int]] = [[] for _ in range(10_000)]
        young = {id(one) for one in gc.get_objects(generation=0)}
        assert young.issuperset(map(id, made))
    assert gc.isenabled()
    old = {id(one) for one in gc.get_objects(generation=2)}
    assert old.issuperset(map(id, made))
    assert gc.get_freeze_count() == 0


def test_what_somebody_has_frozen_stays_frozen(started: None):
    """An engine freezes what it has loaded: reading a trace in its process leaves that alone."""
    gc.freeze()
    try:
        with gc_paused():
            pass
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_who_has_no_collector_gets_none(started: None):
    """Where the collector was off it stays off."""
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()
