"""Predictions: questions that a student answers before running anything, each checked by the engine."""

from abc import ABC, abstractmethod
from random import Random
from typing import Any

__all__ = ["Prediction"]


class Prediction(ABC):
    """One question, whose numbers come from the seed of the student's folder."""

    name: str
    """Name for the command line, in lower case with hyphens."""

    @abstractmethod
    def make(self, random: Random) -> Any:
        """Return the numbers of the question as plain data."""

    @abstractmethod
    def question(self, case: Any, lang: str) -> str:
        """Return the question in English (`en`) or Chinese (`zh`); it says which form the answer has."""

    @abstractmethod
    def answer(self, case: Any) -> int | str:
        """Return the right answer, by running the engine on the case."""

    @abstractmethod
    def reason(self, case: Any, lang: str) -> str:
        """Return why this is the answer, in a sentence with the numbers of the case."""
