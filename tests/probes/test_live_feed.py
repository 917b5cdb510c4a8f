"""The live feed: selected spans of all processes during the run, ordered by their ends."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import HANG_GUARD, wait_until
from tracellm import LLM, SamplingParams, probe
from tracellm.probes.record import recorder as recorder_module
from tracellm.probes.record.record_file import DEFINITIONS, END, HEADER, RECORDS, Header, RecordFile, encode
from tracellm.probes.record.recorder import define_site
from tracellm.probes.recording import Recording
from tracellm.probes.spans import live_feed
from tracellm.probes.spans.tail import RecordTail
from tracellm.probes.wrapping.probe import Entry, Probe, Site
from tracellm.probes.wrapping.wrapper import wrap
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN


@probe
def work(number: int) -> int:
    """A function to record."""
    return number


class Listener:
    """Listener that keeps its spans."""

    def __init__(self, *wanted: str) -> None:
        self.names = frozenset(wanted)
        self.heard: list[Span] = []

    def __call__(self, span: Span) -> None:
        """Keep a span."""
        self.heard.append(span)


@contextmanager
def lasting_thread(name: str) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Give a function that has a thread call another one, always in the same context, and waits for it."""
    calls: queue.Queue[Callable[[], Any] | None] = queue.Queue()

    def run() -> None:
        for call in iter(calls.get, None):
            try:
                call()
            finally:
                calls.task_done()

    def do(call: Callable[[], Any]) -> None:
        calls.put(call)
        calls.join()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    try:
        yield do
    finally:
        calls.put(None)
        thread.join()


HEAD = Header({names.PROCESS_PID: 2, names.PROCESS_NAME: "EngineCore_0"}, (10**18, 0), 1, [(1, 1)], "a" * 32, "b" * 16)


def other_process(traces: Path, name: str = "EngineCore_0-2") -> RecordFile:
    """The record file of another process, with the sites `wanted`, `plain` and `custom`."""
    traces.mkdir(parents=True, exist_ok=True)
    file = RecordFile(traces / f"{name}.records")
    probes = [
        Probe("wanted", "layer", span_name="wanted"),
        Probe("plain", "layer", span_name="plain"),
        Probe("custom", "step", span_name="custom", timed=True, attributes=dict),
    ]
    sites = [(number, define_site(Site(one, None))) for number, one in enumerate(probes)]
    file.append(encode(HEADER, HEAD), encode(DEFINITIONS, sites, []))
    return file


def record(site: int, call: int, end: int, error: Any = None) -> tuple[Any, ...]:
    """Return a record of a call of this site with this end."""
    return site, call, 0, 0, 0, end, None, error


def test_a_listener_gets_what_it_wants(tmp_path: Path):
    """A listener gets the spans of its names during the run, with the ids of the trace."""
    listener = Listener("work")
    with Recording(tmp_path, catalog=(), listener=listener):
        for number in range(300):
            work(number)
        wait_until(lambda: len(listener.heard) == 300, "the live feed")
    assert [span.span_id for span in listener.heard] == [
        span.span_id for span in RunFolder.open(tmp_path).trace.named("work")
    ]


@pytest.mark.parametrize("in_short", [True, False])
def test_what_has_no_more_than_arguments_is_left_out(tmp_path: Path, in_short: bool):
    """Calls with only arguments and result are left out of the feed; all are in the trace."""
    listener = Listener("something else")
    entry = Entry("m:told", "step", capture=lambda *_: 1, attributes=lambda facts: {names.RESULT: str(facts)})
    own_probe = Probe(
        "told", "step", span_name="told", in_short=in_short, capture=lambda *_: 1, attributes=dict, timed=True
    )
    own_probe.target = entry.target
    call = wrap(lambda: None, own_probe)
    with Recording(tmp_path, catalog=[entry], listener=listener):
        call()
    assert [span.name for span in listener.heard if span.name == "told"] == ["told"] * (not in_short)
    [span] = RunFolder.open(tmp_path).trace.named("told")
    assert span.attributes[names.RESULT] == "1"


def test_a_tail_reads_what_is_added(tmp_path: Path):
    """A tail reads each whole frame once; spans of other names are left out unless they failed."""
    file = other_process(tmp_path)
    tail = RecordTail(tmp_path, span_names=["wanted"])
    assert tail.new(100) == []
    failed: Any = ("ValueError", "no", [])
    file.append(encode(RECORDS, 0, [record(0, 1, 5), record(1, 2, 6), record(2, 3, 7), record(1, 4, 8, failed)]))
    assert [span.name for span in tail.new(100)] == ["wanted", "custom", "plain"]
    assert tail.new(100) == []
    file.append(encode(RECORDS, 2, [record(2, 3, 7), record(1, 4, 8), record(0, 5, 9)]))  # partly read already
    assert [(span.name, span.process.name) for span in tail.new(100) if span.process] == [("wanted", "EngineCore_0")]
    assert tail.never_ended() == []
    file.close()


