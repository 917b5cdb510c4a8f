"""Finds a model's weight files, in a directory or on the hub: the first stage of loading.

Only safetensors files are read. Pickled weights (`.bin`, `.pt`) can run code when they are opened, so they are refused.
vLLM: vllm/model_executor/model_loader/weight_utils.py.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.config.hf_config import local_folder

__all__ = ["WeightFiles", "find_weight_files"]

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True)
class WeightFiles:
    """Result of the first stage."""

    source: str
    """Directory or hub id of the model."""
    files: tuple[Path, ...]
    """Safetensors files, sorted by name."""
    num_bytes: int
    """Sum of their sizes."""


def find_weight_files(model: str) -> WeightFiles:
    """Return the safetensors files of a model, with all shards.

    These are the files in the index; without an index, `model.safetensors`; without that, all. Other files are ignored,
    such as Mistral's `consolidated.safetensors`, a second copy of the weights.

    Raises:
        ModelLoadError: no config.json, no weights, pickled weights only, or a shard that is missing.
    """
    folder = local_folder(model, weights=True)
    if not (folder / "config.json").is_file():
        raise ModelLoadError(f"{folder} holds no config.json: it is not a model directory in Hugging Face format.")
    index = folder / _INDEX
    if index.is_file():
        names = _names_in_index(index)
    elif (folder / _SINGLE).is_file():
        names = [_SINGLE]
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
        if pickles:
            raise ModelLoadError(
                f"{folder} holds only pickled weights ({pickles[0]}), which can run code when they are opened. "
                "Convert them to safetensors: `model.save_pretrained(folder)` in transformers writes that."
            )
        raise ModelLoadError(f"{folder} holds no weights: no *.safetensors file was found.")
    missing = [name for name in _with_all_shards(names) if not (folder / name).is_file()]
    if missing:
        raise ModelLoadError(
            f"{folder} lacks {', '.join(missing)}, which its checkpoint is made of; download it again."
        )
    files = tuple(folder / name for name in names)
    return WeightFiles(model, files, sum(path.stat().st_size for path in files))


def _names_in_index(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        if not all(isinstance(name, str) for name in names):
            raise TypeError("a file's name is no string")
        return names
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(
            f"{index} is damaged: it is not a JSON object with a `weight_map` of tensors to files."
        ) from error


def _with_all_shards(names: list[str]) -> list[str]:
    """Return the names, completed with all shards of a name such as `model-00001-of-00003.safetensors`."""
    wanted = set(names)
    for name in names:
        if shard := re.fullmatch(r"(.*-)\d{5}-of-(\d{5})(\.safetensors)", name):
            before, count, after = shard.groups()
            wanted.update(f"{before}{i:05}-of-{count}{after}" for i in range(1, int(count) + 1))
    return sorted(wanted)
