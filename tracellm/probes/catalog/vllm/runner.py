"""A vLLM's model runner: a plan becomes tensors, tensors become tokens.

There are two of them, of one name: the older `gpu_model_runner.py` and, in later versions, `worker/gpu/`, which on a
GPU is the default. Sampled tokens with their probabilities are told where the logits are in the CPU's memory; to look
at them on a GPU would make the engine wait, and takes memory that vLLM has given to the KV cache. There the scheduler
tells which tokens came (step.py).

vLLM: vllm/v1/worker/gpu_model_runner.py, vllm/v1/worker/gpu/model_runner.py.
"""

from collections.abc import Iterator
from typing import Any

from tracellm.probes.catalog.engine import runner as ours
from tracellm.probes.catalog.engine.sampling import chances
from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.vllm.entries import heirs, like
from tracellm.probes.catalog.vllm.sampling import acts_on_logits, tell_constrained
from tracellm.probes.catalog.vllm.step import STEPS
from tracellm.probes.context.call_context import state
from tracellm.probes.wrapping.summary import brief, brief_tensor, write
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]


def _capture_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """What `_prepare_inputs` wrote into the buffers that it keeps, and which rows of the output it wants; nothing of
    CUDA graphs, for which vLLM decides elsewhere."""
    runner, scheduled = args[0], argument(args, kwargs, 1, "scheduler_output")
    num_tokens, num_requests = scheduled.total_num_scheduled_tokens, runner.input_batch.num_reqs
    lengths = {
        "input_ids": num_tokens,
        "positions": num_tokens,
        "query_start_loc": num_requests + 1,
        "seq_lens": num_requests,
    }
    told = []
    for name, length in lengths.items():
        buffer = getattr(runner, name, None)
        tensor = getattr(buffer, "gpu", buffer)  # a CpuGpuBuffer, or a tensor
        if getattr(tensor, "ndim", 0) == 1:
            told.append((name, brief_tensor(tensor.dtype, length)))  # type: ignore[union-attr]
    told += [("logits_indices", brief(value)) for value in result[:1] if _is_tensor(value)]
    return told, None


