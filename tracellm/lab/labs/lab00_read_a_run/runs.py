"""The run that a seed chooses: its recording, made anew by the grader, and the numbers in the questions about it."""

import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tracellm.lab.labs.lab00_read_a_run.workload import make_workload
from tracellm.lab.recording import record

if TYPE_CHECKING:
    from tracellm.report.facts.engines import EngineFacts
    from tracellm.trace.model import Trace
    from tracellm.trace.steps import Step

__all__ = ["Numbers", "Run", "make_numbers", "make_run"]


@dataclass(frozen=True)
class Numbers:
    """Steps and a request that the questions name."""

    tokens_step: int
    waiting_step: int
    blocks_step: int
    blocks_request: int


def make_numbers(seed: str) -> Numbers:
    """Return the numbers of a seed."""
    random = Random(f"questions:{seed}")
    return Numbers(random.randint(2, 4), random.randint(5, 12), random.randint(5, 12), random.randint(0, 1))


class Run:
    """A recorded run of the workload."""

    def __init__(self, seed: str, trace: "Trace") -> None:
        self.numbers = make_numbers(seed)
        self.num_requests = len(make_workload(seed).prompts)
        self.trace = trace

    @cached_property
    def engine(self) -> "EngineFacts":
        """The engine of the run."""
        from tracellm.report.facts.engines import engines

        return engines(self.trace)[0]

    @property
    def steps(self) -> "tuple[Step, ...]":
        """The engine's steps, in order."""
        return self.engine.steps

    def step(self, number: int) -> "Step":
        """Return a step by its number, from 1."""
        return self.steps[number - 1]

    def blocks(self, request: int, step: int) -> list[int]:
        """Return the KV cache blocks of a request after the scheduling of a step."""
        from tracellm.report.facts.steps.states import StepStates

        return list(StepStates(self.trace, self.engine).at(step - 1).tables.get(str(request), ()))


@cache
def make_run(seed: str) -> Run:
    """Record the workload of a seed with the real engine.

    Raises:
        RuntimeError: the script failed.
    """
    from tracellm.trace.run_folder import RunFolder

    with tempfile.TemporaryDirectory() as place:
        script = Path(__file__).with_name("explain.py")
        recorded = record(script, Path(place, "run"), "en", case={"seed": seed})
        if recorded.status:
            raise RuntimeError(f"the run of seed {seed} failed: {recorded.error}")
        return Run(seed, RunFolder.open(recorded.path).trace)
