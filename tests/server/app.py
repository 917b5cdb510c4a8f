"""Run the server's application in this process, without a socket."""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
from fastapi import FastAPI

from tracellm import AsyncLLM
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.entrypoints.openai.api_server import build_app, init_app_state
from tracellm.engine.entrypoints.openai.cli_args import ServeArgs

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
FIXTURES = Path(__file__).parents[1] / "fixtures"
MODEL = "tiny-random-qwen2"
"""The model of the recordings of a real vLLM."""
HELLO = [{"role": "user", "content": "Hello"}]


@dataclass
class App:
    """Application with the event loop of its engine."""

    runner: asyncio.Runner
    app: FastAPI
    engine: Any
    args: ServeArgs

    @classmethod
    def make(cls, runner: asyncio.Runner, engine: Any, **options: Any) -> "App":
        args = ServeArgs(**{"engine_args": EngineArgs()} | options)
        app = build_app(args)
        runner.run(init_app_state(engine, app.state, args))
        return cls(runner, app, engine, args)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def ask(self, method: str, path: str, **further: Any) -> httpx.Response:
        """Send one request, and return its whole response."""

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, root_path=self.args.root_path)
            async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:
                return await client.request(method, path, **further)

        return self.run(send())

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        if isinstance(body, bytes):
            return self.ask("POST", path, content=body, headers={"Content-Type": "application/json"} | headers)
        return self.ask("POST", path, json=body, headers=headers)


@contextmanager
def recorded_app(runner: asyncio.Runner, arguments: Mapping[str, Any], **options: Any) -> Iterator[App]:
    """Context with the application, the model and the settings of the recordings; `arguments` are the engine's."""
    settings: dict[str, Any] = {"served_model_name": MODEL, "dtype": "float32", "num_gpu_blocks_override": 256}
    settings |= {"max_num_seqs": 16, "max_model_len": 1024, **arguments}
    engine = AsyncLLM(FIXTURES / MODEL, **settings)
    try:
        yield App.make(runner, engine, served_model_name=[MODEL], **options)
    finally:
        engine.shutdown()


def events(response: httpx.Response) -> list[Any]:
    """Return the events of a complete stream."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [event.removeprefix("data: ") for event in response.text.split("\n\n") if event]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]
