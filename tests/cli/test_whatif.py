"""`tracellm whatif`: its output in both languages, the variant it keeps, the page, and its refusals."""

import json
import shutil
from pathlib import Path

import pytest

from tests.browser import Browser, require_browser
from tests.cli.conftest import Command
from tracellm.report.facts.engines import engines
from tracellm.trace.run_folder import RunFolder


@pytest.fixture
def run(run_folder: Path, tmp_path: Path) -> Path:
    """A copy of a run of three requests with room for two."""
    return Path(shutil.copytree(run_folder, tmp_path / "run"))


def test_both_schedules_side_by_side(run: Path, command: Command):
    """The totals of both schedules, the first step that differs, and the rule for arrivals are printed."""
    said = command("whatif", str(run), "--max-num-seqs", "3", "--lang", "en")
    assert (said.status, said.err) == (0, "")
    worst = next(line for line in said.out.splitlines() if "until the first token, maximum" in line)
    assert worst.split()[-2:] == ["5", "1"]
    assert "What if max_num_seqs=3" in said.out
    assert "The first step that differs is step 1." in said.out
    assert "requests 0, 1, 2 joined" in said.out
    assert "A request arrives before the step at which the recording first has it in a queue" in said.out
    assert f"Report: {run / 'report.html'}" in said.out
    zh = command("whatif", str(run), "--max-num-seqs", "3", "--lang", "zh")
    assert zh.status == 0
    assert "第 1 步开始不同。" in zh.out


def test_a_variant_is_a_recording(run: Path, command: Command):
    """The variant's file has the changed settings and steps without time, which link to the recorded requests."""
    command("whatif", str(run), "--max-num-seqs", "3", "--no-enable-prefix-caching")
    opened = RunFolder.open(run)
    ((name, variant),) = opened.variants.items()
    assert name == "enable_prefix_caching=False,max_num_seqs=3"
    (engine,) = engines(variant)
    assert engine.settings["max_num_seqs"] == "3"
    assert not engine.prefix_caching
    assert len(engine.steps[0].requests) == 3
    requests = {span.span_id for span in opened.trace.named("llm_request")}
    assert {link.span_id for step in engine.steps for link in step.span.links} == requests
    assert {step.span.duration_ns for step in engine.steps} == {0}


def test_the_page_shows_the_variant(run: Path, command: Command):
    """A variant is one more engine of the step view, without times, and a second one joins it."""
    require_browser()
    command("whatif", str(run), "--max-num-seqs", "3")
    command("whatif", str(run), "--max-num-batched-tokens", "4", "--max-num-seqs", "2")
    with Browser() as browser:
        browser.visit((run / "report.html").resolve().as_uri())
        assert browser.wait("document.documentElement.dataset.ready")
        options = browser.run("return [...document.querySelectorAll('.step-bar select option')].map((o) => o.text)")
        assert options[1:3] == ["What if: max_num_batched_tokens=4,max_num_seqs=2", "What if: max_num_seqs=3"]
        assert browser.run("return document.querySelectorAll('.budget.time-bar').length") == 1
        browser.run(
            """const engines = document.querySelector('.step-bar select');
            engines.value = 2;
            engines.dispatchEvent(new Event('change'))"""
        )
        step = json.loads(browser.run("return JSON.stringify(tracellm.step(1))"))
        assert list(step["scheduled"]) == ["0", "1", "2"]
        assert browser.run("return document.querySelectorAll('.budget.time-bar').length") == 0
        assert "NaN" not in browser.run("return document.getElementById('replay').innerHTML")
        assert browser.log() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no setting to change"),
        (("--max-num-batched-tokens", "0"), "--max-num-batched-tokens must be a whole number of tokens, at least 1"),
        (("--num-gpu-blocks-override", "1"), "--num-gpu-blocks-override must be a number of blocks, at least 2"),
        (("--scheduling-policy", "lifo"), "--scheduling-policy must be one of fcfs, priority"),
        (("--max-num-batched-tokens", "1"), "--max-num-batched-tokens must be at least `max_num_seqs`"),
    ],
)
def test_what_is_refused(run: Path, command: Command, options: tuple[str, ...], message: str):
    """No change, and values out of range, are one line with the engine's own message, and no variant is kept."""
    said = command("whatif", str(run), *options, "--lang", "en")
    assert said.status == 2
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert not (run / "whatif").exists()


def test_a_cache_too_small_for_a_request_is_refused(run: Path, command: Command):
    """A request that would never fit is the engine's own refusal."""
    said = command("whatif", str(run), "--num-gpu-blocks-override", "2", "--lang", "en")
    assert said.status == 2
    assert "Request 2 can never run to its end" in said.err


def test_other_runs_are_refused(run: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    """An unknown run, a run of a real vLLM and one without steps have a line each."""
    manifest = json.loads((run / "run.json").read_text(encoding="utf-8"))
    manifest["probes"]["engine"] = {"name": "vllm", "version": "0.11.1"}
    (run / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert "a real vLLM" in command("whatif", str(run), "--max-num-seqs", "3", "--lang", "en").err
    monkeypatch.chdir(run.parent)
    assert "nowhere" in command("whatif", "nowhere", "--max-num-seqs", "3", "--lang", "en").err
    for file in (run / "trace").glob("*.jsonl"):
        file.unlink()
    assert "no engine steps" in command("whatif", str(run), "--max-num-seqs", "3", "--lang", "en").err
