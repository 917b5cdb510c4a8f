"""A ring always has at least the last so many calls."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tracellm import LLM, SamplingParams, probe
from tracellm.probes.record import recorder as recorder_module
from tracellm.probes.recording import Recording
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN


@probe
def work(x: int = 0) -> int:
    """A function to record."""
    return x


@probe
def outer(calls: int, recording: Recording | None = None) -> None:
    """An enclosing call that writes at intervals."""
    for i in range(calls):
        work(i)
        if recording is not None and i % 30 == 0:
            recording._recorder.flush()


def arguments(folder: Path) -> list[str]:
    """Return the arguments of the recorded calls of `work`."""
    return [span.attributes[names.ARGUMENTS][0] for span in RunFolder.open(folder).trace.named("work")]


def test_a_recorded_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A ring keeps the last calls and their callers, and counts the dropped ones."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 60)
    recording = Recording(tmp_path, catalog=(), ring=100, script="script.py")
    with recording:
        outer(5000, recording)
    trace = RunFolder.open(tmp_path).trace
    kept = arguments(tmp_path)
    assert 100 <= len(kept) < 300
    assert kept == [f"x={i}" for i in range(5000 - len(kept), 5000)]
    assert [root.name for root in trace.roots] == ["script.py"]
    assert len(trace.named("outer")) == 1
    assert recording.stats["let_go"] == 5002 - len(trace.spans)
    assert len(list((tmp_path / "trace").iterdir())) == 1


def test_a_ring_that_is_never_full(tmp_path: Path):
    """A ring drops nothing of a shorter recording."""
    recording = Recording(tmp_path, catalog=(), ring=100)
    with recording:
        outer(5)
    assert recording.stats["let_go"] == 0
    assert len(RunFolder.open(tmp_path).trace.spans) == 7


def test_calls_of_a_thread_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Calls that are written after the end of their thread have its name, in a new segment too."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", 60)

    def run() -> None:
        for calls in (20, 20, 20, 1):
            recording._recorder.flush()
            for i in range(calls):
                work(i)

    recording = Recording(tmp_path, catalog=(), ring=10)
    with recording:
        thread = threading.Thread(target=run, name="short")
        thread.start()
        thread.join()
    spans = RunFolder.open(tmp_path).trace.named("work")
    assert [span.attributes.get(names.THREAD_NAME) for span in spans] == ["short"] * 11


def test_calls_that_outlive_a_ring(tmp_path: Path):
    """A ring keeps a call that is still open at the end, although it began long before."""
    entered, leave = threading.Event(), threading.Event()

    @probe
    def waits(recording: Recording) -> None:
        outer(1000, recording)
        entered.set()
        leave.wait()

    recording = Recording(tmp_path, catalog=(), ring=10)
    thread = threading.Thread(target=waits, args=(recording,))
    with recording:
        thread.start()
        entered.wait()
    leave.set()
    thread.join()
    trace = RunFolder.open(tmp_path).trace
    waiting = next(span for span in trace.spans if span.method == "waits")
    assert waiting.open
    assert "outer" in [span.method for span in trace.children(waiting)]


def test_steps_keep_their_numbers(tmp_path: Path):
    """The steps in a ring have their numbers in the run."""
    with Recording(tmp_path, ring=300):
        llm = LLM(max_model_len=64, kv_cache_memory_bytes=1 << 20)
        llm.generate(["Hello"], SamplingParams(max_tokens=20, ignore_eos=True), use_tqdm=False)
    first, *steps = [span.attributes[names.STEP_INDEX] for span in RunFolder.open(tmp_path).trace.named(STEP_SPAN)]
    assert first == 1
    assert 0 < len(steps) < 19
    assert steps == list(range(21 - len(steps), 21))


RING = """
import sys
from tracellm import LLM, SamplingParams
from tracellm.probes.recording import Recording

with Recording(sys.argv[1], ring=300):
    llm = LLM(max_model_len=64, kv_cache_memory_bytes=1 << 20)
    engine = llm.llm_engine
    for name, tokens in (("short", 2), ("long", 40)):
        params = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0.25)
        engine.add_request(name, f"A {name} story", params)
    while engine.has_unfinished_requests():
        engine.step()
"""


def test_a_ring_keeps_setup_and_submissions(tmp_path: Path):
    """A ring keeps the setup, and the prompt and parameters of a request whose early records were dropped."""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", RING, tmp_path], check=True)
    run = RunFolder.open(tmp_path)
    assert {problem.code for problem in run.problems} == {"manifest_missing"}
    trace = run.trace
    assert len(trace.named("LLM.__init__")) == len(trace.named("DefaultModelLoader.load_weights")) == 2
    lives = trace.named("llm_request")
    assert [life.attributes[names.REQUEST_ID] for life in lives] == ["long", "long"]
    for life in lives:
        assert life.attributes[names.REQUEST_PROMPT] == "A long story"
        assert life.attributes[names.GEN_AI_TEMPERATURE] == 0.25
        assert life.attributes[names.GEN_AI_OUTPUT_TOKENS] == 40
        assert not life.open
    assert len({life.trace_id for life in lives}) == 2


def test_submissions_give_way_to_newer_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A ring keeps a bounded number of submissions."""
    monkeypatch.setattr(recorder_module, "_MOST_KEPT_BYTES", 5000)
    with Recording(tmp_path, ring=300) as recording:
        llm = LLM(max_model_len=64, kv_cache_memory_bytes=1 << 20)
        llm.generate(["Hello"] * 30, SamplingParams(max_tokens=2, ignore_eos=True), use_tqdm=False)
    kept = recording._recorder._kept
    assert 0 < sum(len(content) for _, content in kept) == recording._recorder._kept_bytes <= 5000


def test_tokens_have_texts_in_each_segment(tmp_path: Path):
    """A request submitted after the tokenizer's segment was dropped still has token texts."""
    with Recording(tmp_path, ring=1000):
        llm = LLM(max_model_len=64, kv_cache_memory_bytes=1 << 20)
        for _ in range(8):
            llm.generate(["Hello"], SamplingParams(max_tokens=8, ignore_eos=True), use_tqdm=False)
    steps = RunFolder.open(tmp_path).trace.named(STEP_SPAN)
    assert 8 <= len(steps) < 60
    assert all(names.STEP_SAMPLED_TEXTS in step.attributes for step in steps[-8:])
