"""`ServingScores`: `/score`, the similarity of pairs of texts, and `/rerank`, documents ordered by it.

The similarity is the cosine of the texts' embeddings.

vLLM: vllm/entrypoints/openai/serving_score.py::ServingScores. Left out: cross-encoders, images.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from tracellm.engine.entrypoints.openai.protocol import ErrorResponse
from tracellm.engine.entrypoints.pooling.methods import cosine_similarity, validate_score_input_lens
from tracellm.engine.entrypoints.pooling.protocol import (
    RerankDocument,
    RerankRequest,
    RerankResponse,
    RerankResult,
    RerankUsage,
    ScoreRequest,
    ScoreResponse,
    ScoreResponseData,
)
from tracellm.engine.entrypoints.pooling.serving_pooling import OpenAIServingPooling
from tracellm.engine.frontend.outputs import ScoringRequestOutput
from tracellm.engine.pool.pooling_params import PoolingParams

__all__ = ["ServingScores"]


class ServingScores(OpenAIServingPooling):
    """Serving class of `/score` and `/rerank`."""

    async def create_score(
        self, request: ScoreRequest, raw_request: Request | None = None
    ) -> ScoreResponse | ErrorResponse:
        """Return the similarity of each pair of texts.

        Raises:
            EngineDeadError: The engine has died.
        """
        if (model_error := await self._check_model(request.model)) is not None:
            return model_error
        request_id = f"score-{self._base_request_id(raw_request)}"
        texts_1, texts_2 = ([text] if isinstance(text, str) else text for text in (request.text_1, request.text_2))
        try:
            scores = await self._run_scoring(texts_1, texts_2, request, request_id, raw_request)
        except ValueError as error:
            return self._error_response(error)
        data = [ScoreResponseData(index=index, score=score.outputs.score) for index, score in enumerate(scores)]
        return ScoreResponse(id=request_id, model=self.models.model_name(), data=data, usage=self._usage_of(scores))

    async def do_rerank(
        self, request: RerankRequest, raw_request: Request | None = None
    ) -> RerankResponse | ErrorResponse:
        """Return the documents that are most similar to the query.

        Raises:
            EngineDeadError: The engine has died.
        """
        if (model_error := await self._check_model(request.model)) is not None:
            return model_error
        request_id = f"rerank-{self._base_request_id(raw_request)}"
        try:
            scores = await self._run_scoring([request.query], request.documents, request, request_id, raw_request)
        except ValueError as error:
            return self._error_response(error)
        results = [
            RerankResult(index=index, document=RerankDocument(text=text), relevance_score=score.outputs.score)
            for index, (text, score) in enumerate(zip(request.documents, scores, strict=True))
        ]
        results.sort(key=lambda result: result.relevance_score, reverse=True)
        return RerankResponse(
            id=request_id,
            model=self.models.model_name(),
            results=results[: request.top_n] if request.top_n > 0 else results,
            usage=RerankUsage(total_tokens=self._usage_of(scores).total_tokens),
        )

    async def _run_scoring(
        self,
        texts_1: Sequence[str],
        texts_2: Sequence[str],
        request: ScoreRequest | RerankRequest,
        request_id: str,
        raw_request: Request | None,
    ) -> list[ScoringRequestOutput]:
        """Return an output for each pair.

        Raises:
            InvalidRequestError: The numbers of texts differ, or a text or a parameter is invalid.
        """
        validate_score_input_lens(texts_1, texts_2)
        params = PoolingParams(use_activation=request.use_activation)
        params.verify("embed", self.model_config)
        engine_prompts = await self._tokenize([*texts_1, *texts_2], request.truncate_prompt_tokens)
        operation = "score" if isinstance(request, ScoreRequest) else "embedding generation"
        outputs = await self._encode_prompts(
            engine_prompts, params, request_id, raw_request, request.priority, operation
        )
        pad_token_id = (await self.engine_client.get_tokenizer()).pad_token_id
        scores = cosine_similarity(pad_token_id, outputs[: len(texts_1)], outputs[len(texts_1) :])
        return [ScoringRequestOutput.from_base(score) for score in scores]
