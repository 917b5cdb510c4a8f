"""Under which names the model is served: `/v1/models`.

vLLM: vllm/entrypoints/openai/serving_models.py::OpenAIServingModels. Left out: LoRA adapters. `/v1/models/{id}` is
OpenAI's; vLLM does not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from tracellm.engine.entrypoints.openai.http_errors import create_error_response
from tracellm.engine.entrypoints.openai.protocol import ErrorResponse, ModelCard, ModelList, ModelPermission
from tracellm.engine.entrypoints.openai.tokenizing import AsyncTokenizer
from tracellm.engine.frontend.async_llm import AsyncLLM

__all__ = ["BaseModelPath", "OpenAIServingModels"]


@dataclass
class BaseModelPath:
    """A served name, and the model that it stands for."""

    name: str
    model_path: str


class OpenAIServingModels:
    """The served names; all stand for the one model of the engine."""

    def __init__(self, engine_client: AsyncLLM, base_model_paths: Sequence[BaseModelPath]) -> None:
        self.base_model_paths = list(base_model_paths)
        self.model_config = engine_client.model_config
        self.max_model_len = self.model_config.max_model_len
        self.async_tokenizer = AsyncTokenizer(engine_client.processor.input_preprocessor)

    def is_base_model(self, model_name: str) -> bool:
        """Is this one of the served names?"""
        return any(model.name == model_name for model in self.base_model_paths)

    def model_name(self) -> str:
        """The name that stands in responses: the first."""
        return self.base_model_paths[0].name

    def not_found(self, model_name: str) -> ErrorResponse:
        """The refusal of any other name."""
        known = ", ".join(f"`{model.name}`" for model in self.base_model_paths)
        return create_error_response(
            f"The model `{model_name[:200]}` does not exist. Served here: {known}.", HTTPStatus.NOT_FOUND, param="model"
        )

    async def show_available_models(self) -> ModelList:
        """All served names."""
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
        """One of them."""
        cards = (await self.show_available_models()).data
        return next((card for card in cards if card.id == model_name), None) or self.not_found(model_name)
