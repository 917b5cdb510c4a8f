"""Served model names, as listed by `/v1/models` and checked by every serving class.

vLLM: vllm/entrypoints/openai/serving_models.py::OpenAIServingModels. Left out: LoRA adapters. `/v1/models/{id}` is
OpenAI's; vLLM does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from tracellm.engine.entrypoints.openai.async_utils import AsyncTokenizer
from tracellm.engine.entrypoints.openai.http_responses import create_error_response
from tracellm.engine.entrypoints.openai.protocol import ErrorResponse, ModelCard, ModelList, ModelPermission
from tracellm.engine.frontend.async_llm import AsyncLLM

__all__ = ["BaseModelPath", "OpenAIServingModels"]


@dataclass
class BaseModelPath:
    """Served model name and the model's path."""

    name: str
    model_path: str


class OpenAIServingModels:
    """Served names of the engine's only model."""

    def __init__(self, engine_client: AsyncLLM, base_model_paths: Sequence[BaseModelPath]) -> None:
        self.base_model_paths = list(base_model_paths)
        self.model_config = engine_client.model_config
        self.max_model_len = self.model_config.max_model_len
        self.async_tokenizer = AsyncTokenizer(engine_client.processor.input_preprocessor)

    def is_base_model(self, model_name: str) -> bool:
        """Return whether the model is served under this name."""
        return any(model.name == model_name for model in self.base_model_paths)

    def model_name(self) -> str:
        """Return the first served name, which responses contain."""
        return self.base_model_paths[0].name

    def not_found(self, model_name: str) -> ErrorResponse:
        """Return the error response for an unknown name."""
        served = ", ".join(f"`{model.name}`" for model in self.base_model_paths)
        return create_error_response(
            f"The model `{model_name[:200]}` does not exist. Served here: {served}.",
            HTTPStatus.NOT_FOUND,
            param="model",
        )

    async def show_available_models(self) -> ModelList:
        """List the served names."""
        return ModelList(
            data=[
                ModelCard(
                    id=model.name,
                    root=model.model_path,
                    max_model_len=self.max_model_len,
                    permission=[ModelPermission()],
                )
                for model in self.base_model_paths
            ]
        )

    async def show_model(self, model_name: str) -> ModelCard | ErrorResponse:
        """Return one served name, or an error."""
        cards = (await self.show_available_models()).data
        return next((card for card in cards if card.id == model_name), None) or self.not_found(model_name)
