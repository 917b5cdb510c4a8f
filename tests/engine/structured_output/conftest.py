"""Shared engine for tests without special settings: random weights, bytes as tokens, enough blocks."""

import pytest

from tracellm import LLM
from tracellm.engine.core.core import EngineCore
from tracellm.engine.ipc.core_client import InprocClient


def core_of(llm: LLM) -> EngineCore:
    """Return the engine core, which runs in this process."""
    client = llm.llm_engine.engine_core
    assert isinstance(client, InprocClient)
    return client.engine_core


@pytest.fixture(scope="session")
def llm(qwen2_checkpoint) -> LLM:
    """An LLM whose vocabulary is larger than its tokenizer's (320 and 259), as is common."""
    return LLM(str(qwen2_checkpoint), dtype="float32", max_model_len=256, num_gpu_blocks_override=200)
