"""Stop conditions of a request, and the output of a request that ended by an error.

`Scheduler.update_from_output` calls both.

vLLM: vllm/v1/core/sched/utils.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.ipc.messages import EngineCoreOutput

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["check_stop", "make_failed_output"]


def check_stop(request: Request, max_model_len: int, pooler_output: Tensor | None = None) -> bool:
    """Return whether the last token, or the result of pooling, ended the request; if so, set status and stop reason.

    Stop strings are found later, in the text, by the front half's detokenizer.

    vLLM: vllm/v1/core/sched/utils.py::check_stop.
    """
    if pooler_output is not None:
        request.status = RequestStatus.FINISHED_STOPPED
        return True
    sampling_params = request.sampling_params
    assert sampling_params is not None, "pooling makes no tokens"
    output_token_ids = request.output_token_ids
    num_output_tokens, last_token_id = len(output_token_ids), output_token_ids[-1]
    # vLLM checks only `min_tokens` here.
    if num_output_tokens < sampling_params.min_tokens and request.num_tokens < max_model_len:
        return False
    if not sampling_params.ignore_eos and last_token_id == request.eos_token_id:
        request.status = RequestStatus.FINISHED_STOPPED
        return True
    if sampling_params.stop_token_ids and last_token_id in sampling_params.stop_token_ids:
        request.status = RequestStatus.FINISHED_STOPPED
        request.stop_reason = last_token_id
        return True
    if request.num_tokens >= max_model_len or num_output_tokens >= request.max_tokens:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        return True
    return False


def make_failed_output(request: Request) -> EngineCoreOutput:
    """Build the last output of a request that ended by an error: no token, and the error as its stop reason.

    vLLM: none in 0.11.1.
    """
    return EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=[],
        finish_reason=request.get_finished_reason(),
        stop_reason=request.stop_reason,
        events=request.take_events(),
        trace_headers=request.trace_headers,
    )
