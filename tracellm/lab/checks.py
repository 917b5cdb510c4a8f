"""Checks of a lab: what each must hold, on which cases, and how a failure is described.

A check makes its cases from a seed, so public and hidden cases differ only in the seed. `run` executes a case with the
code under test and returns plain data. It runs in the student's process. `judge` runs in the grader's process, with the
real engine, and compares the output with the expected one.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["Check", "Failure", "first_difference", "make_case", "make_cases"]


@dataclass(frozen=True)
class Failure:
    """Fault of an output, in both languages: a sentence with the numbers of the case."""

    en: str
    zh: str
    step: int | None = None
    """Step of the case's run in which it first shows, from 1."""

    def __getitem__(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en


class Check(ABC):
    """One behaviour that a lab requires. The first line of a subclass's docstring states it."""

    zh: str
    """The same sentence in Chinese."""

    cases: int = 5
    """Number of cases per seed."""

    uses_reference = True
    """True if `judge` needs the reference's output."""

    @property
    def name(self) -> str:
        """Name for the command line: the class name in words, joined by hyphens."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()

    @property
    def en(self) -> str:
        """The sentence in English."""
        return (type(self).__doc__ or "").partition("\n")[0]

    def says(self, lang: str) -> str:
        """Return the sentence in a language."""
        return self.zh if lang == "zh" else self.en

    @abstractmethod
    def make(self, random: Random) -> Any:
        """Return a case as plain data: numbers, strings, lists, dicts with string keys, None."""

    @abstractmethod
    def run(self, case: Any) -> Any:
        """Execute a case with the engine's modules, one of which may be the student's; return plain data."""

    def judge(self, case: Any, output: Any, expected: Any) -> Failure | None:
        """Return the failure of an output, or None if it is right.

        Args:
            case: the case.
            output: what the student's code returned.
            expected: what the reference returned; None without `uses_reference`.
        """
        return first_difference(output, expected)

    def shrink(self, case: Any) -> Iterator[Any]:
        """Yield smaller cases, to find the smallest that fails; none by default."""
        yield from ()


def make_cases(check: Check, seed: str) -> list[Any]:
    """Return the cases of a check for a seed."""
    return [make_case(check, seed, index) for index in range(check.cases)]


def make_case(check: Check, seed: str, index: int) -> Any:
    """Return one of these cases, by its number from 0."""
    return check.make(Random(f"{seed}:{check.name}:{index}"))


def first_difference(output: Any, expected: Any, *, tolerance: float = 1e-5, path: str = "") -> Failure | None:
    """Return the first place where two values of plain data differ, or None.

    Numbers with a fraction may differ by `tolerance`, absolute and relative; two NaN are equal.
    """
    where = f" at {path}" if path else ""
    where_zh = f"（位于 {path}）" if path else ""
    if isinstance(expected, dict) and isinstance(output, dict):
        for key in dict.fromkeys((*expected, *output)):
            inner = f"{path}.{key}" if path else str(key)
            if key not in output:
                return Failure(
                    f"{inner} is missing; expected {_short(expected[key])}",
                    f"缺少 {inner}，应为 {_short(expected[key])}",
                )
            if key not in expected:
                return Failure(
                    f"{inner} is {_short(output[key])}; it should not be there",
                    f"多出了 {inner}：{_short(output[key])}",
                )
            if found := first_difference(output[key], expected[key], tolerance=tolerance, path=inner):
                return found
        return None
    if isinstance(expected, list | tuple) and isinstance(output, list | tuple):
        for index, (one, other) in enumerate(zip(output, expected, strict=False)):
            if found := first_difference(one, other, tolerance=tolerance, path=f"{path}[{index}]"):
                return found
        if len(output) != len(expected):
            return Failure(
                f"{len(output)} values{where}, expected {len(expected)}: {_short(output)} is not {_short(expected)}",
                f"有 {len(output)} 个值{where_zh}，应为 {len(expected)} 个：{_short(output)}，应为 {_short(expected)}",
            )
        return None
    if _equal(output, expected, tolerance):
        return None
    return Failure(
        f"{_short(output)}{where}, expected {_short(expected)}",
        f"结果为 {_short(output)}{where_zh}，应为 {_short(expected)}",
    )


def _equal(output: Any, expected: Any, tolerance: float) -> bool:
    if type(output) in (int, float) and type(expected) in (int, float) and float in (type(output), type(expected)):
        if math.isnan(output) or math.isnan(expected):
            return math.isnan(output) and math.isnan(expected)
        return math.isclose(output, expected, rel_tol=tolerance, abs_tol=tolerance)
    return type(output) is type(expected) and bool(output == expected)


def _short(value: Any) -> str:
    shown = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return shown if len(shown) <= 80 else shown[:79] + "…"
