"""A client to test alone."""

from collections.abc import Iterator

import pytest

from tests.engine.clients.in_thread import engines_in_threads
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.ipc.mp_client import SyncMPClient


@pytest.fixture
def client() -> Iterator[SyncMPClient]:
    """A `SyncMPClient` with the bundled model, whose engine core runs in a thread."""
    vllm_config = EngineArgs(max_model_len=128, num_gpu_blocks_override=17).create_engine_config()
    with engines_in_threads():
        client = SyncMPClient(vllm_config, Executor.get_class(vllm_config), False)
    yield client
    client.shutdown()