def test_a_tail_follows_a_ring(tmp_path: Path):
    """A tail reads a replaced segment to its end, then its successor, and counts the segments it missed."""
    file = other_process(tmp_path)
    tail = RecordTail(tmp_path)
    file.append(encode(RECORDS, 0, [record(0, 1, 5)]))
    assert len(tail.new(100)) == 1
    file.append(encode(RECORDS, 1, [record(0, 2, 6)]))
    file.set_aside()
    file = other_process(tmp_path)
    file.append(encode(RECORDS, 2, [record(0, 3, 7)]))
    assert [int(span.span_id, 16) for span in tail.new(100)] == [3, 4]
    assert tail.num_missed == 0
    file.set_aside()
    other_process(tmp_path).set_aside()
    file = other_process(tmp_path)
    file.append(encode(RECORDS, 9, [record(0, 10, 8)]), encode(END, 20))
    assert [int(span.span_id, 16) for span in tail.new(100)] == [11]
    assert tail.num_missed == 6
    file.append(encode(RECORDS, 10, [record(0, 11, 9)]))
    file.set_aside()
    file = other_process(tmp_path)
    file.append(encode(RECORDS, 11, [record(0, 12, 10)]))
    file.set_aside()
    file = other_process(tmp_path)
    file.append(encode(RECORDS, 12, [record(0, 13, 11)]))
    assert [int(span.span_id, 16) for span in tail.new(2)] == [12, 13]
    assert [int(span.span_id, 16) for span in tail.new(2)] == [14]
    assert tail.never_ended() == []
    file.close()


def test_others_are_fed_in_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Spans wait until all earlier ones of other processes must have arrived."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", HANG_GUARD)
    listener = Listener("wanted", "work")
    with Recording(tmp_path, catalog=(), listener=listener) as recording:
        feed, clock = recording._feed, recording._clock
        assert feed is not None
        work(1)
        now = clock.wall(clock.now()) - 10**18
        file = other_process(tmp_path / "trace")
        file.append(encode(RECORDS, 0, [record(0, 1, now - 10**9), record(0, 2, now + 10**9)]))
        recording._recorder.flush()
        feed.poll(has_others=True)
        assert [span.name for span in listener.heard] == ["wanted"]
        monkeypatch.setattr(feed, "_now", lambda: 10**18 + now + live_feed.HOLD_NS + 10**8)
        feed.poll(has_others=True)
        assert [span.name for span in listener.heard] == ["wanted", "work"]
    assert [span.name for span in listener.heard] == ["wanted", "work", "wanted"]


def test_a_feed_that_falls_behind_skips_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A feed beyond its bound skips and counts waiting spans; the trace has all."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", HANG_GUARD)
    monkeypatch.setattr(live_feed, "_MOST_BEHIND", 50)
    listener = Listener("work")
    with Recording(tmp_path, catalog=(), listener=listener) as recording:
        for _ in range(10):
            for number in range(20):
                work(number)
            recording._recorder.flush()
        assert recording._feed is not None
        recording._feed.poll()
    assert len(listener.heard) == 40
    assert recording.stats["unheard"] == 160
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 200


def test_threads_that_ended_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A bounded number of threads is kept, and a forgotten one that goes on has its name again."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", HANG_GUARD)
    monkeypatch.setattr(live_feed, "_MOST_THREADS", 3)
    listener = Listener("work")
    with Recording(tmp_path, catalog=(), listener=listener) as recording, lasting_thread("lasting") as call:
        for number in range(10):
            call(partial(work, number))
            with ThreadPoolExecutor(1, "short") as short:
                short.submit(work, number).result()
            recording._recorder.flush()
            assert recording._feed is not None
            recording._feed.poll()
            assert len(recording._feed._builder.threads) < 3 + 5
    threads = [str(span.attributes[names.THREAD_NAME]) for span in listener.heard]
    assert threads == ["lasting", "short_0"] * 10


def test_a_round_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A round without time reads one piece of each process's spans; all are fed once, in the order of their ends."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", HANG_GUARD)
    monkeypatch.setattr(live_feed, "_MOST_SECONDS", -1.0)
    monkeypatch.setattr(live_feed, "_MOST_AT_ONCE", 2)
    listener = Listener("wanted", "work")
    with Recording(tmp_path, catalog=(), listener=listener) as recording:
        feed, clock = recording._feed, recording._clock
        assert feed is not None
        for number in range(5):
            work(number)
        now = clock.wall(clock.now()) - 10**18
        file = other_process(tmp_path / "trace")
        file.append(encode(RECORDS, 0, [record(0, call, now + call) for call in range(5)]))
        recording._recorder.flush()
        monkeypatch.setattr(feed, "_now", lambda: 10**18 + now + live_feed.HOLD_NS + 10**8)
        for num_rounds in range(1, 3):
            feed.poll(has_others=True)
            assert (len(feed._held), listener.heard) == (3 * num_rounds, [])
        monkeypatch.setattr(live_feed, "_MOST_HELD", 6)
        feed.poll(has_others=True)  # feeds the oldest, since many are held
        assert (len(feed._held), len(listener.heard)) == (5, 1)
    assert [span.name for span in listener.heard] == ["work"] * 5 + ["wanted"] * 5
    assert [span.end_ns for span in listener.heard] == sorted(span.end_ns for span in listener.heard)


def test_a_tail_of_a_file_that_is_only_being_made(tmp_path: Path):
    """A tail of a file without a header reads nothing and does not fail."""
    (tmp_path / "main-1.records").touch()
    tail = RecordTail(tmp_path)
    assert tail.new(10) == []
    (tmp_path / "main-1.records").write_bytes(b"TRACELLM")
    assert tail.new(10) == []
    os.remove(tmp_path / "main-1.records")
    assert tail.never_ended() == []


def test_steps_have_what_calls_deep_in_them_give(tmp_path: Path):
    """A fed step has its sampled tokens, although the calls down to the sampler are not fed."""
    listener = Listener(STEP_SPAN)
    with Recording(tmp_path, listener=listener):
        llm = LLM(max_model_len=64, kv_cache_memory_bytes=1 << 20)
        llm.generate(["Hello"], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)
    fed = [span for span in listener.heard if span.name == STEP_SPAN]
    whole = RunFolder.open(tmp_path).trace.named(STEP_SPAN)
    assert [span.attributes for span in fed] == [
        {name: value for name, value in span.attributes.items() if name != names.RECORDING_DURATION} for span in whole
    ]
