"""Routes of pooling models: `/v1/embeddings`, `/pooling`, `/score` and `/rerank`.

`build_app` includes the router; `init_app_state` calls `init_pooling_state` once the engine is there.

vLLM: vllm/entrypoints/openai/api_server.py.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tracellm.engine.entrypoints.openai.http_requests import read_request
from tracellm.engine.entrypoints.openai.http_responses import get_serving, respond
from tracellm.engine.entrypoints.openai.serving_models import OpenAIServingModels
from tracellm.engine.entrypoints.pooling.protocol import (
    EmbeddingChatRequest,
    EmbeddingCompletionRequest,
    EmbeddingRequest,
    PoolingChatRequest,
    PoolingCompletionRequest,
    PoolingRequest,
    RerankRequest,
    ScoreRequest,
)
from tracellm.engine.entrypoints.pooling.serving_embedding import OpenAIServingEmbedding
from tracellm.engine.entrypoints.pooling.serving_pooling import OpenAIServingPooling
from tracellm.engine.entrypoints.pooling.serving_score import ServingScores
from tracellm.engine.frontend.async_llm import AsyncLLM

__all__ = ["init_pooling_state", "router"]

router = APIRouter()


@router.post("/v1/embeddings")
async def create_embedding(raw_request: Request) -> Response:
    """Return an embedding for each input."""
    request: EmbeddingRequest = await read_request(raw_request, EmbeddingCompletionRequest, EmbeddingChatRequest)
    serving = get_serving(raw_request, "openai_serving_embedding", "Embeddings")
    return await respond(raw_request, serving.create_embedding(request, raw_request))


@router.post("/pooling")
async def create_pooling(raw_request: Request) -> Response:
    """Return the pooled hidden states of each input."""
    request: PoolingRequest = await read_request(raw_request, PoolingCompletionRequest, PoolingChatRequest)
    serving = get_serving(raw_request, "openai_serving_pooling", "Pooling")
    return await respond(raw_request, serving.create_pooling(request, raw_request))


@router.post("/score")
@router.post("/v1/score")
async def create_score(raw_request: Request) -> Response:
    """Return the similarity of each pair of texts."""
    request = await read_request(raw_request, ScoreRequest)
    serving = get_serving(raw_request, "openai_serving_scores", "Score")
    return await respond(raw_request, serving.create_score(request, raw_request))


@router.post("/rerank")
@router.post("/v1/rerank")
@router.post("/v2/rerank")
async def do_rerank(raw_request: Request) -> Response:
    """Return documents ordered by their similarity to a query."""
    request = await read_request(raw_request, RerankRequest)
    serving = get_serving(raw_request, "openai_serving_scores", "Rerank (Score)")
    return await respond(raw_request, serving.do_rerank(request, raw_request))


def init_pooling_state(
    engine_client: AsyncLLM, state: Any, models: OpenAIServingModels, options: dict[str, Any]
) -> None:
    """Set the serving classes of the model's tasks as state of the application; None for others."""
    tasks = engine_client.processor.supported_tasks

    def make(serving_class: type[OpenAIServingPooling], *needed: str) -> OpenAIServingPooling | None:
        return serving_class(engine_client, models, **options) if {*needed} & {*tasks} else None

    state.openai_serving_pooling = make(OpenAIServingPooling, "embed", "token_embed")
    state.openai_serving_embedding = make(OpenAIServingEmbedding, "embed")
    state.openai_serving_scores = make(ServingScores, "embed")
