"""The model runner and the sampler: a plan becomes tensors, tensors become tokens.

Worth telling: names, shapes and dtypes of the input tensors, and which CUDA graph is replayed with them; for each row
that samples the token, its text, how probable it was, and the likeliest others.
"""

from collections.abc import Callable
from typing import Any
from weakref import ref

from tracellm.probes.catalog.engine.sampling import chances
from tracellm.probes.catalog.engine.triton_launches import gpu_times
from tracellm.probes.catalog.helpers import argument, plain
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.sampling_options import Asked, asked_of
from tracellm.probes.wrapping.probe import Entry
from tracellm.probes.wrapping.summary import brief, write
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "batch_of", "sampled_attributes", "to_millionths"]


def _capture_tensors(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return [(name, brief(value)) for name, value in vars(result).items() if value.__class__.__name__ == "Tensor"]


def _capture_metadata(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Of each group of layers the first layer's: the layers of a group share one."""
    groups = {id(metadata): metadata for metadata in result.values()}
    return [told for metadata in groups.values() for told in _capture_tensors((), {}, metadata)]


def _capture_inputs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return _capture_tensors(args, kwargs, result), getattr(result, "cudagraph", None)


def _inputs(facts: Any) -> dict[str, Any]:
    tensors, graph = facts
    told = _tensors(tensors)
    if graph is None:
        return told
    told[names.CUDAGRAPH_REASON] = graph.reason
    if graph.size is not None:
        told |= {names.CUDAGRAPH_SIZE: graph.size, names.CUDAGRAPH_PADDING: graph.padding}
    return told


def _tensors(facts: Any) -> dict[str, Any]:
    return {names.RESULT: " ".join(f"{name}={write(value)}" for name, value in facts)}


def _capture_sample(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """The sampled tokens and the likeliest five, with probabilities; the sampler leaves the logits unchanged."""
    runner, logits, rows = args[0], argument(args, kwargs, 1, "logits"), argument(args, kwargs, 2, "sampling_rows")
    tokens, drawn_from = result.sampled_token_ids, logits  # int64 [requests, 1], [requests, vocabulary]
    if len(rows) < logits.shape[0]:
        tokens, drawn_from = tokens[rows], logits[rows]
    sampled = [token for [token] in tokens.tolist()]
    if sampled and min(sampled) < 0:  # every token was forbidden
        tokens = tokens.clamp(min=0)
        sampled = [max(token, 0) for token in sampled]
    requests, asked = batch_of(runner, rows)
    return {
        "logits": brief(logits),
        "rows": rows.copy(),
        "requests": requests,
        "asked": asked,
        "tokens": sampled,
        "gpu": gpu_times(),
        **chances(drawn_from, tokens),
    }


_Batch = tuple[list[str], list[tuple[Asked, int]]]
_last: tuple[Any, list[int], _Batch] = (lambda: None), [], ([], [])
"""A reference to what says how a batch is sampled, which is made anew when the batch changes; its rows that were
sampled; and what there is to tell of these."""


def batch_of(runner: Any, rows: list[int]) -> _Batch:
    """The requests in these rows, and what each asked for and how many tokens it has generated; where nobody asks for
    a least number, it does not matter how many."""
    global _last
    metadata, known_rows, batch = _last
    if metadata() is runner.input_batch.sampling_metadata and known_rows == rows:
        return batch
    requests = [runner.requests[runner.input_batch.req_ids[row]] for row in rows]
    batch = (
        [request.req_id for request in requests],
        [(asked_of(request.sampling_params), len(request.output_token_ids)) for request in requests],
    )
    if not any(min_tokens for (_, min_tokens, _), _ in batch[1]):
        _last = ref(runner.input_batch.sampling_metadata), rows.copy(), batch
    return batch


def _sample(facts: Any) -> dict[str, Any]:
    told = {
        names.ARGUMENTS: [f"logits={write(facts['logits'])}"],
        names.RESULT: f"{len(facts['tokens'])} tokens",
    }
    launches, times = facts["gpu"]
    return {**told, names.GPU_LAUNCHES: launches, names.GPU_TIMES: times} if launches else told


def _give_sample(facts: Any) -> dict[str, Any]:
    return {"sampled": facts}


def _complete_sample(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    if facts is not None:
        span.attributes.update(sampled_attributes(facts, tracker.decode))


def to_millionths(probabilities: list[float]) -> list[float]:
    """Six digits of each are told; `round` takes several times as long."""
    try:
        return [int(probability * 1e6 + 0.5) / 1e6 for probability in probabilities]
    except ValueError:  # the logits held no number
        return [round(probability, 6) for probability in probabilities]


def sampled_attributes(sampled: dict[str, Any], decode: Callable[[int], str] | None) -> dict[str, Any]:
    """Who got which token, as attributes; they are made once for the two spans that have them."""
    if "told" not in sampled:
        sampled["told"] = {
            names.STEP_SAMPLED: sampled["requests"],
            names.STEP_SAMPLED_IDS: sampled["tokens"],
        }
        if "probabilities" in sampled:
            sampled["told"][names.STEP_SAMPLED_PROBS] = to_millionths(sampled["probabilities"])
        if decode is not None:
            sampled["told"][names.STEP_SAMPLED_TEXTS] = [*map(decode, sampled["tokens"])]
    told: dict[str, Any] = sampled["told"]
    return told


_RUNNER = "tracellm.engine.worker.gpu_model_runner:GPUModelRunner"

ENTRIES = (
    *plain("step", "worker.gpu_model_runner", "GPUModelRunner.execute_model", "GPUModelRunner._update_states"),
    *plain("step", "worker.gpu_model_runner", "GPUModelRunner.sample_tokens", "apply_grammar_bitmask"),
    Entry(_RUNNER + "._prepare_inputs", "step", _capture_inputs, _inputs, in_short=True),
    Entry(_RUNNER + "._build_attention_metadata", "step", _capture_metadata, _tensors, in_short=True),
    *plain("step", "worker.gpu_model_runner", "GPUModelRunner._model_forward"),
    Entry(
        _RUNNER + "._sample",
        "step",
        _capture_sample,
        _sample,
        gives=_give_sample,
        gives_to="EngineCore.step_fn",
        observe=_complete_sample,
    ),
    *plain("step", "worker.gpu_model_runner", "GPUModelRunner._bookkeeping_sync"),
)
