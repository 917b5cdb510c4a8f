"""What is said when a request's sampling parameters together forbid every token.

In a request's life: the end of a step, `GPUModelRunner._bookkeeping_sync`. vLLM: none, it goes on with a token that is
forbidden.
"""

from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = ["why_no_token"]

_FORBIDDING = ("allowed_token_ids", "bad_words", "logit_bias", "min_tokens", "structured_outputs")
"""Sampling parameters that can forbid tokens."""


def why_no_token(req_id: str, params: SamplingParams) -> str:
    """What the client of the request is told: nothing could be sampled, because of which parameters."""
    given = ", ".join(f"`{name}`" for name in _FORBIDDING if getattr(params, name))
    return (
        f"Request {req_id!r}: no token is left that could be sampled: together, all are forbidden by {given}. "
        "Loosen these parameters."
    )
