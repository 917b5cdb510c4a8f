"""Run a recorded workload through an engine core that steps whenever it can, and compare the tokens.

Requests then arrive in different steps in each run. The decisions can differ and are not compared, but the tokens must
be equal. All requests of a batch are added at once, and none is aborted: the recorded output of an aborted request must
be a prefix of the whole output.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import tracellm
from tests.engine.parity.compare import count_values
from tests.engine.parity.drive import (
    MODEL,
    Library,
    make_llm,
    params_of,
    prompt_of,
    record_output,
    run_batch,
)

__all__ = ["compare_tokens", "run_async_llm", "run_llm"]

Json = dict[str, Any]
Tokens = dict[str, Json]


def run_llm(library: Library, case: Json) -> list[Tokens]:
    """Run all batches through an `LLM` with an engine core in another process; return the tokens of each output."""
    llm = make_llm(library, case)
    try:
        batches = [run_batch(library, llm, _all_at_once(batch), _watch_nothing) for batch in case["batches"]]
    finally:
        llm.llm_engine.engine_core.shutdown()
    return [_tokens(_with_ids(case, number), _outputs(case, number, ran)) for number, ran in enumerate(batches)]


def run_async_llm(library: Library, case: Json) -> list[Tokens]:
    """Run all batches through an `AsyncLLM`, with a task for each request."""
    return asyncio.run(_run_async_llm(library, case))


async def _run_async_llm(library: Library, case: Json) -> list[Tokens]:
    llm = tracellm.AsyncLLM(str(MODEL), dtype="float32", enforce_eager=True, **case["settings"])

    async def follow(request_id: str, spec: Json) -> list[Any]:
        stream = llm.generate(prompt_of(spec), params_of(library, spec), request_id, priority=spec.get("priority", 0))
        return [record_output(output) async for output in stream]

    results = []
    try:
        for number, batch in enumerate(case["batches"]):
            if batch.get("reset_prefix_cache"):
                await llm.reset_prefix_cache()
            specs = _with_ids(case, number)
            streams = await asyncio.gather(*(follow(request_id, spec) for request_id, spec in specs.items()))
            results.append(_tokens(specs, [output for stream in streams for output in stream]))
    finally:
        llm.shutdown()
    return results


def compare_tokens(case: Json, ours: list[Tokens]) -> tuple[int, int, str]:
    """Return the number of recorded tokens, of equal ones, and the first output that differs, as text."""
    count = equal = 0
    first = ""
    for number, (recorded, mine) in enumerate(zip(case["recorded"], ours, strict=True)):
        specs = _with_ids(case, number)
        aborted = {request_id for request_id, spec in specs.items() if spec.get("abort_before_step") is not None}
        for name, theirs in _tokens(specs, _outputs(case, number, recorded)).items():
            output = mine.get(name, {})
            if name.split(" ")[0] in aborted:
                theirs = {"token_ids": theirs["token_ids"]}
                output = {"token_ids": output.get("token_ids", [])[: len(theirs["token_ids"])]}
            here = count_values(theirs["token_ids"], output.get("token_ids", []))
            count, equal = count + here[0], equal + here[1]
            if theirs != output and not first:
                first = f"{case['name']}, batch {number}, output {name}:\n  vLLM     {theirs}\n  tracellm {output}"
    return count, equal, first


def _all_at_once(batch: Json) -> Json:
    if batch["how"] == "generate":
        return batch
    specs = sorted(batch["requests"], key=lambda spec: spec["add_before_step"])
    return batch | {"requests": [spec | {"add_before_step": 0, "abort_before_step": None} for spec in specs]}


def _watch_nothing(llm: Any) -> tuple[list[Json], Any]:
    return [], lambda: None


def _with_ids(case: Json, number: int) -> dict[str, Json]:
    """Return the requests of a batch by id; `generate` numbers them, and returns them in order."""
    batch, outputs = case["batches"][number], case["recorded"][number]["outputs"]
    if batch["how"] == "engine":
        return {spec["request_id"]: spec for spec in batch["requests"]}
    return {output[0]: spec for output, spec in zip(outputs, batch["requests"], strict=True)}


def _outputs(case: Json, number: int, ran: Json) -> list[Any]:
    """Return the outputs of a batch, of all steps."""
    by_step = case["batches"][number]["how"] == "engine"
    return [one for step in ran["outputs"] for one in step] if by_step else ran["outputs"]


def _tokens(specs: dict[str, Json], outputs: Iterable[Any]) -> Tokens:
    """Return tokens and finish reason of each completion, by request and index."""
    found: Tokens = {}
    for request_id, _, _, _, completions in outputs:
        delta = specs[request_id]["params"].get("output_kind") == "DELTA"
        for completion in completions:
            name = f"{request_id} {completion['index']}"
            before = found[name]["token_ids"] if delta and name in found else []
            kept = {key: completion[key] for key in ("token_ids", "finish_reason", "stop_reason")}
            found[name] = kept | {"token_ids": before + completion["token_ids"]}
    return found
