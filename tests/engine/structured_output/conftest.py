"""One engine for the tests that need nothing special of it: random weights, bytes as tokens, room for all."""

import pytest

from tracellm import LLM
from tracellm.engine.core.core import EngineCore
from tracellm.engine.ipc.core_client import InprocClient


def core_of(llm: LLM) -> EngineCore:
    """The engine core, which runs in this process."""
    client = llm.llm_engine.engine_core
    assert isinstance(client, InprocClient)
    return client.engine_core


@pytest.fixture(scope="session")
def llm(qwen2_checkpoint) -> LLM:
    """Its vocabulary is larger than its tokenizer's (320 and 259), as is usual."""
    return LLM(str(qwen2_checkpoint), dtype="float32", max_model_len=256, num_gpu_blocks_override=200)
