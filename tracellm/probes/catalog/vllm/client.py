"""Which client a vLLM chose: the inputs, the rule that decided, and what came out.

vLLM decides in the body of `make_client`, so that the rule is concluded here, from the same two inputs and by the same
table as ours (tracellm/engine/ipc/core_client.py); what came out is the client that was made. Where there are several
engine cores, `make_async_mp_client` goes on to choose among its own.

vLLM: vllm/v1/engine/core_client.py.
"""

from typing import Any

from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.vllm.entries import at, plain
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names

__all__ = ["ENTRIES"]

_RULES = {
    (False, False): ("InprocClient", "not multiprocess_mode and not asyncio_mode"),
    (True, False): ("SyncMPClient", "multiprocess_mode and not asyncio_mode"),
    (True, True): ("AsyncMPClient", "multiprocess_mode and asyncio_mode"),
    (False, True): ("none", "asyncio_mode and not multiprocess_mode"),
}
"""By multiprocess_mode and asyncio_mode: the client, unless another was made, and the condition."""


def _capture_make_client(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return (
        bool(argument(args, kwargs, 0, "multiprocess_mode")),
        bool(argument(args, kwargs, 1, "asyncio_mode")),
        _name_of(argument(args, kwargs, 3, "executor_class")),
        None if result is None else type(result).__name__,
        _num_engines(argument(args, kwargs, 2, "vllm_config")),
    )


def _capture_async_client(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    executor = _name_of(argument(args, kwargs, 1, "executor_class"))
    made = None if result is None else type(result).__name__
    return True, True, executor, made, _num_engines(argument(args, kwargs, 0, "vllm_config"))


def _name_of(executor: Any) -> str:
    return str(getattr(executor, "__name__", executor))


def _num_engines(config: Any) -> int:
    return int(getattr(getattr(config, "parallel_config", None), "data_parallel_size", 1))


def _choice(facts: Any) -> dict[str, Any]:
    multiprocess, asyncio, executor, made, num_engines = facts
    usual, rule = _RULES[multiprocess, asyncio]
    if num_engines > 1 and asyncio:
        rule += f" and data_parallel_size > 1 ({num_engines})"
    told = {
        names.CLIENT_MULTIPROCESS: multiprocess,
        names.CLIENT_ASYNCIO: asyncio,
        names.CLIENT_EXECUTOR: executor,
        names.CLIENT_CHOICE: made or usual,
        names.CLIENT_RULE: rule,
    }
    return told if made is None else {**told, names.RESULT: made}


def _make_client(facts: Any) -> dict[str, Any]:
    multiprocess, asyncio, executor, *_ = facts
    told = [f"multiprocess_mode={multiprocess}", f"asyncio_mode={asyncio}", f"executor_class={executor}"]
    return {**_choice(facts), names.ARGUMENTS: told}


def _async_client(facts: Any) -> dict[str, Any]:
    return {**_choice(facts), names.ARGUMENTS: [f"executor_class={facts[2]}"]}


_CLIENT = at("v1.engine.core_client:EngineCoreClient.")

ENTRIES = (
    Entry(_CLIENT + "make_client", "request", _capture_make_client, _make_client, even_if_raises=True),
    Entry(_CLIENT + "make_async_mp_client", "request", _capture_async_client, _async_client, even_if_raises=True),
    *plain("request", "v1.engine.core_client", "InprocClient.__init__"),
)
