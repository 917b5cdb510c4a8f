"""A vLLM's model runners, the later one in `worker/gpu/`, and its sampler where they differ from tracellm's engine.

Probabilities are recorded where the logits are in the CPU's memory. Reading them on a GPU would make the engine wait,
and take memory of the KV cache; there the scheduler provides the tokens (step.py). Tokens are drawn from what
`apply_top_k_top_p` returned, if the sampler called it, otherwise from logits that it changed in place.

vLLM: vllm/v1/worker/gpu_model_runner.py, vllm/v1/worker/gpu/, vllm/v1/sample/.
"""

import threading
from typing import Any

from tracellm.probes.catalog.engine import grammar
from tracellm.probes.catalog.engine import runner as ours
from tracellm.probes.catalog.entries import argument, like, vllm_only
from tracellm.probes.catalog.vllm.step import STEPS
from tracellm.probes.context.call_context import state
from tracellm.probes.wrapping.summary import brief, brief_tensor, written

__all__ = ["ENTRIES", "acts_on_logits"]

# -- input tensors ----------------------------------------------------------------------------------------------------


def _capture_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture what `_prepare_inputs` wrote into its buffers, and the rows of the output it selects; the choice of a
    CUDA graph is made elsewhere."""
    runner, scheduled = args[0], argument(args, kwargs, 1, "scheduler_output")
    num_tokens, num_requests = scheduled.total_num_scheduled_tokens, runner.input_batch.num_reqs
    lengths = {
        "input_ids": num_tokens,
        "positions": num_tokens,
        "query_start_loc": num_requests + 1,
        "seq_lens": num_requests,
    }
    tensors = []
    for name, length in lengths.items():
        buffer = getattr(runner, name, None)
        tensor = getattr(buffer, "gpu", buffer)  # a CpuGpuBuffer, or a tensor
        if getattr(tensor, "ndim", 0) == 1:
            tensors.append((name, brief_tensor(tensor.dtype, length)))  # type: ignore[union-attr]
    tensors += [("logits_indices", brief(value)) for value in result[:1] if ours.is_tensor(value)]
    return tensors, None


# -- the grammar's mask -----------------------------------------------------------------------------------------------


def _copy_constrained(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Copy the rows that a grammar masks; none on a GPU, or with rows of draft tokens."""
    scheduled, logits = argument(args, kwargs, 0, "scheduler_output"), argument(args, kwargs, 3, "logits")
    if logits.device.type == "cpu" and not scheduled.scheduled_spec_decode_tokens:
        row_of = argument(args, kwargs, 2, "input_batch").req_id_to_index
        grammar.copy_rows(argument(args, kwargs, 1, "grammar_output"), row_of, logits)


