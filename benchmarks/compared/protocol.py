"""How a benchmark talks to an engine: a process that keeps it, and answers one line of JSON with another.

The engine's process reads its settings from the first line of stdin, makes the engine, and says what it is; then each
line asks for one turn. It takes the time itself, so that nothing of the conversation is in it. With the setting
`recorded`, a level of detail or "default", it is recorded from before the engine is imported until it is asked what
that cost, as `tracellm run --explain` does it. Only the standard library is imported here otherwise: another engine's
environment may have nothing of ours.
"""

import gc
import json
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["Engine", "TokenIds", "answer"]

TokenIds = list[int]


class Engine(ABC):
    """One engine with its model in memory. It may generate in several ways, such as with batches of its own."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What it is, for the page: versions, threads, what it chose."""

    @abstractmethod
    def generate(self, way: str, prompts: Sequence[TokenIds], lengths: Sequence[int]) -> list[TokenIds]:
        """Continue each prompt greedily by exactly so many tokens, whatever they are; only what was generated."""

    @contextmanager
    def prepared(self, way: str) -> Iterator[None]:
        """Around a turn, outside of its time."""
        yield

    def gaps(self, questions: Sequence[tuple[TokenIds, int, int]]) -> list[dict[str, float]]:
        """For each context and two tokens: by how much their logits differ there, and the spread of all logits."""
        raise NotImplementedError


def answer(make: Callable[[dict[str, Any]], Engine]) -> None:
    """Be the process of an engine: `make(settings)` makes it, with all that it needs."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not an answer

    def reply(told: dict[str, Any]) -> None:
        print(json.dumps(told), file=replies, flush=True)

    engine = recording = None
    with ExitStack() as until_the_end:
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                if engine is None:
                    if level := asked.get("recorded"):
                        from tracellm.bench.trial import recorded

                        recording = until_the_end.enter_context(recorded(level))
                    engine = make(asked)
                    reply(engine.about())
                elif "questions" in asked:
                    reply({"gaps": engine.gaps(asked["questions"])})
                elif "cost" in asked:
                    if recording is None:
                        raise ValueError("it was not recorded")
                    until_the_end.close()
                    reply(recording.stats)
                else:
                    reply(_turn(engine, **asked))
            except Exception:
                reply({"error": traceback.format_exc()})


def _turn(engine: Engine, way: str, prompts: list[TokenIds], lengths: list[int]) -> dict[str, Any]:
    with engine.prepared(way):
        gc.collect()
        cpu, start = time.process_time(), time.perf_counter()
        token_ids = engine.generate(way, prompts, lengths)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    if [len(ids) for ids in token_ids] != lengths:
        raise ValueError(f"asked for {lengths} tokens, got {[len(ids) for ids in token_ids]}")
    return {"seconds": seconds, "cpu_seconds": cpu, "token_ids": token_ids}
