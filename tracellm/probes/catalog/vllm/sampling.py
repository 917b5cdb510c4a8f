"""A vLLM's sampler: what acts on the logits, and what is left to draw from.

It changes the logits in place, or `apply_top_k_top_p` makes new ones, which differs between versions and devices. So
what that function returned is what the tokens were drawn from. It is looked at where it is in the CPU's memory (see
runner.py).

vLLM: vllm/v1/sample/sampler.py, vllm/v1/sample/ops/, vllm/v1/worker/gpu/sample/sampler.py.
"""

import threading
from collections.abc import Mapping
from typing import Any

from tracellm.probes.catalog.engine import sampling as ours
from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.vllm.entries import like, plain
from tracellm.probes.catalog.vllm.step import STEPS
from tracellm.probes.wrapping.summary import brief, write, written
from tracellm.trace import names

__all__ = ["ENTRIES", "acts_on_logits", "tell_constrained"]

_BY_ROW = {"MinTokensLogitsProcessor": "min_toks", "LogitBiasLogitsProcessor": "biases"}
"""The processors of its own that every vLLM has at hand, and where each keeps the rows that ask for it."""


def acts_on_logits(metadata: Any) -> bool:
    """Whether the sampler changes the logits of any row: not where all are greedy and nothing else is asked for."""
    processors = metadata.logitsprocs.non_argmax_invariant
    return not metadata.all_greedy or ours.changes_logits(metadata, [one for one in processors if _may_act(one)])


def _may_act(processor: Any) -> bool:
    rows = _BY_ROW.get(type(processor).__name__)
    return rows is None or bool(getattr(processor, rows, True))


_kept = threading.local()
"""What is known in this thread until `Sampler.sample` returns: what `apply_top_k_top_p` in it has returned, and whether
a grammar may have forbidden tokens, which it does before."""


def tell_constrained(constrained: bool) -> None:
    """What is about to be sampled from has, or has not, a row that a grammar may have been applied to."""
    _kept.constrained = constrained


def _capture_filter(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    if result.device.type == "cpu":
        _kept.logits = result
    given = [(name, brief(argument(args, kwargs, i, name))) for i, name in enumerate(("logits", "k", "p"))]
    return given, brief(result)


def _filter(facts: Any) -> dict[str, Any]:
    return written(*facts)


def _capture_drawn(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Of each row, how many tokens were left to draw from, how probable the drawn one was, and the likeliest."""
    logits, metadata = argument(args, kwargs, 1, "logits"), argument(args, kwargs, 2, "sampling_metadata")
    facts = {"logits": brief(logits)}
    kept, constrained = vars(_kept).pop("logits", logits), vars(_kept).pop("constrained", True)
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
        return facts  # drawn from the model's own, which the runner's `_sample` tells
    return {**facts, **ours.chances(logits, result[0].long()[:, None])}


def _drawn(facts: Any) -> Mapping[str, Any]:
    if "left" in facts and _OURS.attributes is not None:
        return _OURS.attributes(facts)
    return {names.ARGUMENTS: [f"logits={write(facts['logits'])}"]}


def _give_drawn(facts: Any) -> dict[str, Any]:
    return {"drawn": facts} if "left" in facts else {}


_SAMPLER, _OPS = "v1.sample.sampler", "v1.sample.ops.topk_topp_sampler"
_LATER = "v1.worker.gpu.sample.*"  # which 0.11.1 has not
_OURS = like(ours.ENTRIES, "Sampler.sample", f"{_SAMPLER}:Sampler.sample")

ENTRIES = (
    *plain("step", _SAMPLER, "Sampler.forward"),
    *plain("step", "v1.sample.rejection_sampler", "RejectionSampler.forward"),
    *plain("step", "v1.worker.gpu_model_runner", "apply_grammar_bitmask"),
    *plain("step", _LATER, "Sampler.__call__"),
    *plain("layer", _SAMPLER, "Sampler.apply_logits_processors", "apply_bad_words", "Sampler.apply_penalties"),
    *plain("layer", "v1.sample.logits_processor.builtin", "*LogitsProcessor.apply"),
    like(
        [_OURS],
        "Sampler.sample",
        f"{_SAMPLER}:Sampler.sample",
        capture=_capture_drawn,
        attributes=_drawn,
        gives=_give_drawn,
        gives_to=STEPS,
    ),
    *plain("layer", _SAMPLER, "Sampler.greedy_sample", "Sampler.apply_temperature"),
    *plain("layer", _SAMPLER, "Sampler.compute_logprobs", "Sampler.gather_logprobs"),
    *plain("layer", _OPS, "TopKTopPSampler.forward_native", "TopKTopPSampler.forward_cuda"),
    *plain("layer", _OPS, "TopKTopPSampler.forward_cpu", "random_sample"),
    *plain("layer", _OPS, "apply_top_k_top_p", capture=_capture_filter, attributes=_filter),
    *plain("layer", _LATER, "Sampler.apply_sampling_params", "Sampler.sample"),
)
