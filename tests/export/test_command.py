"""`tracellm export`: its files, messages and refusals."""

import builtins
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.export.runs import run_of_two
from tracellm.report.export import FORMATS
from tracellm.trace import otlp
from tracellm.trace.run_folder import write_manifest


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder of a run in two processes, in the current directory."""
    folder = tmp_path / "my-run"
    (folder / "trace").mkdir(parents=True)
    write_manifest(folder, {"schema": 1, "tracellm": "0", "status": "finished", "script": "hello.py"})
    trace = run_of_two()
    for process in trace.processes:
        spans = [span for span in trace.spans if span.process is process]
        (folder / "trace" / f"{process.name}.jsonl").write_bytes(otlp.encode(process, spans))
    monkeypatch.chdir(tmp_path)
    return Path("my-run")


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_in_the_run_folder(format: str, run: Path, command: Command):
    """Without --out the file is in the run folder; stdout has its path and a command to open it."""
    said = command("export", str(run), "--to", format)
    assert (said.status, said.err) == (0, "")
    file = run / f"export{FORMATS[format]}"
    assert file.stat().st_size > 0
    first, second = said.out.splitlines()
    assert first.startswith(f"{file} (")
    assert second
    assert {entry.name for entry in run.iterdir()} == {"run.json", "trace", file.name}, "nothing else is left"
    zh = command("export", str(run), "--to", format, "--lang", "zh")
    assert zh.status == 0
    assert zh.out.startswith(f"{file}（")


def test_a_run_folder_can_be_used_again(run: Path):
    """A folder with an export can be used again: the export goes with its run, and files of similar names stay."""
    from tracellm.cli.folders import new_run_folder

    for name in ("export.chrome.json", "export.csv.gz", "export.dot.part", "export.sh", "export.d"):
        (run / name).write_text("{}")
    new_run_folder("x", run)
    assert {entry.name for entry in run.iterdir()} == {"trace", "export.sh", "export.d"}


def test_another_file(run: Path, command: Command):
    """--out names the file; its ending gives the form of otlp, and .gz compresses any."""
    assert command("export", str(run), "--to", "otlp", "--out", "spans.jsonl").status == 0
    lines = Path("spans.jsonl").read_bytes().splitlines()
    assert all("resourceSpans" in json.loads(line) for line in lines)
    assert command("export", str(run), "--to", "otlp", "--out", "spans.pb").out.splitlines()[1].count("x-protobuf") == 1
    assert Path("spans.pb").read_bytes()[:1] == b"\x0a"
    assert command("export", str(run), "--to", "otlp", "--out", "spans.jsonl.gz").status == 0
    assert gzip.decompress(Path("spans.jsonl.gz").read_bytes()) == Path("spans.jsonl").read_bytes()


def test_what_is_said_can_be_typed(run: Path, command: Command):
    """A path with blanks and quotes is one word of the printed command, or one string of Python."""
    name = "it's mine.dot"
    assert "dot -Tsvg 'it'\"'\"'s mine.dot' >" in command("export", str(run), "--to", "dot", "--out", name).out
    assert 'pandas.read_csv("it\'s mine.dot")' in command("export", str(run), "--to", "csv", "--out", name).out


def test_to_stdout(run: Path):
    """`--out -` writes the file to stdout without messages; the reader may stop early."""
    call = [sys.executable, "-m", "tracellm", "export", str(run), "--to", "chrome", "--out", "-"]
    done = subprocess.run(call, capture_output=True, check=True)
    assert done.stderr == b""
    assert json.loads(done.stdout)["traceEvents"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        stopped = subprocess.run(call, stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (stopped.returncode, stopped.stderr) == (0, b"")


def test_only_a_part(run: Path, command: Command):
    """--detail and --focus select the exported spans."""
    sizes = []
    for more in ((), ("--detail", "request"), ("--focus", "Scheduler"), ("--focus", "Schedul*")):
        command("export", str(run), "--to", "csv", *more)
        sizes.append(len((run / "export.csv").read_text().splitlines()))
    assert sizes[1] < sizes[0]
    assert sizes[2] < sizes[0]
    assert sizes[3] == sizes[2]


def test_what_only_passes_messages_on_has_no_lifeline(run: Path, command: Command):
    """A class that only passes messages on can be in focus of a timeline, but is refused for a diagram."""
    assert command("export", str(run), "--to", "csv", "--focus", "MsgpackDecoder").status == 0
    for words in (("export", str(run), "--to", "mermaid"), ("show", str(run), "sequence")):
        said = command(*words, "--focus", "MsgpackDecoder")
        assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)
        assert "no class 'MsgpackDecoder' in this run" in said.err
        assert command(*words, "--focus", "*").status == 0


REFUSED: dict[str, tuple[list[str], str]] = {
    "no form": ([], "no format given"),
    "unknown form": (["--to", "pdf"], "no format 'pdf'"),
    "no such run": (["nope", "--to", "csv"], "nope"),
    "unknown class": (["--to", "chrome", "--focus", "Nobody"], "no class 'Nobody'"),
    "unknown level": (["--to", "chrome", "--detail", "atom"], "no level 'atom'"),
    "a folder": (["--to", "chrome", "--out", "my-run"], "cannot write my-run: Is a directory"),
    "no such folder": (["--to", "chrome", "--out", "no/where.json"], "cannot write no/where.json: No such file"),
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line(run: Path, command: Command, arguments: list[str], message: str, lang: str):
    """A refusal is one line on stderr in the reader's language, with status 2 and no file."""
    named = arguments if arguments[:1] == ["nope"] else [str(run), *arguments]
    said = command("export", *named, "--lang", lang)
    assert (said.status, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert message in said.err if lang == "en" else any("\u4e00" <= char <= "\u9fff" for char in said.err)
    assert not list(Path().rglob("*export.*"))
    assert not list(Path().rglob("*.part"))


@pytest.mark.parametrize(
    ("arguments", "package"),
    [(["--to", "perfetto"], "perfetto"), (["--to", "otlp", "--out", "x.pb"], "opentelemetry")],
)
def test_a_missing_package_is_named(
    arguments: list[str], package: str, run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    """An export without its package reports how to install it, and leaves no partial file."""
    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    said = command("export", str(run), *arguments)
    assert (said.status, said.out) == (2, "")
    assert f"needs the package {package}" in said.err
    assert "pip install 'tracellm[" in said.err
    assert not list(Path().rglob("export.*")) + list(Path().rglob("x.pb*"))


def test_a_file_that_is_there_stays_until_the_new_one_is_whole(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    """If writing fails half way, only the previous export is there."""
    command("export", str(run), "--to", "csv")
    before = (run / "export.csv").read_bytes()

    def torn(*_: Any) -> Any:
        yield b"half"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tracellm.report.export.table.table", torn)
    said = command("export", str(run), "--to", "csv")
    assert (said.status, said.out) == (2, "")
    assert "No space left on device" in said.err
    assert (run / "export.csv").read_bytes() == before
    assert not list(run.glob("*.part"))


def test_what_is_no_plain_file_is_written_to(run: Path, command: Command):
    """A pipe or a device is written to, not replaced."""
    assert command("export", str(run), "--to", "csv", "--out", os.devnull).status == 0
    assert not Path(os.devnull).is_file()


def test_a_damaged_recording_is_exported_and_told(run: Path, command: Command):
    """A damaged recording is exported as far as readable; its problems are on stderr, and the status is 1."""
    (run / "run.json").unlink()
    said = command("export", str(run), "--to", "csv")
    assert said.status == 1
    assert "damaged recording: run.json is missing" in said.err
    assert (run / "export.csv").exists()


def test_a_heavy_library_is_imported_only_for_its_form():
    """Exporting as JSON imports neither Perfetto's nor OpenTelemetry's classes."""
    code = """
import sys
from pathlib import Path
from tracellm.report.export import export
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder
folder = RunFolder(Path(), {}, Trace([]), [])
for form in ("chrome", "otlp", "speedscope", "csv", "dot"):
    b"".join(export(folder, form))
print(sorted({"perfetto", "opentelemetry", "google", "jinja2", "torch"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
