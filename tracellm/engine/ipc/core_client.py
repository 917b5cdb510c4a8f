"""How the front half of the engine reaches the engine core, and which way is taken when.

`choose_client` is the decision as a table; `EngineCoreClient.make_client` follows it:

| multiprocess_mode | asyncio_mode | client         | the engine core runs                                        |
|-------------------|--------------|----------------|-------------------------------------------------------------|
| False             | False        | `InprocClient` | in this process: a step is a method call                    |
| True              | False        | `SyncMPClient` | in a process of its own, behind sockets (mp_client.py)      |
| True              | True         | `AsyncMPClient`| the same, for asyncio callers                               |
| False             | True         | none           | vLLM has no such client either                              |

**Two truths.** tracellm's default is the in-process client, `VLLM_ENABLE_V1_MULTIPROCESSING=0`, as in the documents
that it follows. A real vLLM 0.11 or later defaults to `VLLM_ENABLE_V1_MULTIPROCESSING=1`: a plain `LLM()` there is a
`SyncMPClient`.

vLLM: vllm/v1/engine/core_client.py. Left out: data parallelism.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.core import EngineCore
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest

if TYPE_CHECKING:
    from tracellm.engine.executor.abstract import Executor
    from tracellm.engine.ipc.mp_client import AsyncMPClient

__all__ = ["ClientChoice", "EngineCoreClient", "InprocClient", "choose_client"]


@dataclass(frozen=True)
class ClientChoice:
    """Which client a configuration leads to, and by which rule."""

    name: str | None
    """The client's class; `None` when there is no client for it."""
    rule: str
    """The condition that decided."""
    because: str
    """What the condition means."""


_CHOICES = {
    (False, False): ClientChoice(
        "InprocClient",
        "not multiprocess_mode and not asyncio_mode",
        "the engine core runs in this process, and the caller waits for each step",
    ),
    (True, False): ClientChoice(
        "SyncMPClient",
        "multiprocess_mode and not asyncio_mode",
        "the engine core runs in a process of its own, and the caller waits for its outputs",
    ),
    (True, True): ClientChoice(
        "AsyncMPClient",
        "multiprocess_mode and asyncio_mode",
        "the engine core runs in a process of its own, and the caller awaits its outputs",
    ),
    (False, True): ClientChoice(
        None,
        "asyncio_mode and not multiprocess_mode",
        "an asyncio caller cannot wait for a step inside its own process",
    ),
}


def choose_client(multiprocess_mode: bool, asyncio_mode: bool) -> ClientChoice:
    """The decision by itself, made of nothing but the two flags."""
    return _CHOICES[multiprocess_mode, asyncio_mode]


class EngineCoreClient(ABC):
    """What every client can do: those that wait the methods without `_async`, the asynchronous one those with it."""

    @staticmethod
    def make_client(
        multiprocess_mode: bool,
        asyncio_mode: bool,
        vllm_config: VllmConfig,
        executor_class: type[Executor],
        log_stats: bool,
    ) -> EngineCoreClient:
        """Make the client that `choose_client` names.

        Raises:
            EngineError: there is none; or the engine core cannot be started, then it is its own error.
        """
        choice = choose_client(multiprocess_mode, asyncio_mode)
        if choice.name is None:
            raise EngineError(
                "There is no client for asyncio_mode=True with multiprocess_mode=False: "
                f"{choice.because}. Use asyncio_mode=False, or multiprocess_mode=True."
            )
        if choice.name == "AsyncMPClient":
            return EngineCoreClient.make_async_mp_client(vllm_config, executor_class, log_stats)
        if choice.name == "SyncMPClient":
            from tracellm.engine.ipc.mp_client import SyncMPClient

            return SyncMPClient(vllm_config, executor_class, log_stats)
        return InprocClient(vllm_config, executor_class, log_stats)

    @staticmethod
    def make_async_mp_client(
        vllm_config: VllmConfig,
        executor_class: type[Executor],
        log_stats: bool,
    ) -> AsyncMPClient:
        """Make an `AsyncMPClient`. vLLM has further classes of it, for data parallelism."""
        from tracellm.engine.ipc.mp_client import AsyncMPClient

        return AsyncMPClient(vllm_config, executor_class, log_stats)

    @abstractmethod
    def shutdown(self) -> None:
        """End what the client has started; it cannot be used any more."""

    def get_output(self) -> EngineCoreOutputs:
        """The outputs of the next step."""
        raise NotImplementedError

    def add_request(self, request: EngineCoreRequest) -> None:
        """Hand a request to the engine core."""
        raise NotImplementedError

    def abort_requests(self, request_ids: list[str]) -> None:
        """Give requests up."""
        raise NotImplementedError

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache; `False` when requests hold blocks and it was left as it is."""
        raise NotImplementedError

    async def get_output_async(self) -> EngineCoreOutputs:
        """As `get_output`, for asyncio."""
        raise NotImplementedError

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        """As `add_request`, for asyncio."""
        raise NotImplementedError

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        """As `abort_requests`, for asyncio."""
        raise NotImplementedError

    async def reset_prefix_cache_async(self) -> bool:
        """As `reset_prefix_cache`, for asyncio."""
        raise NotImplementedError


class InprocClient(EngineCoreClient):
    """The engine core is an object of this process. Each `get_output` is one step of it."""

    def __init__(self, vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> None:
        self.engine_core = EngineCore(vllm_config, executor_class, log_stats)

    def get_output(self) -> EngineCoreOutputs:
        """Run a step; its outputs for this client (index 0), empty when nothing was computed."""
        outputs, model_executed = self.engine_core.step_fn()
        self.engine_core.post_step(model_executed=model_executed)
        return (outputs and outputs.get(0)) or EngineCoreOutputs()

    def add_request(self, request: EngineCoreRequest) -> None:
        """Put a request into the engine core's waiting queue.

        Raises:
            InvalidRequestError: the KV cache is too small for it.
        """
        self.engine_core.add_request(self.engine_core.preprocess_add_request(request))

    def abort_requests(self, request_ids: list[str]) -> None:
        """Give requests up; nothing happens to those that have ended."""
        if request_ids:
            self.engine_core.abort_requests(request_ids)

    def reset_prefix_cache(self) -> bool:
        """See `EngineCore.reset_prefix_cache`."""
        return self.engine_core.reset_prefix_cache()

    def shutdown(self) -> None:
        """Nothing is to be ended: the engine core is an object like others."""
