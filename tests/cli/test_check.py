"""`tracellm check`: its output, exit status and refusals."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.trace.server_run import served
from tracellm.trace import otlp
from tracellm.trace.run_folder import write_manifest

SEED = Path(__file__).parents[2] / "docs" / "expectations" / "vllm-v1-serve.tsv"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run folder of a served chat request; the current directory is another one."""
    folder = tmp_path / "run"
    (folder / "trace").mkdir(parents=True)
    write_manifest(folder, {"schema": 1, "tracellm": "0", "status": "finished"})
    recorded = served()
    for recorder in (recorded.api, recorded.engine):
        name = f"{recorder.process.name}-{recorder.process.pid}.jsonl"
        (folder / "trace" / name).write_bytes(otlp.encode(recorder.process, recorder.spans))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return folder


def test_all_found(run: Path, command: Command):
    """If all calls are found, one line reports it, with status 0; unsearched calls have their own line."""
    said = command("check", str(run), "--expect", str(SEED))
    assert (said.status, said.err) == (0, "")
    assert said.out == (
        "59/59 calls found, in this order\n8 calls need mm (images or sounds), and the run has none; not counted\n"
    )
    zh = command("check", str(run), "--expect", str(SEED), "--lang", "zh")
    assert zh.status == 0
    assert zh.out.startswith("59/59 个调用全部找到")


def test_a_phase(run: Path, command: Command):
    """With --phase, only the calls of that phase count."""
    said = command("check", str(run), "--expect", str(SEED), "--phase", "startup")
    assert (said.status, said.out) == (0, "25/25 calls found, in this order\n")


