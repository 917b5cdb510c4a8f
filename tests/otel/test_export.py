"""Export of a recording to a collector during the run, for every kind of end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.processes import HANG_GUARD, completed
from tests.otel.collecting import Collecting, values
from tracellm.probes import probe
from tracellm.probes.recording import Recording
from tracellm.trace.run_folder import RunFolder


@probe
def _work(n: int) -> int:
    if n == 3:
        raise ValueError("three")
    return n


def test_a_recording_arrives(tmp_path: Path, collector: Collecting):
    """Every span is sent once, with its ids, times, attributes, events and error, and is counted."""
    with Recording(tmp_path, script="script.py") as recording:
        for n in range(700):
            try:
                _work(n)
            except ValueError:
                continue
    recorded = RunFolder.open(tmp_path).trace.spans
    assert recording.stats["export"] == {
        "endpoint": f"{collector.endpoint}/v1/traces",
        "sent": 701,
        "lost": 0,
        "errors": [],
    }
    came = {span.span_id.hex(): span for span in collector.spans}
    assert len(collector.spans) == len(came) == len(recorded) == 701
    for span in recorded:
        other = came[span.span_id]
        assert (other.name, other.trace_id.hex()) == (span.name, span.trace_id)
        assert (other.parent_span_id.hex() or None) == span.parent_span_id
        assert (other.start_time_unix_nano, other.end_time_unix_nano) == (span.start_ns, span.end_ns)
        shown = {name: value for name, value in span.attributes.items() if name != "tracellm.caller.text"}
        assert values(other.attributes) == shown
        assert (other.status.message or None) == span.error
        assert [event.name for event in other.events] == [event.name for event in span.events]
    [failed] = [span for span in collector.spans if span.status.message]
    assert values(failed.events[0].attributes)["exception.message"] == "three"
    [resource] = {str(one.resource): one.resource for one in collector.resources}.values()
    assert values(resource.attributes)["process.pid"] == os.getpid()


def test_nothing_is_sent_unasked(tmp_path: Path):
    """Without the variables no process is started, and run.json has no export."""
    with Recording(tmp_path) as recording:
        _work(1)
    assert "export" not in recording.stats


@pytest.mark.parametrize(("delay", "batch"), [("10", "512"), ("100000000", "1")])
def test_spans_arrive_while_the_run_goes_on(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch, delay: str, batch: str
):
    """A span is sent during the recording, after a delay or with a full batch."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", delay)
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", batch)
    with Recording(tmp_path):
        _work(1)
        collector.wait_for("_work")
        assert [span.name for span in collector.spans] == ["_work"]


def test_a_killed_run_is_sent(tmp_path: Path, collector: Collecting):
    """All records written before a kill are sent, with open calls marked as such."""
    code = """
import os, signal, sys, time
from pathlib import Path
from tracellm.probes import probe
from tracellm.probes.recording import Recording
@probe
def work(): pass
@probe
def last():
    while not (file := next(Path(sys.argv[1], "trace").glob("*.records"), None)) or b"last" not in file.read_bytes():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
Recording(sys.argv[1], script="killed.py").start()
work()
last()
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], timeout=HANG_GUARD)
    assert done.returncode == -signal.SIGKILL
    collector.wait_for("killed.py")
    opened = {span.name: values(span.attributes).get("tracellm.open") for span in collector.spans}
    assert opened == {"work": None, "last": True, "killed.py": True}


INTERRUPTED = """
import os, signal, sys
from tracellm.probes import probe
from tracellm.probes.recording import Recording
with Recording(sys.argv[1], script="script.py") as recording:
    probe(lambda: None)()
    if (child := os.fork()) == 0:
        probe(len)("forked")
        recording.stop()
        os._exit(0)
    os.waitpid(child, 0)
    try:
        os.killpg(0, signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        pass
print(recording.stats["export"]["sent"], recording.stats["export"]["errors"])
"""


def test_ctrl_c_and_forks_leave_it_alone(tmp_path: Path, collector: Collecting):
    """Spans are sent despite a terminal's Ctrl-C, which reaches every process, and despite a fork that ends."""
    command: list[str | Path] = [sys.executable, "-W", "error", "-c", INTERRUPTED, tmp_path]
    done = completed(command)
    assert (done.stdout, done.stderr) == ("3 []\n", "")
    assert sorted(span.name for span in collector.spans) == ["<lambda>", "len", "script.py"]


def test_whoever_does_not_want_to_wait_need_not(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C during the last spans ends the sending with a reason; no process or pipe is left."""
    made: list[subprocess.Popen[str]] = []

    def _interrupted(process: subprocess.Popen[str], *args: object, **options: object) -> None:
        made.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", _interrupted)
    collector.gate.clear()
    with Recording(tmp_path) as recording:
        _work(1)
    assert recording.stats["export"] == {
        "endpoint": f"{collector.endpoint}/v1/traces",
        "sent": None,
        "lost": None,
        "errors": ["it was interrupted while it sent the last spans"],
    }
    [process] = made
    assert process.returncode is not None
    assert process.stdout is not None
    assert process.stdout.closed


def test_a_ring_is_sent_as_it_turns(tmp_path: Path, collector: Collecting):
    """With a ring, each span is sent once or counted as lost, and all kept spans are sent."""
    with Recording(tmp_path, script="script.py", ring=100) as recording:
        for n in range(1000):
            _work(n + 4)
            if n % 50 == 0:
                recording._recorder.flush()
    kept = {span.span_id for span in RunFolder.open(tmp_path).trace.spans}
    sent = [span.span_id.hex() for span in collector.spans]
    export = recording.stats["export"]
    assert len(sent) == len(set(sent)) == export["sent"]
    assert kept <= set(sent)
    assert len(sent) + export["lost"] == 1001
    assert export["errors"] == (["--ring let go of them before they could be sent"] if export["lost"] else [])
