"""Measures one model in every engine: compares outputs, then times rounds of all engines and the machine's ceilings."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.compared.agreement import Agreement, compare_outputs
from benchmarks.compared.busy import Busy
from benchmarks.compared.process import EngineProcess
from benchmarks.compared.shapes import Shape
from tracellm.bench.figures import Spread
from tracellm.bench.limits import ModelCost, cost_of, work_of
from tracellm.bench.machine import Ceilings, measure_ceilings
from tracellm.bench.throughput import interleaved
from tracellm.bench.workload import Lengths, Workload, random_workload

__all__ = ["ENGINES", "PEERS", "REFERENCE", "WAYS", "WAYS_ON", "Plan", "measure"]

WAYS = {
    "tracellm": "tracellm_engine",
    "tracellm-traced": "tracellm_engine",
    "tracellm-torch": "tracellm_engine",
    "transformers": "transformers_engine",
    "transformers-continuous": "transformers_engine",
    "vllm": "vllm_engine",
}
"""The ways to generate, with the module of their process."""
ENGINES = tuple(dict.fromkeys(WAYS.values()))
WAYS_ON = {
    "cpu": ("tracellm", "tracellm-traced", "transformers", "transformers-continuous", "vllm"),
    "cuda": ("tracellm", "tracellm-traced", "tracellm-torch"),
}
"""The ways that are measured on each device."""
PEERS = {"cpu": "vllm", "cuda": "tracellm-torch"}
"""The way that others are compared with, on each device."""
RECORDED = "tracellm-traced"
_SETTINGS: dict[str, dict[str, Any]] = {RECORDED: {"recorded": "default"}, "tracellm-torch": {"ops": "torch"}}
"""Settings of the ways with their own process: recorded at the default detail; with PyTorch's operations, and so
without CUDA graphs.
"""
REFERENCE = "tracellm"
"""The way whose outputs the others are compared with."""
_JUDGE = "transformers_engine"
"""The engine that computes the distance of two logits."""
_CHECKED = "float32"
_STEP_TOKENS = 4096
"""Token budget of a step, for all engines."""
_ROUNDED = 128
"""Tokens in the largest KV cache block of any engine."""


@dataclass(frozen=True)
class Plan:
    """Options of a measurement."""

    ways: Sequence[str]
    dtype: str
    threads: int
    repeats: int
    pythons: Mapping[str, str]
    """Python interpreter of each engine."""
    folder: Path
    """Folder of checkpoints and logs."""
    requests: int | None = None
    """Number of requests, if not the shape's."""
    outputs: Lengths | None = None
    """Lengths of outputs, if not the shape's."""
    check_requests: int = 8
    """Number of requests to compare in float32; 0 for none."""
    check_tokens: int = 24
    log: Callable[[str], object] = print

    def processes(self) -> list[str]:
        """Return the processes of all ways, each once."""
        return list(dict.fromkeys(map(process_of, self.ways)))


def process_of(way: str) -> str:
    """Return the name of the process for a way: its engine, or the way itself if it has its own settings."""
    return way if way in _SETTINGS else WAYS[way]


def measure(name: str, shape: Shape, plan: Plan) -> dict[str, Any]:
    """Return all figures of one model.

    Raises:
        EngineFailed: an engine failed; the message has the reason.
    """
    plan.log(f"{name}: making the checkpoint")
    folder = shape.folder(name, plan.folder, "bfloat16")  # the usual dtype of published models
    shape = replace(shape, requests=plan.requests or shape.requests, outputs=plan.outputs or shape.outputs)
    if plan.outputs:
        shape = replace(shape, decode_outputs=plan.outputs.most)
    workload = random_workload(shape.vocab_size, shape.requests, shape.inputs, shape.outputs)
    checked = plan.check_requests and plan.dtype != _CHECKED
    exact = _compared_exactly(shape, folder, workload, plan) if checked else {}
    with ExitStack() as engines:
        running = {}
        for process in plan.processes():
            plan.log(f"{name}: starting {process} in {plan.dtype}")
            running[process] = engines.enter_context(_engine(process, shape, folder, plan, plan.dtype))
        near = _compared(running, workload, plan)
        rounds = _rounds(name, running, shape, workload, plan)
        about = {process: engine.about for process, engine in running.items() if process in ENGINES}
    cost = _cost(folder, plan.dtype)
    return {
        "shape": name,
        "device": shape.device,
        "dtype": plan.dtype,
        "threads": plan.threads,
        "repeats": plan.repeats,
        "requests": shape.requests,
        "input_tokens": workload.num_input_tokens,
        "output_tokens": workload.num_output_tokens,
        "about": about,
        "ceilings": asdict(rounds.ceilings),
        "busy_elsewhere": rounds.busy,
        "ways": {
            way: {
                **rounds.speeds(way, cost, shape.requests),
                "float32": _as_dict((near if plan.dtype == _CHECKED else exact).get(way)),
                plan.dtype: _as_dict(near.get(way)),
            }
            for way in plan.ways
        },
    }


def _as_dict(agreement: Agreement | None) -> dict[str, Any] | None:
    if agreement is None:
        return None
    return {"requests": agreement.requests, "same": agreement.same, "first": agreement.first, "gap": agreement.gap}


