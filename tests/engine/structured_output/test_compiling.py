"""Tests of the compilation of grammars in threads: the engine runs other requests, and waits if there are none."""

import gc
import threading
import weakref
from concurrent.futures import FIRST_COMPLETED
from concurrent.futures import wait as futures_wait

import pytest

from tests.engine.structured_output.conftest import core_of
from tracellm import LLM, SamplingParams
from tracellm.engine.core.structured_output import manager
from tracellm.engine.core.structured_output.backend_guidance import get_guidance_backend
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

FREE = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
CONSTRAINED = SamplingParams(temperature=0, max_tokens=9, structured_outputs=StructuredOutputsParams(regex="[ab]{4}"))


@pytest.fixture
def held_back(llm, monkeypatch):
    """Return the engine core, and an event before which no grammar finishes compiling."""
    core = core_of(llm)
    may_finish = threading.Event()
    backend = core.structured_output_manager.backend
    compile_grammar = backend.compile_grammar

    def slow(params):
        may_finish.wait()
        return compile_grammar(params)

    monkeypatch.setattr(backend, "compile_grammar", slow)
    yield core, may_finish
    may_finish.set()


def test_others_go_on_meanwhile(llm, held_back, monkeypatch):
    """A later unconstrained request finishes before the grammar is compiled."""
    core, may_finish = held_back
    update = core.scheduler.update_from_output
    ended: list[str] = []

    def watch(*args):
        outputs = update(*args)
        ended.extend(output.request_id for group in outputs.values() for output in group.outputs if output.finished)
        if ended:
            may_finish.set()
        return outputs

    monkeypatch.setattr(core.scheduler, "update_from_output", watch)
    constrained, free = llm.generate(["a", "b"], [CONSTRAINED, FREE], use_tqdm=False)
    assert ended == [free.request_id, constrained.request_id]
    assert len(constrained.outputs[0].text) == 4


def test_a_step_with_nothing_to_do_waits(llm, held_back, monkeypatch):
    """With no other request, the engine core waits after each empty step, for a grammar or a moment."""
    core, may_finish = held_back
    schedule, held = core.scheduler.schedule, []
    patience: list[float] = []

    def watch():
        output = schedule()
        held.append({request_id: reason.code.value for request_id, reason in output.not_scheduled.items()})
        if len(held) == 100:
            may_finish.set()  # ends the test if it fails
        return output

    def wait(futures, timeout, return_when):
        assert return_when == FIRST_COMPLETED
        patience.append(timeout)
        if len(patience) == 3:
            may_finish.set()
            return futures_wait(futures)
        return None

    monkeypatch.setattr(core.scheduler, "schedule", watch)
    monkeypatch.setattr(manager, "wait", wait)
    output = llm.generate("a", CONSTRAINED, use_tqdm=False)[0]
    assert len(output.outputs[0].text) == 4
    assert held == [{output.request_id: "grammar"}] * 3 + [{}] * 5  # empty steps, then five tokens
    assert all(0 < seconds < 1 for seconds in patience)


def test_compiled_grammars_are_not_kept(llm, held_back):
    """A compiled grammar belongs to its request only: the engine core keeps none, although it never waited for it."""
    core, may_finish = held_back
    engine = llm.llm_engine
    engine.add_request("gone", "a", CONSTRAINED)
    engine.abort_request(["gone"])
    engine.step()
    [compiling] = core.structured_output_manager._compiling
    compiled = threading.Event()
    compiling.add_done_callback(lambda _: compiled.set())  # called after those added before
    may_finish.set()
    assert compiled.wait(60)
    assert not core.structured_output_manager._compiling
    assert not engine.has_unfinished_requests()


def test_compilation_takes_another_thread(llm, monkeypatch):
    """The caller's thread does not compile the grammar."""
    backend = core_of(llm).structured_output_manager.backend
    compile_grammar, threads = backend.compile_grammar, []

    def watch(params):
        threads.append(threading.current_thread())
        return compile_grammar(params)

    monkeypatch.setattr(backend, "compile_grammar", watch)
    llm.generate(["a", "b"], CONSTRAINED, use_tqdm=False)
    assert len(threads) == 2
    assert threading.current_thread() not in threads


def test_the_library_is_loaded_in_a_thread(llm, monkeypatch):
    """The first constrained request has a thread load the library, so that no other new request waits for it."""
    threads = []
    grammars = core_of(llm).structured_output_manager
    backend = grammars.backend

    def load(self):
        threads.append(threading.current_thread().name)
        return backend

    monkeypatch.setattr(type(grammars), "backend", property(load))
    llm.generate("a", CONSTRAINED, use_tqdm=False)
    assert threads[0].startswith("grammar")


def test_an_engine_without_constraints_never_waits(qwen2_checkpoint):
    """An engine without constraints ends its last, empty step at once."""
    llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=50)
    llm.generate("a", FREE, use_tqdm=False)
    untouched = core_of(llm).structured_output_manager
    assert not untouched._compiling
    assert "backend" not in vars(untouched)
    assert "executor" not in vars(untouched)


def test_both_halves_of_the_engine_share_the_library(llm):
    """Both halves of the engine share the library's tokenizer data, and another vocabulary has its own."""
    llm.generate("a", CONSTRAINED, use_tqdm=False)
    engine = llm.llm_engine
    backend = core_of(llm).structured_output_manager.backend
    assert engine.processor._guidance_backend is backend
    assert get_guidance_backend(llm.get_tokenizer(), 320) is backend
    assert get_guidance_backend(llm.get_tokenizer(), 321) is not backend


def test_a_deleted_llm_is_gone_with_its_grammars(qwen2_checkpoint):
    """`del llm` frees model, grammars and threads at once, without the garbage collector."""
    llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=51, max_model_len=100)
    llm.generate(["a", "b"], CONSTRAINED, use_tqdm=False)
    core = core_of(llm)
    gone = [weakref.ref(part) for part in (core, core.model_executor, core.structured_output_manager.executor)]
    del core
    gc.disable()
    try:
        del llm
        assert [part() for part in gone] == [None] * 3
    finally:
        gc.enable()
