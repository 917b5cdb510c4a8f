"""A recorded run as Python objects: held against the engine's own state, and against the report's data."""

import html
import json
import re
from pathlib import Path

import pytest

import tracellm
from tests.notebook.conftest import Recorded
from tracellm import LLM
from tracellm.cli.errors import CommandError
from tracellm.notebook.requests import Stage
from tracellm.report.html.data import run_data
from tracellm.trace.steps import steps as trace_steps


def test_the_batch_is_that_of_the_model_runner(recorded: Recorded):
    """Input ids, positions, slots and block tables of every step are those that the model runner had."""
    run, inputs, _ = recorded
    assert len(run.steps) == len(inputs)
    for step, real in zip(run.steps, inputs, strict=True):
        batch = step.batch
        bounds = zip(batch.requests, batch.query_start_loc, batch.query_start_loc[1:], batch.block_table, strict=False)
        assert real == {
            request_id: (
                batch.input_ids[first:last],
                batch.positions[first:last],
                batch.slot_mapping[first:last],
                table[: -(-batch.seq_lens[batch.requests.index(request_id)] // 16)],
            )
            for request_id, first, last, table in bounds
        }
        assert step.slot_mapping == {request_id: slots for request_id, (_, _, slots, _) in real.items()}


def test_steps_can_be_read_in_any_order(recorded: Recorded):
    """A step has the same blocks and outputs, whichever steps were read before it."""
    run, *_ = recorded
    forwards = [(step.kv_blocks, step.outputs, step.cached_blocks) for step in run.steps]
    again = tracellm.open_run(run.folder, lang="en")
    backwards = [(step.kv_blocks, step.outputs, step.cached_blocks) for step in reversed(again.steps)]
    assert forwards == backwards[::-1]


def test_steps_have_the_facts_of_the_recording(recorded: Recorded):
    """Queues, budget, tokens and reasons are the recorded ones; all computed tokens are prefill or decode."""
    run, *_ = recorded
    for step, fact in zip(run.steps, trace_steps(run.trace), strict=True):
        assert (step.number, step.kind, step.budget) == (fact.index, fact.kind, 16)
        assert step.scheduled == {request.request_id: request.num_tokens for request in fact.requests}
        assert (tuple(step.running), tuple(step.waiting)) == (fact.running, fact.waiting)
        assert step.prefill + step.decode == step.tokens == sum(step.scheduled.values()) <= 16
        assert step.reason_codes == {held.request_id: held.reason for held in fact.held}
        assert step.free_blocks + len({block for table in step.kv_blocks.values() for block in table}) == 6
    assert any(step.preempted for step in run.steps)
    assert any("max_num_seqs is 3" in why for step in run.steps for why in step.reasons.values())


def test_a_step_is_the_page_s(recorded: Recorded):
    """The sampled tokens and the times are those in the report's data."""
    run, *_ = recorded
    rows = run_data(run.trace)["engines"][0]["steps"]
    for step, row in zip(run.steps, rows, strict=True):
        assert row["us"] == step.duration_ms * 1e3 // 1
        assert [made[1] for made in row.get("sampled", [])] == [made.token_id for made in step.sampled.values()]
        assert step.text().startswith(f"Step {step.number} ")


def test_requests_have_their_outputs_and_ways(recorded: Recorded):
    """Tokens, texts, stages and blocks of each request agree with its output and with the steps."""
    run, _, outputs = recorded
    assert [request.id for request in run.requests] == [output.request_id for output in outputs]
    for request, output in zip(run.requests, outputs, strict=True):
        [completion] = output.outputs
        assert [token.id for token in request.tokens] == completion.token_ids
        assert request.output == completion.text
        assert (request.prompt, request.prompt_token_ids) == (output.prompt, output.prompt_token_ids)
        assert request.finish_reason == "length"
        assert sum(stage.tokens for stage in request.timeline) == sum(
            step.scheduled[request.id] for step in request.steps
        )
        assert request.blocks == request.steps[-1].kv_blocks[request.id]
        assert request.first_token_ms == pytest.approx((request.queued_ms or 0) + (request.prefill_ms or 0))
        assert run.requests[request.id] is request
    preempted = next(request for request in run.requests if request.num_preemptions)
    assert "preempted" in [stage.kind for stage in preempted.timeline]
    chunks = [stage for stage in run.requests[1].timeline if stage.kind == "prefill"]
    assert len(chunks) > 1
    assert all(stage.first == stage.last for stage in chunks)
    waiting = run.requests[3].timeline[0]
    assert waiting == Stage("waiting", 1, waiting.last, 0)


def test_an_unknown_part_is_named_with_the_known_ones(recorded: Recorded):
    """A missing step or request is an error that says what the run has."""
    run, *_ = recorded
    with pytest.raises(IndexError, match=f"the run has {len(run.steps)} steps"):
        run.steps[1000]
    with pytest.raises(KeyError, match="no step 1000"):
        run.steps.number(1000)
    with pytest.raises(KeyError, match="no request 'x': the run has 0, 1, 2, 3"):
        run.requests["x"]
    assert run.steps[-1] is run.steps.number(len(run.steps))
    assert run.steps[1:3] == [run.steps[1], run.steps[2]]


def test_views_are_those_of_the_command(recorded: Recorded):
    """Call tree, diagram and table are the texts of the run folder and the command."""
    run, *_ = recorded
    assert run.tree() == (run.folder / "calltree.txt").read_text()
    assert run.sequence() == (run.folder / "sequence.mmd").read_text()
    assert "Scheduler" in run.sequence(focus="Scheduler")
    assert str(run.steps).splitlines()[0].split()[0] == "step"
    assert run.client is not None
    assert run.client.choice == "InprocClient"
    assert [process.steps for process in run.processes] == [len(run.steps)]
    assert run.kernels() == run.kernels(step=1) == []
    assert run.problems == []
    with pytest.raises(CommandError, match="no class"):
        run.sequence(focus="Nobody")


def test_a_diagram_is_drawn_and_a_text_keeps_its_lines(recorded: Recorded):
    """A diagram is displayed as a picture and has Mermaid's MIME type; a text is escaped and preformatted."""
    run, *_ = recorded
    diagram = run.sequence()
    bundle = diagram._repr_mimebundle_()
    assert bundle["text/plain"] == bundle["text/vnd.mermaid"] == str(diagram)
    assert "<svg" in bundle["text/html"]
    assert html.escape(diagram) in bundle["text/html"]
    shown = run.tree()._repr_mimebundle_()
    assert shown["text/plain"] == str(run.tree())
    assert html.unescape(re.sub("</?pre[^>]*>", "", shown["text/html"])) == str(run.tree())


def test_a_run_is_checked_and_compared(recorded: Recorded):
    """`check` counts the calls of a diagram that the run has, and `diff` compares with another run."""
    run, *_ = recorded
    drawn = "sequenceDiagram\n  EngineCore->>Scheduler: schedule()\n  EngineCore->>Scheduler: dance()\n"
    result = run.check(drawn)
    assert (result.matched, result.total) == (1, 2)
    assert run.check(run.sequence()).misses == ()
    with pytest.raises(CommandError):
        run.check("no diagram")
    assert "outputs" in run.diff(run).lower() or run.diff(run)


def test_another_budget_needs_fewer_steps(recorded: Recorded):
    """`whatif` schedules the run again, keeps the variant in the report, and gives its steps."""
    run, *_ = recorded
    variant = run.whatif(num_gpu_blocks_override=64, max_num_batched_tokens=64)
    assert len(variant.steps) < len(run.steps)
    assert not any(step.preempted for step in variant.steps)
    assert variant.name in str(variant)
    assert variant.name in json.dumps(run_data(run.trace, tracellm.open_run(run.folder)._run.variants))
    with pytest.raises(CommandError):
        run.whatif()
    with pytest.raises(CommandError):
        run.whatif(max_num_batched_tokens=0)
    with pytest.raises(CommandError):
        run.whatif(no_such_setting=1)


def test_nothing_is_read_while_it_is_recorded(tmp_path: Path):
    """Inside the block a run has its folder, and asking for more is an error."""
    with tracellm.explain(tmp_path / "run") as run:
        assert run.recording
        assert run.folder == tmp_path / "run"
        with pytest.raises(RuntimeError, match="after the `with` block"):
            _ = run.steps
    assert len(run.steps) == 0


def test_a_missing_run_is_one_message(tmp_path: Path):
    """`open_run` names the path that is no run."""
    with pytest.raises(CommandError, match="nothing-here"):
        tracellm.open_run(tmp_path / "nothing-here")


def test_a_problem_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """An engine process older than the recording is a problem, printed when the recording ends, not when it is read."""
    llm = LLM(multiprocess_mode=True, max_model_len=64)
    with tracellm.explain(tmp_path / "run", lang="en") as run:
        pass
    (problem,) = run.problems
    assert "was started before the recording began" in problem
    assert capsys.readouterr().err.count(problem) == 1
    llm.llm_engine.engine_core.shutdown()
