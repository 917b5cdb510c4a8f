"""Logs of the server: requests on demand, and no message so often or so long that it fills a disk.

`launcher.serve_http` installs `LOG_CONFIG`. The serving classes call the `RequestLogger` once per request.

vLLM: vllm/entrypoints/logger.py::RequestLogger. Left out: logs of outputs. Added: `RepeatFilter` and `ShortFormatter`;
vLLM limits neither the number nor the length of messages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LOG_CONFIG", "RepeatFilter", "RequestLogger", "ShortFormatter"]

logger = logging.getLogger("tracellm.requests")

_MAX_LENGTH = 2000
"""Characters of a message and of a traceback; the rest was sent by a caller, or repeats."""
_MAX_KINDS = 1000


@dataclass
class _Repeats:
    """Messages of one kind since `since`."""

    since: float
    count: int = 0


class RepeatFilter(logging.Filter):
    """Filter that passes the first `limit` messages of a kind in each `window`; the next one has the number left out.

    Messages of a kind have the same logger and the same beginning.
    """

    def __init__(
        self, limit: int = 10, window: float = 60.0, prefix: int = 60, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.limit = limit
        self.window = window
        """Seconds."""
        self.prefix = prefix
        """Characters of the beginning."""
        self.clock = clock
        self._kinds: dict[tuple[str, str], _Repeats] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the message."""
        message, now = record.getMessage(), self.clock()
        key = (record.name, message[: self.prefix])
        repeats = self._kinds.get(key)
        if repeats is None:
            if len(self._kinds) >= _MAX_KINDS:  # forget the oldest
                del self._kinds[next(iter(self._kinds))]
            repeats = self._kinds[key] = _Repeats(now)
        elif now - repeats.since >= self.window:
            if (left_out := repeats.count - self.limit) > 0:
                record.msg, record.args = f"{message} ({left_out} more like this were left out.)", None
            repeats.since, repeats.count = now, 0
        repeats.count += 1
        return repeats.count <= self.limit


class ShortFormatter(logging.Formatter):
    """Formatter that cuts long messages, and the middle of long tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # logging's name
        """Return the line of a message."""
        line = super().formatMessage(record)
        return line if len(line) <= _MAX_LENGTH else f"{line[:_MAX_LENGTH]}... ({len(line)} characters)"

    def formatException(self, ei: Any) -> str:
        """Return a traceback."""
        text = super().formatException(ei)
        half = _MAX_LENGTH * 2
        return text if len(text) <= 2 * half else f"{text[:half]}\n...\n{text[-half:]}"


LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"repeats": {"()": RepeatFilter}},
    "formatters": {"short": {"()": ShortFormatter, "format": "%(levelname)s: %(message)s"}},
    "handlers": {
        "each": {"class": "logging.StreamHandler", "formatter": "short", "stream": "ext://sys.stderr"},
        "limited": {
            "class": "logging.StreamHandler",
            "formatter": "short",
            "filters": ["repeats"],
            "stream": "ext://sys.stderr",
        },
    },
    "loggers": {
        "asyncio": {"handlers": ["limited"], "propagate": False},
        "py.warnings": {"handlers": ["limited"], "propagate": False},
        "tracellm.server": {"handlers": ["limited"], "propagate": False},
        "tracellm.requests": {"handlers": ["each"], "propagate": False},
        "uvicorn": {"handlers": ["limited"], "level": "WARNING", "propagate": False},
        "uvicorn.access": {"handlers": ["each"], "level": "INFO", "propagate": False},
    },
}
"""Configuration of logging: everything to stderr. uvicorn's default sends the access log to stdout."""


class RequestLogger:
    """Log of requests (`--enable-log-requests`): their parameters as info, their prompts as debug."""

    def __init__(self, *, max_log_len: int | None = None) -> None:
        self.max_log_len = max_log_len
        """Maximum number of characters or token ids of a prompt; None for no limit but that of a message."""

    def log_inputs(
        self, request_id: str, prompt: str | None, prompt_token_ids: Sequence[int] | None, params: object
    ) -> None:
        """Log a request before it goes to the engine."""
        if logger.isEnabledFor(logging.DEBUG):
            limit = _MAX_LENGTH if self.max_log_len is None else self.max_log_len
            logger.debug(
                "Request %s details: prompt: %r, prompt_token_ids: %s.",
                request_id,
                None if prompt is None else prompt[:limit],
                None if prompt_token_ids is None else list(prompt_token_ids[:limit]),
            )
        logger.info("Received request %s: params: %s.", request_id, params)
