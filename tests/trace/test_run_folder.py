"""Run folders on disk: complete, truncated, damaged, or something else."""

import gc
import json
import os
from pathlib import Path

import pytest

from tracellm.trace import names, otlp, run_folder
from tracellm.trace.model import Process, Span
from tracellm.trace.run_folder import RunFolder, RunFolderError, write_manifest

TRACE_ID = "a" * 32


def span(number: int, parent: int | None = None) -> Span:
    """Return a span with a number as id."""
    return Span(
        f"s{number}", TRACE_ID, f"{number:016x}", None if parent is None else f"{parent:016x}", number, number + 10
    )


def line(*spans: Span, pid: int = 7) -> bytes:
    """Return one line of a trace file."""
    return otlp.encode(Process(pid, "main", {"process.pid": pid, "tracellm.process.name": "main"}), spans)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder with a good manifest and one trace file of two lines."""
    (tmp_path / "trace").mkdir()
    write_manifest(tmp_path, {"schema": 1, "script": "a.py"})
    (tmp_path / "trace" / "main-7.jsonl").write_bytes(line(span(2, 1)) + line(span(1), span(3, 1)))
    return tmp_path


def test_a_whole_run(folder: Path):
    """A complete folder has its manifest, all spans by start, and no problems."""
    run = RunFolder.open(folder)
    assert run.manifest == {"schema": 1, "script": "a.py"}
    assert [span.name for span in run.trace.spans] == ["s1", "s2", "s3"]
    assert [span.name for span in run.trace.children(run.trace.spans[0])] == ["s2", "s3"]
    assert [process.pid for process in run.trace.processes] == [7]
    assert all(span.process is run.trace.processes[0] for span in run.trace.spans)
    assert run.problems == []


def test_several_processes(folder: Path):
    """The files of all processes are read into one trace."""
    (folder / "trace" / "child-8.jsonl").write_bytes(line(span(4, 2), pid=8))
    run = RunFolder.open(folder)
    assert [process.pid for process in run.trace.processes] == [8, 7]
    assert run.trace.parent(run.trace.by_id[f"{4:016x}"]) is run.trace.by_id[f"{2:016x}"]


def test_its_manifest_may_be_named(folder: Path):
    """The path of run.json stands for its folder."""
    assert RunFolder.open(folder / "run.json").path == folder


def unfinished(number: int, **attributes: str) -> Span:
    """Return a span that was written before its call ended."""
    actual = span(number)
    actual.end_ns, actual.attributes = actual.start_ns, {names.OPEN: True, **attributes}
    return actual


@pytest.mark.parametrize("late", [False, True])
def test_a_call_that_ended_takes_the_place_of_what_was_told_of_it_before(folder: Path, late: bool):
    """The record of an ended span replaces that of the open one, in either order."""
    lines = [line(unfinished(4)), line(span(4))]
    (folder / "trace" / "main-7.jsonl").write_bytes(b"".join(reversed(lines) if late else lines))
    run = RunFolder.open(folder)
    assert run.problems == []
    assert [(one.open, one.end_ns) for one in run.trace.spans] == [(False, 14)]


def test_a_call_that_never_ended_lasts_to_the_end_of_its_process(folder: Path):
    """An open span ends with the last span of its process, and its last record counts."""
    (folder / "trace" / "main-7.jsonl").write_bytes(
        line(unfinished(1, a="first")) + line(unfinished(1, a="second"), span(50))
    )
    (folder / "trace" / "child-8.jsonl").write_bytes(line(span(4, 2), span(90), pid=8))
    run = RunFolder.open(folder)
    assert run.problems == []
    one = run.trace.by_id[f"{1:016x}"]
    assert (one.open, one.end_ns, one.attributes["a"]) == (True, 60, "second")


def test_a_torn_last_line(folder: Path):
    """A truncated last line is reported and skipped, and the rest is read."""
    file = folder / "trace" / "main-7.jsonl"
    file.write_bytes(file.read_bytes() + line(span(4))[:50])
    run = RunFolder.open(folder)
    assert len(run.trace.spans) == 3
    assert run.problems == [
        "trace/main-7.jsonl: the last line is torn (the process ended while writing it) and was skipped"
    ]


def test_corrupt_lines(folder: Path):
    """Corrupt lines are skipped and reported by number; blank ones are ignored."""
    file = folder / "trace" / "main-7.jsonl"
    file.write_bytes(b"junk\n\n" + file.read_bytes() + b"\xff\n{}\n" + line(span(4)) + b"[]\n")
    run = RunFolder.open(folder)
    assert len(run.trace.spans) == 4
    assert run.problems == ["trace/main-7.jsonl: 4 corrupt lines skipped: 1, 5-6, 8"]


def test_many_corrupt_lines(folder: Path):
    """If there are many corrupt lines, only the first are listed."""
    file = folder / "trace" / "main-7.jsonl"
    file.write_bytes(file.read_bytes() + b"junk\n\n" * 50)
    [problem] = RunFolder.open(folder).problems
    assert problem.startswith("trace/main-7.jsonl: 50 corrupt lines skipped: 3, 5, 7,")
    assert problem.endswith("41, …")


def test_a_file_that_is_no_trace(folder: Path):
    """A file without a valid line is reported as no trace."""
    (folder / "trace" / "x.jsonl").write_bytes(b"a\nb\n")
    assert RunFolder.open(folder).problems == [
        "trace/x.jsonl is not a trace: none of its 2 lines is an OTLP JSON document"
    ]


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n\x00\x00", b'{"a": [1, 2]}', b'{\n  "resourceSpans": []\n}', b"x"]
)
def test_another_kind_of_file(folder: Path, content: bytes):
    """A picture, or JSON that is no trace, is reported as no trace, even without a final newline."""
    (folder / "trace" / "x.jsonl").write_bytes(content)
    [problem] = RunFolder.open(folder).problems
    assert problem.startswith("trace/x.jsonl is not a trace: none of its")


def test_a_last_line_without_a_newline(folder: Path):
    """A complete last line without a newline is read."""
    file = folder / "trace" / "main-7.jsonl"
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    run = RunFolder.open(folder)
    assert (len(run.trace.spans), run.problems) == (3, [])


def test_a_mark_of_the_encoding_and_carriage_returns(folder: Path):
    """A byte order mark and carriage returns are ignored."""
    file = folder / "trace" / "main-7.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    run = RunFolder.open(folder)
    assert (len(run.trace.spans), run.problems) == (3, [])


def test_a_line_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A line above the limit is skipped as corrupt, and the following lines are read."""
    monkeypatch.setattr(run_folder, "_LONGEST_LINE", 4096)
    file = folder / "trace" / "main-7.jsonl"
    before = file.read_bytes()
    file.write_bytes(before + line(*map(span, range(100, 200))) + line(span(4)) + b"x" * 5000)
    run = RunFolder.open(folder)
    assert len(run.trace.spans) == 4
    assert run.problems == ["trace/main-7.jsonl: 2 corrupt lines skipped: 3, 5"]


