"""Conversion of record files to the trace, also when it is interrupted."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tracellm import probe
from tracellm.probes.catalog.vllm import CATALOG as VLLM
from tracellm.probes.record.record_file import record_files
from tracellm.probes.recording import Recording
from tracellm.probes.spans import converter
from tracellm.probes.spans.converter import convert_folder, has_records
from tracellm.trace.run_folder import RunFolder


@probe
def work(number: int) -> int:
    """A function to record."""
    return number


def later(folder: Path, calls: int = 10) -> Recording:
    """Return a recording that was not converted."""
    with Recording(folder, convert=False) as recording:
        for number in range(calls):
            work(number)
    return recording


def test_conversion_may_wait(tmp_path: Path):
    """Records left unconverted become the same trace when the folder is opened."""
    recording = later(tmp_path)
    assert [path.suffix for path in (tmp_path / "trace").iterdir()] == [".records"]
    assert recording.stats["writer"]["calls"] >= 11
    assert has_records(tmp_path)
    shares: list[float] = []
    assert convert_folder(tmp_path, shares.append) == []
    assert not has_records(tmp_path)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    trace = RunFolder.open(tmp_path).trace
    assert len(trace.named("work")) == 10
    assert [span.name for span in trace.roots] == ["python"]
    assert not [span for span in trace.spans if span.open]


def test_the_trace_is_its_owners(tmp_path: Path):
    """Trace files hold texts, so they have the mode 0600 of the record files."""
    later(tmp_path)
    convert_folder(tmp_path)
    [file] = (tmp_path / "trace").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_interrupt_leaves_the_records_whole(tmp_path: Path):
    """After Ctrl-C in a conversion the records stay, no partial trace is left, and the next conversion is complete."""
    later(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "trace").iterdir()}

    def strike(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_folder(tmp_path, strike)
    assert {path: path.read_bytes() for path in (tmp_path / "trace").iterdir()} == before
    convert_folder(tmp_path)
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 10


def test_an_interrupt_when_the_recording_ends(tmp_path: Path):
    """Ctrl-C during the recording's own conversion becomes a problem in its stats; the records stay."""

    def strike(share: float) -> None:
        raise KeyboardInterrupt

    with Recording(tmp_path, progress=strike) as recording:
        work(1)
    assert "interrupted" in recording.stats["problems"][0]
    assert has_records(tmp_path)


def test_several_recordings_of_a_folder(tmp_path: Path):
    """Several recordings of one process into one folder are all kept, converted at once or later."""
    for _ in range(2):
        with Recording(tmp_path):
            work(1)
        later(tmp_path, 3)
    later(tmp_path, 5)
    convert_folder(tmp_path)
    run = RunFolder.open(tmp_path)
    assert {problem.code for problem in run.problems} == {"manifest_missing"}
    assert len(run.trace.named("work")) == 2 + 3 + 3 + 5
    assert len(run.trace.roots) == 5


def test_large_files_are_converted_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Large record files are converted by one process each, and all their counts are added up."""
    monkeypatch.setattr(converter, "_LARGE", 0)
    for number in (10, 20, 30):
        later(tmp_path, number)
    assert len(record_files(tmp_path / "trace")) == 3
    done = converter.convert_traces(tmp_path / "trace")
    assert (done.calls, done.problems) == (63, [])
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 60


def test_an_interrupt_of_all_processes_leaves_the_records_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After Ctrl-C or failed processes no process runs on, the records stay, and no partial trace is left."""
    monkeypatch.setattr(converter, "_LARGE", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(2))
    for number in (10, 20):
        later(tmp_path, number)
    content = {path: path.read_bytes() for path in record_files(tmp_path / "trace")}
    monkeypatch.setattr(converter, "_CODE", "import signal; print(0.1, flush=True); signal.pause()")
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        return started[-1]

    def strike(share: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", start)
        with pytest.raises(KeyboardInterrupt):
            convert_folder(tmp_path, strike)
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
    monkeypatch.setattr(converter, "_CODE", "import sys; sys.exit(3)")
    not_converted = [f"{path.name} was not converted (exit status 3)" for path in content]
    assert sorted(convert_folder(tmp_path)) == sorted(not_converted)
    assert {path: path.read_bytes() for path in (tmp_path / "trace").iterdir()} == content


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_torn_file(tmp_path: Path, share: float):
    """A file that ends within a frame yields every call before it, with its callers."""
    with Recording(tmp_path, convert=False) as recording:
        for number in range(100):
            work(number)
            recording._recorder.write_all()
    [path] = record_files(tmp_path / "trace")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert convert_folder(tmp_path) == []
    trace = RunFolder.open(tmp_path).trace
    assert 0 < len(trace.named("work")) < 100
    [root] = trace.roots
    assert root.open


def test_a_damaged_file_is_named(tmp_path: Path):
    """A damaged file ends its conversion with a problem that names it; the part before is converted."""
    later(tmp_path)
    [path] = record_files(tmp_path / "trace")
    content = bytearray(path.read_bytes())
    content[-40:] = b"\xc1" * 40
    path.write_bytes(content)
    problems = convert_folder(tmp_path)
    assert len(problems) <= 1
    assert all(path.name in problem for problem in problems)
    path.write_bytes(b"something else")
    [problem] = convert_folder(tmp_path)
    assert "is not a record file" in problem
    assert path.exists()


KILLED = """
import os, signal, sys
from tracellm import LLM, SamplingParams
from tracellm.probes.recording import Recording

Recording(sys.argv[1]).start()
llm = LLM(max_model_len=64, kv_cache_memory_bytes=1 << 20)
llm.generate(["Hello"], SamplingParams(max_tokens=3, ignore_eos=True), use_tqdm=False)
llm.llm_engine.add_request("later", "Once upon", SamplingParams(max_tokens=30, ignore_eos=True))
for _ in range(4): llm.llm_engine.step()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_engine_is_told_to_its_last_step(tmp_path: Path):
    """A killed run has every step, the finished request, and the unfinished one marked as such."""
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert convert_folder(tmp_path) == []
    trace = RunFolder.open(tmp_path).trace
    assert len(trace.named("EngineCore.step_fn")) == 7
    lives = {life.attributes["tracellm.request.id"]: life for life in trace.named("llm_request")}
    assert (lives["0"].open, lives["later"].open) == (False, True)
    assert lives["later"].attributes["gen_ai.usage.output_tokens"] >= 3  # the last step's are processed after it


def test_the_catalog_names_what_the_converter_needs():
    """Each catalog entry with deferred functions is found again by its unique target."""
    from tracellm.probes.catalog import CATALOG

    for catalog in (CATALOG, VLLM):
        needed = [entry for entry in catalog if entry.attributes or entry.gives or entry.observe]
        by_target: dict[str, Any] = {entry.target: entry for entry in catalog}
        assert all(by_target[entry.target] is entry for entry in needed)


def test_without_permission_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A trace that cannot be written is a problem, and the records stay."""
    later(tmp_path)

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, os.strerror(13))

    with monkeypatch.context() as patch:
        patch.setattr(converter, "_private", refuse)
        [problem] = convert_folder(tmp_path)
    assert "cannot be converted (Permission denied)" in problem
    assert has_records(tmp_path)
