"""The paths of the server. A route reads the request's body and hands it to the serving class that knows the rest.

vLLM: the routes of vllm/entrypoints/openai/api_server.py. Left out: /docs and /openapi.json, and all that serves other
models or other APIs.
"""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.entrypoints.openai.http_body import read_request
from tracellm.engine.entrypoints.openai.http_responses import respond
from tracellm.engine.entrypoints.openai.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TokenizeRequest,
)
from tracellm.engine.entrypoints.openai.serving_chat import OpenAIServingChat
from tracellm.engine.entrypoints.openai.serving_completion import OpenAIServingCompletion
from tracellm.engine.entrypoints.openai.serving_models import OpenAIServingModels
from tracellm.engine.entrypoints.openai.serving_tokenization import OpenAIServingTokenization
from tracellm.engine.frontend.async_llm import AsyncLLM

__all__ = ["PATHS", "router"]

router = APIRouter()

_CHAT = TypeAdapter(ChatCompletionRequest)
_COMPLETION = TypeAdapter(CompletionRequest)
_TOKENIZE_CHAT = TypeAdapter(TokenizeChatRequest)
_TOKENIZE = TypeAdapter(TokenizeCompletionRequest)
_DETOKENIZE = TypeAdapter(DetokenizeRequest)


def engine_client(request: Request) -> AsyncLLM:
    """The engine behind this server."""
    client: AsyncLLM = request.app.state.engine_client
    return client


def models(request: Request) -> OpenAIServingModels:
    """Who knows the served names."""
    serving: OpenAIServingModels = request.app.state.openai_serving_models
    return serving


def chat(request: Request) -> OpenAIServingChat:
    """Who serves conversations."""
    serving: OpenAIServingChat = request.app.state.openai_serving_chat
    return serving


def completion(request: Request) -> OpenAIServingCompletion:
    """Who serves prompts."""
    serving: OpenAIServingCompletion = request.app.state.openai_serving_completion
    return serving


def tokenization(request: Request) -> OpenAIServingTokenization:
    """Who serves the tokenizer."""
    serving: OpenAIServingTokenization = request.app.state.openai_serving_tokenization
    return serving


@router.post("/v1/chat/completions")
async def create_chat_completion(raw_request: Request) -> Response:
    """Answer a conversation."""
    request = await read_request(raw_request, _CHAT)
    return await respond(raw_request, chat(raw_request).create_chat_completion(request, raw_request))


@router.post("/v1/completions")
async def create_completion(raw_request: Request) -> Response:
    """Continue prompts."""
    request = await read_request(raw_request, _COMPLETION)
    return await respond(raw_request, completion(raw_request).create_completion(request, raw_request))


@router.post("/tokenize")
async def tokenize(raw_request: Request) -> Response:
    """The tokens of a text or a conversation."""

    def choose(data: dict[str, Any]) -> TypeAdapter[Any]:
        return _TOKENIZE_CHAT if "messages" in data else _TOKENIZE

    request: TokenizeRequest = await read_request(raw_request, choose)
    return await respond(raw_request, tokenization(raw_request).create_tokenize(request, raw_request))


@router.post("/detokenize")
async def detokenize(raw_request: Request) -> Response:
    """The text of tokens."""
    request = await read_request(raw_request, _DETOKENIZE)
    return await respond(raw_request, tokenization(raw_request).create_detokenize(request, raw_request))


@router.get("/v1/models")
async def show_available_models(raw_request: Request) -> Response:
    """The served names."""
    return await respond(raw_request, models(raw_request).show_available_models())


@router.get("/v1/models/{model_name:path}")
async def show_model(model_name: str, raw_request: Request) -> Response:
    """One served name, which may hold slashes."""
    return await respond(raw_request, models(raw_request).show_model(model_name))


@router.get("/health")
@router.get("/ping")
@router.post("/ping")
async def health(raw_request: Request) -> Response:
    """200 when requests can be served, 503 when the engine has died."""
    try:
        await engine_client(raw_request).check_health()
    except EngineDeadError:
        return Response(status_code=503)
    return Response(status_code=200)


@router.get("/load")
async def get_server_load_metrics(raw_request: Request) -> dict[str, int]:
    """How many requests are being answered."""
    return {"server_load": raw_request.app.state.server_load_metrics}


@router.get("/version")
async def show_version() -> dict[str, str]:
    """The version of tracellm."""
    from tracellm import __version__

    return {"version": __version__}


@router.get("/metrics")
async def metrics(raw_request: Request) -> Response:
    """The engine's statistics in Prometheus' text format; nothing under --disable-log-stats."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    registry = engine_client(raw_request).prometheus_registry
    return Response(b"" if registry is None else generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


PATHS = sorted({route.path for route in router.routes if isinstance(route, APIRoute)})
"""All of them, for a message."""
