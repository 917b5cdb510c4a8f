"""Tests of the criteria of benchmarks/soak.py, which .ci/run runs before the tests."""

from dataclasses import replace

import pytest

from benchmarks.soak import SLACK, Round, growth, problems

STEADY = [
    Round(minute, 100 * minute, {"front end": SLACK * (1000 + minute % 2)}, {"front end": 20}, [0.01] * 99 + [2.0])
    for minute in range(10)
]


def test_a_steady_server_has_no_problems():
    """Memory that goes up and down and one slow answer in a hundred are no problems."""
    assert problems(STEADY, 0.5) == []


def test_growth_is_that_of_the_fitted_line():
    """A size that grows by a tenth from the first to the last round has grown by 10 %."""
    assert growth([0, 1, 2], [100, 105, 110]) == pytest.approx(0.1)


def test_a_leak_of_memory_is_found():
    """A process that gains 1 % of its memory in each round is a problem."""
    leaking = [replace(one, memory={"front end": SLACK * (1000 + 10 * int(one.minute))}) for one in STEADY]
    assert problems(leaking, 0.5) == ["the memory of front end has grown by 9.0%"]


def test_a_small_process_may_vary():
    """A process may grow by a few MiB, whatever part of its memory that is."""
    varying = [replace(one, memory={"front end": SLACK + SLACK // 10 * int(one.minute)}) for one in STEADY]
    assert problems(varying, 0.5) == []


def test_a_kept_descriptor_is_found():
    """More descriptors after the last round than after the warm-up are a problem."""
    keeping = [*STEADY[:-1], replace(STEADY[-1], descriptors={"front end": 21})]
    assert problems(keeping, 0.5) == ["front end had 20 descriptors, and has 21"]


def test_slow_health_is_found():
    """More slow answers of /health than one in a hundred are a problem, except in the warm-up."""
    slow = replace(STEADY[0], health=[3.0] * 1000)
    assert problems([slow, *STEADY[1:]], 0.5) == []
    assert problems([*STEADY, slow], 0.5) == ["/health took 3.00 s (99th percentile)"]
