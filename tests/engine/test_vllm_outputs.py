"""Tests of outputs against recordings of vLLM 0.11.1 in tests/fixtures/output-cases.jsonl.

Each case is one request with invented tokens, log probabilities, events and clock readings, step by step, and the
results of vLLM's output processor. tests/fixtures/record_output_cases.py recorded it.
"""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.core_requests import core_request
from tests.engine.tokenizer_families import FAMILIES, get_family
from tracellm import SamplingParams
from tracellm.engine.frontend.logprobs import PromptLogprobs, SampleLogprobs
from tracellm.engine.frontend.output_processor import OutputProcessor
from tracellm.engine.frontend.outputs import RequestOutput
from tracellm.engine.ipc.messages import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreRequest,
    FinishReason,
)
from tracellm.engine.metrics.stats import IterationStats
from tracellm.engine.sample.sampling_params import RequestOutputKind
from tracellm.engine.worker.model_runner_output import LogprobsLists, LogprobsTensors

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "fixtures" / "output-cases.jsonl").read_text("utf-8").splitlines()
]


def plain(logprobs: SampleLogprobs | PromptLogprobs | None) -> list[list[list[Any]] | None] | None:
    """Return log probabilities in the recording's form."""
    if logprobs is None:
        return None
    return [
        None
        if position is None
        else [[token, item.logprob, item.rank, item.decoded_token] for token, item in position.items()]
        for position in logprobs
    ]


def request_of(case: dict[str, Any]) -> EngineCoreRequest:
    """Make the case's request."""
    params = dict(case["params"])
    kind = RequestOutputKind[params.pop("output_kind", "FINAL_ONLY")]
    sampling_params = SamplingParams(max_tokens=1000, output_kind=kind, **params)
    return core_request("0", case["prompt_token_ids"], sampling_params, None, case["arrival_time"])


def output_of(step: dict[str, Any]) -> EngineCoreOutput:
    """Make the engine core's output of one step."""
    output = EngineCoreOutput("0", step["token_ids"], num_cached_tokens=16, stop_reason=step.get("stop_reason"))
    if "finish_reason" in step:
        output.finish_reason = FinishReason[step["finish_reason"].upper()]
    if step["events"]:
        output.events = [EngineCoreEvent(EngineCoreEventType(kind), at) for kind, at in step["events"]]
    if lists := step.get("logprobs"):
        token_ids, logprobs, ranks = (np.array(lists[name]) for name in ("token_ids", "logprobs", "ranks"))
        output.new_logprobs = LogprobsLists(token_ids, logprobs, ranks)
    if lists := step.get("prompt_logprobs"):
        output.new_prompt_logprobs_tensors = LogprobsTensors(
            torch.tensor(lists["token_ids"]),
            torch.tensor(lists["logprobs"], dtype=torch.float64),
            torch.tensor(lists["ranks"]),
        )
    return output


@cache
def replay(index: int) -> list[tuple[RequestOutput | None, bool, IterationStats]]:
    """For each recorded step, return the output, whether the request is aborted, and the statistics."""
    case = CASES[index]
    processor = OutputProcessor(get_family(case["family"]), log_stats=True)
    processor.add_request(request_of(case), None)
    steps = []
    for step in case["steps"]:
        stats = IterationStats(iteration_timestamp=step["wall"])
        processed = processor.process_outputs([output_of(step)], step["timestamp"], stats)
        output = processed.request_outputs[0] if processed.request_outputs else None
        assert output is None or isinstance(output, RequestOutput)
        steps.append((output, bool(processed.reqs_to_abort), stats))
    assert not processor.has_unfinished_requests()
    return steps


def may_go_on(recorded: dict[str, Any]) -> bool:
    """Return whether our text may be longer than vLLM's: at the end, unless a stop string cut it."""
    return recorded.get("finish_reason") is not None and not isinstance(recorded.get("stop_reason"), str)


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_and_reasons_are_vllms(family):
    """Text, tokens, finish and stop reasons of every output equal vLLM's, for every kind of tokenizer.

    One difference is intended: incomplete bytes at the end have no text in vLLM, and are U+FFFD here.
    """
    compared = longer = 0
    for index, case in enumerate(CASES):
        if case["family"] != family:
            continue
        for step, (output, aborts, _) in zip(case["steps"], replay(index), strict=True):
            assert aborts == step["aborts"]
            if (recorded := step["output"]) is None:
                assert output is None
                continue
            assert output is not None
            (completion,) = output.outputs
            assert completion.text.startswith(recorded["text"]), case
            if more := completion.text.removeprefix(recorded["text"]):
                assert may_go_on(recorded), case
                assert {"\ufffd"} <= set(more) <= {"\ufffd", " "}, case
                longer += 1
            assert list(completion.token_ids) == recorded["token_ids"]
            assert completion.finish_reason == recorded.get("finish_reason")
            assert completion.stop_reason == recorded.get("stop_reason")
            assert output.finished == ("finish_reason" in recorded)
            assert output.num_cached_tokens == 16
            compared += 1
    assert compared > 50
    assert longer < compared / 20, "a rare end"


def test_log_probabilities_are_vllms():
    """Every position has vLLM's tokens with their values, ranks and texts."""
    compared = 0
    for index, case in enumerate(CASES):
        for step, (output, _, _) in zip(case["steps"], replay(index), strict=True):
            if output is None:
                continue
            (completion,) = output.outputs
            recorded = step["output"]
            assert completion.cumulative_logprob == recorded.get("cumulative_logprob")
            assert plain(completion.logprobs) == recorded.get("logprobs")
            assert plain(output.prompt_logprobs) == recorded.get("prompt_logprobs")
            compared += "logprobs" in recorded or "prompt_logprobs" in recorded
    assert compared > 50


def test_times_are_vllms():
    """The statistics of each step, of the request and of the finished request equal vLLM's."""
    for index, case in enumerate(CASES):
        steps = replay(index)
        for step, (_, _, stats) in zip(case["steps"], steps, strict=True):
            assert step["stats"] == [
                stats.time_to_first_tokens_iter,
                stats.inter_token_latencies_iter,
                stats.num_preempted_reqs,
            ]
        output, _, stats = steps[-1]
        assert output is not None
        assert output.metrics is not None
        assert asdict(output.metrics) == case["metrics"]
        (finished,) = stats.finished_requests
        assert asdict(finished) | {"finish_reason": str(finished.finish_reason)} == case["finished"]
