"""Tests of the choice of a client."""

from types import SimpleNamespace
from typing import Any

import pytest

from tracellm import LLM
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.vllm_config import ParallelConfig
from tracellm.engine.ipc import dp_client, mp_client
from tracellm.engine.ipc.core_client import EngineCoreClient, InprocClient, choose_client

NEVER_LOOKED_AT: Any = None


@pytest.mark.parametrize(
    ("multiprocess_mode", "asyncio_mode", "name"),
    [
        (False, False, "InprocClient"),
        (True, False, "SyncMPClient"),
        (True, True, "AsyncMPClient"),
        (False, True, None),
    ],
)
def test_the_decision_is_data(multiprocess_mode, asyncio_mode, name):
    """The two flags determine the choice, which names its rule and holds for no other flags."""
    choice = choose_client(multiprocess_mode, asyncio_mode)
    assert choice.name == name
    flags = [(m, a) for m in (False, True) for a in (False, True)]
    holds = [eval(choice.rule, {"multiprocess_mode": m, "asyncio_mode": a}) for m, a in flags]
    assert holds == [flag == (multiprocess_mode, asyncio_mode) for flag in flags]


@pytest.mark.parametrize(
    ("asyncio_mode", "num_engines", "module", "name"),
    [
        (False, 1, mp_client, "SyncMPClient"),
        (True, 1, mp_client, "AsyncMPClient"),
        (True, 2, dp_client, "DPLBAsyncMPClient"),
    ],
)
def test_each_client_is_made_from_the_same_arguments(monkeypatch, asyncio_mode, num_engines, module, name):
    """`make_client` makes the chosen client, with unchanged arguments."""
    made = []
    config: Any = SimpleNamespace(parallel_config=ParallelConfig(data_parallel_size=num_engines))
    monkeypatch.setattr(module, name, lambda *arguments: made.append(arguments))
    EngineCoreClient.make_client(True, asyncio_mode, config, NEVER_LOOKED_AT, log_stats=False)
    assert [arguments[:3] for arguments in made] == [(config, NEVER_LOOKED_AT, False)]


def test_asyncio_without_a_process_is_refused():
    """Asyncio without a process is refused with the flags that can be combined, and nothing is built."""
    with pytest.raises(EngineError, match="no client for asyncio_mode=True with multiprocess_mode=False"):
        EngineCoreClient.make_client(False, True, NEVER_LOOKED_AT, NEVER_LOOKED_AT, log_stats=False)


@pytest.mark.parametrize("value", [None, "0"])
def test_the_default_is_in_process(qwen2_checkpoint, monkeypatch, value):
    """Without the variable, or with 0, the engine core is an object of this process at the documented attribute."""
    if value is not None:
        monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", value)
    client = LLM(str(qwen2_checkpoint)).llm_engine.engine_core
    assert type(client) is InprocClient
    assert client.engine_core.scheduler.get_num_unfinished_requests() == 0


@pytest.mark.parametrize(
    ("variable", "argument", "expected"),
    [("1", None, True), ("0", None, False), ("1", False, False), ("0", True, True), ("nonsense", True, True)],
)
def test_the_argument_counts_more_than_the_variable(monkeypatch, variable, argument, expected):
    """`LLM(multiprocess_mode=...)` overrides VLLM_ENABLE_V1_MULTIPROCESSING."""
    asked = []

    def make_client(multiprocess_mode: bool, **more: Any) -> None:
        asked.append(multiprocess_mode)
        raise EngineError("enough seen")

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", variable)
    monkeypatch.setattr(EngineCoreClient, "make_client", make_client)
    with pytest.raises(EngineError, match="enough seen"):
        LLM(multiprocess_mode=argument)
    assert asked == [expected]


def test_other_values_are_refused(monkeypatch):
    """The variable is 0 or 1, the argument True, False or None; other values are refused by name."""
    with pytest.raises(EngineError, match="`multiprocess_mode` must be True, False or None, got 'yes'"):
        LLM(multiprocess_mode="yes")  # type: ignore[arg-type]  # what is tested
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "yes")
    with pytest.raises(EngineError, match="must be 0 or 1, it is 'yes'"):
        LLM()


def test_a_step_without_requests_does_nothing(qwen2_checkpoint):
    """Without requests `step_fn` returns `(None, False)`, and the client an empty output."""
    client = LLM(str(qwen2_checkpoint)).llm_engine.engine_core
    assert isinstance(client, InprocClient)
    assert client.engine_core.step_fn() == (None, False)
    assert client.get_output().outputs == []


def test_a_step_has_three_phases_and_says_that_the_model_ran(qwen2_checkpoint, monkeypatch):
    """`step_fn` schedules, executes and processes, in this order; then the client calls `post_step`."""
    llm = LLM(str(qwen2_checkpoint))
    client = llm.llm_engine.engine_core
    assert isinstance(client, InprocClient)
    core, calls = client.engine_core, []

    def observe(name):
        method = getattr(core, name)

        def observed(*args, **kwargs):
            calls.append(name)
            return method(*args, **kwargs)

        monkeypatch.setattr(core, name, observed)

    for name in ("_schedule", "_execute_model", "_process_model_outputs", "post_step"):
        observe(name)
    llm.llm_engine.add_request("a", {"prompt_token_ids": [1, 2]}, llm.get_default_sampling_params())
    outputs = client.get_output()
    assert calls == ["_schedule", "_execute_model", "_process_model_outputs", "post_step"]
    assert [output.request_id for output in outputs.outputs] == ["a"]
    assert core.step_fn()[1] is True
    llm.llm_engine.abort_request(["a"])


def test_the_last_step_tells_the_runner_who_has_gone(qwen2_checkpoint):
    """After an abort a step without tokens still reaches the model runner, which removes the request."""
    llm = LLM(str(qwen2_checkpoint))
    client = llm.llm_engine.engine_core
    assert isinstance(client, InprocClient)
    llm.llm_engine.add_request("a", {"prompt_token_ids": [1, 2]}, llm.get_default_sampling_params())
    client.get_output()
    runner = client.engine_core.model_executor.driver_worker.worker.model_runner  # type: ignore[attr-defined]
    assert "a" in runner.requests
    llm.llm_engine.abort_request(["a"])
    assert client.engine_core.step_fn() == (None, False)
    assert "a" not in runner.requests
