"""What the catalog's files share: reading an argument by name, asking who calls, learning which engine is
meant, lists of plain entries."""

import sys
from collections.abc import Callable
from typing import Any

from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.token_texts import learn_tokenizer, tokenizer_facts
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace.model import Span
from tracellm.trace.names import Level

__all__ = ["argument", "called_by", "capture_engine", "heirs", "inherited", "learn_engine", "loops", "plain"]


def plain(level: Level, module: str, *functions: str) -> list[Entry]:
    """Entries for functions of one module of the engine whose arguments and results, in short, say enough."""
    return [Entry(f"tracellm.engine.{module}:{function}", level) for function in functions]


def inherited(level: Level, module: str, *functions: str) -> list[Entry]:
    """The same, for methods whose spans are called alike in all classes that inherit them."""
    return [Entry(f"tracellm.engine.{module}:{function}", level, span_name=function) for function in functions]


def heirs(level: Level, module: str, *methods: str) -> list[Entry]:
    """The same, for methods of a class whose heirs are told under its name too: an AsyncScheduler is a Scheduler."""
    return [
        Entry(f"tracellm.engine.{module}:{method}", level, lifeline=method.partition(".")[0], span_name=method)
        for method in methods
    ]


def loops(level: Level, module: str, *functions: str) -> list[Entry]:
    """The same, for calls that go on for as long as the engine does."""
    return [Entry(f"tracellm.engine.{module}:{function}", level, loop=True) for function in functions]


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, name: str, otherwise: Any = None) -> Any:
    """The argument `name`, which is number `index` when it is given by position (0 is self, where there is one)."""
    return args[index] if len(args) > index else kwargs.get(name, otherwise)


def called_by(is_it: Callable[[Any], bool], most_frames: int = 40) -> bool:
    """Is one of the calls that are under way the one that `is_it(code)` knows?"""
    frame = sys._getframe(1)
    for _ in range(most_frames):
        if frame is None:
            return False
        if is_it(frame.f_code):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def capture_engine(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """What is learnt of the `LLMEngine` whose method was called: its model's name and its tokenizer."""
    engine = args[0]
    return engine.model_config.served_model_name, tokenizer_facts(engine.tokenizer)


def learn_engine(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    """From now on this engine's model and tokenizer are meant."""
    if facts is not None:
        tracker.model, tokenizer = facts
        learn_tokenizer(tracker, tokenizer)
