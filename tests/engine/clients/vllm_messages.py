"""Messages that tests/fixtures/record_messages.py recorded with a real vLLM, made here from the same values.

`python -m tests.engine.clients.vllm_messages > FILE` writes them in the fixture's format, for vLLM to read.
"""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.engine.core_requests import core_request
from tracellm import SamplingParams, StructuredOutputsParams
from tracellm.engine.ipc.messages import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    UtilityOutput,
    UtilityResult,
)
from tracellm.engine.ipc.serial_utils import MsgpackEncoder
from tracellm.engine.metrics.stats import SchedulerStats
from tracellm.engine.sample.sampling_params import RequestOutputKind
from tracellm.engine.worker.model_runner_output import LogprobsLists, LogprobsTensors

__all__ = ["frames_of", "message_of", "recorded"]

Json = dict[str, Any]
_FIXTURE = Path(__file__).parents[2] / "fixtures" / "messages.json"


def recorded() -> list[Json]:
    """Return the fixture's messages; `number` counts them."""
    messages: list[Json] = json.loads(_FIXTURE.read_text())
    return [message | {"number": number} for number, message in enumerate(messages)]


def frames_of(message: Json) -> list[bytes]:
    """Return the recorded frames."""
    return [base64.b64decode(frame) for frame in message["frames"]]


def message_of(message: Json) -> EngineCoreRequest | EngineCoreOutputs:
    """Return the message with the recorded values."""
    case = message["case"]
    return _request_of(message["number"], case) if message["kind"] == "request" else _outputs_of(case)


def _request_of(number: int, case: Json) -> EngineCoreRequest:
    params = dict(case["params"])
    if "logit_bias" in params:
        params["logit_bias"] = {int(token): bias for token, bias in params["logit_bias"].items()}
    if "structured_outputs" in case:
        params["structured_outputs"] = StructuredOutputsParams(**case["structured_outputs"])
    kind = RequestOutputKind[case.get("output_kind", "FINAL_ONLY")]
    more = {name: case[name] for name in ("client_index", "priority", "trace_headers") if name in case}
    return core_request(
        str(number),
        case["prompt_token_ids"],
        SamplingParams(output_kind=kind, **params),
        case.get("eos_token_id"),
        1234.5,
        **more,
    )


def _output_of(case: Json) -> EngineCoreOutput:
    case = dict(case)
    if width := case.pop("logprobs", None):
        case["new_logprobs"] = LogprobsLists(
            np.arange(width, dtype=np.int32)[None],
            -np.arange(width, dtype=np.float32)[None] / 4,
            np.ones(1, dtype=np.int64),
        )
    if rows := case.pop("prompt_logprobs", None):
        tokens = torch.arange(rows * 2, dtype=torch.int32).view(rows, 2)
        case["new_prompt_logprobs_tensors"] = LogprobsTensors(
            tokens, -tokens.to(torch.float32) / 8, torch.arange(rows, dtype=torch.int64)
        )
    if "finish_reason" in case:
        case["finish_reason"] = FinishReason[case["finish_reason"]]
    if "events" in case:
        case["events"] = [EngineCoreEvent(EngineCoreEventType[kind], at) for kind, at in case["events"]]
    return EngineCoreOutput(**case)


def _outputs_of(case: Json) -> EngineCoreOutputs:
    utility = None
    if case.get("utility_output"):
        call_id, failure, result = case["utility_output"]
        utility = UtilityOutput(call_id, failure, None if failure else UtilityResult(result))
    stats = case.get("scheduler_stats")
    return EngineCoreOutputs(
        outputs=[_output_of(output) for output in case["outputs"]],
        scheduler_stats=stats and SchedulerStats(**stats),
        timestamp=99.5,
        utility_output=utility,
    )


def _write() -> None:
    encoder = MsgpackEncoder()
    messages = []
    for message in recorded():
        frames = [base64.b64encode(bytes(frame)).decode() for frame in encoder.encode(message_of(message))]
        messages.append({"kind": message["kind"], "case": message["case"], "frames": frames})
    print(json.dumps(messages))  # noqa: T201


if __name__ == "__main__":
    _write()
