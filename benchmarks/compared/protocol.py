"""How benchmarks/compare.py talks to an engine: a process that keeps it, and answers one line of JSON with another.

The engine's process reads its settings from the first line of stdin, makes the engine, and says what it is; then each
line asks for one turn. It takes the time itself, so that nothing of the conversation is in it. Only the standard
library is imported here: a real vLLM's environment has nothing of ours.
"""

import gc
import json
import os
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["Engine", "TokenIds", "answer"]

TokenIds = list[int]


class Engine(ABC):
    """One engine with its model in memory. It may generate in several ways, such as recorded and not."""

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


def answer(make: Any) -> None:
    """Be the process of an engine: `make(settings)` makes it, with all that it needs."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not an answer

    def reply(told: dict[str, Any]) -> None:
        print(json.dumps(told), file=replies, flush=True)

    engine = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if engine is None:
                engine = make(asked)
                reply(engine.about())
            elif "questions" in asked:
                reply({"gaps": engine.gaps(asked["questions"])})
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
