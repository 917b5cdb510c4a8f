"""The model runner and the sampler: input tensors are made of the schedule, and tokens of the logits.

Captures keep names, shapes and dtypes of the input tensors, and the replayed CUDA graph. For each sampled row they keep
the token, its probability and the likeliest others. The sampler works on all rows at once. So the processors of a row's
logits are read from its request's parameters (sampling_options.py), and their effect from the logits after them.

vLLM: vllm/v1/worker/gpu_model_runner.py, vllm/v1/sample/sampler.py.
"""

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from typing import Any
from weakref import ref

from tracellm.probes.catalog.engine.triton_launches import gpu_times
from tracellm.probes.catalog.entries import argument, gives, ours_only, plain
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.sampling_options import LogitOptions, logit_options
from tracellm.probes.context.call_context import state
from tracellm.probes.wrapping.summary import brief, write
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = [
    "CANDIDATES",
    "ENTRIES",
    "Likeliest",
    "batch_rows",
    "changes_logits",
    "is_tensor",
    "likeliest",
    "probabilities",
    "sampled_attributes",
    "to_millionths",
    "token_ids",
    "tokens_left",
]

CANDIDATES = 5
"""Likeliest tokens that are recorded."""

# -- input tensors ----------------------------------------------------------------------------------------------------


def is_tensor(value: Any) -> bool:
    """Return whether the value is a tensor, without importing torch."""
    return value.__class__.__name__ == "Tensor"


def _tensors(of: Any) -> list[tuple[str, Any]]:
    return [(name, brief(value)) for name, value in getattr(of, "__dict__", {}).items() if is_tensor(value)]


def _capture_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return _tensors(result), getattr(result, "cudagraph", None)


def _inputs(facts: Any) -> dict[str, Any]:
    tensors, graph = facts
    attributes = _metadata(tensors)
    if graph is None:
        return attributes
    attributes[names.CUDAGRAPH_REASON] = graph.reason
    if graph.size is not None:
        attributes |= {names.CUDAGRAPH_SIZE: graph.size, names.CUDAGRAPH_PADDING: graph.padding}
    return attributes


