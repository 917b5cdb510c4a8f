"""The clients of the engine core: their interface, the one for a single process, and the choice between them.

`LLMEngine` and `AsyncLLM` reach the engine core through a client that `EngineCoreClient.make_client` creates:

| multiprocess_mode | asyncio_mode | client         | engine core                                         |
|-------------------|--------------|----------------|-----------------------------------------------------|
| False             | False        | `InprocClient` | in this process: a step is a method call            |
| True              | False        | `SyncMPClient` | in another process, behind sockets (mp_client.py)   |
| True              | True         | `AsyncMPClient`| the same, for asyncio callers                       |
| False             | True         | none           | vLLM has no such client either                      |

With `data_parallel_size` > 1 there are several engine cores, and a `DPLBAsyncMPClient` (dp_client.py) chooses one for
each request.

The default is `VLLM_ENABLE_V1_MULTIPROCESSING=0` here, and 1 since vLLM 0.11: there `LLM()` has a `SyncMPClient`.

vLLM: vllm/v1/engine/core_client.py. Left out: other load balancers than the client's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracellm.engine.config.cpu_threads import limit_threads
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
    """The client for a configuration, and the rule that chose it."""

    name: str | None
    """The client's class, or None if no client supports the configuration."""
    rule: str
    """The deciding condition, as an expression."""
    because: str
    """The condition in words."""


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
    """Choose the client by the two flags."""
    return _CHOICES[multiprocess_mode, asyncio_mode]


class EngineCoreClient(ABC):
    """Interface of the clients. An `AsyncMPClient` has these methods as coroutines with the suffix `_async`."""

    @staticmethod
    def make_client(
        multiprocess_mode: bool,
        asyncio_mode: bool,
        vllm_config: VllmConfig,
        executor_class: type[Executor],
        log_stats: bool,
    ) -> EngineCoreClient:
        """Create the client that `choose_client` names.

        Raises:
            EngineError: there is none, or the engine core cannot start (its own error).
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
    def make_async_mp_client(vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> AsyncMPClient:
        """Create an `AsyncMPClient`, or a `DPLBAsyncMPClient` for several engine cores."""
        from tracellm.engine.ipc.mp_client import AsyncMPClient

        if vllm_config.parallel_config.data_parallel_size > 1:
            from tracellm.engine.ipc.dp_client import DPLBAsyncMPClient

            return DPLBAsyncMPClient(vllm_config, executor_class, log_stats)
        return AsyncMPClient(vllm_config, executor_class, log_stats)

    @abstractmethod
    def shutdown(self) -> None:
        """End the engine core; the client cannot be used any more."""

    def get_output(self) -> EngineCoreOutputs:
        """Return the outputs of the next step."""
        raise NotImplementedError

    def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request to the engine core."""
        raise NotImplementedError

    def abort_requests(self, request_ids: list[str]) -> None:
        """Abort requests."""
        raise NotImplementedError

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache. Return False, and change nothing, while requests hold blocks."""
        raise NotImplementedError


class InprocClient(EngineCoreClient):
    """Client of an engine core in this process. Each `get_output` runs one step."""

    def __init__(self, vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> None:
        limit_threads(vllm_config.device_config.device)
        self.engine_core = EngineCore(vllm_config, executor_class, log_stats)

    def get_output(self) -> EngineCoreOutputs:
        """Run a step and return its outputs for this client (index 0), which may be empty."""
        outputs, model_executed = self.engine_core.step_fn()
        self.engine_core.post_step(model_executed=model_executed)
        return (outputs and outputs.get(0)) or EngineCoreOutputs()

    def add_request(self, request: EngineCoreRequest) -> None:
        """Add a request to the engine core's waiting queue.

        Raises:
            InvalidRequestError: the KV cache is too small for it.
        """
        self.engine_core.add_request(self.engine_core.preprocess_add_request(request))

    def abort_requests(self, request_ids: list[str]) -> None:
        """Abort requests; finished ones are ignored."""
        if request_ids:
            self.engine_core.abort_requests(request_ids)

    def reset_prefix_cache(self) -> bool:
        """See `EngineCore.reset_prefix_cache`."""
        return self.engine_core.reset_prefix_cache()

    def shutdown(self) -> None:
        """End the workers, if they are processes."""
        self.engine_core.shutdown()
