"""A variant of a run: all its engines replayed under changed settings, kept as `RUN/whatif/<name>.jsonl`.

The file holds each engine's settings, its KV cache and its steps as spans, in the form of the files in `RUN/trace`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.report.facts.engines import EngineFacts, engines
from tracellm.trace import names, otlp
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.run_folder import VARIANTS_FOLDER
from tracellm.trace.steps import Step, engine_key
from tracellm.whatif.replay import engine_config, replay
from tracellm.whatif.workload import Schedule, Workload, read_workload

__all__ = ["EngineVariant", "decisions", "first_difference", "replay_engines", "variant_name", "write_variant"]

_CLOCK = (names.CLOCK_WALL, names.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class EngineVariant:
    """One engine of a run: its recorded workload, and the workload replayed under changed settings.

    `unfaithful` is the number of the first recorded step that a replay without changes does not repeat, or None.
    """

    engine: EngineFacts
    workload: Workload
    config: VllmConfig
    replayed: Schedule
    unfaithful: int | None

    @property
    def process(self) -> Process | None:
        """Process of the engine core."""
        return self.engine.steps[0].span.process


def replay_engines(trace: Trace, changes: Mapping[str, Any]) -> list[EngineVariant]:
    """Replay every engine of a run under these changes, which have vLLM's names of engine arguments.

    Raises:
        Missing: the recording lacks what a replay needs.
        EngineError: a value is out of range, or settings contradict each other.
        InvalidRequestError: the KV cache is too small for one of the requests.
    """
    found = []
    numbers: dict[Any, int] = {}
    for engine in engines(trace):
        workload = read_workload(trace, engine)
        key = engine_key(engine.steps[0].span)
        config = engine_config(workload, changes)
        replayed = replay(workload, config, first=numbers.get(key, engine.steps[0].index))
        numbers[key] = replayed.steps[-1].index + 1 if replayed.steps else numbers.get(key, 1)
        unchanged = replay(workload, engine_config(workload, {}), first=engine.steps[0].index)
        position = first_difference(engine.steps, unchanged.steps, _facts)
        unfaithful = None if position is None else engine.steps[min(position, len(engine.steps) - 1)].index
        found.append(EngineVariant(engine, workload, config, replayed, unfaithful))
    return found


def first_difference(a: Sequence[Step], b: Sequence[Step], facts: Callable[[Step], Any]) -> int | None:
    """Return the position of the first step, from 0, whose facts differ, or None."""
    pairs = enumerate(zip_longest(map(facts, a), map(facts, b)))
    return next((position for position, (one, other) in pairs if one != other), None)


def decisions(step: Step) -> Any:
    """Return the tokens of each scheduled request, and the queues."""
    tokens = [(one.request_id, one.num_tokens, one.num_computed) for one in step.requests]
    return tokens, step.running, step.waiting, step.num_waiting, step.preempted, step.finished


def _facts(step: Step) -> Any:
    """Return everything about a step but the values of tokens, which may not be recorded."""
    ended = step.new, step.resumed, step.aborted, step.released
    sampled = sorted(sampled.request_id for sampled in step.sampled)
    blocks = step.token_budget, step.blocks_free, step.blocks_total
    return step.kind, step.requests, decisions(step), step.held, ended, sampled, blocks


def variant_name(changes: Mapping[str, Any]) -> str:
    """Return the name of a variant: `max_num_batched_tokens=64,max_num_seqs=2`."""
    return ",".join(f"{name}={value}" for name, value in sorted(changes.items()))


def write_variant(folder: Path, name: str, variants: Sequence[EngineVariant], after_ns: int) -> None:
    """Write a variant into a run folder. Its steps come after `after_ns`, one nanosecond each."""
    (folder / VARIANTS_FOLDER).mkdir(exist_ok=True)
    numbers = count(1)
    lines = []
    for variant in variants:
        recorded = variant.process
        attributes = {key: value for key, value in recorded.attributes.items() if key not in _CLOCK} if recorded else {}
        process = Process(recorded.pid if recorded else 0, recorded.name if recorded else "", attributes)
        spans = [*_start_up(variant), *(step.span for step in variant.replayed.steps)]
        for span, number in zip(spans, numbers, strict=False):
            span.span_id = f"{number:016x}"
            span.start_ns = span.end_ns = after_ns + number
        lines.append(otlp.encode(process, spans))
    file = folder / VARIANTS_FOLDER / f"{name}.jsonl"
    half = file.with_suffix(".part")
    half.write_bytes(b"".join(lines))
    half.replace(file)


def _start_up(variant: EngineVariant) -> list[Span]:
    """Return spans with the engine's settings and the layout of its KV cache."""
    scheduler, cache = variant.config.scheduler_config, variant.workload.cache
    settings = {
        **variant.engine.settings,
        "num_gpu_blocks_override": variant.config.cache_config.num_gpu_blocks_override,
        "enable_prefix_caching": variant.config.cache_config.enable_prefix_caching,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "policy": scheduler.policy,
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
    }
    layout = {
        names.KV_NUM_BLOCKS: variant.config.cache_config.num_gpu_blocks_override,
        names.KV_BLOCK_SIZE: cache.block_size,
        names.KV_NUM_GROUPS: cache.num_groups,
        names.KV_WINDOWS: list(cache.sliding_windows),
    }
    config = {names.CONFIG: [f"{name}={value}" for name, value in settings.items()]}
    return [
        Span(name, f"{1:032x}", "", None, 0, 0, {names.LEVEL: "request", **attributes})
        for name, attributes in (
            ("EngineArgs.create_engine_config", config),
            ("EngineCore._initialize_kv_caches", layout),
        )
    ]
