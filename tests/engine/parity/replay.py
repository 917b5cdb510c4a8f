"""Replay workloads that were recorded with a scheduler alone, with the recorded arrivals and aborts."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.engine.sched.harness import make_request, make_scheduler
from tracellm.engine.core.request import RequestStatus
from tracellm.engine.core.sched.scheduler import Scheduler

__all__ = ["replay"]

_EOS = 1
_NOT_SETTINGS = {"seed", "requests", "steps", "ends"}
_IF_RECORDED = ("min_tokens", "stop_token_ids", "ignore_eos")


def replay(
    case: dict[str, Any], run_step: Callable[[Scheduler, dict[str, int]], dict[str, Any]]
) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Run a case; yield each step's number, its recorded decisions and ours.

    `run_step` runs one step with the recorded samples, and returns its decisions in the recording's form.
    """
    scheduler = make_scheduler(**{name: value for name, value in case.items() if name not in _NOT_SETTINGS})
    block_size = case["block_size"] if case["enable_prefix_caching"] else None
    for number, expected in enumerate(case["steps"]):
        for index, spec in enumerate(case["requests"]):
            if spec["add_before_step"] == number:
                scheduler.add_request(
                    make_request(
                        str(index),
                        spec["prompt_token_ids"],
                        spec["max_tokens"],
                        block_size=block_size,
                        priority=spec["priority"],
                        arrival_time=spec["arrival_time"],
                        eos_token_id=_EOS,
                        items=spec.get("mm_features", ()),
                        **{name: spec[name] for name in _IF_RECORDED if name in spec},
                    )
                )
            if spec["abort_before_step"] == number:
                scheduler.finish_requests(str(index), RequestStatus.FINISHED_ABORTED)
        yield number, expected, run_step(scheduler, expected["sampled"])
    assert not scheduler.has_unfinished_requests()
