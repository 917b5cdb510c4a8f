"""The engines of a run, each with its settings and its steps.

A process has an engine core at a time, but a script may make one after the other: each begins with the set-up of its KV
cache. Steps of engines that take turns in one process count as the younger one's.
"""

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass

from tracellm.report.facts.startup import KVCache, engine_config, kv_cache
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import Step, engine_key, steps

__all__ = ["EngineFacts", "engines", "step_positions"]


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine core: its KV cache (None if not recorded), its settings by name, and its steps in order."""

    cache: KVCache | None
    settings: dict[str, str]
    steps: tuple[Step, ...]
    chosen: frozenset[str] = frozenset()
    """Settings that were arguments of `LLM` or `AsyncLLM`."""

    @property
    def block_size(self) -> int:
        """Tokens in a block of the KV cache; 0 if not recorded."""
        return self.cache.block_size if self.cache else 0

    @property
    def prefix_caching(self) -> bool:
        """True if full blocks are cached; vLLM's default, True, if not recorded."""
        return self.settings.get("enable_prefix_caching", "True") == "True"


@per_trace
def engines(trace: Trace) -> tuple[EngineFacts, ...]:
    """Return the engines that ran steps, process by process, in the order of their first steps."""
    configured = [span for span in trace.spans if names.CONFIG in span.attributes]
    makers = [*trace.named("LLM.__init__"), *trace.named("AsyncLLM.__init__")]
    caches: dict[Hashable, list[Span]] = {}
    for span in trace.spans:
        if names.KV_NUM_BLOCKS in span.attributes:
            caches.setdefault(engine_key(span), []).append(span)
    own: dict[tuple[Hashable, int], list[Step]] = {}
    for step in steps(trace):
        key = engine_key(step.span)
        begun = [span.start_ns for span in caches.get(key, ())]
        own.setdefault((key, bisect_right(begun, step.span.start_ns) - 1), []).append(step)
    return tuple(
        _engine(caches[key][number] if number >= 0 else None, configured, makers, found)
        for (key, number), found in own.items()
    )


@per_trace
def step_positions(trace: Trace) -> dict[str, tuple[int, int]]:
    """Return the indexes of engine and step of each step, by the id of its span."""
    return {
        step.span.span_id: (engine, index)
        for engine, facts in enumerate(engines(trace))
        for index, step in enumerate(facts.steps)
    }


def _engine(cache: Span | None, configured: list[Span], makers: list[Span], found: list[Step]) -> EngineFacts:
    before = found[0].span.start_ns if cache is None else cache.start_ns
    config = [span for span in configured if span.start_ns <= before]
    settings = engine_config([*makers, *config[-1:]])
    return EngineFacts(
        kv_cache([cache]) if cache is not None else None,
        {setting.name: setting.value for setting in settings},
        tuple(found),
        frozenset(setting.name for setting in settings if setting.origin == "argument"),
    )
