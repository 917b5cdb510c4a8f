"""The progress bar of `LLM.generate`: tqdm on stderr, when somebody is looking and the work takes long.

vLLM: vllm/entrypoints/llm.py::LLM._run_engine, which always shows it.
"""

from collections.abc import Callable
from typing import Protocol

from tracellm.engine.config.errors import InvalidRequestError

__all__ = ["ProgressBar", "progress_bar"]

_DELAY = 1.0  # seconds


class ProgressBar(Protocol):
    """What `LLM` needs of a bar; a tqdm is one."""

    def update(self, n: int) -> object:
        """After each step: so many more requests have finished, 0 in most steps."""

    def close(self) -> None:
        """All have, or the work was broken off."""


def progress_bar(use_tqdm: bool | Callable[..., ProgressBar], total: int) -> ProgressBar | None:
    """A bar for `total` requests: tqdm's, the user's own (a function that makes one), or none.

    Raises:
        InvalidRequestError: `use_tqdm` is none of these.
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
        miniters=0,  # the clock goes on while no request finishes
        disable=None,  # only on a terminal
    )
    return bar
