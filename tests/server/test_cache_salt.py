"""Tests of `cache_salt` in requests, through a real engine process."""

import asyncio
from pathlib import Path

from tests.server.app import CHAT, COMPLETIONS, App
from tracellm import AsyncLLM

MODEL = Path(__file__).parents[1] / "fixtures" / "tiny-random-qwen2"


def test_cached_blocks_are_found_by_salt() -> None:
    """A request finds cached blocks of requests with its salt only, in both kinds of requests."""
    with asyncio.Runner() as runner:
        engine = AsyncLLM(MODEL, served_model_name="m", dtype="float32", num_gpu_blocks_override=256)
        try:
            app = App.make(runner, engine, served_model_name=["m"], enable_prompt_tokens_details=True)

            def cached(path: str, **salt: str) -> int:
                text = "One, two, three. " * 20
                body = {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}
                details = app.post(path, body | {"max_tokens": 1} | salt).json()["usage"]["prompt_tokens_details"]
                return 0 if details is None else details["cached_tokens"]

            for path in (COMPLETIONS, CHAT):
                assert cached(path, cache_salt="one") == 0
                assert cached(path, cache_salt="other") == 0
                assert cached(path) == 0
                assert cached(path, cache_salt="one") > 0
                assert cached(path) > 0
        finally:
            engine.shutdown()