def _capture_metadata(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the metadata of one layer per group; the layers of a group share it."""
    by_layer = result[0] if isinstance(result, tuple) else result  # vLLM: with more, in later versions
    parts = by_layer if isinstance(by_layer, list) else [by_layer]  # vLLM: one for each half of a batch that is split
    groups = {id(metadata): metadata for part in parts for metadata in part.values()}
    return [tensor for metadata in groups.values() for tensor in _tensors(metadata)]


def _metadata(facts: Any) -> dict[str, Any]:
    return {names.RESULT: " ".join(f"{name}={write(value)}" for name, value in facts)}


# -- sampled tokens ---------------------------------------------------------------------------------------------------


def _capture_sample(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the sampled tokens and the likeliest five, with probabilities; sampling left the logits unchanged."""
    runner, logits, rows = args[0], argument(args, kwargs, 1, "logits"), argument(args, kwargs, 2, "sampling_rows")
    tokens, row_logits = result.sampled_token_ids, logits  # int64 [requests, 1], [requests, vocabulary]
    if len(rows) < logits.shape[0]:
        tokens, row_logits = tokens[rows], logits[rows]
    sampled = [token for [token] in tokens.tolist()]
    if sampled and min(sampled) < 0:  # every token was forbidden
        tokens = tokens.clamp(min=0)
        sampled = [max(token, 0) for token in sampled]
    requests, options = batch_rows(runner, rows)
    return {
        "logits": brief(logits),
        "rows": rows.copy(),
        "requests": requests,
        "options": options,
        "tokens": sampled,
        "gpu": gpu_times(),
        **probabilities(row_logits, tokens),
    }


_Batch = tuple[list[str], list[tuple[LogitOptions, int]]]
_last: tuple[Any, list[int], _Batch] = (lambda: None), [], ([], [])
"""Reference to the sampling metadata of the last batch, which is replaced when the batch changes; its sampled rows,
and what `batch_rows` returned for them."""


def batch_rows(runner: Any, rows: list[int]) -> _Batch:
    """Return the request ids in these rows, and each request's logit options with its number of output tokens.

    The number only matters where a request sets `min_tokens`, so without one the last batch's rows are reused.
    """
    global _last
    metadata, last_rows, batch = _last
    if metadata() is runner.input_batch.sampling_metadata and last_rows == rows:
        return batch
    requests = [runner.requests[runner.input_batch.req_ids[row]] for row in rows]
    batch = (
        [request.req_id for request in requests],
        [(logit_options(request.sampling_params), len(request.output_token_ids)) for request in requests],
    )
    if not any(min_tokens for (_, min_tokens, _), _ in batch[1]):
        _last = ref(runner.input_batch.sampling_metadata), rows.copy(), batch
    return batch


def _sample(facts: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {names.ARGUMENTS: [f"logits={write(facts['logits'])}"]}
    if "tokens" in facts:
        attributes[names.RESULT] = f"{len(facts['tokens'])} tokens"
    launches, times = facts.get("gpu", ((), ()))
    return {**attributes, names.GPU_LAUNCHES: launches, names.GPU_TIMES: times} if launches else attributes


def _complete_sample(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    if facts is not None and "tokens" in facts:
        span.attributes.update(sampled_attributes(facts, tracker.decode))


def to_millionths(values: list[float]) -> list[float]:
    """Round to six digits; `round` takes several times as long."""
    try:
        return [int(value * 1e6 + 0.5) / 1e6 for value in values]
    except ValueError:  # the logits held NaN
        return [round(value, 6) for value in values]


def sampled_attributes(sampled: dict[str, Any], decode: Callable[[int], str] | None) -> dict[str, Any]:
    """Return requests, tokens, probabilities and texts as attributes; made once for the two spans that have them."""
    if "attributes" not in sampled:
        sampled["attributes"] = {names.STEP_SAMPLED: sampled["requests"], names.STEP_SAMPLED_IDS: sampled["tokens"]}
        if "probabilities" in sampled:
            sampled["attributes"][names.STEP_SAMPLED_PROBS] = to_millionths(sampled["probabilities"])
        if decode is not None:
            sampled["attributes"][names.STEP_SAMPLED_TEXTS] = [*map(decode, sampled["tokens"])]
    attributes: dict[str, Any] = sampled["attributes"]
    return attributes


_GRAMMARS = "tracellm.engine.core.structured_output.backend_guidance"
"""Module that is imported with the first grammar."""

# -- probabilities ----------------------------------------------------------------------------------------------------


def _capture_drawn(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture for each row the tokens left to draw from, the drawn one's probability, and the likeliest."""
    logits, metadata = argument(args, kwargs, 1, "logits"), argument(args, kwargs, 2, "sampling_metadata")
    drawn: dict[str, Any] = {"logits": brief(logits)}
    processors = metadata.logitsprocs.non_argmax_invariant
    if metadata.temperature is None and not changes_logits(metadata, processors):  # the runner has the probabilities
        masked = _GRAMMARS in sys.modules  # before the sampler, by a grammar
        return {**drawn, "left": tokens_left(logits) if masked else [logits.shape[1]] * int(logits.shape[0])}
    sampled, kept = result  # int64 [N], float32 [N, vocabulary]
    if metadata.temperature is not None and not metadata.all_random:
        kept = logits.where((metadata.temperature == 0)[:, None], kept)
    return {**drawn, "left": tokens_left(kept), **probabilities(kept, sampled[:, None])}


def tokens_left(logits: Any) -> list[int]:
    """Return how many logits of each row are not minus infinity; a quick check finds that none is masked."""
    if logits.numel() and logits.amin().item() > -inf:
        return [logits.shape[-1]] * int(logits.shape[0])
    counts: list[int] = (logits > -inf).sum(dim=-1).tolist()
    return counts


def changes_logits(metadata: Any, processors: Sequence[Any]) -> bool:
    """Repeat the condition of `Sampler.apply_logits_processors`; `processors` are those that may change the argmax."""
    return (
        metadata.allowed_token_ids_mask is not None
        or bool(metadata.bad_words_token_ids)
        or bool(processors)
        or not metadata.no_penalties
    )


def _drawn(facts: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {names.ARGUMENTS: [f"logits={write(facts['logits'])}"]}
    if "left" in facts:
        left = [*map(str, facts["left"][:CANDIDATES]), *(["..."] if len(facts["left"]) > CANDIDATES else [])]
        attributes[names.RESULT] = f"drawn from {', '.join(left)} tokens"
    return attributes


def probabilities(logits: Any, tokens: Any) -> dict[str, Any]:
    """Return the probabilities of `tokens`, int64 [rows, 1], and the likeliest tokens, from logits [rows, vocabulary].

    Returns nothing past the depth limit (install/installation.py). The engine waits, and every PyTorch operation takes
    some 20 microseconds, however small. So there are few of them, and NumPy's are used for a few numbers.
    """
    if state.depth_limited:
        return {}
    softmax = logits.float().softmax(dim=-1)
    if softmax.is_cpu:
        drawn = softmax.numpy()[_row_numbers(len(tokens)), tokens.numpy()][:, 0].tolist()
    else:
        drawn = softmax.gather(1, tokens)[:, 0].tolist()
    return {"probabilities": drawn, "likeliest": likeliest(softmax)}


Likeliest = tuple[list[list[float]], list[list[int]] | None, list[list[int]]]
"""The greatest probabilities of each row.

1. The probabilities, greatest first.
2. The groups of neighbours they are in; None if 3 has token ids.
3. Positions among the neighbours of these groups, one group after the other.
"""

_NEIGHBOURS = 64
_MIN_NUMBERS = 32_768
"""Minimum of numbers for the search by groups; for fewer, `topk` over all is at least as fast."""


def token_ids(of: Likeliest) -> list[list[int]]:
    """Return the token ids; called after the probed call."""
    _, group_rows, position_rows = of
    if group_rows is None:
        return position_rows
    return [
        [groups[position // _NEIGHBOURS] * _NEIGHBOURS + position % _NEIGHBOURS for position in positions]
        for groups, positions in zip(group_rows, position_rows, strict=True)
    ]


def likeliest(of: Any, most: int = CANDIDATES) -> Likeliest:
    """Return the `most` greatest of each row of [rows, vocabulary].

    The maximum of each group of 64 neighbours is fast to find, and as many groups as are wanted, those with the
    greatest maxima, hold the greatest. This takes half the time of `topk` over 32 rows of 4096, and a sixth over large
    vocabularies.
    """
    import torch

    rows, vocabulary = of.shape
    count = min(most, vocabulary)
    too_few = rows * vocabulary < _MIN_NUMBERS or vocabulary < most * _NEIGHBOURS
    if too_few or vocabulary % _NEIGHBOURS or not of.is_cpu:
        values, ids = of.topk(count, dim=-1)
        return values.tolist(), None, ids.tolist()
    groups = of.reshape(rows, vocabulary // _NEIGHBOURS, _NEIGHBOURS)
    best = groups.amax(dim=-1).topk(count, dim=-1).indices.numpy()  # [rows, count]
    members = groups.numpy()[_row_numbers(rows), best].reshape(rows, count * _NEIGHBOURS)
    values, positions = torch.from_numpy(members).topk(count, dim=-1)
    return values.tolist(), best.tolist(), positions.tolist()


@lru_cache(maxsize=256)
def _row_numbers(count: int) -> Any:
    """Return the numbers 0 to count - 1, int64 [count, 1]."""
    import numpy

    return numpy.arange(count)[:, None]


def _capture_pooled(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the shapes of a pooling step's results; None if the copies from a GPU still run, as in a later vLLM."""
    pooled = getattr(result, "pooler_output", None)
    return None if pooled is None else [tuple(one.shape) for one in pooled if one is not None]


def _pooled(shapes: Any) -> dict[str, Any]:
    """Return the results: `2 results: [256], [256]`."""
    if shapes is None:
        return {}
    shown = ", ".join(str(list(shape)) for shape in shapes[:CANDIDATES])
    more = ", ..." if len(shapes) > CANDIDATES else ""
    counted = "1 result" if len(shapes) == 1 else f"{len(shapes)} results"
    return {names.RESULT: f"{counted}{': ' if shapes else ''}{shown}{more}"}


_RUNNER = "worker.gpu_model_runner:GPUModelRunner"
_SAMPLER = "sample.sampler:Sampler"
_GIVES_TO = "EngineCore.step_fn"
_SHORT: dict[str, Any] = {"shown_as": "GPUModelRunner", "in_short": True}

ENTRIES = (
    *plain("step", _RUNNER, "execute_model", "_update_states", "sample_tokens", shown_as="GPUModelRunner"),
    *ours_only("step", _RUNNER, "_prepare_inputs", capture=_capture_inputs, attributes=_inputs, **_SHORT),
    *plain("step", _RUNNER, "_build_attention_metadata", capture=_capture_metadata, attributes=_metadata, **_SHORT),
    *plain("step", _RUNNER, "_preprocess", "_execute_mm_encoder", shown_as="GPUModelRunner"),
    *plain("step", _RUNNER, "_model_forward", "_bookkeeping_sync", shown_as="GPUModelRunner"),
    *plain("step", _RUNNER, "_pool", shown_as="GPUModelRunner", capture=_capture_pooled, attributes=_pooled),
    *ours_only(
        "step",
        _RUNNER,
        "_sample",
        shown_as="GPUModelRunner",
        capture=_capture_sample,
        attributes=_sample,
        gives=gives("sampled"),
        gives_to=_GIVES_TO,
        observe=_complete_sample,
    ),
    *plain("step", _SAMPLER, "forward"),
    *plain("layer", _SAMPLER, "apply_logits_processors", "apply_penalties", "greedy_sample", "apply_temperature"),
    *plain("layer", "sample.sampler:", "apply_bad_words"),
    *plain(
        "layer",
        "sample.logits_processor:",
        "MinTokensLogitsProcessor.apply",
        "LogitBiasLogitsProcessor.apply",
        "MinPLogitsProcessor.apply",
    ),
    *ours_only(
        "layer", _SAMPLER, "sample", capture=_capture_drawn, attributes=_drawn, gives=gives("drawn"), gives_to=_GIVES_TO
    ),
    *ours_only("layer", "model_executor.ops.*:*Ops", "apply_top_k_top_p", span_name="apply_top_k_top_p"),
    *ours_only("layer", "sample.sampler:", "random_sample", "compute_logprobs", "gather_logprobs"),
    *ours_only("layer", "worker.prompt_logprobs:InProgressPromptLogprobs", "add_chunk"),
)
