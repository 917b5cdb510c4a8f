"""Trial of a constraint: whether llguidance compiles it, and it allows a first token.

llguidance bounds the states of a lexer, but not the time that some keywords of JSON schemas take: a `multipleOf` of a
million, 300 `patternProperties`, an `allOf` of 20 patterns. Nor does it bound the conversion of llama.cpp's grammars.
Such constraints are tried in a process of their own, whose processor time and memory the system limits. The process
runs this file, which imports no other part of tracellm.

In a request's life: `validate_guidance_grammar` (backend_guidance.py), in the front end. vLLM has no counterpart.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, grammar_from

__all__ = ["Trial", "TrialLimitError", "TrialProcess", "first_error", "has_bounded_time", "make_matcher"]

_LIMITS = LLParserLimits(verbose_errors=False, max_items_in_row=4000)
"""Limits for JSON schemas: four items for each property of an object. Errors come without the parser's state."""
_REGEX_LIMITS = LLParserLimits(verbose_errors=False, max_items_in_row=4000, initial_lexer_fuel=100_000)
"""Limits for regular expressions and grammars: `(a{1000}){1000}` would take seconds, for each token again."""
_MAX_SECONDS = 3
"""Seconds of processor time for a constraint."""
_MAX_BYTES = 1 << 29
"""Memory that a trial may take beyond what the process has before it, in bytes."""
_ANNOTATIONS = {"$defs", "$schema", "default", "definitions", "description", "examples", "title"}
_COMBINING = {"$ref", "anyOf", "oneOf"}
"""Keywords whose alternatives are multiplied with what other keywords allow."""
_BOUNDED = {
    *("additionalProperties", "const", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "items", "maxItems"),
    *("maxLength", "maximum", "minItems", "minLength", "minimum", "prefixItems", "properties", "required", "type"),
}
"""Keywords of JSON schemas that together compile in a time about proportional to their length."""
_DEFINITION = re.compile(r"#/(\$defs|definitions)/[^/]+")
"""References to schemas that are found as such; llguidance follows others, into a `default` too."""
_EXCEEDED = (-signal.SIGXCPU, -signal.SIGABRT)
"""Exit codes of the process at its limits of time and of memory."""

Notation = Literal["regex", "grammar", "grammars", "llguidance"]
"""Notation of a constraint: "grammar" is Lark's, or llama.cpp's EBNF (GBNF); "grammars" is a JSON list of grammars that
refer to each other by `name`, each as `lark_grammar`, or as `grammar` in Lark's notation or GBNF.
"""
Trial = tuple[Notation, str]
"""Notation of a constraint, and the constraint."""


class TrialLimitError(ValueError):
    """A constraint takes more time or memory than the limits allow."""


def has_bounded_time(schema: dict[str, Any]) -> bool:
    """Return whether a JSON schema, without those within it, compiles in a time about proportional to its length."""
    keywords = schema.keys() - _ANNOTATIONS
    if keywords & _COMBINING:
        return len(keywords) == 1 and ("$ref" not in schema or bool(_DEFINITION.fullmatch(str(schema["$ref"]))))
    return keywords <= _BOUNDED


def make_matcher(ll_tokenizer: LLTokenizer, notation: Notation, text: str) -> LLMatcher:
    """Compile a constraint; the matcher of an invalid one has an error.

    Raises:
        ValueError: a grammar is in neither of the notations.
    """
    if notation == "llguidance":
        return LLMatcher(ll_tokenizer, text, log_level=0, limits=_LIMITS)
    if notation == "grammars":
        grammars = json.loads(text)
        for one in grammars:
            if (grammar := one.pop("grammar", None)) is not None:
                one["lark_grammar"] = grammar_from("grammar", grammar)
        return LLMatcher(ll_tokenizer, json.dumps({"grammars": grammars}), log_level=0, limits=_LIMITS)
    return LLMatcher(ll_tokenizer, grammar_from(notation, text), log_level=0, limits=_REGEX_LIMITS)


