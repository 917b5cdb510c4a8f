"""Which client was chosen: the inputs, the rule that decided, and what came out."""

from typing import Any

from tracellm.probes.catalog.helpers import argument, plain
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]


def _capture_choice(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return result.name, result.rule


def _choice(facts: Any) -> dict[str, Any]:
    name, rule = facts
    return {names.CLIENT_CHOICE: name or "none", names.CLIENT_RULE: rule}


def _capture_make_client(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    executor = argument(args, kwargs, 3, "executor_class")
    return (
        bool(argument(args, kwargs, 0, "multiprocess_mode")),
        bool(argument(args, kwargs, 1, "asyncio_mode")),
        getattr(executor, "__name__", str(executor)),
    )


def _make_client(facts: Any) -> dict[str, Any]:
    multiprocess, asyncio, executor = facts
    return {
        names.CLIENT_MULTIPROCESS: multiprocess,
        names.CLIENT_ASYNCIO: asyncio,
        names.CLIENT_EXECUTOR: executor,
        names.ARGUMENTS: [
            f"multiprocess_mode={multiprocess}", f"asyncio_mode={asyncio}", f"executor_class={executor}"
        ],
    }  # fmt: skip


def _capture_async_client(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    executor = argument(args, kwargs, 1, "executor_class")
    return getattr(executor, "__name__", str(executor)), type(result).__name__


def _async_client(facts: Any) -> dict[str, Any]:
    """`make_async_mp_client` is `make_client` with both of its first inputs given; here they are told as if asked."""
    executor, client = facts
    return {
        names.CLIENT_MULTIPROCESS: True,
        names.CLIENT_ASYNCIO: True,
        names.CLIENT_EXECUTOR: executor,
        names.CLIENT_CHOICE: client if client != "NoneType" else "AsyncMPClient",
        names.CLIENT_RULE: "multiprocess_mode and asyncio_mode",
        names.ARGUMENTS: [f"executor_class={executor}"],
        names.RESULT: client,
    }


def _note_client(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    span.attributes.update(given)
    if names.CLIENT_CHOICE in given:
        span.attributes[names.RESULT] = given[names.CLIENT_CHOICE]


_CLIENT = "tracellm.engine.ipc.core_client:"

ENTRIES = (
    Entry(
        _CLIENT + "EngineCoreClient.make_client",
        "request",
        _capture_make_client,
        _make_client,
        observe=_note_client,
        even_if_raises=True,
    ),
    Entry(
        _CLIENT + "choose_client",
        "request",
        _capture_choice,
        _choice,
        gives=_choice,
        gives_to="EngineCoreClient.make_client",
        lifeline="EngineCoreClient",
    ),
    Entry(
        _CLIENT + "EngineCoreClient.make_async_mp_client",
        "request",
        _capture_async_client,
        _async_client,
        even_if_raises=True,
    ),
    *plain("request", "ipc.core_client", "InprocClient.__init__"),
)
