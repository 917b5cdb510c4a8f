"""Run a workload through an engine and record its decisions, with the same code for vLLM and tracellm.

`tests/fixtures/record_engine_cases.py` runs it with a real vLLM 0.11.1 and stores the results; the tests run it with
tracellm and compare. This module imports neither: the library is an argument.

A workload is `{"settings": arguments of LLM, "batches": [...]}`. Each batch is one call of `LLM.generate` or, with
`"how": "engine"`, a loop around `LLMEngine.step` in which requests arrive and are aborted between steps.
"""

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

__all__ = ["MODEL", "Library", "make_llm", "record_output", "record_step", "run_batch", "run_case", "watch"]

MODEL = Path(__file__).parents[2] / "fixtures" / "tiny-random-qwen2"

Json = dict[str, Any]


class Library(NamedTuple):
    """Classes of the library to run, vLLM or tracellm."""

    LLM: Any
    SamplingParams: Any
    RequestOutputKind: Any

    @classmethod
    def of(cls, top: ModuleType, sampling_params: ModuleType) -> "Library":
        """Take the classes from the top module and from the module of the parameters."""
        return cls(top.LLM, top.SamplingParams, sampling_params.RequestOutputKind)


def make_llm(library: Library, case: Json) -> Any:
    """Make an engine with the workload's settings, on the CPU, in this process, in float32."""
    return library.LLM(str(MODEL), dtype="float32", enforce_eager=True, **case["settings"])


def run_case(library: Library, case: Json) -> list[Json]:
    """Run all batches of a workload on one engine, and return the record of each."""
    llm = make_llm(library, case)
    try:
        return [run_batch(library, llm, batch) for batch in case["batches"]]
    finally:
        llm.llm_engine.engine_core.shutdown()


def run_batch(library: Library, llm: Any, batch: Json, watch_llm: Any = None) -> Json:
    """Run one batch.

    Args:
        library: library to run.
        llm: the engine.
        batch: the requests.
        watch_llm: like `watch`, with the engine as argument; None watches the scheduler, in this process.

    Returns:
        `steps`: one entry for each call of `Scheduler.schedule()`; `outputs`: the result of `generate` or, with `"how":
        "engine"`, of each `step`.
    """
    if batch.get("reset_prefix_cache"):
        llm.reset_prefix_cache()
    steps, unwatch = (watch_llm or _watch_llm)(llm)
    try:
        outputs = (_run_steps if batch["how"] == "engine" else _generate)(library, llm, batch)
    finally:
        unwatch()
    return {"steps": steps, "outputs": outputs}


def _watch_llm(llm: Any) -> tuple[list[Json], Any]:
    return watch(llm.llm_engine.engine_core.engine_core.scheduler)


def watch(scheduler: Any) -> tuple[list[Json], Any]:
    """Record every step that the scheduler schedules from now on.

    Returns the growing list, and a function that stops recording.
    """
    schedule, steps = scheduler.schedule, []

    def observed() -> Any:
        output = schedule()
        steps.append(record_step(scheduler, output))
        return output

    scheduler.schedule = observed
    return steps, lambda: setattr(scheduler, "schedule", schedule)


def record_step(scheduler: Any, output: Any) -> Json:
    """Return the decisions of one step, by vLLM's names; tests/fixtures/README.md describes the keys."""
    cached = output.scheduled_cached_reqs
    blocks = {new.req_id: list(new.block_ids[0]) for new in output.scheduled_new_reqs}
    blocks |= {
        req_id: list(block_ids[0])
        for req_id, block_ids in zip(cached.req_ids, cached.new_block_ids, strict=True)
        if block_ids
    }
    computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    new_token_ids = dict(zip(cached.req_ids, map(list, cached.new_token_ids), strict=False))  # of pipelines only
    return {
        "scheduled": dict(output.num_scheduled_tokens),
        "new": [[new.req_id, new.num_computed_tokens] for new in output.scheduled_new_reqs],
        "blocks": blocks,
        "resumed": [[req_id, computed[req_id]] for req_id in cached.req_ids if req_id in cached.resumed_req_ids],
        "computed": computed,
        "generated": dict(zip(cached.req_ids, cached.num_output_tokens, strict=True)),
        "common_prefix": list(output.num_common_prefix_blocks),
        "finished": sorted(output.finished_req_ids),
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        **({"new_token_ids": new_token_ids} if new_token_ids else {}),
    }


def params_of(library: Library, spec: Json) -> Any:
    values = dict(spec["params"])
    if values.get("logit_bias"):  # JSON keys are strings
        values["logit_bias"] = {int(token): bias for token, bias in values["logit_bias"].items()}
    if "output_kind" in values:
        values["output_kind"] = library.RequestOutputKind[values["output_kind"]]
    return library.SamplingParams(**values)


def prompt_of(spec: Json) -> Any:
    return spec["prompt"] if "prompt" in spec else {"prompt_token_ids": spec["prompt_token_ids"]}


def _generate(library: Library, llm: Any, batch: Json) -> list[Any]:
    specs = batch["requests"]
    more = {"priority": [spec["priority"] for spec in specs]} if "priority" in specs[0] else {}
    outputs = llm.generate(
        [prompt_of(spec) for spec in specs], [params_of(library, spec) for spec in specs], use_tqdm=False, **more
    )
    return [record_output(output) for output in outputs]


def _run_steps(library: Library, llm: Any, batch: Json) -> list[Any]:
    engine, specs = llm.llm_engine, batch["requests"]
    outputs: list[Any] = []
    last = max(spec["add_before_step"] for spec in specs)
    while engine.has_unfinished_requests() or len(outputs) <= last:
        for spec in specs:
            if spec["add_before_step"] == len(outputs):
                engine.add_request(
                    spec["request_id"],
                    prompt_of(spec),
                    params_of(library, spec),
                    arrival_time=spec["arrival_time"],
                    priority=spec["priority"],
                )
            if spec["abort_before_step"] == len(outputs):
                engine.abort_request([spec["request_id"]])
        outputs.append([record_output(output) for output in engine.step()])
    return outputs


def record_output(output: Any) -> list[Any]:
    """Return a `RequestOutput`: id, finished, cached tokens, prompt log probabilities, and its completions."""
    return [
        output.request_id,
        output.finished,
        output.num_cached_tokens,
        _record_logprobs(output.prompt_logprobs),
        [
            {
                "index": completion.index,
                "text": completion.text,
                "token_ids": list(completion.token_ids),
                "finish_reason": completion.finish_reason,
                "stop_reason": completion.stop_reason,
                "logprobs": _record_logprobs(completion.logprobs),
                "cumulative_logprob": completion.cumulative_logprob,
            }
            for completion in output.outputs
        ],
    ]


def _record_logprobs(positions: Any) -> list[Any] | None:
    """Return `[token, log probability, rank, text]` for each position in the order of the dict, or None."""
    if positions is None:
        return None
    return [
        position and [[token, round(one.logprob, 5), one.rank, one.decoded_token] for token, one in position.items()]
        for position in positions
    ]
