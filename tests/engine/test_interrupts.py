"""Tests of Ctrl-C during generation."""

import asyncio
import os
import signal
import threading
from multiprocessing import resource_tracker, util
from types import SimpleNamespace

import pytest

from tracellm import LLM, SamplingParams
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.entrypoints.interrupts import deferred_interrupts
from tracellm.engine.executor.uniproc_executor import UniProcExecutor
from tracellm.engine.ipc.launch import CoreEngineProcManager
from tracellm.engine.ipc.mp_client import AsyncMPClient

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def press_ctrl_c() -> None:
    """Send SIGINT to this process; Python handles it before the next line."""
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def llm(qwen2_checkpoint) -> LLM:
    """A new LLM for each test."""
    return LLM(str(qwen2_checkpoint), dtype="float32")


def test_ctrl_c_lets_the_step_finish_and_drops_the_rest(llm, monkeypatch):
    """Ctrl-C within a step lets it finish, drops the requests, and leaves the LLM usable."""
    prompts = [{"prompt_token_ids": [7] * 40}, "x"]
    expected = [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)]
    llm.llm_engine.reset_prefix_cache()
    core = llm.llm_engine.engine_core.engine_core
    execute, steps = core._execute_model, []

    def interrupted(scheduler_output):
        steps.append("begun")
        press_ctrl_c()
        output = execute(scheduler_output)
        steps.append("ended")
        return output

    with monkeypatch.context() as patch:
        patch.setattr(core, "_execute_model", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(prompts, GREEDY)
    assert steps == ["begun", "ended"]
    assert not llm.llm_engine.has_unfinished_requests()
    assert not core.scheduler.requests
    assert [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)] == expected


def test_a_second_ctrl_c_does_not_wait(llm, monkeypatch):
    """A second Ctrl-C breaks the step off, caches nothing wrong, and leaves the LLM usable."""
    prompt = {"prompt_token_ids": [7] * 40}
    expected = llm.generate(prompt, GREEDY)[0].outputs[0].token_ids
    llm.llm_engine.reset_prefix_cache()
    core = llm.llm_engine.engine_core.engine_core

    def interrupted_twice(scheduler_output):
        press_ctrl_c()
        press_ctrl_c()
        raise AssertionError("the second interrupt should have come before this line")

    with monkeypatch.context() as patch:
        patch.setattr(core, "_execute_model", interrupted_twice)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(prompt, GREEDY)
    assert llm.generate(prompt, GREEDY)[0].outputs[0].token_ids == expected


def test_ctrl_c_while_prompts_are_added(llm, monkeypatch):
    """Ctrl-C before the first step drops the whole batch."""
    process_inputs = llm.processor.process_inputs

    def interrupted(*args, **kwargs):
        press_ctrl_c()
        return process_inputs(*args, **kwargs)

    monkeypatch.setattr(llm.processor, "process_inputs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b"], GREEDY)
    assert not llm.llm_engine.has_unfinished_requests()


def test_the_scripts_own_handler_is_called_and_comes_back(llm):
    """A script's own SIGINT handler is called between two steps, and is in place again afterwards."""
    seen = []

    def handler(signum, frame):
        seen.append(signum)

    previous = signal.signal(signal.SIGINT, handler)
    try:
        with deferred_interrupts() as interrupts:
            press_ctrl_c()
            assert seen == []
            interrupts.check()
            assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, previous)


def test_an_interrupt_at_the_end_of_the_block_is_not_lost(monkeypatch):
    """Ctrl-C that comes while the previous handler is put back is handled by it."""
    seen = []
    set_handler = signal.signal

    def interrupted(signum, handler):
        press_ctrl_c()
        return set_handler(signum, handler)

    previous = signal.signal(signal.SIGINT, lambda *_: seen.append("handled"))
    try:
        with deferred_interrupts():
            monkeypatch.setattr(signal, "signal", interrupted)
        assert seen == ["handled"]
    finally:
        set_handler(signal.SIGINT, previous)


def test_an_interrupt_is_not_lost_to_another_error():
    """Ctrl-C inside a block that fails is handled at its end."""

    @deferred_interrupts()
    def fail():
        press_ctrl_c()
        raise ValueError

    with pytest.raises(KeyboardInterrupt):
        fail()


def test_a_cancelled_task_does_not_wait_for_an_engine_that_never_connects(monkeypatch):
    """A task that asyncio cancelled, as its Ctrl-C does, stops waiting for the engine's first message."""
    sentinel, engine_end = os.pipe()
    engine = SimpleNamespace(sentinels=[sentinel], close=lambda: None, wait_for_end=lambda: "ended")
    monkeypatch.setattr(
        AsyncMPClient,
        "launch_core_engines",
        lambda self, *_: setattr(self.resources, "engine_manager", engine),
    )
    guard = threading.Timer(30, os.close, [engine_end])  # ends a wait that would last forever
    guard.start()

    async def main():
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        AsyncMPClient(EngineArgs().create_engine_config(), UniProcExecutor, False)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    guard.cancel()
    os.close(engine_end)
    os.close(sentinel)


def test_other_threads_generate_too(llm):
    """`generate` works in threads other than the main one, which do not receive signals."""
    outputs = []
    thread = threading.Thread(target=lambda: outputs.extend(llm.generate("a", GREEDY)))
    thread.start()
    thread.join()
    assert len(outputs) == 1


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_engine_process_gets_its_work_before_an_interrupt(signum, monkeypatch, capfd):
    """A signal that comes while the engine's process starts is handled once that process has its settings."""
    spawn = util.spawnv_passfds
    pids = []

    def interrupted(*args):
        pids.append(spawn(*args))
        os.kill(os.getpid(), signum)
        return pids[-1]

    def interrupt(*_):
        raise KeyboardInterrupt

    resource_tracker.ensure_running()  # another process
    config = EngineArgs().create_engine_config()
    manager = CoreEngineProcManager(config, UniProcExecutor, False, "ipc:///nowhere", "/nowhere")
    previous = signal.signal(signum, interrupt)
    monkeypatch.setattr(util, "spawnv_passfds", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            manager.start()
    finally:
        signal.signal(signum, previous)
        manager.close()
        if manager.processes[0].pid is None:  # interrupted before its id was known
            os.waitpid(pids[0], 0)
    assert "EOFError" not in capfd.readouterr().err
