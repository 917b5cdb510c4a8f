"""Which client a configuration leads to."""

from typing import Any

import pytest

from tracellm import LLM
from tracellm.engine.core_client import EngineCoreClient, InprocClient, choose_client
from tracellm.engine.errors import EngineError

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
    """The two flags decide, and the choice says by which rule; the rule holds for these flags and for no others."""
    choice = choose_client(multiprocess_mode, asyncio_mode)
    assert choice.name == name
    flags = [(m, a) for m in (False, True) for a in (False, True)]
    holds = [eval(choice.rule, {"multiprocess_mode": m, "asyncio_mode": a}) for m, a in flags]
    assert holds == [flag == (multiprocess_mode, asyncio_mode) for flag in flags]


@pytest.mark.parametrize(
    ("multiprocess_mode", "asyncio_mode", "message"),
    [
        (True, False, "lead to SyncMPClient .*does not have yet.*VLLM_ENABLE_V1_MULTIPROCESSING.*InprocClient"),
        (True, True, "lead to AsyncMPClient .*does not have yet"),
        (False, True, "no client for asyncio_mode=True with multiprocess_mode=False"),
    ],
)
def test_clients_that_are_not_here_are_refused(multiprocess_mode, asyncio_mode, message):
    """Nothing is built; the message says which client it would be, and how to go on."""
    with pytest.raises(EngineError, match=message):
        EngineCoreClient.make_client(multiprocess_mode, asyncio_mode, NEVER_LOOKED_AT, NEVER_LOOKED_AT, log_stats=False)


@pytest.mark.parametrize("value", [None, "0"])
def test_the_default_is_in_process(qwen2_checkpoint, monkeypatch, value):
    """Without the variable, or with 0, the engine core is an object of this process, found where the documents say."""
    if value is not None:
        monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", value)
    client = LLM(str(qwen2_checkpoint)).llm_engine.engine_core
    assert type(client) is InprocClient
    assert client.engine_core.scheduler.get_num_unfinished_requests() == 0


def test_the_variable_asks_for_the_multiprocess_client(qwen2_checkpoint, monkeypatch):
    """With 1 it would be SyncMPClient; another value is a mistake and is named."""
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    with pytest.raises(EngineError, match="SyncMPClient"):
        LLM(str(qwen2_checkpoint))
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "yes")
    with pytest.raises(EngineError, match="VLLM_ENABLE_V1_MULTIPROCESSING must be 0 or 1, it is 'yes'"):
        LLM(str(qwen2_checkpoint))


def test_a_step_without_requests_does_nothing(qwen2_checkpoint):
    """`step_fn` then returns `(None, False)`, and the client an empty output."""
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
    """After an abort a step without tokens still reaches the model runner, which forgets the request."""
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
