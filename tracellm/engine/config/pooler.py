"""`PoolerConfig`: how a pooling model makes vectors of hidden states; and the choice between generation and pooling.

Read once at start-up, by `EngineArgs.create_model_config`.

vLLM: vllm/config/pooler.py, and `_get_runner_type` and `_get_convert_type` of vllm/config/model.py. Left out:
classification, rewards, embeddings of texts longer than the model.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tracellm.engine.config.errors import EngineError, ModelLoadError, first_line, unknown_name
from tracellm.engine.config.validation import Rule, anything, verify

__all__ = ["POOLING_TYPES", "PoolerConfig", "get_pooling_config", "resolve_pooling"]

logger = logging.getLogger(__name__)

POOLING_TYPES = ("LAST", "CLS", "MEAN", "ALL")
_SENTENCE_TRANSFORMERS_MODES = {
    "pooling_mode_lasttoken": "LAST",
    "pooling_mode_cls_token": "CLS",
    "pooling_mode_mean_tokens": "MEAN",
}
_UNSUPPORTED = (
    *("activation", "enable_chunked_processing", "logit_bias", "max_embed_len", "returned_token_ids", "softmax"),
    *("step_tag_id", "use_activation"),
)
"""Fields of vLLM's for features that tracellm does not have; None is accepted."""

_RULES = (
    Rule("pooling_type", str, POOLING_TYPES.__contains__, f"one of {', '.join(POOLING_TYPES)}, or None"),
    Rule("normalize", bool, anything, "True or False, or None"),
    Rule("dimensions", int, lambda v: v >= 1, "a whole number, at least 1, or None"),
)


@dataclass
class PoolerConfig:
    """Settings of the pooler. None leaves the choice to the model's files, then to the default.

    Raises:
        EngineError: an invalid value.
    """

    pooling_type: str | None = None
    """`LAST` (the default), `CLS` (the first token), `MEAN`, or `ALL`, a vector for each token."""
    normalize: bool | None = None
    """Divide embeddings by their Euclidean norm; None is True."""
    dimensions: int | None = None
    """Number of leading values to keep of an embedding, for a matryoshka model; None is all."""

    def __post_init__(self) -> None:
        if isinstance(self.pooling_type, str):
            self.pooling_type = self.pooling_type.upper()
        verify("PoolerConfig", self, _RULES)

    @classmethod
    def from_argument(cls, value: Mapping[str, Any] | PoolerConfig | None) -> PoolerConfig:
        """Return a copy of a `PoolerConfig`, or one with the entries of a dict.

        Raises:
            EngineError: an unknown entry, or an invalid value.
        """
        if not isinstance(value, (Mapping, PoolerConfig, type(None))):
            raise EngineError(f"LLM: `pooler_config` must be a dict, a PoolerConfig, or None, got {value!r}.")
        values = dict(vars(value) if isinstance(value, PoolerConfig) else value or {})
        known = [field.name for field in fields(cls)]
        for name in [name for name in values if name not in known]:
            entry = values.pop(name)
            if name not in _UNSUPPORTED:
                raise EngineError(unknown_name("PoolerConfig", "entry", str(name), known))
            if entry is not None:
                raise EngineError(f"PoolerConfig: tracellm does not have `{name}`, which vLLM has: leave it out.")
        return cls(**values)


def get_pooling_config(folder: Path) -> PoolerConfig | None:
    """Return the settings in the files of sentence-transformers beside a model; None without them.

    modules.json lists the modules after the model: a Pooling module, with a config.json of its own, and Normalize.

    Raises:
        ModelLoadError: a file is damaged, or asks for another kind of pooling.
    """
    file = folder / "modules.json"
    if not file.is_file():
        return None
    try:
        modules = {str(module["type"]).rpartition(".")[2]: module for module in json.loads(file.read_bytes())}
        if (pooling := modules.get("Pooling")) is None:
            return None
        if "Dense" in modules:
            raise ModelLoadError(f"`{file}` has a Dense module after the model, which is not supported.")
        file = folder / pooling["path"] / "config.json"
        modes = [name for name, value in json.loads(file.read_bytes()).items() if value is True]
    except (ValueError, OSError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ModelLoadError):
            raise
        raise ModelLoadError(f"`{file}` is damaged: {first_line(error)}.") from None
    modes = [name for name in modes if name.startswith("pooling_mode_")]
    if len(modes) != 1 or modes[0] not in _SENTENCE_TRANSFORMERS_MODES:
        raise ModelLoadError(
            f"`{file}` asks for the pooling {', '.join(modes) or 'of nothing'}; supported are "
            f"{', '.join(_SENTENCE_TRANSFORMERS_MODES)}, one at a time."
        )
    return PoolerConfig(_SENTENCE_TRANSFORMERS_MODES[modes[0]], normalize="Normalize" in modules)


def resolve_pooling(
    runner: str, convert: str, argument: Mapping[str, Any] | PoolerConfig | None, folder: Path, generates: bool
) -> PoolerConfig | None:
    """Return the pooler's settings, or None for a model that generates.

    Args:
        runner: `generate`, `pooling`, or `auto`, which is pooling for a model without an output layer, or with files
            of sentence-transformers.
        convert: `embed`, `none` (do not make a pooling model of one that generates), or `auto`.
        argument: settings that go before those in the model's files.
        folder: the model's files.
        generates: whether the architecture in config.json has an output layer.

    Raises:
        EngineError: the model cannot be run so, or there are settings of a pooler without one.
        ModelLoadError: see `get_pooling_config`.
    """
    in_files = None if runner == "generate" else get_pooling_config(folder)
    if runner == "auto":
        runner = "pooling" if convert == "embed" or in_files is not None or not generates else "generate"
    if runner == "generate":
        if not generates:
            raise EngineError(
                "This model does not support `--runner generate`. Its checkpoint has no output layer: use it with "
                "runner='pooling'."
            )
        if argument is not None or convert == "embed":
            name = "pooler_config" if argument is not None else "convert"
            raise EngineError(f"LLM: `{name}` is for pooling models: give runner='pooling', or leave it out.")
        return None
    if convert == "none" and generates:
        raise EngineError(
            "This model does not support `--runner pooling`. You can pass `--convert embed` to adapt it into a pooling "
            "model."
        )
    config, defaults = PoolerConfig.from_argument(argument), in_files or PoolerConfig()
    for field in fields(config):
        if getattr(config, field.name) is None:
            setattr(config, field.name, getattr(defaults, field.name))
    config.pooling_type = config.pooling_type or "LAST"
    return config
