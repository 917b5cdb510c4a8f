"""Recording of several workers: one trace has the engine core and each of them."""

from dataclasses import dataclass
from typing import Any

import pytest

from tracellm import LLM, SamplingParams
from tracellm.probes.recording import Recording
from tracellm.report.facts.invariants import check_invariants
from tracellm.report.facts.process_messages import crossings
from tracellm.report.facts.workers.groups import KINDS, worker_groups
from tracellm.trace import names
from tracellm.trace.model import Message
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps

WORKERS = ["Worker_PP0_TP0", "Worker_PP0_TP1", "Worker_PP1_TP0", "Worker_PP1_TP1"]


@dataclass
class Recorded:
    """A recorded run of two requests on 2 x 2 workers."""

    folder: RunFolder
    outputs: list[Any]
    stats: dict[str, Any]

    @property
    def tensors(self) -> list[Message]:
        """Messages between the stages."""
        messages = self.folder.trace.messages
        return [message for message in messages if message.send.attributes[names.MESSAGE_TYPE] == "TENSORS"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Record two prompts, which do not fit into one step, on two stages of two workers."""
    path = tmp_path_factory.mktemp("run")
    settings: dict[str, Any] = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "max_num_batched_tokens": 8}
    with Recording(path, script="script.py") as recording:
        llm = LLM(dtype="float32", num_gpu_blocks_override=64, max_num_seqs=2, **settings)
        params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
        outputs = llm.generate(["The capital of France is", "The sky is blue, and"], params, use_tqdm=False)
        llm.llm_engine.engine_core.shutdown()
    return Recorded(RunFolder.open(path), outputs, recording.stats)


def test_each_worker_is_a_process(run: Recorded) -> None:
    """Each worker's process joins under its name, without problems, and its calls are below those of the script."""
    assert (run.stats["problems"], run.stats["missing"]) == ([], [])
    assert {span.process.name for span in run.folder.trace.spans if span.process} > set(WORKERS)
    assert run.folder.trace.orphans == []
    assert check_invariants(run.folder.trace).violations == []


def test_a_step_has_the_tokens_that_came_later(run: Recorded) -> None:
    """The tokens that a later step brings are those of the step that scheduled their requests."""
    sampled: dict[str, list[int | None]] = {}
    for step in steps(run.folder.trace):
        assert {one.request_id for one in step.sampled} <= {one.request_id for one in step.requests}
        for one in step.sampled:
            sampled.setdefault(one.request_id, []).append(one.token_id)
    assert list(sampled.values()) == [output.outputs[0].token_ids for output in run.outputs]
    brought = [step.span.attributes.get(names.STEP_OUTPUT_OF) for step in steps(run.folder.trace)]
    assert any(index is not None for index in brought)


def test_tensors_between_stages(run: Recorded) -> None:
    """Each worker sends hidden states and residual stream of a step's tokens to its partner in the next stage."""
    ends = {(_name(message.send), _name(message.receive)) for message in run.tensors}
    assert ends == {(WORKERS[0], WORKERS[2]), (WORKERS[1], WORKERS[3])}
    sent = [message.send for message in run.tensors if _name(message.send) == WORKERS[0]]
    computed = [step.num_tokens for step in steps(run.folder.trace) if step.num_tokens]
    bytes_per_token = 256 * 4 * 2  # hidden size, float32, two tensors
    assert [send.attributes[names.MESSAGE_BYTES] for send in sent] == [bytes_per_token * num for num in computed]


def test_messages_to_each_worker_are_apart(run: Recorded) -> None:
    """Calls to four workers are four rows, and only the output rank responds to steps."""
    found = crossings(run.folder.trace)
    calls = {one.target: one.count for one in found if one.type == "CALL"}
    responses = {one.source: one.count for one in found if one.type == "RESPONSE"}
    assert sorted(calls, key=str) == WORKERS
    assert len(set(calls.values())) == 1
    assert max(responses, key=lambda name: responses[name]) == WORKERS[2]


def test_operations_have_numbers_in_their_group(run: Recorded) -> None:
    """The ranks of a group number their operations alike, from 1, and all of them are matched."""
    numbers: dict[str, list[int]] = {}
    for span in run.folder.trace.named("GroupCoordinator.all_reduce", "GroupCoordinator.all_gather"):
        numbers.setdefault(_name(span), []).append(span.attributes[names.COLLECTIVE_NUMBER])
    assert sorted(numbers) == WORKERS
    assert all(found == [*range(1, len(found) + 1)] for found in numbers.values())
    (group,) = worker_groups(run.folder.trace)
    assert len(group.operations) == len(numbers[WORKERS[0]]) + len(numbers[WORKERS[2]]) + len(run.tensors)


def test_time_of_each_rank_adds_up(run: Recorded) -> None:
    """Computing, waiting and transfer of a rank are the time of its calls, for each step with tokens."""
    (group,) = worker_groups(run.folder.trace)
    computed = [step.index for step in steps(run.folder.trace) if step.requests]
    assert sorted((one.step.index, one.rank) for one in group.steps) == [(i, r) for i in computed for r in range(4)]
    spans = run.folder.trace.named("Worker.execute_model", "Worker.sample_tokens")
    for one in group.steps:
        begin, end = one.intervals[0].start_ns, one.intervals[-1].end_ns
        own = [s for s in spans if _name(s) == WORKERS[one.rank] and begin <= s.start_ns < end]
        assert sum(map(one.time, KINDS)) == sum(span.duration_ns for span in own)


def test_each_worker_has_its_part_of_the_model(run: Recorded) -> None:
    """The parts of a divided weight cover it, and each rank has the layers of its stage and a KV cache for them."""
    (group,) = worker_groups(run.folder.trace)
    assert [(part.stage, part.layers, part.tp_ranks) for part in group.parts] == [
        (0, "0-1", (0, 1)), (0, "0-1", (0, 1)), (1, "2-3", (2, 3)), (1, "2-3", (2, 3))
    ]  # fmt: skip
    assert len({part.kv_cache_bytes for part in group.parts}) == 1
    first, second = (part.weights for part in group.parts[:2])
    for one, other in zip(first, second, strict=True):
        assert one.whole == other.whole
        for (start, size, total), (next_start, next_size, _) in zip(one.ranges, other.ranges, strict=True):
            assert (start, size, next_size) == (0, next_start, total - size)


def _name(span: Any) -> str:
    return span.process.name
