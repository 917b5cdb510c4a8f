"""Tests that no order of arrivals, steps and aborts loses a block or assigns it twice, and that every request ends.

`CheckedScheduler` checks the whole state after each operation. Hypothesis searches for short failing sequences; the
long run over many seeds reaches states that need many operations.
"""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.engine.sched.checked_scheduler import EOS, MAX_MODEL_LEN, CheckedScheduler

WINDOWS = [(None,), (None,), (1,), (5,), (9,), (None, 6), (8, 8, None)]


class SchedulerMachine(RuleBasedStateMachine):
    """State machine that runs a checked scheduler with random requests, steps and aborts."""

    @initialize(
        spare_blocks=st.integers(0, 6),
        max_num_batched_tokens=st.integers(4, 40),
        max_num_seqs=st.integers(1, 4),
        caching=st.booleans(),
        chunked=st.sampled_from([True, True, False]),
        threshold=st.sampled_from([0, 0, 3]),
        policy=st.sampled_from(["fcfs", "priority"]),
        windows=st.sampled_from(WINDOWS),
    )
    def start(self, spare_blocks, max_num_batched_tokens, max_num_seqs, caching, chunked, threshold, policy, windows):
        """Make a pool with room for one request of maximum length, and few blocks more."""
        self.checked = CheckedScheduler(
            spare_blocks=spare_blocks,
            max_num_batched_tokens=max_num_batched_tokens if chunked else max(max_num_batched_tokens, MAX_MODEL_LEN),
            max_num_seqs=max_num_seqs,
            enable_prefix_caching=caching,
            enable_chunked_prefill=chunked,
            long_prefill_token_threshold=threshold,
            policy=policy,
            windows=windows,
        )

    # Few different tokens, so prompts share prefixes.
    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=MAX_MODEL_LEN - 1),
        max_tokens=st.integers(1, 12),
        priority=st.integers(0, 2),
    )
    def arrive(self, prompt, max_tokens, priority):
        """Add a request."""
        self.checked.arrive(prompt, max_tokens, priority)

    @precondition(lambda self: self.checked.live)
    @rule(data=st.data())
    def abort(self, data):
        """Abort a request, running or waiting."""
        self.checked.abort(data.draw(st.sampled_from(sorted(self.checked.live))))

    @rule(token=st.sampled_from([0, 1, 1, EOS]))
    def step(self, token):
        """Run a step; EOS ends the requests that sample it."""
        self.checked.step(token)

    @rule()
    def reset_prefix_cache(self):
        """Reset the prefix cache."""
        self.checked.reset_prefix_cache()

    def teardown(self):
        """Every request ends when no more arrive."""
        if hasattr(self, "checked"):
            self.checked.run_to_the_end()


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)


def live_through(seed: int) -> None:
    """Run 25 random operations with random settings, then all remaining requests to their end."""
    rng = random.Random(seed)
    chunked = rng.random() < 0.75
    checked = CheckedScheduler(
        spare_blocks=rng.choice([0, 0, 1, 2, 6]),
        max_num_batched_tokens=rng.choice([4, 6, 9, 16, 40] if chunked else [32, 34, 40]),
        max_num_seqs=rng.choice([1, 2, 3, 4, 6]),
        enable_prefix_caching=rng.random() < 0.75,
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=rng.choice([0, 0, 3, 7]),
        policy=rng.choice(["fcfs", "priority"]),
        windows=rng.choice(WINDOWS),
    )
    shared = [rng.randrange(2) for _ in range(MAX_MODEL_LEN - 1)]
    for _ in range(25):
        chance = rng.random()
        if chance < 0.3:
            prompt = [*shared[: rng.randrange(0, MAX_MODEL_LEN - 1)], rng.randrange(2)]
            checked.arrive(prompt, rng.choice([1, 2, 5, 12]), rng.randrange(3))
        elif chance < 0.35 and checked.live:
            checked.abort(rng.choice(sorted(checked.live)))
        elif chance < 0.37:
            checked.reset_prefix_cache()
        else:
            checked.step(rng.choice([0, 1, 1, 1, 1, 1, EOS]))
    checked.run_to_the_end()


@pytest.mark.parametrize("first", range(0, 2000, 200))
def test_thousands_of_lives(first):
    """Two thousand sequences of random operations violate no invariant."""
    for seed in range(first, first + 200):
        try:
            live_through(seed)
        except AssertionError as error:
            raise AssertionError(f"live_through({seed}): {error}") from error
