"""A real vLLM with several workers: each worker's calls, sums and messages are in the recording.

Two stages run with vLLM 0.11.1 only: on a CPU, the second stage of 0.32.0 fails in its first step.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.vllm_runs import ROOT
from tests.real_vllm import in_vllm, vllm_version
from tests.vllm.workers_work import MODEL, PARAMS, PROMPTS
from tracellm import LLM, SamplingParams
from tracellm.report.facts.workers.groups import worker_groups
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps

SIZES = ["tensor_parallel_size", *(["pipeline_parallel_size"] if vllm_version().startswith("0.11.") else [])]
NUM_LAYERS = 4


class Explained:
    """A run of workers_work.py."""

    def __init__(self, folder: Path, size: str) -> None:
        self.size = size
        self.tokens_file = folder / "tokens.json"
        script = Path(__file__).parent / "workers_work.py"
        explain = ["-m", "tracellm", "run", "--explain", "--quiet", "--out", folder / "run"]
        one_thread = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
        of_this_tree = {"PYTHONPATH": str(ROOT)}  # in the workers too
        done = in_vllm([*explain, script, size, self.tokens_file], ROOT, **one_thread, **of_this_tree)
        assert done.returncode == 0, done.stderr[-3000:]
        self.run = RunFolder.open(folder / "run")

    @property
    def tokens(self) -> list[list[int]]:
        """The tokens of each prompt, as the script got them."""
        found: list[list[int]] = json.loads(self.tokens_file.read_text(encoding="utf-8"))
        return found

    def named(self, name: str) -> list[list[Span]]:
        """Return the calls of this name in each worker."""
        workers = [one for one in self.run.trace.processes if one.name.startswith("VllmWorker")]
        return [
            [span for span in self.run.trace.spans if span.name == name and span.process is worker]
            for worker in sorted(workers, key=lambda one: one.name)
        ]


@pytest.fixture(scope="module", params=SIZES)
def explained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Explained:
    """A run with two workers of each kind."""
    return Explained(tmp_path_factory.mktemp(request.param), request.param)


def test_both_workers_join(explained: Explained) -> None:
    """Each worker has a file without problems, with its rank in the name, and its calls are below the executor's."""
    run = explained.run
    assert run.problems == []
    assert (run.manifest["probes"]["problems"], run.manifest["probes"]["missing"]) == ([], [])
    started = [one["name"] for one in run.manifest["processes"]]
    assert sorted(name for name in started if name.startswith("VllmWorker")) == ["VllmWorker-0", "VllmWorker-1"]
    known = {span.span_id for span in run.trace.spans}
    assert [one for one in run.trace.spans if one.parent_span_id is not None and one.parent_span_id not in known] == []


def test_every_worker_executes_every_step(explained: Explained) -> None:
    """Each step with tokens is executed once by each worker, called by the executor; the tokens are the script's."""
    trace = explained.run.trace
    scheduled = [step for step in steps(trace) if step.requests]
    assert len(scheduled) >= 6
    callers = []
    for calls in explained.named("WorkerWrapperBase.execute_model"):
        of_workers = [trace.by_id[span.parent_span_id or ""] for span in calls]
        assert {caller.name for caller in of_workers} == {"MultiprocExecutor.execute_model"}
        assert {caller.parent_span_id for caller in of_workers} >= {step.span.span_id for step in scheduled}
        callers.append([caller.span_id for caller in of_workers])
    assert callers[0] == callers[1]
    for step in scheduled:
        assert {token.request_id for token in step.sampled} == {one.request_id for one in step.requests}
    sampled: dict[str, list[int | None]] = {}
    for step in scheduled:
        for token in step.sampled:
            sampled.setdefault(token.request_id.partition("-")[0], []).append(token.token_id)
    assert [sampled[str(index)] for index in range(3)] == explained.tokens


def test_sums_and_messages_are_recorded(explained: Explained) -> None:
    """Workers that share layers sum twice for each layer, and join their logits; a stage's tensors arrive once each."""
    sums, joins = explained.named("GroupCoordinator.all_reduce"), explained.named("GroupCoordinator.all_gather")
    sent = explained.named("GroupCoordinator.send_tensor_dict")
    received = explained.named("GroupCoordinator.recv_tensor_dict")
    num_steps = len([step for step in steps(explained.run.trace) if step.requests])
    if explained.size == "tensor_parallel_size":
        num_forwards = len(explained.named("Qwen2ForCausalLM.forward")[0])
        assert [len(calls) for calls in sums] == [num_forwards * (2 * NUM_LAYERS + 1)] * 2  # and one for the embedding
        assert [len(calls) for calls in joins] == [num_steps] * 2
        for calls in (*sums, *joins):
            assert all(span.attributes[names.COLLECTIVE_RANKS] == [0, 1] for span in calls)
        sizes = [[span.attributes[names.COLLECTIVE_BYTES] for span in calls] for calls in sums]
        assert sizes[0] == sizes[1]
        assert (sent, received) == ([[], []], [[], []])
    else:
        assert (sums, joins) == ([[], []], [[], []])
        ids = [[span.attributes[names.MESSAGE_ID] for span in calls] for calls in (sent[0], received[1])]
        assert ids[0] == ids[1] == [f"TENSORS 0 -> 1 {count}" for count in range(1, num_steps + 1)]
        assert (sent[1], received[0]) == ([], [])


def test_workers_have_their_parts_and_times(explained: Explained) -> None:
    """The workers have halves of the weights or of the layers, and every step's time of each is divided."""
    (group,) = worker_groups(explained.run.trace)
    assert (group.unknown, group.left_out) == ("", 0)
    assert all(part.kv_cache_bytes for part in group.parts)
    places = [(part.rank, part.stage, part.tp_ranks) for part in group.parts]
    weights = [{weight.name: weight for weight in part.weights} for part in group.parts]
    if explained.size == "tensor_parallel_size":
        assert places == [(0, 0, (0, 1)), (1, 0, (0, 1))]
        for rank, own in enumerate(weights):
            projection = own[f"model.layers.0-{NUM_LAYERS - 1}.self_attn.o_proj.weight"]
            size = projection.shape[1]
            assert (projection.dim, projection.ranges) == (1, ((rank * size, size, 2 * size),))
            merged = own[f"model.layers.0-{NUM_LAYERS - 1}.mlp.gate_up_proj.weight"]
            size = merged.shape[0] // 2
            assert (merged.dim, merged.ranges) == (0, ((rank * size, size, 2 * size),) * 2)
    else:
        assert places == [(0, 0, (0,)), (1, 1, (1,))]
        assert [part.layers for part in group.parts] == ["0-1", "2-3"]
    num_steps = len([step for step in steps(explained.run.trace) if step.requests])
    assert [len([one for one in group.steps if one.rank == rank]) for rank in (0, 1)] == [num_steps] * 2
    assert all(one.time("compute") > 0 for one in group.steps)
    assert any(one.time("transfer") > 0 for one in group.steps)


def test_tracellm_gives_the_same_tokens(explained: Explained) -> None:
    """Tracellm's workers give the tokens of vLLM's, greedily and in float32."""
    workers: dict[str, Any] = {explained.size: 2}
    llm = LLM(MODEL, max_model_len=256, dtype="float32", **workers)
    try:
        outputs = llm.generate(PROMPTS, SamplingParams(**PARAMS), use_tqdm=False)
    finally:
        llm.llm_engine.engine_core.shutdown()
    assert [output.outputs[0].token_ids for output in outputs] == explained.tokens