def _capture_metadata(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Of each group of layers the first layer's: the layers of a group share one."""
    by_layer = result[0] if isinstance(result, tuple) else result
    parts = by_layer if isinstance(by_layer, list) else [by_layer]  # one for each half of a batch that is split
    groups = {id(metadata): metadata for part in parts for metadata in part.values()}
    return [told for metadata in groups.values() for told in _tensors_of(metadata)]


def _tensors_of(metadata: Any) -> Iterator[tuple[str, Any]]:
    for name, value in getattr(metadata, "__dict__", {}).items():
        if _is_tensor(value):
            yield name, brief(value)


def _is_tensor(value: Any) -> bool:
    return type(value).__name__ == "Tensor"


# -- sampling ---------------------------------------------------------------------------------------------------------


def _keep_logits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Let the sampler work on a copy where it would change the logits of which probabilities are to be told, and its
    probe know whether a grammar may have changed them already.

    It works on float32, and changes what has that dtype in place.
    """
    logits = argument(args, kwargs, 1, "logits")
    if not _is_told(args, kwargs, logits):
        return None
    batch = args[0].input_batch
    _, asked = ours.batch_of(args[0], [*range(batch.num_reqs)])
    tell_constrained(any("structured_outputs" in before for (before, _, _), _ in asked))
    if state.depth_limited or str(logits.dtype) != "torch.float32":
        return None
    if not acts_on_logits(batch.sampling_metadata):
        return None
    copy = logits.clone()
    copy.before_sampling = logits
    return ((args[0], copy, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "logits": copy})


def _is_told(args: tuple[Any, ...], kwargs: dict[str, Any], logits: Any) -> bool:
    """Whether the tokens can be told here: drafts that are looked through have rows of their own."""
    at_hand = logits is not None and logits.device.type == "cpu"
    return at_hand and argument(args, kwargs, 2, "spec_decode_metadata") is None


def _capture_sample(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """The sampled tokens and the likeliest five, with the model's probabilities; on a GPU only the logits' shape."""
    runner, logits = args[0], argument(args, kwargs, 1, "logits")
    facts = {"logits": brief(logits)}
    if not _is_told(args, kwargs, logits):
        return facts
    logits = getattr(logits, "before_sampling", logits)
    tokens = result.sampled_token_ids.long()  # int64 [requests, 1]
    unfinished = _prefilling(runner)
    rows = [row for row in range(tokens.shape[0]) if row not in unfinished]
    if not rows:
        return facts
    if unfinished:
        tokens, logits = tokens[rows], logits[rows]
    requests, asked = ours.batch_of(runner, rows)
    return {
        **facts,
        "rows": rows,
        "requests": requests,
        "asked": asked,
        "tokens": [token for [token] in tokens.tolist()],
        **chances(logits, tokens),
    }


def _prefilling(runner: Any) -> frozenset[int]:
    """The rows whose prompts are not computed to their ends yet: they are sampled too, and their tokens dropped."""
    mask = getattr(runner, "discard_request_mask", None)
    if mask is None:  # 0.11
        return frozenset(runner.discard_request_indices.np[: runner.num_discarded_requests].tolist())
    among = mask.np[: runner.input_batch.num_reqs]
    return frozenset(among.nonzero()[0].tolist()) if among.any() else frozenset()


def _sample(facts: Any) -> dict[str, Any]:
    told = {names.ARGUMENTS: [f"logits={write(facts['logits'])}"]}
    return {**told, names.RESULT: f"{len(facts['tokens'])} tokens"} if "tokens" in facts else told


def _give_sample(facts: Any) -> dict[str, Any]:
    _, _, *shape = facts["logits"] or (None, None)
    return {"logits_shape": shape, "sampled": facts} if "tokens" in facts else {"logits_shape": shape}


def _complete_sample(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    if facts is not None and "tokens" in facts:
        span.attributes.update(ours.sampled_attributes(facts, tracker.decode))


_RUNNER = "v1.worker.gpu_model_runner"
_LATER = "v1.worker.gpu.*"  # which 0.11.1 has not
_NAME = "GPUModelRunner"
_AS = {"lifeline": _NAME}  # a CPUModelRunner too

ENTRIES = (
    *heirs("step", _RUNNER, f"{_NAME}.execute_model", f"{_NAME}._update_states", f"{_NAME}.sample_tokens"),
    *heirs("step", _RUNNER, f"{_NAME}._preprocess", f"{_NAME}._model_forward", f"{_NAME}._bookkeeping_sync"),
    *heirs("step", _RUNNER, f"{_NAME}._execute_mm_encoder", f"{_NAME}.propose_draft_token_ids"),
    like(
        ours.ENTRIES,
        f"{_NAME}._prepare_inputs",
        f"{_RUNNER}:{_NAME}._prepare_inputs",
        capture=_capture_inputs,
        span_name=f"{_NAME}._prepare_inputs",
        **_AS,
    ),
    like(
        ours.ENTRIES,
        f"{_NAME}._build_attention_metadata",
        f"{_RUNNER}:{_NAME}._build_attention_metadata",
        capture=_capture_metadata,
        span_name=f"{_NAME}._build_attention_metadata",
        **_AS,
    ),
    like(
        ours.ENTRIES,
        f"{_NAME}._sample",
        f"{_RUNNER}:{_NAME}._sample",
        before=_keep_logits,
        capture=_capture_sample,
        attributes=_sample,
        gives=_give_sample,
        gives_to=STEPS,
        observe=_complete_sample,
        span_name=f"{_NAME}._sample",
        **_AS,
    ),
    *heirs("step", _LATER, f"{_NAME}.execute_model", f"{_NAME}.finish_requests", f"{_NAME}.add_requests"),
    *heirs("step", _LATER, f"{_NAME}.update_requests", f"{_NAME}.prepare_inputs", f"{_NAME}.prepare_attn"),
    *heirs("step", _LATER, f"{_NAME}.sample_tokens", f"{_NAME}.sample", f"{_NAME}.postprocess_sampled"),
)
