"""The three ends, each by a function."""


def _ends_by_eos(request):
    return not request.sampling_params.ignore_eos and request.output_token_ids[-1] == request.eos_token_id


def _ends_by_stop_token(request):
    return request.output_token_ids[-1] in set(request.sampling_params.stop_token_ids or [])


def check_stop(request, max_model_len):
    at_the_end = request.num_tokens >= max_model_len
    may_stop = at_the_end or request.num_output_tokens >= request.sampling_params.min_tokens
    if may_stop and _ends_by_eos(request):
        request.status = RequestStatus.FINISHED_STOPPED
    elif may_stop and _ends_by_stop_token(request):
        request.status = RequestStatus.FINISHED_STOPPED
        request.stop_reason = request.output_token_ids[-1]
    elif at_the_end or request.num_output_tokens >= request.max_tokens:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
    return request.is_finished()
