"""What all requests and responses share: unknown fields, errors, models, usage.

vLLM: vllm/entrypoints/openai/protocol.py.
"""

import time
import uuid

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "LONGEST_ID",
    "ErrorInfo",
    "ErrorResponse",
    "ModelCard",
    "ModelList",
    "ModelPermission",
    "OpenAIBaseModel",
    "PromptTokenUsageInfo",
    "StreamOptions",
    "UsageInfo",
    "now",
    "random_uuid",
]


LONGEST_ID = 256
"""Characters of a request's id that its caller has chosen."""


def random_uuid() -> str:
    """32 random hexadecimal digits, for ids."""
    return uuid.uuid4().hex


def now() -> int:
    """The time for `created`: whole seconds since 1970."""
    return int(time.time())


class OpenAIBaseModel(BaseModel):
    """A part of a request or response. Fields that nobody here knows are accepted: clients may be of a newer version.

    They are ignored, and `http_body.py` logs their names.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class ErrorInfo(OpenAIBaseModel):
    """What went wrong."""

    message: str
    type: str
    """A name for this kind of error, such as `BadRequestError`."""
    param: str | None = None
    """The field of the request that is wrong, where there is one. vLLM leaves it empty."""
    code: int
    """The HTTP status, which is also sent where the status is 200 already: in the middle of a stream."""


class ErrorResponse(OpenAIBaseModel):
    """The body of every answer that is none."""

    error: ErrorInfo


class ModelPermission(OpenAIBaseModel):
    """What may be done with a model; OpenAI's API had it once, and vLLM kept it."""

    id: str = Field(default_factory=lambda: f"modelperm-{random_uuid()}")
    object: str = "model_permission"
    created: int = Field(default_factory=now)
    allow_create_engine: bool = False
    allow_sampling: bool = True
    allow_logprobs: bool = True
    allow_search_indices: bool = False
    allow_view: bool = True
    allow_fine_tuning: bool = False
    organization: str = "*"
    group: str | None = None
    is_blocking: bool = False


class ModelCard(OpenAIBaseModel):
    """A name under which the model is served."""

    id: str
    object: str = "model"
    created: int = Field(default_factory=now)
    owned_by: str = "tracellm"
    root: str | None = None
    """The model as it was given on the command line."""
    parent: str | None = None
    max_model_len: int | None = None
    """The most tokens of prompt and output together."""
    permission: list[ModelPermission] = Field(default_factory=list)


class ModelList(OpenAIBaseModel):
    """The answer of `/v1/models`."""

    object: str = "list"
    data: list[ModelCard] = Field(default_factory=list)


class PromptTokenUsageInfo(OpenAIBaseModel):
    """More about the tokens of the prompt."""

    cached_tokens: int | None = None
    """How many of them the prefix cache had."""


class UsageInfo(OpenAIBaseModel):
    """How many tokens a request took."""

    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: PromptTokenUsageInfo | None = None


class StreamOptions(OpenAIBaseModel):
    """What a stream tells besides the text."""

    include_usage: bool | None = True
    """A last chunk with the usage."""
    continuous_usage_stats: bool | None = False
    """The usage so far in every chunk; only together with `include_usage`."""
