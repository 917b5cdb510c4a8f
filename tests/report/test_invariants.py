"""`tracellm check --invariants`: what holds in every run, and what a broken one shows."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.vllm_runs import VERSIONS, unpack
from tracellm.report.facts.invariants import INVARIANTS, check_invariants
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import Step, steps

_SCRIPT = """
import sys
from tracellm import LLM, SamplingParams

if __name__ == "__main__":
    settings = {"num_gpu_blocks_override": 8, "max_model_len": 96, "max_num_batched_tokens": 32, "max_num_seqs": 4}
    llm = LLM(**settings | eval(sys.argv[1]))
    same = list(range(300, 340))
    prompts = [{"prompt_token_ids": same[:length] + [400 + length]} for length in (5, 20, 33, 36, 9, 12, 38, 7)]
    params = [SamplingParams(max_tokens=5 + 4 * number, ignore_eos=True) for number in range(len(prompts))]
    llm.generate(prompts, params, use_tqdm=False)
    llm.generate(prompts[:3], params[:3], use_tqdm=False)
"""


def record(folder: Path, settings: str) -> RunFolder:
    """Record the script with these settings of the engine."""
    (folder / "script.py").write_text(_SCRIPT, encoding="utf-8")
    command = ["run", "--explain", "--quiet", "--detail=step", "--out=run", "script.py", settings]
    subprocess.run([sys.executable, "-m", "tracellm", *command], cwd=folder, check=True, capture_output=True)
    return RunFolder.open(folder / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a run with chunks, shared prefixes and preemptions, in two processes."""
    return record(tmp_path_factory.mktemp("invariants"), "{'multiprocess_mode': True}").path


@pytest.mark.parametrize(
    "settings",
    [
        "{}",
        "{'async_scheduling': True}",
        "{'scheduling_policy': 'priority'}",
        "{'enable_chunked_prefill': False, 'max_num_batched_tokens': 96}",
        "{'enable_prefix_caching': False, 'long_prefill_token_threshold': 8}",
    ],
)
def test_all_invariants_hold_in_a_run_of_the_engine(settings: str, tmp_path: Path) -> None:
    """No invariant is broken, whatever the settings of the scheduler; some requests are preempted."""
    trace = record(tmp_path, settings).trace
    assert any(step.preempted for step in steps(trace))
    assert check_invariants(trace).violations == []


def test_all_invariants_hold_in_two_processes(run: Path) -> None:
    """Messages are in order, and the engine core's steps are found in its process."""
    trace = RunFolder.open(run).trace
    assert trace.messages
    checked = check_invariants(trace)
    assert checked.violations == []
    assert set(INVARIANTS) - checked.names <= {"restored"}


@pytest.mark.parametrize("version", VERSIONS)
def test_all_invariants_hold_in_a_real_vllm(version: str, tmp_path: Path) -> None:
    """Recorded runs of a real vLLM, in one process, in several and behind a server, break no invariant."""
    unpack(version, tmp_path)
    for run in tmp_path.iterdir():
        checked = check_invariants(RunFolder.open(run).trace)
        assert checked.violations == []
        assert {"budget", "running", "owners", "free", "computed", "order"} <= checked.names


def _set(step: Step, name: str, value: object) -> None:
    step.span.attributes[name] = value


def _exceed_the_budget(trace: Trace) -> None:
    _set(steps(trace)[2], names.STEP_BUDGET, steps(trace)[2].num_tokens - 1)


def _run_too_many(trace: Trace) -> None:
    _set(steps(trace)[2], names.STEP_RUNNING, list("abcde"))


def _give_a_block_twice(trace: Trace) -> None:
    first = steps(trace)[0].requests[0].new_blocks[0]
    step = next(step for step in steps(trace)[1:] if any(request.new_blocks for request in step.requests))
    blocks = list(step.span.attributes[names.STEP_NEW_BLOCKS])
    blocks[next(index for index, one in enumerate(blocks) if one)] = str(first)
    _set(step, names.STEP_NEW_BLOCKS, blocks)


def _lose_a_block(trace: Trace) -> None:
    for step in steps(trace)[3:]:
        _set(step, names.STEP_BLOCKS_FREE, step.blocks_free - 1)


def _compute_too_much(trace: Trace) -> None:
    step = steps(trace)[1]
    _set(step, names.STEP_COMPUTED, [request.num_computed + 50 for request in step.requests])


def _overtake(trace: Trace) -> None:
    step = next(step for step in steps(trace)[1:] if step.new)
    _set(step, names.STEP_WAITING, [steps(trace)[0].new[0], *step.waiting])


def _receive_before_sending(trace: Trace) -> None:
    message = next(message for message in trace.messages if message.receive is not None)
    message.send.start_ns += 10**12
    message.send.end_ns += 10**12


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("budget", _exceed_the_budget),
        ("running", _run_too_many),
        ("owners", _give_a_block_twice),
        ("free", _lose_a_block),
        ("computed", _compute_too_much),
        ("order", _overtake),
        ("messages", _receive_before_sending),
    ],
)
def test_a_broken_invariant_is_found(run: Path, name: str, edit: Callable[[Trace], None]) -> None:
    """A recording in which one fact is changed breaks the invariant about it."""
    trace = RunFolder.open(run).trace
    edit(trace)
    again = Trace(trace.spans, trace.processes)
    assert name in INVARIANTS
    assert name in {violation.name for violation in check_invariants(again).violations}


def test_the_command_names_step_and_blocks(run: Path, tmp_path: Path) -> None:
    """`tracellm check RUN --invariants` lists all invariants; its exit status is 0 if they hold, 2 with --expect."""
    command = [sys.executable, "-m", "tracellm", "check", str(run), "--invariants"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.count("✓") + done.stdout.count("  –") == len(INVARIANTS)
    assert "✗" not in done.stdout
    refused = subprocess.run([*command, "--expect", "x.mmd"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "either --expect or --invariants" in refused.stderr
