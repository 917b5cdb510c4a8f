"""The recorded steps of a real vLLM equal its scheduler's decisions and its sampler's tokens.

One explained run of a real vLLM (tests/real_vllm.py). Its prompts share a prefix, are computed in chunks, wait for a
place and for blocks, and are preempted. attach_work.py also writes down each result of `Scheduler.schedule`.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.real_vllm import InOneProcess
from tests.vllm.attach_work import BLOCK_SIZE
from tracellm.report.steps_table import steps_table
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import Step, steps


@dataclass(frozen=True)
class Explained:
    """The run, its trace, and the scheduler's decisions written by the script."""

    run: RunFolder
    decided: list[dict[str, Any]]
    outputs: list[list[int]]

    @property
    def trace(self) -> Trace:
        """All spans."""
        return self.run.trace

    @property
    def steps(self) -> list[Step]:
        """The steps as recorded."""
        return steps(self.trace)


@pytest.fixture(scope="module")
def explained(in_one_process: InOneProcess) -> Explained:
    """One explained run, in process."""
    actual = in_one_process.results["scheduled"]
    return Explained(RunFolder.open(in_one_process.folder / "scheduled"), actual["steps"], actual["outputs"])


def test_steps_are_what_the_scheduler_decided(explained: Explained):
    """Tokens, new and resumed requests, block ids, both queues and free blocks of every step are vLLM's own."""
    actual = []
    for step in explained.steps:
        computed = {one.request_id: one.num_computed for one in step.requests}
        actual.append(
            {
                "scheduled": {one.request_id: one.num_tokens for one in step.requests},
                "new": [[id, computed[id]] for id in step.new],
                "resumed": [[id, computed[id]] for id in step.resumed],
                "blocks": {
                    one.request_id: [*one.cached_blocks, *one.new_blocks]
                    for one in step.requests
                    if one.cached_blocks or one.new_blocks
                },
                "running": list(step.running),
                "waiting": list(step.waiting),
                "free_blocks": step.blocks_free,
            }
        )
    assert actual == explained.decided


def test_requests_that_lost_their_blocks_are_told(explained: Explained):
    """A preempted request ran in the step before, is now waiting, and resumes later."""
    before: tuple[str, ...] = ()
    preempted = []
    for step in explained.steps:
        lost = [id for id in step.waiting if id in before]
        assert sorted(step.preempted) == sorted(lost)
        preempted += lost
        before = step.running
    resumed = [id for step in explained.steps for id in step.resumed]
    assert preempted
    assert sorted(resumed) == sorted(preempted)


def test_whoever_waits_is_held_for_a_reason(explained: Explained):
    """Each waiting request has a reason with its numbers, and all reasons of this run occur."""
    found: dict[str, str] = {}
    for step in explained.steps:
        held = {one.request_id: one for one in step.held}
        assert set(step.waiting) <= held.keys()
        found |= {one.reason: one.details for one in step.held}
        for one in step.held:
            numbers = dict(part.split("=") for part in one.details.split())
            if one.reason in ("no_free_blocks", "preempted"):
                assert int(numbers["needed"]) > int(numbers["free"])
            if one.reason == "preempted":
                assert numbers["by"] in (*step.running, one.request_id)
            if one.reason == "token_budget":
                assert int(numbers["given"]) < int(numbers["wanted"])
    assert found.keys() >= {"token_budget", "max_num_seqs", "preempted", "no_free_blocks"}
    assert "=" not in "".join(line for line in steps_table(explained.trace).splitlines() if "held" in line)


def test_prefix_hits_are_told(explained: Explained):
    """The second prompt with the same beginning takes its whole blocks from the cache."""
    hits = [one for step in explained.steps for one in step.requests if one.prefix_hit_tokens]
    first_of_second_call = next(one for one in hits if one.prefix_hit_tokens == 2 * BLOCK_SIZE)
    assert len(first_of_second_call.cached_blocks) == 2


def test_sampled_tokens_are_the_output(explained: Explained):
    """A request's tokens in the steps are those of its output, each with its probability."""
    got: dict[str, list[int | None]] = {}
    for step in explained.steps:
        for one in step.sampled:
            got.setdefault(one.request_id, []).append(one.token_id)
            assert one.probability is not None
            assert 0 < one.probability <= 1
            assert one.text is not None
    assert list(got.values()) == explained.outputs


def test_candidates_of_a_greedy_step(explained: Explained):
    """With unchanged logits the token is the likeliest, with the model's probability."""
    for step in explained.steps[:10]:
        for one in step.sampled:
            token, _, probability = one.candidates[0]
            assert (token, probability) == (one.token_id, one.probability)
            assert len(one.candidates) == 5


def test_what_was_left_to_draw_from(explained: Explained):
    """Rows with top_k and top_p have their processors, the number of tokens left, and two probabilities of the
    token."""
    drawn = [one for step in explained.steps for one in step.sampled if one.processors]
    by_processors = {one.processors: one for one in drawn}
    top_k, top_p = by_processors["temperature", "top_k"], by_processors["temperature", "top_p"]
    assert top_k.tokens_left == 4
    assert top_p.tokens_left is not None
    assert 1 <= top_p.tokens_left < 4096
    for one in drawn:
        left = {token: probability for token, _, probability in one.drawn_candidates}
        assert one.token_id is not None
        assert left.get(one.token_id, one.drawn_probability) == one.drawn_probability != one.probability
        assert sum(left.values()) <= 1.0001
        if one.tokens_left is not None and one.tokens_left <= len(left):
            assert one.token_id in left
            assert sum(left.values()) == pytest.approx(1, abs=1e-4)


def test_the_calls_of_a_step(explained: Explained):
    """A step has its calls down to the operations, with the names of our engine."""
    found = {span.name for span in explained.trace.spans}
    assert found >= {
        "EngineCore.step_fn",
        "Scheduler.schedule",
        "KVCacheManager.get_computed_blocks",
        "KVCacheManager.allocate_slots",
        "BlockPool.get_new_blocks",
        "UniProcExecutor.execute_model",
        "Worker.execute_model",
        "GPUModelRunner.execute_model",
        "GPUModelRunner._prepare_inputs",
        "GPUModelRunner._sample",
        "Sampler.forward",
        "Qwen2ForCausalLM.forward",
        "Qwen2DecoderLayer.forward",
        "Qwen2Attention.forward",
        "RMSNorm.forward",
        "RotaryEmbedding.forward",
        "SiluAndMul.forward",
        "Attention.forward",
        "Scheduler.update_from_output",
    }


def test_no_probe_of_these_is_missing_or_fails(explained: Explained):
    """Every core function of the catalog is in this version, and none of its probes stopped."""
    probes = explained.run.manifest["probes"]
    core = ("vllm.v1.core", "vllm.v1.worker", "vllm.v1.sample", "vllm.v1.executor", "vllm.model_executor")
    assert [one for one in probes["missing"] if one.startswith(core)] == []
    assert probes["problems"] == []


def test_links_and_shapes(explained: Explained):
    """A step links to the requests it serves, and has the shape of its logits."""
    spans = {span.span_id: span for span in explained.trace.spans}
    for step in explained.steps:
        linked: list[Span] = [spans[link.span_id] for link in step.span.links]
        assert [span.attributes[names.REQUEST_ID] for span in linked] == [one.request_id for one in step.requests]
        assert step.logits_shape == (len(step.requests), 4096)
