"""Request and response models of `/v1/embeddings`, `/pooling`, `/score` and `/rerank`.

The form is that of openai/protocol.py: names, types and defaults are OpenAI's and vLLM's.

vLLM: vllm/entrypoints/openai/protocol.py. Left out: `encoding_format="bytes"`, images in scores, plugins.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SkipValidation, field_validator

from tracellm.engine.entrypoints.openai.protocol import (
    INT64_LIMIT,
    MAX_ID_LENGTH,
    Items,
    OpenAIBaseModel,
    UsageInfo,
    check_prompts,
    random_uuid,
    unix_time,
)
from tracellm.engine.pool.pooling_params import PoolingParams

__all__ = [
    "EmbedDType",
    "EmbeddingChatRequest",
    "EmbeddingCompletionRequest",
    "EmbeddingRequest",
    "EmbeddingResponse",
    "EmbeddingResponseData",
    "Endianness",
    "PoolingChatRequest",
    "PoolingCompletionRequest",
    "PoolingRequest",
    "PoolingResponse",
    "PoolingResponseData",
    "RerankDocument",
    "RerankRequest",
    "RerankResponse",
    "RerankResult",
    "RerankUsage",
    "ScoreRequest",
    "ScoreResponse",
    "ScoreResponseData",
]

EmbedDType = Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]
Endianness = Literal["native", "big", "little"]


class _PoolingFields(OpenAIBaseModel):
    """Fields of all requests."""

    model: str | None = None
    """Served model name; None for the only model."""
    truncate_prompt_tokens: int | None = Field(None, ge=-1)
    """Number of tokens to keep: the first of a text, the last of token ids; -1 is the model's length."""
    priority: int = Field(0, ge=-INT64_LIMIT, lt=INT64_LIMIT)


class _EmbeddingFields(_PoolingFields):
    """Fields of requests for embeddings."""

    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    """Number of leading values to keep, for a matryoshka model."""
    user: str | None = None
    request_id: str = Field(default_factory=random_uuid, max_length=MAX_ID_LENGTH)
    normalize: bool | None = None
    """Divide embeddings by their Euclidean norm; None is the server's `--pooler-config`, then True."""
    embed_dtype: EmbedDType = "float32"
    """dtype of values in base64."""
    endianness: Endianness = "native"
    """Byte order of values in base64."""

    def to_pooling_params(self) -> PoolingParams:
        """Convert the request to pooling parameters."""
        return PoolingParams(dimensions=self.dimensions, normalize=self.normalize)


class EmbeddingCompletionRequest(_EmbeddingFields):
    """Body of `/v1/embeddings` for texts or token ids."""

    input: str | Items[str] | Items[int] | Items[Items[int]]
    add_special_tokens: bool = True

    @field_validator("input", mode="plain")
    @classmethod
    def _check_input(cls, value: Any) -> Any:
        return check_prompts(value)

    @property
    def prompts(self) -> list[str | list[int]]:
        """Inputs as a list, each a text or token ids."""
        prompts: Any = self.input
        return [prompts] if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)) else prompts


class EmbeddingChatRequest(_EmbeddingFields):
    """Body of `/v1/embeddings` for a conversation, rendered with the chat template."""

    messages: Items[dict[str, Any]]
    add_generation_prompt: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: None = None

    continue_final_message: ClassVar[bool] = False
    tools: ClassVar[None] = None


EmbeddingRequest = EmbeddingCompletionRequest | EmbeddingChatRequest


class _TaskFields(_EmbeddingFields):
    """Fields of `/pooling` beside those of `/v1/embeddings`."""

    task: Literal["embed", "classify", "score", "token_embed", "token_classify", "plugin"] | None = None
    """None is `token_embed`."""
    use_activation: bool | None = None

    def to_pooling_params(self) -> PoolingParams:
        """Convert the request to pooling parameters."""
        return PoolingParams(normalize=self.normalize, use_activation=self.use_activation)


class PoolingCompletionRequest(_TaskFields, EmbeddingCompletionRequest):
    """Body of `/pooling` for texts or token ids."""


class PoolingChatRequest(_TaskFields, EmbeddingChatRequest):
    """Body of `/pooling` for a conversation."""


PoolingRequest = PoolingCompletionRequest | PoolingChatRequest


class EmbeddingResponseData(OpenAIBaseModel):
    """Embedding of one input."""

    index: int
    object: Literal["embedding"] = "embedding"
    embedding: SkipValidation[list[float] | str]
    """Values, or their bytes in base64."""


class EmbeddingResponse(OpenAIBaseModel):
    """Response of `/v1/embeddings`."""

    id: str = Field(default_factory=lambda: f"embd-{random_uuid()}")
    object: Literal["list"] = "list"
    created: int = Field(default_factory=unix_time)
    model: str
    data: list[EmbeddingResponseData]
    usage: UsageInfo


class PoolingResponseData(OpenAIBaseModel):
    """Result of one input."""

    index: int
    object: Literal["pooling"] = "pooling"
    data: SkipValidation[list[list[float]] | list[float] | str]
    """Values, or values of each token, or the bytes of either in base64."""


class PoolingResponse(OpenAIBaseModel):
    """Response of `/pooling`."""

    id: str = Field(default_factory=lambda: f"pool-{random_uuid()}")
    object: Literal["list"] = "list"
    created: int = Field(default_factory=unix_time)
    model: str
    data: list[PoolingResponseData]
    usage: UsageInfo


# -- /score and /rerank -----------------------------------------------------------------------------------------------

_Texts = Annotated[str | Items[str], Field(union_mode="left_to_right")]


class ScoreRequest(_PoolingFields):
    """Body of `/score`: pairs of texts; a single `text_1` pairs with each of `text_2`."""

    text_1: _Texts
    text_2: _Texts
    use_activation: bool | None = None


class ScoreResponseData(OpenAIBaseModel):
    """Similarity of one pair."""

    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreResponse(OpenAIBaseModel):
    """Response of `/score`."""

    id: str = Field(default_factory=lambda: f"embd-{random_uuid()}")
    object: Literal["list"] = "list"
    created: int = Field(default_factory=unix_time)
    model: str
    data: list[ScoreResponseData]
    usage: UsageInfo


class RerankRequest(_PoolingFields):
    """Body of `/rerank`: documents to order by their similarity to a query."""

    query: str
    documents: Items[str]
    top_n: int = 0
    """Number of documents to return; 0 is all."""
    use_activation: bool | None = None


class RerankDocument(OpenAIBaseModel):
    """Document in a result."""

    text: str | None = None
    multi_modal: None = None


class RerankResult(OpenAIBaseModel):
    """One document and its similarity to the query."""

    index: int
    """Index among the request's documents."""
    document: RerankDocument
    relevance_score: float


class RerankUsage(OpenAIBaseModel):
    """Token count of a rerank request."""

    total_tokens: int


class RerankResponse(OpenAIBaseModel):
    """Response of `/rerank`, the most similar document first."""

    id: str
    model: str
    usage: RerankUsage
    results: list[RerankResult]
