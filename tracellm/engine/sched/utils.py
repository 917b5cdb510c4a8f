"""When a request has come to its end.

vLLM: vllm/v1/core/sched/utils.py. Left out: pooling.
"""

from tracellm.engine.request import Request, RequestStatus

__all__ = ["check_stop"]


def check_stop(request: Request, max_model_len: int) -> bool:
    """Has the token just appended ended the request? If so, sets its status and stop reason.

    Stop strings are not seen here but where there is text: in the front half's detokenizer.

    vLLM: vllm/v1/core/sched/utils.py::check_stop.
    """
    sampling_params = request.sampling_params
    num_output_tokens = request.num_output_tokens
    if num_output_tokens < sampling_params.min_tokens:
        return False
    last_token_id = request.output_token_ids[-1]
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
