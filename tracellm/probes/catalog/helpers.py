"""What the catalog's files share: reading an argument by name, asking who calls, learning which engine is
meant, lists of plain entries."""

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tracellm.probes.ledger import Ledger
from tracellm.probes.spec import Entry
from tracellm.trace.model import Span
from tracellm.trace.names import Level

__all__ = ["argument", "called_by", "capture_engine", "inherited", "learn_engine", "learn_tokenizer", "loops", "plain"]


_MOST_TOKENS = 32_768


def plain(level: Level, module: str, *functions: str) -> list[Entry]:
    """Entries for functions of one module of the engine whose arguments and results, in short, say enough."""
    return [Entry(f"tracellm.engine.{module}:{function}", level) for function in functions]


def inherited(level: Level, module: str, *functions: str) -> list[Entry]:
    """The same, for methods whose spans are called alike in all classes that inherit them."""
    return [Entry(f"tracellm.engine.{module}:{function}", level, span_name=function) for function in functions]


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
    return engine.model_config.served_model_name, engine.tokenizer


def learn_engine(ledger: Ledger, span: Span, facts: Any, given: dict[str, Any]) -> None:
    """From now on this engine's model and tokenizer are meant."""
    if facts is not None:
        ledger.model, tokenizer = facts
        # One token at a time: decoding holds the interpreter's lock from end to end, so the engine's own use of the
        # tokenizer, in its thread, never meets this one.
        texts = getattr(ledger.decode, "__self__", None)
        if tokenizer is None:
            ledger.decode = None
        elif not isinstance(texts, _Texts) or texts.tokenizer is not tokenizer:  # each request tells of it
            ledger.decode = _Texts(tokenizer).__getitem__


class _Texts(dict[int, str]):
    """The text of one token at a time; of those that a step tells of most came before."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        # Asked directly, where that comes to the same, the fast tokenizer behind it takes a tenth of the time.
        behind = None if getattr(tokenizer, "clean_up_tokenization_spaces", True) else tokenizer
        self._decode = getattr(behind, "backend_tokenizer", tokenizer).decode

    def __missing__(self, token_id: int) -> str:
        text = str(self._decode([token_id], skip_special_tokens=False))
        if len(self) < _MOST_TOKENS:
            self[token_id] = text
        return text


def learn_tokenizer(ledger: Ledger, folder: str) -> None:
    """Where only token ids are known, texts are made with the tokenizer in this folder, read when the first is needed;
    with none if it is not there."""
    file = Path(folder) / "tokenizer.json"
    if ledger.text and ledger.decode is None and file.is_file():
        ledger.decode = _decoder(file)


def _decoder(file: Path) -> Callable[[int], str]:
    @cache
    def tokenizer() -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file))

    @lru_cache(maxsize=_MOST_TOKENS)
    def decode(token_id: int) -> str:
        return str(tokenizer().decode([token_id], skip_special_tokens=False))

    return decode
