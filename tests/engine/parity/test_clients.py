"""The recorded workloads through the clients whose engine core is behind sockets: nothing is lost or changed there.

A step is made when the client asks for one, so that requests come and go between the same steps as in the recording:
then every decision and every token must be vLLM's. One case of each group; `make parity` runs them all, and also with
engine cores in processes of their own that step whenever they can.
"""

import json
from functools import partial
from typing import Any

import pytest

import tracellm
from tests.engine.clients.in_thread import AsyncInStep, SyncInStep, in_step
from tests.engine.parity.cases import engine_cases, scheduler_cases
from tests.engine.parity.compare import compare_batches
from tests.engine.parity.drive import Library, make_llm, run_batch
from tracellm.engine import sampling_params

TRACELLM = Library.of(tracellm, sampling_params)
MULTIPROCESS = TRACELLM._replace(LLM=partial(tracellm.LLM, multiprocess_mode=True))


def smallest_cases() -> list[dict[str, Any]]:
    """Of each group the case with the fewest steps."""
    smallest: dict[str, dict[str, Any]] = {}
    for case in [*scheduler_cases(), *engine_cases()]:
        number = sum(len(recorded["steps"]) for recorded in case["recorded"])
        if case["group"] not in smallest or number < smallest[case["group"]]["number"]:
            smallest[case["group"]] = case | {"number": number}
    return list(smallest.values())


@pytest.mark.parametrize("client_class", [SyncInStep, AsyncInStep])
@pytest.mark.parametrize("case", smallest_cases(), ids=lambda case: case["name"])
def test_serves_as_vllm_through_sockets(client_class, case):
    """Every step is scheduled, and every output is, as vLLM's engine did it."""
    with in_step(client_class):
        llm = make_llm(MULTIPROCESS, case)
        try:
            ours = [run_batch(TRACELLM, llm, batch) for batch in case["batches"]]
        finally:
            llm.llm_engine.engine_core.shutdown()
    _, difference = compare_batches(case, json.loads(json.dumps(ours)))
    assert difference is None, difference.text
