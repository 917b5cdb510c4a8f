"""A checkpoint's config.json and generation_config.json, and the dtype and length that follow from them.

Read once at start-up, by `EngineArgs.create_model_config`. transformers reads the files, except those of the bundled
model, which need no transformers (`LightConfig`).

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
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.config.rope_config import get_rope_parameters

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

__all__ = [
    "BUNDLED_MODEL",
    "BUNDLED_MODELS",
    "HfOverrides",
    "LightConfig",
    "get_config",
    "get_dtype",
    "get_generation_config",
    "get_hf_text_config",
    "get_max_model_len",
    "is_bundled",
    "local_folder",
    "resolve_model",
]

BUNDLED_MODEL = "tiny"
"""Name of the default model, which is in the package."""
BUNDLED_MODELS = {
    name: Path(__file__).parents[2] / name.replace("-", "_") for name in (BUNDLED_MODEL, "tiny-vl", "tiny-tools")
}
"""Folders of the models in the package: `tiny` reads text, `tiny-vl` also pictures, and `tiny-tools` calls tools."""

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")  # "gpt2", "facebook/opt-125m"
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
_SMALL_FILES = ["*.json", "*.txt", "*.jinja", "*.model"]
_WEIGHTS = ["*.safetensors"]
_DTYPE_NAMES = ("dtype", "torch_dtype")  # in config.json; the second is transformers 4's
_DTYPES = {"half": "float16", "float16": "float16", "float": "float32", "float32": "float32", "bfloat16": "bfloat16"}


def resolve_model(name: str | PathLike[str]) -> str:
    """Return the path of a model's directory, or its hub id unchanged.

    The names in `BUNDLED_MODELS` are always the bundled models; write `./tiny` for a directory of that name.
    TRACELLM_MODELS may replace a name by a directory.

    Raises:
        ModelLoadError: neither an existing directory nor a possible hub id.
        EngineError: TRACELLM_MODELS is malformed.
    """
    name = envs.models().get(str(name), name)
    if folder := BUNDLED_MODELS.get(str(name)):
        return str(folder)
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    if path.is_file():
        raise ModelLoadError(f"The model `{name}` is a file; give the directory that holds it, with its config.json.")
    if not _HUB_ID.fullmatch(str(name)) or str(name).startswith("."):
        raise ModelLoadError(
            f"There is no model directory `{name}`. Give a directory in Hugging Face format, "
            "a hub id such as `Qwen/Qwen2.5-0.5B-Instruct`, or nothing: `tiny` comes with tracellm, as do `tiny-vl` "
            "and `tiny-tools`."
        )
    return str(name)


def is_bundled(folder: Path) -> bool:
    """Return whether this is the folder of the default model."""
    return folder.resolve() == BUNDLED_MODELS[BUNDLED_MODEL].resolve()


HfOverrides: TypeAlias = "Mapping[str, Any] | Callable[[PretrainedConfig], PretrainedConfig]"
"""Changes to config.json: entries, or a function from the configuration to the changed one."""


def local_folder(model: str, *, weights: bool = False) -> Path:
    """Return the directory of the model's files; those of a hub id are downloaded, unless in the local cache.

    Without `weights` only configuration, tokenizer and chat template are downloaded.

    vLLM: vllm/model_executor/model_loader/weight_utils.py::download_weights_from_hf. Left out: revisions, ModelScope,
    the choice of a download directory.

    Raises:
        ModelLoadError: there is no such directory, and the download failed.
    """
    folder = Path(model)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=_SMALL_FILES + (_WEIGHTS if weights else [])))
    except Exception as error:  # the client raises many kinds: offline, unknown repository, no access, disk full
        raise ModelLoadError(
            f"There is no model `{model}`: it is not a directory, and downloading it from the Hugging Face hub failed "
            f"({first_line(error)}). Check the name and the network, or give the directory of a downloaded model."
        ) from None


def get_config(model: str, hf_overrides: HfOverrides | None = None) -> PretrainedConfig:
    """Return the checkpoint's config.json with its architecture's defaults, changed by `hf_overrides`.

    Raises:
        ModelLoadError: the file is missing, damaged, of an unknown kind, or unavailable on the hub.
        EngineError: `hf_overrides` sets an invalid size, or its function fails.
    """
    directory = local_folder(model)
    _check_config_file(directory)
    if is_bundled(directory) and not hf_overrides:
        return LightConfig(directory)
    import_libraries("transformers")
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(directory)
    except Exception as error:  # a wrong value can raise anything in transformers
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
    except Exception as error:  # a wrong value can raise anything in transformers
        raise EngineError(f"LLM: `hf_overrides` cannot be used: {_in_one_line(error)}") from None


def _check_config_file(directory: Path) -> None:
    file = directory / "config.json"
    if not file.is_file():
        raise ModelLoadError(f"The directory `{directory}` has no config.json, so it is not a Hugging Face model.")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelLoadError(f"`{file}` is damaged: {first_line(error)}. Download or save the model again.") from None
    if not isinstance(content, dict) or "model_type" not in content:
        raise ModelLoadError(f"`{file}` has no `model_type`, so the kind of model is unknown.")
    if wrong := _wrong_size(content):
        raise ModelLoadError(f"`{file}`: {wrong}.")
    if not isinstance(content.get("architectures") or [], list):
        raise ModelLoadError(f"`{file}`: `architectures` must be a list of names, got {content['architectures']!r}.")


def _wrong_size(content: Mapping[str, Any]) -> str:
    """Return what is wrong with the first invalid size; empty when all are valid."""
    for name in _SIZES:
        size = content.get(name)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            return f"`{name}` must be a whole number, at least 1, but it is {size!r}"
    return ""


def get_hf_text_config(hf_config: PretrainedConfig) -> PretrainedConfig:
    """Return the part that describes the language model: `text_config`, or the config itself of a text model."""
    return getattr(hf_config, "text_config", None) or hf_config


class LightConfig:
    """Config of the default model, read without transformers, whose import takes a second.

    It replaces a `PretrainedConfig`. Attributes that are not in config.json are looked up in transformers' own.
    Instances can be pickled.
    """

    _OLD_NAMES = ("rope_theta", "torch_dtype")  # for older readers; transformers drops them too
    _ABSENT = (
        *("head_dim", "is_causal", "original_max_position_embeddings", "partial_rotary_factor"),
        *("quantization_config", "rope_local_base_freq", "text_config", "matryoshka_dimensions", "is_matryoshka"),
    )  # attributes of other architectures that the engine looks up: no reason to import transformers

    def __init__(self, folder: Path) -> None:
        import torch

        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.__dict__.update((name, value) for name, value in values.items() if name not in self._OLD_NAMES)
        self.dtype = getattr(torch, values["dtype"])
        self._name_or_path = str(folder)

    def __getattr__(self, name: str) -> Any:
        if name in self._ABSENT or name.startswith("__") or not vars(self):  # empty while being unpickled
            raise AttributeError(f"This config.json does not set `{name}`.", name=name, obj=self)
        import_libraries("transformers")
        from transformers import AutoConfig

        return getattr(AutoConfig.from_pretrained(self._name_or_path), name)


def get_generation_config(model: str, hf_config: PretrainedConfig | None = None) -> dict[str, Any]:
    """Return the settings in generation_config.json: end-of-sequence tokens and recommended sampling parameters.

    Without the file, return those that older checkpoints have in their config.json, `hf_config`.

    Raises:
        ModelLoadError: the file is damaged, or its `eos_token_id` is neither a token id nor a list of them; or the file
            is missing and `hf_config` is None.
    """
    directory = local_folder(model)
    file = directory / "generation_config.json"
    if is_bundled(directory):
        return {name: value for name, value in json.loads(file.read_bytes()).items() if value is not None}
    import_libraries("transformers")
    from transformers import GenerationConfig

    if not file.is_file():
        if hf_config is None:
            raise ModelLoadError(f"The directory `{directory}` has no generation_config.json.")
        return GenerationConfig.from_model_config(hf_config).to_diff_dict()
    try:
        settings = GenerationConfig.from_pretrained(directory).to_diff_dict()
    except Exception as error:  # a wrong value can raise anything in transformers
        raise ModelLoadError(f"`{file}` is damaged: {first_line(error)}") from None
    eos_ids = settings.get("eos_token_id")
    if not all(isinstance(token, int) for token in (eos_ids if isinstance(eos_ids, list) else [eos_ids or 0])):
        raise ModelLoadError(f"`{file}`: `eos_token_id` must be a token id or a list of them, but it is {eos_ids!r}.")
    return settings


def get_dtype(dtype: str | torch.dtype, hf_config: PretrainedConfig, is_pooling_model: bool = False) -> torch.dtype:
    """Return the dtype to compute in.

    As in vLLM, `auto` is the checkpoint's, or for a float32 one bfloat16, and for pooling float16 where it is accepted.

    Raises:
        EngineError: the dtype is not accepted, such as float16 for a model whose activations exceed its range.
    """
    import torch

    accepted = _accepted_dtypes(hf_config)
    if dtype == "auto":
        text_config = get_hf_text_config(hf_config)
        written = next(
            filter(None, (getattr(c, n, None) for c in (hf_config, text_config) for n in _DTYPE_NAMES)), None
        )
        checkpoint = str(written).removeprefix("torch.")
        if checkpoint in accepted and checkpoint != "float32":
            return getattr(torch, checkpoint)
        return torch.float16 if is_pooling_model and "float16" in accepted else torch.bfloat16
    name = str(dtype).removeprefix("torch.").lower()
    if name not in accepted:
        for_model = "" if name not in _DTYPES else f" for a model of the type `{hf_config.model_type}`"
        raise EngineError(f"LLM: `dtype` must be one of auto, {', '.join(accepted)}{for_model}, got {dtype!r}.")
    return getattr(torch, accepted[name])


def _accepted_dtypes(hf_config: PretrainedConfig) -> dict[str, str]:
    """Return the accepted names and their dtypes; as in vLLM, no float16 for Gemma 2 and 3."""
    if hf_config.model_type not in ("gemma2", "gemma3_text"):
        return _DTYPES
    return {name: dtype for name, dtype in _DTYPES.items() if dtype != "float16"}


def get_max_model_len(max_model_len: int | None, hf_config: PretrainedConfig) -> int:
    """Return the maximum number of tokens of prompt and output: the requested length, or the model's.

    Scaled rotary embeddings (`linear`, `dynamic`, `yarn`) scale the length. For `llama3` and `longrope`,
    `max_position_embeddings` is the scaled length already. A `longrope` model defaults to the unscaled length, as the
    scaled one costs accuracy on short texts.

    vLLM: vllm/config/model.py::_get_and_verify_max_len.

    Raises:
        ModelLoadError: config.json has no length, or invalid parameters of the rotary embedding.
        EngineError: the requested length exceeds the model's.
    """
    hf_config = get_hf_text_config(hf_config)
    limit = getattr(hf_config, "max_position_embeddings", None)
    if limit is None:
        raise ModelLoadError("The model's config.json has no `max_position_embeddings`, so its length is unknown.")
    default, origin = limit, "the model's `max_position_embeddings`"
    rope = get_rope_parameters(hf_config)
    if rope.rope_type in ("linear", "dynamic", "yarn") and not hf_config.model_type.startswith("gemma3"):
        default = limit = int(rope.original_max_position_embeddings * rope.factor)
        origin = f"{rope.original_max_position_embeddings} scaled by the rotary embedding `{rope.rope_type}`"
    elif rope.rope_type == "longrope":
        default = getattr(hf_config, "original_max_position_embeddings", limit)
    if max_model_len is not None and max_model_len > limit:
        raise EngineError(f"LLM: `max_model_len` must be at most {limit}, {origin}, got {max_model_len}.")
    return max_model_len or default


def _in_one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