def test_the_first_that_is_missing(run: Path, command: Command):
    """The first missing call has its line, the reason, and its neighbours with time and process; status 1."""
    table = [line for line in SEED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    order = [*table[:43], table[44], table[43], *table[45:]]
    order[50] = order[50].replace("waiting.add_request", "waiting.add_requests")
    order[51] = order[51].replace("EngineCoreProc\tEngineCoreProc", "Schedular\tEngineCoreProc")
    Path("expected.tsv").write_text("\n".join(order))
    said = command("check", str(run), "--expect", "expected.tsv")
    assert said.status == 1
    lines = said.out.splitlines()
    assert lines[0] == "56/59 calls found in order"
    assert lines[1] == "score: 57/59 (half a point for a call out of order or with one wrong lifeline)"
    assert lines[3] == "no calls of the lifeline Schedular were recorded; did you mean Scheduler?"
    assert lines[5] == "first missing call, in line 45 of expected.tsv:"
    assert lines[6] == "  AsyncMPClient → AsyncMPClient: _send_input"
    assert re.fullmatch(r"  out of order: called at \d\.\d\d ms in main", lines[7])
    assert re.match(
        r"  last call found before it, at \d\.\d\d ms in EngineCore_0: line 44, .*process_input_s", lines[8]
    )
    assert re.match(r"  next call found after it, at \d\.\d\d ms in EngineCore_0: line 46, .*run_busy_loop", lines[9])
    assert lines[11] == "also missing:"
    assert lines[12].startswith("  line 51: Scheduler → Scheduler: waiting.add_requests (never called; did you mean ")
    assert lines[13].startswith(
        "  line 52: Schedular → EngineCoreProc: _process_engine_step (found instead: EngineCoreProc →"
    )
    assert len(lines) == 14


def test_many_are_missing(run: Path, command: Command):
    """Twenty missing calls are listed, the rest counted, and control characters escaped."""
    arrows = [f"A->>B: f{i}\x1b[31m" for i in range(30)]
    Path("e.mmd").write_text("\n".join(["sequenceDiagram", *arrows]))
    said = command("check", str(run), "--expect", "e.mmd")
    assert said.status == 1
    assert "no call was found before it" in said.out
    assert said.out.splitlines()[-1] == "  and 9 more"
    assert "\x1b" not in said.out


def test_several_diagrams(run: Path, command: Command):
    """A file with several diagrams uses the first, with a note; `#2` selects the second without one."""
    block = "```mermaid\nsequenceDiagram\n    {}\n```\n"
    good, bad = "EngineCoreProc->>Scheduler: schedule", "Scheduler->>EngineCoreProc: schedule"
    Path("e.md").write_text(block.format(good) + block.format(bad))
    first, second = command("check", str(run), "--expect", "e.md"), command("check", str(run), "--expect", "e.md#2")
    assert (first.status, first.out) == (0, "1/1 calls found, in this order\n")
    assert first.err == (
        "e.md has 2 sequence diagrams; the first one, in line 2, was used. For the second, write e.md#2\n"
    )
    assert (second.status, second.err) == (1, "")
    assert "in line 7 of e.md" in second.out


REFUSED = {
    "no file given": ([], "nothing to check against"),
    "no such file": (["--expect", "nope.md"], "there is no file nope.md"),
    "a folder": (["--expect", "."], "cannot read ."),
    "nothing in it": (["--expect", "empty.md"], "empty.md is empty"),
    "no diagram": (["--expect", "plain.md"], "plain.md has neither a Mermaid sequence diagram nor"),
    "no text": (["--expect", "bytes.md"], "bytes.md is not UTF-8 text"),
    "no such diagram": (["--expect", "good.mmd#3"], "good.mmd has 1 sequence diagram, but no number 3"),
    "no calls": (["--expect", "calls.mmd"], "calls.mmd has no expected calls"),
    "a column": (["--expect", "columns.tsv"], "columns.tsv: the table has no column to; its first line names from,"),
    "a row": (["--expect", "row.tsv"], "row.tsv: line 3 has 2 cells, but 3 are needed"),
    "an empty row": (["--expect", "hole.tsv"], "hole.tsv: line 2 lacks a lifeline or a call"),
    "no such phase": (["--expect", "phase.tsv", "--phase", "generate"], "phase.tsv has no phase 'generate'; it has up"),
    "no phases": (["--expect", "good.mmd", "--phase", "startup"], "good.mmd has no phases"),
    "nothing to look for": (["--expect", "needs.tsv"], "all calls in needs.tsv need mm"),
    "no such run": (["nope", "--expect", "good.mmd"], "there is no run folder nope"),
}
"""Arguments, and a pattern of the message."""

FILES = {
    "empty.md": b"\n",
    "plain.md": b"# A page\n",
    "bytes.md": b"\xff\xfe",
    "good.mmd": b"sequenceDiagram\n    A->>B: f\n",
    "calls.mmd": b"sequenceDiagram\n    A-->>B: f\n",
    "columns.tsv": b"from\tcall\nA\tf\n",
    "row.tsv": b"from\tto\tcall\nA\tB\tf\nA\tB\n",
    "hole.tsv": b"from\tto\tcall\n\tB\tf\n",
    "phase.tsv": b"from\tto\tcall\tphase\nA\tB\tf\tup\n",
    "needs.tsv": b"from\tto\tcall\tneeds\nA\tB\tf\tmm\n",
}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line(run: Path, command: Command, arguments: list[str], message: str, lang: str):
    """A refusal is one line on stderr, in the user's language, with status 2."""
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    named = arguments if arguments[:1] == ["nope"] else [str(run), *arguments]
    said = command("check", *named, "--lang", lang)
    assert (said.status, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    assert re.search(message, said.err) if lang == "en" else re.search(r"[\u4e00-\u9fff]", said.err)


def test_a_damaged_recording_is_told(run: Path, command: Command):
    """Damage of the run goes to stderr; the status depends only on the calls."""
    (run / "run.json").unlink()
    said = command("check", str(run), "--expect", str(SEED))
    assert said.status == 0
    assert "damaged recording: run.json is missing" in said.err
