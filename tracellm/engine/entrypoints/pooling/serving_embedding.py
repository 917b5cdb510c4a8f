"""`OpenAIServingEmbedding`: `/v1/embeddings`, one vector for each input.

vLLM: vllm/entrypoints/openai/serving_embedding.py::OpenAIServingEmbedding. Left out: inputs longer than the model.
"""

from __future__ import annotations

from fastapi import Request

from tracellm.engine.entrypoints.openai.protocol import ErrorResponse
from tracellm.engine.entrypoints.pooling.protocol import EmbeddingRequest, EmbeddingResponse, EmbeddingResponseData
from tracellm.engine.entrypoints.pooling.serving_pooling import OpenAIServingPooling

__all__ = ["OpenAIServingEmbedding"]


class OpenAIServingEmbedding(OpenAIServingPooling):
    """Serving class of `/v1/embeddings`."""

    async def create_embedding(
        self, request: EmbeddingRequest, raw_request: Request | None = None
    ) -> EmbeddingResponse | ErrorResponse:
        """Return the embedding of each input.

        Raises:
            EngineDeadError: The engine has died.
        """
        if (model_error := await self._check_model(request.model)) is not None:
            return model_error
        request_id = f"embd-{self._base_request_id(raw_request, request.request_id)}"
        try:
            params = request.to_pooling_params()
            params.verify("embed", self.model_config)
            outputs = await self._encode(request, params, request_id, raw_request)
        except ValueError as error:
            return self._error_response(error)
        data = [
            EmbeddingResponseData(index=index, embedding=self._encoded(request, output))
            for index, output in enumerate(outputs)
        ]
        return EmbeddingResponse(
            id=request_id, model=self.models.model_name(), data=data, usage=self._usage_of(outputs)
        )