def first_error(ll_tokenizer: LLTokenizer, trials: Sequence[Trial]) -> tuple[int, str] | None:
    """Return the index of the first constraint that cannot be used, and llguidance's error."""
    for index, trial in enumerate(trials):
        try:
            matcher = make_matcher(ll_tokenizer, *trial)
        except ValueError as error:
            return index, str(error)
        if not matcher.is_error():
            mask = int.from_bytes(matcher.compute_bitmask(), "little") & ~(1 << ll_tokenizer.eos_token)
            if not matcher.is_error() and mask and not matcher.is_stopped():
                matcher.consume_token((mask & -mask).bit_length() - 1)  # after the end there is no next state
        if matcher.is_error():
            return index, matcher.get_error()
    return None


class TrialProcess:
    """Process for trials; started with the first, and again after a trial that exceeded its limits.

    Args:
        tokenizer: arguments of `LLTokenizer`: tokenizer.json, number of logits, end-of-sequence token.
    """

    def __init__(self, tokenizer: tuple[str, int, int]) -> None:
        self._tokenizer = tokenizer
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def first_error(self, trials: Sequence[Trial]) -> tuple[int, str] | None:
        """Do as the function `first_error`.

        Raises:
            TrialLimitError: a trial exceeded its limits.
            ValueError: the system ended the process.
            RuntimeError: the process has failed.
        """
        with self._lock:
            if self._process is None:
                self._process = self._start()
            try:
                answer = _exchange(self._process, trials)
            except BaseException:  # such as Ctrl-C: the answer would be taken for that of the next trials
                self._end()
                raise
            if not answer:
                raise _error(self._end())
        found = json.loads(answer)
        return None if found is None else (found[0], found[1])

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__],  # -P: the files beside this one are not for import
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,  # Ctrl-C is for this process
        )
        self._finalizer = weakref.finalize(self, _end, process)
        with suppress(BrokenPipeError):
            _send(process, self._tokenizer)
        return process

    def _end(self) -> int:
        """End the process, and return its exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        self._finalizer.detach()
        _end(process)
        return process.returncode


def _error(exit_code: int) -> Exception:
    """Return the error for a trial in which the process has ended."""
    if exit_code in _EXCEEDED:
        return TrialLimitError(
            f"it is too complex: to compile it takes more than {_MAX_SECONDS} seconds of processor time or "
            f"{_MAX_BYTES >> 20} MiB."
        )
    if exit_code == -signal.SIGKILL:
        return ValueError("the system ended the process that tries it, perhaps for lack of memory; try again.")
    return RuntimeError(f"The process that tries constraints has ended with exit code {exit_code}.")


def _exchange(process: subprocess.Popen[str], trials: Sequence[Trial]) -> str:
    """Send trials and return the answer; an empty one if the process has ended."""
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        _send(process, trials)
        return process.stdout.readline()
    return ""


def _send(process: subprocess.Popen[str], value: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(value) + "\n")
    process.stdin.flush()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with suppress(BrokenPipeError):
        process.communicate()


# -- in the process ---------------------------------------------------------------------------------------------------


def _main() -> None:
    """Answer trials until the other end of the pipe is closed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lines: Iterator[Any] = map(json.loads, sys.stdin)
    ll_tokenizer = LLTokenizer(*next(lines))
    for trials in lines:
        _limit_memory()
        _limit_time()
        try:
            found = first_error(ll_tokenizer, trials)
        except MemoryError:
            os.abort()  # as in Rust
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def _limit_memory() -> None:
    with suppress(FileNotFoundError):  # Linux has the file, and enforces the limit
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _limit(resource.RLIMIT_AS, used + _MAX_BYTES)


def _limit_time() -> None:
    """Have the system end this process when it has used the time for a trial from now on."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + _MAX_SECONDS)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    _main()