def _capture_mask(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return grammar.capture_mask(argument(args, kwargs, 1, "grammar_output"))


# -- the model runner's sampling --------------------------------------------------------------------------------------


def _copy_logits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Let the sampler work on a copy if it would change logits whose probabilities are recorded.

    The sampler works on float32, and changes logits of that dtype in place. Its probe also learns whether a grammar may
    have changed them before.
    """
    logits = argument(args, kwargs, 1, "logits")
    if not _is_recorded(args, kwargs, logits):
        return None
    batch = args[0].input_batch
    _, options = ours.batch_rows(args[0], [*range(batch.num_reqs)])
    _sampling.constrained = any("structured_outputs" in before for (before, _, _), _ in options)
    if state.depth_limited or str(logits.dtype) != "torch.float32":
        return None
    if not acts_on_logits(batch.sampling_metadata):
        return None
    copy = logits.clone()
    copy.before_sampling = logits
    return ((args[0], copy, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "logits": copy})


def _is_recorded(args: tuple[Any, ...], kwargs: dict[str, Any], logits: Any) -> bool:
    """Return whether tokens are recorded here; rows of draft tokens under speculative decoding are not requests."""
    on_cpu = logits is not None and logits.device.type == "cpu"
    return on_cpu and argument(args, kwargs, 2, "spec_decode_metadata") is None


def _capture_sample(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the sampled tokens and the likeliest five, by the model's probabilities; on a GPU the logits' shape."""
    runner, logits = args[0], argument(args, kwargs, 1, "logits")
    facts = {"logits": brief(logits)}
    if not _is_recorded(args, kwargs, logits):
        return facts
    logits = getattr(logits, "before_sampling", logits)
    tokens = result.sampled_token_ids.long()  # int64 [requests, 1]
    prefilling = _prefilling_rows(runner)
    rows = [row for row in range(tokens.shape[0]) if row not in prefilling]
    if not rows:
        return facts
    if prefilling:
        tokens, logits = tokens[rows], logits[rows]
    requests, options = ours.batch_rows(runner, rows)
    return {
        **facts,
        "rows": rows,
        "requests": requests,
        "options": options,
        "tokens": [token for [token] in tokens.tolist()],
        **ours.probabilities(logits, tokens),
    }


def _prefilling_rows(runner: Any) -> frozenset[int]:
    """Return the rows whose prompts are not fully computed: they are sampled too, and their tokens dropped."""
    mask = getattr(runner, "discard_request_mask", None)
    if mask is None:  # 0.11
        return frozenset(runner.discard_request_indices.np[: runner.num_discarded_requests].tolist())
    used = mask.np[: runner.input_batch.num_reqs]
    return frozenset(used.nonzero()[0].tolist()) if used.any() else frozenset()


def _give_sample(facts: Any) -> dict[str, Any]:
    _, _, *shape = facts["logits"] or (None, None)
    return {"logits_shape": shape, "sampled": facts} if "tokens" in facts else {"logits_shape": shape}


# -- the sampler ------------------------------------------------------------------------------------------------------

_sampling = threading.local()
"""State of this thread until `Sampler.sample` returns: `logits` that `apply_top_k_top_p` returned, and `constrained`,
whether a grammar may have forbidden tokens."""

_ROWS_IN_USE = {"MinTokensLogitsProcessor": "min_toks", "LogitBiasLogitsProcessor": "biases"}
"""Processors that every vLLM has, and their attribute with the rows that use them."""


def acts_on_logits(metadata: Any) -> bool:
    """Return whether the sampler changes the logits of any row; it does not if all are greedy without other options."""
    processors = metadata.logitsprocs.non_argmax_invariant
    return not metadata.all_greedy or ours.changes_logits(
        metadata, [processor for processor in processors if _may_act(processor)]
    )


def _may_act(processor: Any) -> bool:
    rows = _ROWS_IN_USE.get(type(processor).__name__)
    return rows is None or bool(getattr(processor, rows, True))


def _capture_filter(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    if result.device.type == "cpu":
        _sampling.logits = result
    arguments = [(name, brief(argument(args, kwargs, i, name))) for i, name in enumerate(("logits", "k", "p"))]
    return arguments, brief(result)


def _capture_drawn(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture for each row the tokens left to draw from, the drawn one's probability, and the likeliest."""
    logits, metadata = argument(args, kwargs, 1, "logits"), argument(args, kwargs, 2, "sampling_metadata")
    facts = {"logits": brief(logits)}
    kept, constrained = vars(_sampling).pop("logits", logits), vars(_sampling).pop("constrained", True)
    if not metadata.all_greedy:
        logits = kept  # float32 [rows, vocabulary]
    if logits.device.type != "cpu" or not logits.shape[0]:
        return facts
    acts = acts_on_logits(metadata)
    if constrained or acts:
        facts["left"] = ours.tokens_left(logits)
    else:
        facts["left"] = [logits.shape[1]] * int(logits.shape[0])
    if not acts:
        return facts  # the runner's `_sample` has the probabilities
    return {**facts, **ours.probabilities(logits, result[0].long()[:, None])}


_RUNNER = "v1.worker.gpu_model_runner:GPUModelRunner"
_SHOWN: dict[str, Any] = {"shown_as": "GPUModelRunner"}
_SECOND_RUNNER = "v1.worker.gpu.*:GPUModelRunner"
_SAMPLER, _OPS = "v1.sample.sampler:Sampler", "v1.sample.ops.topk_topp_sampler:"

ENTRIES = (
    *vllm_only("step", _RUNNER, "propose_draft_token_ids", **_SHOWN),
    like(ours.ENTRIES, f"{_RUNNER}._prepare_inputs", capture=_capture_inputs),
    like(
        grammar.ENTRIES,
        "v1.worker.gpu_model_runner:apply_grammar_bitmask",
        before=_copy_constrained,
        capture=_capture_mask,
        gives_to=STEPS,
    ),
    like(
        ours.ENTRIES,
        f"{_RUNNER}._sample",
        before=_copy_logits,
        capture=_capture_sample,
        gives=_give_sample,
        gives_to=STEPS,
    ),
    *vllm_only("step", _SECOND_RUNNER, "execute_model", "finish_requests", "add_requests", **_SHOWN),
    *vllm_only("step", _SECOND_RUNNER, "update_requests", "prepare_inputs", "prepare_attn", **_SHOWN),
    *vllm_only("step", _SECOND_RUNNER, "sample_tokens", "sample", "postprocess_sampled", **_SHOWN),
    *vllm_only("step", "v1.sample.rejection_sampler:RejectionSampler", "forward"),
    *vllm_only("step", "v1.worker.gpu.sample.*:Sampler", "__call__"),
    like(
        ours.ENTRIES,
        f"{_SAMPLER}.sample",
        capture=_capture_drawn,
        gives=lambda facts: {"drawn": facts} if "left" in facts else {},
        gives_to=STEPS,
    ),
    *vllm_only("layer", _SAMPLER, "compute_logprobs", "gather_logprobs"),
    *vllm_only("layer", f"{_OPS}TopKTopPSampler", "forward_native", "forward_cuda", "forward_cpu"),
    *vllm_only("layer", _OPS, "random_sample"),
    *vllm_only("layer", _OPS, "apply_top_k_top_p", capture=_capture_filter, attributes=lambda facts: written(*facts)),
    *vllm_only("layer", "v1.worker.gpu.sample.*:Sampler", "apply_sampling_params", "sample"),
)
