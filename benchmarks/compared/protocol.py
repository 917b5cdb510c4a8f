"""Protocol between a benchmark and the process of an engine: one line of JSON for each request and reply.

The first line of stdin has the settings; the process makes the engine and replies with its versions. Each further line
is one turn, timed in the process, so that messages do not count. The setting `recorded` is a level of detail or
"default". With it the process is recorded as with `tracellm run --explain`, from before the engine's import until the
cost is requested. Otherwise only the standard library is imported here: the environment of another engine has no
tracellm.
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
    """One engine with its model in memory. It may have several ways to generate."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """Return versions and the number of threads, for the page."""

    @abstractmethod
    def generate(self, way: str, prompts: Sequence[TokenIds], lengths: Sequence[int]) -> list[TokenIds]:
        """Continue each prompt greedily by `lengths` tokens, ignoring end tokens; return only the new ones."""

    @contextmanager
    def prepared(self, way: str) -> Iterator[None]:
        """Context around a turn, outside of its time."""
        yield

    def gaps(self, questions: Sequence[tuple[TokenIds, int, int]]) -> list[dict[str, float]]:
        """For each context and two tokens, return the difference of their logits and the standard deviation of all."""
        raise NotImplementedError


def answer(make: Callable[[dict[str, Any]], Engine]) -> None:
    """Run the engine's side of the protocol, with the engine that `make(settings)` returns."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print to stdout

    def reply(content: dict[str, Any]) -> None:
        print(json.dumps(content), file=replies, flush=True)

    engine = recording = None
    with ExitStack() as until_the_end:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if engine is None:
                    if level := request.get("recorded"):
                        from tracellm.bench.trial import recorded

                        recording = until_the_end.enter_context(recorded(level))
                    engine = make(request)
                    reply(engine.about())
                elif "questions" in request:
                    reply({"gaps": engine.gaps(request["questions"])})
                elif "cost" in request:
                    if recording is None:
                        raise ValueError("it was not recorded")
                    until_the_end.close()
                    reply(recording.stats)
                else:
                    reply(_turn(engine, **request))
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
