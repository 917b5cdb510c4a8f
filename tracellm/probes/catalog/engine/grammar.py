"""The grammar's mask of a step: the tokens that it allows, and the token that the model alone would prefer.

The mask changes the logits in place. So the rows of constrained requests are copied just before the call, and read when
it has ended. The probabilities here are the model's own: the softmax of the logits without the mask.

vLLM: vllm/v1/structured_output/utils.py::apply_grammar_bitmask.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracellm.probes.catalog.engine.candidates import candidates_json
from tracellm.probes.catalog.engine.runner import likeliest, token_ids
from tracellm.probes.catalog.entries import argument, gives, ours_only
from tracellm.probes.context.call_context import state
from tracellm.trace import names

__all__ = ["ALLOWED", "ENTRIES", "capture_mask", "copy_rows", "grammar_attributes", "mask_attributes"]

ALLOWED = 8
"""Likeliest allowed tokens that are recorded."""

_copied = threading.local()
"""State of a thread until `apply_grammar_bitmask` returns: `rows`, the copied logits, and the requests in them."""


def _before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    row_of, logits = argument(args, kwargs, 1, "row_of"), argument(args, kwargs, 2, "logits")
    copy_rows(argument(args, kwargs, 0, "grammar_output"), row_of, logits)


def copy_rows(grammar_output: Any, row_of: Mapping[str, int], logits: Any) -> None:
    """Copy the logits of constrained requests, [rows, vocabulary], before they are masked; not past the depth limit."""
    if state.depth_limited:
        return
    request_ids = [request_id for request_id in grammar_output.structured_output_request_ids if request_id in row_of]
    _copied.rows = request_ids, logits[[row_of[request_id] for request_id in request_ids]]


def _capture(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return capture_mask(argument(args, kwargs, 0, "grammar_output"))


def capture_mask(grammar_output: Any) -> Any:
    """Capture for each constrained request how many tokens are allowed, and the likeliest with and without the mask."""
    import numpy
    import torch

    request_ids, logits = vars(_copied).pop("rows", ([], None))
    if not request_ids:
        return None
    places = {request_id: row for row, request_id in enumerate(grammar_output.structured_output_request_ids)}
    words = numpy.ascontiguousarray(grammar_output.grammar_bitmask)[[places[request_id] for request_id in request_ids]]
    bits = numpy.unpackbits(words.view(numpy.uint8), axis=1, bitorder="little")[:, : logits.shape[1]]
    chances = logits.float().softmax(dim=-1)
    left = chances * torch.from_numpy(bits).to(chances.device)  # a forbidden token has probability 0
    first = chances.max(dim=-1)
    return {
        "requests": request_ids,
        "allowed": bits.sum(axis=1).tolist(),
        "vocabulary": logits.shape[1],
        "share": left.sum(dim=-1).tolist(),
        "first": (first.values.tolist(), first.indices.tolist()),
        "best": likeliest(left, ALLOWED),
    }


def mask_attributes(facts: Any) -> dict[str, Any]:
    """Return the numbers of allowed tokens as the result of the call: `12, 1 of 4096 tokens allowed`."""
    if facts is None:
        return {}
    shown = [*map(str, facts["allowed"][:ALLOWED]), *(["..."] if len(facts["allowed"]) > ALLOWED else [])]
    return {names.RESULT: f"{', '.join(shown)} of {facts['vocabulary']} tokens allowed"}


def grammar_attributes(facts: Any, sampled: Sequence[str], decode: Callable[[int], str] | None) -> dict[str, list[Any]]:
    """Return the masks as attributes of a step, parallel to its sampled requests; nothing if no token was forbidden."""
    rows = {
        request_id: row
        for row, request_id in enumerate(facts["requests"])
        if facts["allowed"][row] < facts["vocabulary"]
    }
    if not rows.keys() & set(sampled):
        return {}
    of = [rows.get(request_id) for request_id in sampled]
    (first_chances, first_ids), chances, ids = facts["first"], facts["best"][0], token_ids(facts["best"])
    counts = [min(ALLOWED, count) for count in facts["allowed"]]
    listed = candidates_json(
        (
            [[first, *more[:count]] for first, more, count in zip(first_chances, chances, counts, strict=True)],
            None,
            [[first, *more[:count]] for first, more, count in zip(first_ids, ids, counts, strict=True)],
        ),
        decode,
    )
    return {
        names.STEP_GRAMMAR_ALLOWED: [-1 if row is None else facts["allowed"][row] for row in of],
        names.STEP_GRAMMAR_SHARES: [0.0 if row is None else float(f"{facts['share'][row]:.4g}") for row in of],
        names.STEP_GRAMMAR_TOKENS: ["[]" if row is None else listed[row] for row in of],
    }


ENTRIES = (
    *ours_only(
        "step",
        "worker.gpu_model_runner:",
        "apply_grammar_bitmask",
        before=_before,
        capture=_capture,
        attributes=mask_attributes,
        gives=gives("grammar"),
        gives_to="EngineCore.step_fn",
    ),
)
