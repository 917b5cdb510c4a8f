"""Compare two runs of a workload, the recorded one and ours, and find the first difference.

Compared are the *decisions*, every number of every step of `drive.record_step`, the *tokens*, and the rest of the
outputs: text, finish reasons, log probabilities.

Logits can differ in their last digits between machines, so tokens may differ where two were almost equally likely.
`explain.py` distinguishes such a near-tie from a mistake.
"""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

__all__ = [
    "LOGPROB_TOLERANCE",
    "Difference",
    "Tally",
    "compare_batches",
    "count_values",
    "generated_tokens",
    "side_by_side",
]

LOGPROB_TOLERANCE = 2e-3
"""Tolerance for float32 log probabilities of another machine and another torch."""

Json = dict[str, Any]


@dataclass
class Tally:
    """Number of compared values, and of equal ones."""

    steps: int = 0
    decisions: int = 0
    decisions_equal: int = 0
    tokens: int = 0
    tokens_equal: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@dataclass
class Difference:
    """First difference in a batch."""

    batch: int
    step: int | None
    """Step whose decisions differ, or None if only outputs differ."""
    text: str
    """Both sides, as text."""


def side_by_side(index: int, vllm: Json, ours: Json) -> str:
    """Return the two versions of a step, a line for each key, with differing lines marked."""
    lines = [f"the first step that differs is number {index}:"]
    for key in vllm:
        mark = "  " if vllm[key] == ours.get(key) else "->"
        lines += [f"{mark} {key}", f"     vLLM     {vllm[key]}", f"     tracellm {ours.get(key)}"]
    return "\n".join(lines)


def count_values(theirs: Any, ours: Any) -> tuple[int, int]:
    """Return the number of single values in two sides, and of those equal at the same position in both."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = theirs.keys() | ours.keys()
        pairs = [count_values(theirs.get(key), ours.get(key)) for key in keys]
    elif isinstance(theirs, list) and isinstance(ours, list):
        pairs = [count_values(one, other) for one, other in zip_longest(theirs, ours)]
    elif theirs != ours and (isinstance(theirs, (dict, list)) or isinstance(ours, (dict, list))):
        lacking = ours if theirs is None else theirs
        return max(1, count_values(lacking, lacking)[0]), 0
    else:
        return 1, int(theirs == ours)
    return sum(count for count, _ in pairs), sum(equal for _, equal in pairs)


def compare_batches(case: Json, ours: list[Json]) -> tuple[Tally, Difference | None]:
    """Compare the recorded batches of a workload with the batches of this run."""
    tally, first = Tally(), None
    for batch, (theirs, mine) in enumerate(zip(case["recorded"], ours, strict=True)):
        for index, step in enumerate(theirs["steps"]):
            other = mine["steps"][index] if index < len(mine["steps"]) else {}
            other = {key: other.get(key) for key in step}  # not recorded
            values, equal = count_values(step, other)
            tally += Tally(1, values, equal)
            if equal < values and first is None:
                first = Difference(batch, index, side_by_side(index, step, other))
        if len(mine["steps"]) > len(theirs["steps"]) and first is None:
            index = len(theirs["steps"])
            first = Difference(batch, index, f"vLLM made {index} steps, tracellm went on: {mine['steps'][index]}")
        tokens = [generated_tokens(case["batches"][batch], side["outputs"]) for side in (theirs, mine)]
        count, equal = count_values(*tokens)
        tally += Tally(tokens=count, tokens_equal=equal)
        if first is None and (text := _different_outputs(theirs["outputs"], mine["outputs"])):
            first = Difference(batch, None, text)
    return tally, first


def generated_tokens(batch: Json, outputs: list[Any]) -> dict[str, list[int]]:
    """Return the tokens of each request of the engine core, by request id, from a batch's outputs."""
    if batch["how"] == "generate":
        flat, kinds = outputs, {}
    else:
        flat = [output for step in outputs for output in step]
        kinds = {spec["request_id"]: spec["params"].get("output_kind") for spec in batch["requests"]}
    found: dict[str, list[int]] = {}
    for request_id, _, _, _, completions in flat:
        several = len(completions) > 1
        for completion in completions:
            name = f"{completion['index']}_{request_id}" if several else request_id
            before = found.get(name, []) if kinds.get(request_id) == "DELTA" else []
            found[name] = before + completion["token_ids"]
    return found


def _different_outputs(theirs: Any, mine: Any, path: str = "outputs") -> str:
    """Return both sides of the first difference in the outputs, or an empty string."""
    if theirs is ...:  # not recorded
        return ""
    if isinstance(theirs, float) and isinstance(mine, float):
        return "" if abs(theirs - mine) <= LOGPROB_TOLERANCE * max(1.0, abs(theirs)) else _both(path, theirs, mine)
    if _is_logprob(theirs) and _is_logprob(mine) and theirs[2] > 20 and abs(theirs[2] - mine[2]) <= 2:
        mine = [*mine[:2], theirs[2], mine[3]]  # low in the ranking, neighbours are near-ties
    if isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        items = list(enumerate(zip(theirs, mine, strict=True)))
    elif isinstance(theirs, dict) and isinstance(mine, dict) and theirs.keys() == mine.keys():
        items = [(key, (theirs[key], mine[key])) for key in theirs]
    else:
        # An output that ends inside a character ends with U+FFFD here, and before the character in vLLM.
        cut = path.endswith("[text]") and theirs.rstrip("\ufffd") == mine.rstrip("\ufffd")
        return "" if cut or theirs == mine else _both(path, theirs, mine)
    return next((text for key, (one, other) in items if (text := _different_outputs(one, other, f"{path}[{key}]"))), "")


def _is_logprob(value: Any) -> bool:
    """Return whether the value is `[token, log probability, rank, text]`."""
    return isinstance(value, list) and len(value) == 4 and isinstance(value[1], float)


def _both(path: str, theirs: Any, mine: Any) -> str:
    return f"{path} differs:\n     vLLM     {theirs}\n     tracellm {mine}"
