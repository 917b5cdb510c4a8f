"""Pooling parameters: the task of a request to a pooling model, and the form of its result.

A prompt for `LLM.encode` comes with a `PoolingParams`. The `Processor` completes a copy of it for the request
(`verify`). The scheduler reads `skip_reading_prefix_cache`, the pooler the rest.

vLLM: vllm/pooling_params.py. Left out: step pooling, plugins, the deprecated names of `use_activation`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.config.validation import Rule, anything, reject_unknown_fields, verify
from tracellm.engine.sample.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import ModelConfig

__all__ = ["PoolingParams"]

_VALID_PARAMETERS = {"embed": ["dimensions", "normalize"], "token_embed": ["dimensions", "normalize"]}
"""Parameters of each task."""
_ALL_PARAMETERS = ("dimensions", "normalize", "use_activation")

_RULES = (
    Rule(
        *("truncate_prompt_tokens", int, lambda v: v == -1 or v >= 1),
        "a whole number, at least 1, or -1 for the model's length, or None",
    ),
    Rule("dimensions", int, anything, "a whole number, or None"),
    Rule("normalize", bool, anything, "True or False, or None"),
    Rule("use_activation", bool, anything, "True or False, or None"),
    Rule("task", str, anything, "the name of a task, or None"),
    Rule("skip_reading_prefix_cache", bool, anything, "True or False, or None"),
    Rule("output_kind", RequestOutputKind, lambda v: v is RequestOutputKind.FINAL_ONLY, "FINAL_ONLY for pooling"),
)


@dataclass(kw_only=True)
class PoolingParams:
    """Pooling parameters of a request; names, defaults and meaning as in vLLM.

    Raises:
        EngineError: an unknown name, or a value of the wrong type.
    """

    truncate_prompt_tokens: int | None = None
    """Number of first tokens to keep of a text prompt; -1 is the model's length, None is all."""
    dimensions: int | None = None
    """Number of leading values to keep of an embedding, for a matryoshka model; None is all."""
    normalize: bool | None = None
    """Divide an embedding by its Euclidean norm; None is the model's `pooler_config`, then True."""
    use_activation: bool | None = None
    """Must be None; it belongs to classification, which tracellm does not have."""
    task: str | None = None
    """`embed`, a vector for the prompt, or `token_embed`, one for each token; set by `LLM.encode`."""
    skip_reading_prefix_cache: bool | None = field(default=None, repr=False)
    """Compute the whole prompt despite the prefix cache; None is True if every token has a result."""
    output_kind: RequestOutputKind = field(default=RequestOutputKind.FINAL_ONLY, repr=False)

    def __new__(cls, *args: object, **kwargs: object) -> PoolingParams:
        """Reject unknown names, with a better message than `__init__`'s."""
        if args:
            raise EngineError(
                f"PoolingParams takes its parameters by name, as in PoolingParams(normalize=False); got {args[0]!r}."
            )
        reject_unknown_fields(cls, kwargs)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        verify("PoolingParams", self, _RULES)

    def clone(self) -> PoolingParams:
        """Return a copy."""
        return replace(self)

    def verify(self, task: str, model_config: ModelConfig) -> None:
        """Set the task, take over what the parameters leave open, and check them against the model.

        vLLM: vllm/pooling_params.py::PoolingParams.verify.

        Raises:
            InvalidRequestError: another task is set, a parameter does not belong to the task, or the model has no
                embeddings of this size.
        """
        if self.task not in (None, task):
            raise InvalidRequestError(f"You cannot overwrite self.task={self.task!r} with task={task!r}!")
        self.task = task
        valid = _VALID_PARAMETERS[task]
        if invalid := [name for name in _ALL_PARAMETERS if name not in valid and getattr(self, name) is not None]:
            raise InvalidRequestError(
                f"Task {task} only supports {valid} parameters, does not support {invalid} parameters"
            )
        pooler_config = model_config.pooler_config
        assert pooler_config is not None, "of a pooling model"
        if self.normalize is None:
            self.normalize = pooler_config.normalize is not False
        if self.dimensions is None:
            self.dimensions = pooler_config.dimensions
        if self.dimensions is not None:
            self._verify_dimensions(self.dimensions, model_config)
        if self.skip_reading_prefix_cache is None:
            self.skip_reading_prefix_cache = task == "token_embed"

    @staticmethod
    def _verify_dimensions(dimensions: int, model_config: ModelConfig) -> None:
        """Accept the sizes that a matryoshka model was trained for."""
        name, trained = model_config.served_model_name, model_config.matryoshka_dimensions
        if not model_config.is_matryoshka:
            raise InvalidRequestError(
                f'Model "{name}" does not support matryoshka representation, changing output dimensions will lead to '
                "poor results."
            )
        if trained is not None and dimensions not in trained:
            raise InvalidRequestError(
                f'Model "{name}" only supports {trained} matryoshka dimensions, use other output dimensions will lead '
                "to poor results."
            )
        if dimensions < 1:
            raise InvalidRequestError("Dimensions must be greater than 0")
        if dimensions > (hidden_size := model_config.get_hidden_size()):
            raise InvalidRequestError(
                f'Model "{name}" has embeddings of {hidden_size} dimensions, {dimensions} are more than that.'
            )