@contextmanager
def _engine(process: str, shape: Shape, folder: Path, plan: Plan, dtype: str) -> Iterator[EngineProcess]:
    per_request = -(-shape.longest // _ROUNDED) * _ROUNDED
    tokens = (shape.kv_tokens or shape.requests * per_request) + _ROUNDED  # and one more block
    module = WAYS.get(process, process)
    settings = {
        "model": str(folder),
        "dtype": dtype,
        "max_model_len": per_request,
        "max_num_seqs": shape.requests,
        "max_num_batched_tokens": max(_STEP_TOKENS, per_request),
        "kv_cache_tokens": tokens,
        "kv_cache_bytes": tokens * _cost(folder, dtype).kv_bytes,
        **_SETTINGS.get(process, {}),
    }
    log = plan.folder / f"{process}.log"
    with EngineProcess(module, plan.pythons[module], settings, plan.threads, log) as engine:
        yield engine


def _cost(folder: Path, dtype: str) -> ModelCost:
    from tracellm.engine.config.arg_utils import EngineArgs

    return cost_of(EngineArgs.from_arguments(model=str(folder), dtype=dtype).create_model_config())


def _compared_exactly(shape: Shape, folder: Path, workload: Workload, plan: Plan) -> dict[str, Agreement]:
    """Compare a part of the workload in float32, with one engine in memory at a time."""
    part = Workload(
        workload.prompts[: plan.check_requests], [plan.check_tokens] * min(plan.check_requests, shape.requests)
    )
    outputs = {}
    for process in plan.processes():
        plan.log(f"comparing outputs: {process} in {_CHECKED}")
        with _engine(process, shape, folder, plan, _CHECKED) as engine:
            for way in (way for way in plan.ways if process_of(way) == process):
                outputs[way] = engine.turn(way, part)["token_ids"]
    reference = outputs.get(REFERENCE)
    return {way: compare_outputs(reference, ids) for way, ids in outputs.items()} if reference else {}


def _compared(running: dict[str, EngineProcess], workload: Workload, plan: Plan) -> dict[str, Agreement]:
    """Compare the whole workload in the measured dtype; this also warms everything up."""
    outputs = {}
    for way in plan.ways:
        plan.log(f"comparing outputs: {way} in {plan.dtype}")
        outputs[way] = running[process_of(way)].turn(way, workload)["token_ids"]
    reference = outputs.get(REFERENCE)
    if reference is None:
        return {}
    agreements = {}
    for way, ids in outputs.items():
        agreement = compare_outputs(reference, ids)
        if agreement.differences and _JUDGE in running:
            gaps = running[_JUDGE].gaps(
                [
                    ([*workload.prompts[part.request], *ids[part.request][: part.position]], part.first, part.second)
                    for part in agreement.differences
                ]
            )
            agreement = replace(agreement, gap=max(gap["gap"] / gap["spread"] for gap in gaps))
        agreements[way] = agreement
    return agreements


@dataclass
class _Rounds:
    """Measurements of all turns."""

    workload: Workload
    decoding: Workload
    ceilings: Ceilings
    busy: float
    """Median over all turns of the share of CPU time that other processes had."""
    seconds: dict[str, list[dict[str, float]]]
    """Seconds of each way and round: for the whole, for decoding, and for decoding's first tokens."""

    def speeds(self, way: str, cost: ModelCost, at_once: int) -> dict[str, Any]:
        """Return tokens per second, and their ratios to the limit."""
        rounds = self.seconds[way]
        whole = Spread.of([self.workload.num_output_tokens / seconds["whole"] for seconds in rounds])
        ideal = work_of(cost, self.ceilings, self.workload, at_once)
        full = work_of(cost, self.ceilings, self.decoding, at_once)
        first = work_of(cost, self.ceilings, self.decoding.first_tokens(), at_once)
        num_decoded = self.decoding.num_output_tokens - len(self.decoding.prompts)
        # Uses medians: the difference of two times of one round can be anything on a busy machine.
        decode_seconds = [max(seconds["decode"] - seconds["decode_first"], 1e-9) for seconds in rounds]
        decode = Spread.of([num_decoded / seconds for seconds in decode_seconds])
        median_seconds = statistics.median(decode_seconds)
        return {
            "whole": asdict(whole),
            "of_limit": ideal.seconds * whole.median / self.workload.num_output_tokens,
            "decode": asdict(decode),
            "decode_of_limit": (full.seconds - first.seconds) / median_seconds,
            "decode_gb_per_second": (full.num_bytes - first.num_bytes) / median_seconds / 1e9,
            "decode_of_bandwidth": (full.num_bytes - first.num_bytes)
            / median_seconds
            / self.ceilings.read_bytes_per_second,
            "seconds": rounds,
        }


def _rounds(name: str, running: dict[str, EngineProcess], shape: Shape, workload: Workload, plan: Plan) -> _Rounds:
    import torch

    torch.set_num_threads(plan.threads)
    same = Lengths(shape.decode_inputs, shape.decode_inputs), Lengths(shape.decode_outputs, shape.decode_outputs)
    decoding = random_workload(shape.vocab_size, shape.requests, *same, seed=1)
    turns = {
        "whole": workload,
        "decode": decoding,
        "decode_first": decoding.first_tokens(),
    }
    seconds: dict[str, list[dict[str, float]]] = {way: [] for way in plan.ways}
    shares = []
    ceilings = None
    for number, way in enumerate(interleaved(list(plan.ways), plan.repeats)):
        if number % len(plan.ways) == 0:
            measured = measure_ceilings(getattr(torch, plan.dtype), shape.device)
            ceilings = measured if ceilings is None else ceilings.merged(measured)
        plan.log(f"{name}: round {number // len(plan.ways) + 1} of {plan.repeats}, {way}")
        seconds_of_round = {}
        for turn, turn_workload in turns.items():
            busy = Busy()
            result = running[process_of(way)].turn(way, turn_workload)
            seconds_of_round[turn] = result["seconds"]
            if way != RECORDED:  # recording is not load from others
                shares.append(busy.elsewhere(result["cpu_seconds"]))
        seconds[way].append(seconds_of_round)
    assert ceilings is not None
    return _Rounds(workload, decoding, ceilings, statistics.median(shares or [0.0]), seconds)
