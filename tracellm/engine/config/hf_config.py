"""What a checkpoint says of itself: where it is, its config.json and generation_config.json, its dtype and its length.

Reads Hugging Face directories and hub ids through transformers, those as plain as `tiny`, the model that comes with
tracellm, without it (plain_config.py).

vLLM: vllm/transformers_utils/config.py and vllm/config/model.py. Left out: remote code, GGUF, Mistral's own format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tracellm.engine.config import envs
from tracellm.engine.config.errors import EngineError, ModelLoadError, first_line
from tracellm.engine.config.hub import local_folder
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.config.light_config import complete_config, read_plain_config, read_plain_generation_config
from tracellm.engine.config.rope_config import get_rope_parameters

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

__all__ = [
    "EMBEDDED_MODEL",
    "HfOverrides",
    "get_config",
    "get_dtype",
    "get_generation_config",
    "get_max_model_len",
    "resolve_model",
]

EMBEDDED_MODEL = "tiny"
"""The name of the model inside the package."""

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")  # "gpt2", "facebook/opt-125m"
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
_DTYPES = {"half": "float16", "float16": "float16", "float": "float32", "float32": "float32", "bfloat16": "bfloat16"}


def resolve_model(name: str | PathLike[str]) -> str:
    """Where the model's files are: a directory's path, or a hub id as it is.

    `tiny` is always the embedded model; a directory of that name is `./tiny`. TRACELLM_MODELS may name a directory to
    take instead.

    Raises:
        ModelLoadError: no such directory, and it cannot be a hub id either.
        EngineError: TRACELLM_MODELS cannot be read.
    """
    name = envs.models().get(str(name), name)
    if str(name) == EMBEDDED_MODEL:
        return str(Path(__file__).parents[2] / EMBEDDED_MODEL)
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    if path.is_file():
        raise ModelLoadError(f"The model `{name}` is a file; give the directory that holds it, with its config.json.")
    if not _HUB_ID.fullmatch(str(name)) or str(name).startswith("."):
        raise ModelLoadError(
            f"There is no model directory `{name}`. Give a directory in Hugging Face format, "
            f"a hub id such as `Qwen/Qwen2.5-0.5B-Instruct`, or nothing: `{EMBEDDED_MODEL}` comes with tracellm."
        )
    return str(name)


HfOverrides: TypeAlias = "Mapping[str, Any] | Callable[[PretrainedConfig], PretrainedConfig]"
"""What to change in config.json: entries, or a function that changes the whole."""


def get_config(model: str, hf_overrides: HfOverrides | None = None) -> PretrainedConfig:
    """The checkpoint's config.json, completed with its architecture's defaults, then changed by `hf_overrides`.

    Raises:
        ModelLoadError: it is missing, damaged, of an unknown kind, or the hub does not give it.
        EngineError: a size in `hf_overrides` is none, or its function fails.
    """
    directory = local_folder(model)
    _check_config_file(directory)
    if not hf_overrides and (plain := read_plain_config(directory)):
        return plain  # in its place
    import_libraries("transformers")
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(directory)
    except Exception as error:  # transformers lets through whatever a wrong value leads to
        raise ModelLoadError(f"The config.json of `{model}` cannot be used: {_in_one_line(error)}") from None
    return _override(config, hf_overrides) if hf_overrides else config


def _override(config: PretrainedConfig, hf_overrides: HfOverrides) -> PretrainedConfig:
    if isinstance(hf_overrides, Mapping) and (wrong := _wrong_size(hf_overrides)):
        raise EngineError(f"LLM: `hf_overrides`: {wrong}.")
    try:
        if not isinstance(hf_overrides, Mapping):
            return hf_overrides(config)
        config.update(hf_overrides)
        return config
    except Exception as error:  # transformers lets through whatever a wrong value leads to
        raise EngineError(f"LLM: `hf_overrides` cannot be used: {_in_one_line(error)}") from None


def _check_config_file(directory: Path) -> None:
    file = directory / "config.json"
    if not file.is_file():
        raise ModelLoadError(f"The directory `{directory}` has no config.json, so it is no Hugging Face model.")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelLoadError(f"`{file}` is damaged: {first_line(error)}. Download or save the model again.") from None
    if not isinstance(content, dict) or "model_type" not in content:
        raise ModelLoadError(f"`{file}` names no `model_type`, so it does not say what model this is.")
    if wrong := _wrong_size(content):
        raise ModelLoadError(f"`{file}`: {wrong}.")
    if not isinstance(content.get("architectures") or [], list):
        raise ModelLoadError(f"`{file}`: `architectures` must be a list of names, got {content['architectures']!r}.")


def _wrong_size(content: Mapping[str, Any]) -> str:
    """What is wrong with the first size that is none; empty when all are."""
    for name in _SIZES:
        size = content.get(name)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            return f"`{name}` must be a whole number, at least 1, but it is {size!r}"
    return ""


def get_generation_config(model: str, hf_config: PretrainedConfig | None = None) -> dict[str, Any]:
    """What generation_config.json sets: further end-of-sequence tokens, recommended sampling.

    Without the file it is what older checkpoints have of this in their config.json, `hf_config`.

    Raises:
        ModelLoadError: the file is damaged, or its `eos_token_id` is neither a token id nor a list of them; or it is
            missing, and there is no `hf_config` to turn to.
    """
    directory = local_folder(model)
    file = directory / "generation_config.json"
    if not file.is_file():
        if hf_config is None:
            raise ModelLoadError(f"The directory `{directory}` has no generation_config.json.")
        import_libraries("transformers")
        from transformers import GenerationConfig

        return GenerationConfig.from_model_config(complete_config(hf_config)).to_diff_dict()
    try:
        if (plain := read_plain_generation_config(file)) is not None:
            return plain
        import_libraries("transformers")
        from transformers import GenerationConfig

        settings = GenerationConfig.from_pretrained(directory).to_diff_dict()
    except Exception as error:  # transformers lets through whatever a wrong value leads to
        raise ModelLoadError(f"`{file}` is damaged: {first_line(error)}") from None
    eos_ids = settings.get("eos_token_id")
    if not all(isinstance(token, int) for token in (eos_ids if isinstance(eos_ids, list) else [eos_ids or 0])):
        raise ModelLoadError(f"`{file}`: `eos_token_id` must be a token id or a list of them, but it is {eos_ids!r}.")
    return settings


def get_dtype(dtype: str | torch.dtype, hf_config: PretrainedConfig) -> torch.dtype:
    """In what the model computes. `auto` is the checkpoint's dtype, but bfloat16 for a float32 one, as in vLLM.

    Raises:
        EngineError: not one of the accepted dtypes, or float16 for a model whose numbers grow beyond its range.
    """
    import torch

    accepted = _accepted_dtypes(hf_config)
    if dtype == "auto":
        written = getattr(hf_config, "dtype", None) or getattr(hf_config, "torch_dtype", None)
        checkpoint = str(written).removeprefix("torch.")
        return getattr(torch, checkpoint) if checkpoint in accepted and checkpoint != "float32" else torch.bfloat16
    name = str(dtype).removeprefix("torch.").lower()
    if name not in accepted:
        for_model = "" if name not in _DTYPES else f" for a model of the type `{hf_config.model_type}`"
        raise EngineError(f"LLM: `dtype` must be one of auto, {', '.join(accepted)}{for_model}, got {dtype!r}.")
    return getattr(torch, accepted[name])


def _accepted_dtypes(hf_config: PretrainedConfig) -> dict[str, str]:
    """The dtypes by the names that they may be given by; as in vLLM, Gemma 2 and 3 do without float16."""
    if hf_config.model_type not in ("gemma2", "gemma3_text"):
        return _DTYPES
    return {name: dtype for name, dtype in _DTYPES.items() if dtype != "float16"}


def get_max_model_len(max_model_len: int | None, hf_config: PretrainedConfig) -> int:
    """The most tokens of prompt and output together: what was asked for, or all that the model was made for.

    A rotary embedding that is stretched (`linear`, `dynamic`, `yarn`) stretches the length too; in `llama3` and
    `longrope` checkpoints `max_position_embeddings` is the stretched length already. A `longrope` model is given the
    length before the stretch unless more is asked for, since it reads short texts better so.

    vLLM: vllm/config/model.py::_get_and_verify_max_len.

    Raises:
        ModelLoadError: config.json does not say its length, or says impossible things of its rotary embedding.
        EngineError: more than the model was made for.
    """
    limit = getattr(hf_config, "max_position_embeddings", None)
    if limit is None:
        raise ModelLoadError("The model's config.json has no `max_position_embeddings`, so its length is not known.")
    default, why = limit, "the model's `max_position_embeddings`"
    rope = get_rope_parameters(hf_config)
    if rope.rope_type in ("linear", "dynamic", "yarn") and not hf_config.model_type.startswith("gemma3"):
        default = limit = int(rope.original_max_position_embeddings * rope.factor)
        why = f"{rope.original_max_position_embeddings} stretched by the rotary embedding `{rope.rope_type}`"
    elif rope.rope_type == "longrope":
        default = getattr(hf_config, "original_max_position_embeddings", limit)
    if max_model_len is not None and max_model_len > limit:
        raise EngineError(f"LLM: `max_model_len` must be at most {limit}, {why}, got {max_model_len}.")
    return max_model_len or default


def _in_one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