def test_what_is_no_file(folder: Path):
    """A folder, pipe or broken link in place of a trace is reported, without waiting for the pipe."""
    (folder / "trace" / "a.jsonl").mkdir()
    os.mkfifo(folder / "trace" / "b.jsonl")
    (folder / "trace" / "c.jsonl").symlink_to("nowhere")
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    run = RunFolder.open(folder)
    assert len(run.trace.spans) == 3
    assert [problem.code for problem in run.problems] == ["manifest_damaged", *["trace_unreadable"] * 3]


def test_a_corrupt_line_leaves_nothing_behind(folder: Path):
    """A process that only a corrupt line mentions is not part of the run."""
    (folder / "trace" / "x.jsonl").write_bytes(
        line(span(9), pid=9).replace(b'"spanId":"0', b'"spanId":"x') + line(span(8))
    )
    run = RunFolder.open(folder)
    assert [process.pid for process in run.trace.processes] == [7]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(folder: Path, enabled: bool, monkeypatch: pytest.MonkeyPatch):
    """The garbage collector has its former state after reading, even after a failure."""
    seen = []

    def failing(*args: object) -> None:
        seen.append(gc.isenabled())
        raise KeyError

    monkeypatch.setattr(run_folder, "repair", failing)
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(KeyError):
            RunFolder.open(folder)
        assert (seen, gc.isenabled()) == ([False], enabled)
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_manifest(folder: Path, content: bytes):
    """With a damaged manifest the trace is read, and the problem reported."""
    (folder / "run.json").write_bytes(content)
    run = RunFolder.open(folder)
    assert len(run.trace.spans) == 3
    assert run.manifest == {}
    assert len(run.problems) == 1
    assert run.problems[0].startswith("run.json is damaged (")


def test_no_manifest(folder: Path):
    """Without run.json the trace is read, and the problem reported."""
    (folder / "run.json").unlink()
    run = RunFolder.open(folder)
    assert len(run.trace.spans) == 3
    assert run.problems == ["run.json is missing: the script and its options are unknown"]


def test_no_trace(folder: Path):
    """A run without a trace has its manifest and a problem."""
    (folder / "trace" / "main-7.jsonl").unlink()
    run = RunFolder.open(folder)
    assert run.trace.spans == []
    assert run.problems == ["trace/ has no .jsonl file: nothing was recorded, or the file was removed"]


def test_an_empty_trace(folder: Path):
    """An empty trace file is reported."""
    (folder / "trace" / "main-7.jsonl").write_bytes(b"")
    assert RunFolder.open(folder).problems == ["trace/main-7.jsonl is empty: its part of the recording is lost"]


def test_a_newer_schema(folder: Path):
    """A folder of a newer schema is read as far as possible, with a warning."""
    write_manifest(folder, {"schema": 2})
    assert "schema 2" in RunFolder.open(folder).problems[0]


def test_what_is_no_run_folder(tmp_path: Path):
    """A path that is not a run folder is refused in one message with the path."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for path, message in {
        "none": "there is no such folder",
        "file": "is a file, not a run folder",
        "empty": "is not a run folder",
    }.items():
        with pytest.raises(RunFolderError, match=message) as caught:
            RunFolder.open(tmp_path / path)
        assert str(tmp_path / path) in str(caught.value)


def test_repeated_ids(folder: Path):
    """If spans share an id, the first counts."""
    (folder / "trace" / "other-7.jsonl").write_bytes(line(span(1)))
    run = RunFolder.open(folder)
    assert len(run.trace.spans) == 3
    assert run.problems == ["1 spans have the id of another span and were skipped"]


def test_circles(folder: Path):
    """Spans that are their own ancestors become roots, so walking the tree ends."""
    (folder / "trace" / "main-7.jsonl").write_bytes(line(span(1, 3), span(2, 1), span(3, 2), span(4, 4)))
    run = RunFolder.open(folder)
    walked = [span.name for root in run.trace.roots for _, span in run.trace.walk(root)]
    assert sorted(walked) == ["s1", "s2", "s3", "s4"]
    assert run.problems == ["2 spans were their own ancestors and were made roots"]


def test_the_manifest_is_written_whole(folder: Path):
    """The manifest is replaced atomically, without leftover files."""
    write_manifest(folder, {"schema": 1, "script": "中文.py"})
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["script"] == "中文.py"
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "trace"]
