"""The config.json of the model inside, read without transformers, whose import takes longer than all else but torch's.

`hf_config.py` asks here first. Where a file holds nothing but what is listed below, what transformers would make of it
is known, and it is read as it stands; everything else (another family, a setting more, a value of another kind) is for
transformers, which knows the history of each. What is read here answers every further question as transformers does: it
asks it then.

vLLM has no counterpart: there everything is read by transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from tracellm.engine.config.libraries import import_libraries

__all__ = ["PlainConfig", "complete_config", "read_plain_config", "read_plain_generation_config"]

_Check: TypeAlias = Callable[[Any], bool]


def _is(*accepted: Any) -> _Check:
    return lambda value: any(value == one and type(value) is type(one) for one in accepted)  # True == 1


def _size(value: Any) -> bool:
    return type(value) is int and value > 0


def _number(value: Any) -> bool:
    return type(value) is float and value >= 0


def _token(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)


def _tokens(value: Any) -> bool:
    return _token(value) or (isinstance(value, list) and all(type(token) is int and token >= 0 for token in value))


def _rope(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"rope_theta", "rope_type"} and value["rope_type"] == "default"


_QWEN2: dict[str, _Check] = {
    "architectures": _is(["Qwen2ForCausalLM"]),
    "attention_dropout": _number,
    "bos_token_id": _token,
    "dtype": _is("bfloat16", "float16", "float32"),
    "eos_token_id": _token,
    "hidden_act": _is("silu"),
    "hidden_size": _size,
    "initializer_range": _number,
    "intermediate_size": _size,
    "layer_types": lambda value: isinstance(value, list) and all(kind == "full_attention" for kind in value),
    "max_position_embeddings": _size,
    "max_window_layers": _size,
    "model_type": _is("qwen2"),
    "num_attention_heads": _size,
    "num_hidden_layers": _size,
    "num_key_value_heads": _size,
    "pad_token_id": _token,
    "rms_norm_eps": _number,
    "rope_parameters": _rope,
    "sliding_window": _is(None),
    "tie_word_embeddings": _is(True, False),
    "transformers_version": lambda value: isinstance(value, str),
    "use_cache": _is(True, False),
    "use_sliding_window": _is(False),
    "vocab_size": _size,
}
"""All that transformers writes for a Qwen2, each with what is understood here."""

_OLDER_NAMES = {"rope_theta", "torch_dtype"}
"""What a file may hold besides, for readers that know no `rope_parameters` and `dtype`; newer ones drop it."""

_ANOTHER_FAMILYS = {
    "head_dim",
    "is_causal",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "quantization_config",
    "rope_local_base_freq",
}
"""What the engine asks every model for, and a Qwen2 of transformers has not: no reason to import it."""

_GENERATION: dict[str, _Check] = {
    "bos_token_id": _token,
    "do_sample": _is(True, False),
    "eos_token_id": _tokens,
    "pad_token_id": _token,
    "transformers_version": lambda value: isinstance(value, str),
}


class PlainConfig:
    """The values of a config.json as attributes. For whatever else it is asked, `to_dict()` say, it asks transformers.

    In the place of a `PretrainedConfig`; it can be pickled, and read in an engine core's process, without transformers.
    """

    def __init__(self, folder: Path, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)
        self._name_or_path = str(folder)

    def __getattr__(self, name: str) -> Any:
        if name in _ANOTHER_FAMILYS or name.startswith("__") or not vars(self):  # empty while it is unpickled
            raise AttributeError(f"This config.json does not set `{name}`.", name=name, obj=self)
        return getattr(complete_config(self), name)


def complete_config(config: Any) -> Any:
    """The same configuration as transformers has it."""
    if not isinstance(config, PlainConfig):
        return config
    import_libraries("transformers")
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(config._name_or_path)


def read_plain_config(folder: Path) -> PlainConfig | None:
    """The config.json in this folder; `None` if transformers has to read it."""
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    values = {name: value for name, value in content.items() if name not in _OLDER_NAMES}
    if values.keys() != _QWEN2.keys() or not all(check(values[name]) for name, check in _QWEN2.items()):
        return None
    if (
        content.get("rope_theta", values["rope_parameters"]["rope_theta"]) != values["rope_parameters"]["rope_theta"]
        or content.get("torch_dtype", values["dtype"]) != values["dtype"]
        or len(values["layer_types"]) != values["num_hidden_layers"]
        or values["hidden_size"] % values["num_attention_heads"]
    ):
        return None
    import torch  # is there already, or will be next

    return PlainConfig(folder, {**values, "dtype": getattr(torch, values["dtype"])})


def read_plain_generation_config(file: Path) -> dict[str, Any] | None:
    """What this generation_config.json sets; `None` if transformers has to read it."""
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not all(
        name in _GENERATION and _GENERATION[name](value) for name, value in content.items()
    ):
        return None
    return {name: value for name, value in content.items() if value is not None}
