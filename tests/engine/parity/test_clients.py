"""Tests of the recorded workloads through the clients whose engine core is behind sockets.

The client requests each step, so requests arrive and end between the same steps as in the recording. Every decision and
output must be vLLM's. The engine core runs behind real sockets in a thread of this process.

The tests use the smallest recording for each kind of message: calls with a reset between them, aborts, priorities, log
probabilities, text, several outputs of a request, penalties. `make parity` runs all recordings, with the engine core in
another process.
"""

import json
from functools import partial
from typing import Any

import pytest

import tracellm
from tests.engine.clients.in_thread import AsyncInStep, SyncInStep, in_step, watch_client
from tests.engine.parity.cases import engine_cases, scheduler_cases
from tests.engine.parity.compare import compare_batches
from tests.engine.parity.drive import Library, make_llm, run_batch
from tracellm.engine.sample import sampling_params

TRACELLM = Library.of(tracellm, sampling_params)
MULTIPROCESS = TRACELLM._replace(LLM=partial(tracellm.LLM, multiprocess_mode=True))

SYNC = ("scheduler", "priority", "text", "several", "processors", "logprobs")
ASYNC = ("batches", "arrivals", "several", "seeded", "logprobs")


def smallest(group: str) -> dict[str, Any]:
    """Return the group's case with the fewest steps."""
    cases = [case for case in [*scheduler_cases(), *engine_cases()] if case["group"] == group]
    return min(cases, key=lambda case: sum(len(recorded["steps"]) for recorded in case["recorded"]))


@pytest.mark.parametrize(
    ("client_class", "group"), [(SyncInStep, group) for group in SYNC] + [(AsyncInStep, group) for group in ASYNC]
)
def test_serves_as_vllm_through_sockets(client_class, group):
    """Every step and every output equals that of vLLM's engine."""
    case = smallest(group)
    with in_step(client_class):
        llm = make_llm(MULTIPROCESS, case)
        try:
            ours = [run_batch(TRACELLM, llm, batch, watch_client) for batch in case["batches"]]
        finally:
            llm.llm_engine.engine_core.shutdown()
    _, difference = compare_batches(case, json.loads(json.dumps(ours)))
    assert difference is None, difference.text
