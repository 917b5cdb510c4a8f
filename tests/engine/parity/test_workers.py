"""Tests of recorded workloads of a real vLLM 0.11.1 with several workers: pipeline stages, and shared layers.

vLLM's futures of steps are done only once they are awaited (`FutureWrapper` of its MultiprocExecutor), so there too a
step returns without outputs until the queue of steps is full, and the recordings depend on no timing.
"""

import json
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest

import tracellm
from tests.engine.core_requests import core_request
from tests.engine.parity.cases import scheduler_cases, worker_cases
from tests.engine.parity.compare import compare_batches, generated_tokens, side_by_side
from tests.engine.parity.drive import MODEL, Library, run_case, watch
from tests.engine.sched.harness import make_spec
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.core import EngineCore
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.sample import sampling_params
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

TRACELLM = Library.of(tracellm, sampling_params)
UNKNOWN = 7
"""Token of an aborted request that vLLM discarded."""


def cases_of(group: str) -> list[dict[str, Any]]:
    """Return the recordings of a group."""
    return [case for case in worker_cases() if case["group"] == group]


def with_workers() -> list[dict[str, Any]]:
    """Return the recordings to run with real workers: the shortest one for each number of workers and stages."""
    shortest: dict[tuple[int, int], dict[str, Any]] = {}
    for case in sorted(worker_cases(), key=lambda case: len(case["recorded"][0]["steps"])):
        settings = case["settings"]
        shortest.setdefault((settings.get("tensor_parallel_size", 1), settings["pipeline_parallel_size"]), case)
    return list(shortest.values())


class RecordedTokens(Executor):
    """Executor that samples the tokens of a recording."""

    tokens: dict[str, list[int]]
    prompts: dict[str, int]
    """Lengths of the prompts."""
    step: SchedulerOutput

    def _init_executor(self) -> None:
        """Start nothing."""

    def collective_rpc(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        return [{"layers.0": make_spec(16)} if method == "get_kv_cache_spec" else 1 << 30]

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        self.step = scheduler_output
        return None if scheduler_output.total_num_scheduled_tokens else self.sample_tokens(None)

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        future: Future[ModelRunnerOutput] = Future()
        future.set_result(self._sample(self.step))
        return future

    def _sample(self, step: SchedulerOutput) -> ModelRunnerOutput:
        cached = step.scheduled_cached_reqs
        at = {new.req_id: (new.num_computed_tokens, 0) for new in step.scheduled_new_reqs}
        at |= {
            name: (computed, generated)
            for name, computed, generated in zip(
                cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, strict=True
            )
        }
        sampled: list[list[int]] = []
        for name, (computed, generated) in at.items():
            complete = computed + step.num_scheduled_tokens[name] == self.prompts[name] + generated
            sampled.append([*self.tokens.get(name, ())[generated:], UNKNOWN][:1] if complete else [])
        return ModelRunnerOutput(
            req_ids=list(at),
            req_id_to_index={name: row for row, name in enumerate(at)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            logits_shape=(len(at), 8),
        )


def engine_config(case: dict[str, Any]) -> VllmConfig:
    """Return the configuration of a recorded engine."""
    return EngineArgs(model=MODEL, dtype="float32", **case["settings"]).create_engine_config()


def executor_of(case: dict[str, Any]) -> type[Executor]:
    """Return the executor with the recorded tokens of a case."""
    (batch,), (recorded,) = case["batches"], case["recorded"]
    prompts = {spec["request_id"]: len(spec["prompt_token_ids"]) for spec in batch["requests"]}
    fields = {"tokens": generated_tokens(batch, recorded["outputs"]), "prompts": prompts}
    return type("RecordedTokens", (RecordedTokens,), fields)


@pytest.mark.parametrize("case", cases_of("pipeline"), ids=lambda case: case["name"])
def test_schedules_a_pipeline_as_vllm(case: dict[str, Any]) -> None:
    """With several steps under way, every step has vLLM's requests, tokens and blocks, and every result comes when
    vLLM's comes."""
    (batch,), (recorded,) = case["batches"], case["recorded"]
    core = EngineCore(engine_config(case), executor_of(case), log_stats=False)
    steps, _ = watch(core.scheduler)
    ended = []
    for number in range(len(recorded["outputs"])):
        for spec in batch["requests"]:
            if spec["add_before_step"] == number:
                request = core_request(
                    spec["request_id"],
                    spec["prompt_token_ids"],
                    SamplingParams(**spec["params"]),
                    arrival_time=spec["arrival_time"],
                )
                core.add_request(core.preprocess_add_request(request))
            if spec["abort_before_step"] == number:
                core.abort_requests([spec["request_id"]])
        found, _ = core.step_fn()
        ended.append([output.request_id for of_client in (found or {}).values() for output in of_client.outputs])
    for index, (ours, expected) in enumerate(zip(steps, recorded["steps"], strict=True)):
        assert json.loads(json.dumps(ours)) == expected, side_by_side(index, expected, ours)
    assert ended == [[request_id for request_id, *_ in outputs] for outputs in recorded["outputs"]]


def test_the_recordings_of_pipelines_hold_what_they_are_meant_to_test() -> None:
    """The recordings cover two and three stages, overlapping steps, chunks, prefix hits, preemptions and aborts."""
    cases = cases_of("pipeline")
    steps = [step for case in cases for step in case["recorded"][0]["steps"]]
    assert {case["settings"]["pipeline_parallel_size"] for case in cases} == {2, 3}
    assert sum(1 for one, other in pairwise(steps) if one["scheduled"] and other["scheduled"]) > 300
    assert sum(not step["scheduled"] for step in steps) > 300
    assert sum(len(tokens) > 1 for step in steps for tokens in step.get("new_token_ids", {}).values()) > 10
    assert sum(computed > 0 for step in steps for _, computed in step["new"]) > 5
    assert sum(len(step["resumed"]) for step in steps) > 10
    aborts = [spec["abort_before_step"] for case in cases for spec in case["batches"][0]["requests"]]
    assert len(aborts) - aborts.count(None) > 5


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("case", with_workers(), ids=lambda case: case["name"])
def test_workers_generate_as_vllm(case: dict[str, Any]) -> None:
    """With real workers, every decision and every token equals that of vLLM with the same workers."""
    _, difference = compare_batches(case, json.loads(json.dumps(run_case(TRACELLM, case))))
    assert difference is None, difference.text


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("case", scheduler_cases()[:1], ids=lambda case: case["name"])
def test_two_workers_that_share_the_layers_decide_as_one(case: dict[str, Any]) -> None:
    """With tensor parallelism, every decision and every token equals that of vLLM with one worker."""
    shared = case | {"settings": case["settings"] | {"tensor_parallel_size": 2}}
    _, difference = compare_batches(shared, json.loads(json.dumps(run_case(TRACELLM, shared))))
    assert difference is None, difference.text
