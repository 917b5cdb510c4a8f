"""The progress bar of `LLM.generate`.

In a request's life: `LLM._run_engine`, after each step.

vLLM: in vllm/entrypoints/llm.py, which always shows the bar.
"""

from collections.abc import Callable
from typing import Protocol

from tracellm.engine.config.errors import InvalidRequestError

__all__ = ["ProgressBar", "make_progress_bar"]

_DELAY = 1.0  # seconds


class ProgressBar(Protocol):
    """Progress bar as `LLM` uses it; a tqdm is one."""

    def update(self, n: int) -> object:
        """Add finished requests, 0 in most steps."""

    def close(self) -> None:
        """End the bar."""


def make_progress_bar(use_tqdm: bool | Callable[..., ProgressBar], total: int) -> ProgressBar | None:
    """Return a bar for `total` requests: tqdm's, the user's own, or none.

    Raises:
        InvalidRequestError: `use_tqdm` is neither a bool nor callable.
    """
    if use_tqdm not in (True, False) and not callable(use_tqdm):
        raise InvalidRequestError(f"`use_tqdm` must be True, False or a function that makes a bar, got {use_tqdm!r}.")
    if use_tqdm is False:
        return None
    if callable(use_tqdm):
        return use_tqdm(total=total, desc="Processed prompts", dynamic_ncols=True)
    from tqdm import tqdm  # type: ignore[import-untyped]

    bar: ProgressBar = tqdm(
        total=total,
        desc="Processed prompts",
        dynamic_ncols=True,
        delay=_DELAY,
        miniters=0,  # update the clock although no request finishes
        disable=None,  # shown on a terminal only
    )
    return bar
