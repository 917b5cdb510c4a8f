"""The reason of the end as one value."""


def check_stop(request, max_model_len):
    params, token, count = request.sampling_params, request.output_token_ids[-1], request.num_output_tokens
    too_long = request.num_tokens >= max_model_len
    if count < params.min_tokens and not too_long:
        return False
    is_eos = token == request.eos_token_id and not params.ignore_eos
    is_stop = not is_eos and token in (params.stop_token_ids or ())
    if is_stop:
        request.stop_reason = token
    if is_eos or is_stop:
        request.status = RequestStatus.FINISHED_STOPPED
    elif too_long or count >= request.max_tokens:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
    return request.is_finished()
