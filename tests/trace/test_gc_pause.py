"""The garbage collector is paused while a trace is read, and does not scan its objects soon after."""

import gc
from collections.abc import Iterator

import pytest

from tracellm.trace.gc_pause import gc_paused


@pytest.fixture
def started() -> Iterator[None]:
    """The collector is on and nothing is frozen, whatever the state before."""
    was_on = gc.isenabled()
    gc.enable()
    gc.unfreeze()
    yield
    (gc.enable if was_on else gc.disable)()


def test_what_was_made_meanwhile_is_not_looked_through_soon(started: None):
    """Objects made during the pause are in the old generation afterwards, and the collector is on again."""
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
    """Objects frozen before, as by an engine, stay frozen."""
    gc.freeze()
    try:
        with gc_paused():
            pass
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_who_has_no_collector_gets_none(started: None):
    """A collector that was off stays off."""
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()
