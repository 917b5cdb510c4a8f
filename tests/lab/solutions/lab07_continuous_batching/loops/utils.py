"""One condition after the other."""


def check_stop(request, max_model_len):
    params = request.sampling_params
    last = request.output_token_ids[-1]
    full = request.num_tokens >= max_model_len
    if request.num_output_tokens < params.min_tokens:
        if full:
            request.status = RequestStatus.FINISHED_LENGTH_CAPPED
            if last == request.eos_token_id and not params.ignore_eos:
                request.status = RequestStatus.FINISHED_STOPPED
            elif last in (params.stop_token_ids or []):
                request.status = RequestStatus.FINISHED_STOPPED
                request.stop_reason = last
            return True
        return False
    if last == request.eos_token_id:
        if not params.ignore_eos:
            request.status = RequestStatus.FINISHED_STOPPED
            return True
    for token in params.stop_token_ids or []:
        if token == last:
            request.status = RequestStatus.FINISHED_STOPPED
            request.stop_reason = token
            return True
    if full or request.num_output_tokens == request.max_tokens:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        return True
    return False
