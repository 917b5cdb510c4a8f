"""Routes of the server. A route reads the request's body and passes it to the serving class of its path.

vLLM: the routes of vllm/entrypoints/openai/api_server.py. Left out: /docs and /openapi.json, and the routes of other
models and APIs.
"""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.entrypoints.openai.http_requests import read_request
from tracellm.engine.entrypoints.openai.http_responses import respond
from tracellm.engine.entrypoints.openai.protocol import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TokenizeRequest,
)

__all__ = ["PATHS", "router"]

router = APIRouter()


@router.post("/v1/chat/completions")
async def create_chat_completion(raw_request: Request) -> Response:
    """Generate the next message of a conversation."""
    request = await read_request(raw_request, ChatCompletionRequest)
    serving = raw_request.app.state.openai_serving_chat
    return await respond(raw_request, serving.create_chat_completion(request, raw_request))


@router.post("/v1/completions")
async def create_completion(raw_request: Request) -> Response:
    """Generate text after prompts."""
    request = await read_request(raw_request, CompletionRequest)
    serving = raw_request.app.state.openai_serving_completion
    return await respond(raw_request, serving.create_completion(request, raw_request))


@router.post("/tokenize")
async def tokenize(raw_request: Request) -> Response:
    """Return the tokens of a text or a conversation."""

    def select_model(data: dict[str, Any]) -> type[TokenizeRequest]:
        return TokenizeChatRequest if "messages" in data else TokenizeCompletionRequest

    request: TokenizeRequest = await read_request(raw_request, select_model)
    serving = raw_request.app.state.openai_serving_tokenization
    return await respond(raw_request, serving.create_tokenize(request, raw_request))


@router.post("/detokenize")
async def detokenize(raw_request: Request) -> Response:
    """Return the text of tokens."""
    request = await read_request(raw_request, DetokenizeRequest)
    serving = raw_request.app.state.openai_serving_tokenization
    return await respond(raw_request, serving.create_detokenize(request, raw_request))


@router.get("/v1/models")
async def show_available_models(raw_request: Request) -> Response:
    """List the served model names."""
    return await respond(raw_request, raw_request.app.state.openai_serving_models.show_available_models())


@router.get("/v1/models/{model_name:path}")
async def show_model(model_name: str, raw_request: Request) -> Response:
    """Return one served model name; names may contain slashes."""
    return await respond(raw_request, raw_request.app.state.openai_serving_models.show_model(model_name))


@router.get("/health")
@router.get("/ping")
@router.post("/ping")
async def health(raw_request: Request) -> Response:
    """Return status 200, or 503 if the engine has died."""
    try:
        await raw_request.app.state.engine_client.check_health()
    except EngineDeadError:
        return Response(status_code=503)
    return Response(status_code=200)


@router.get("/load")
async def get_server_load_metrics(raw_request: Request) -> dict[str, int]:
    """Return the number of requests in progress."""
    return {"server_load": raw_request.app.state.server_load_metrics}


@router.get("/version")
async def show_version() -> dict[str, str]:
    """Return the version of tracellm."""
    from tracellm import __version__

    return {"version": __version__}


@router.get("/metrics")
async def metrics(raw_request: Request) -> Response:
    """Return the engine's metrics in Prometheus' text format; empty under --disable-log-stats."""
    registry = raw_request.app.state.engine_client.prometheus_registry
    return Response(b"" if registry is None else generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


PATHS = sorted({route.path for route in router.routes if isinstance(route, APIRoute)})
"""All paths, for the error of an unknown path."""
