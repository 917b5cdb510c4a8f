"""Where a model's files are on this machine: a directory as it is, or a hub id whose files are fetched first.

Configuration, tokenizer and weights are all found through here, so a hub that cannot be reached is told once, and soon.

vLLM: vllm/model_executor/model_loader/weight_utils.py::download_weights_from_hf. Left out: revisions, ModelScope, a
download directory of one's own.
"""

from pathlib import Path

from tracellm.engine.config.errors import ModelLoadError, first_line

__all__ = ["local_folder"]

_SMALL_FILES = ["*.json", "*.txt", "*.jinja", "*.model"]
_WEIGHTS = ["*.safetensors"]


def local_folder(model: str, *, weights: bool = False) -> Path:
    """The directory that holds the model's files; those of a hub id are downloaded, or taken from the local cache.

    Without `weights` only the small files are fetched: configuration, tokenizer, chat template.

    Raises:
        ModelLoadError: there is no such directory, and the hub does not give its files.
    """
    folder = Path(model)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=_SMALL_FILES + (_WEIGHTS if weights else [])))
    except Exception as error:  # the hub's client raises many kinds: offline, no such repository, no access, disk full
        raise ModelLoadError(
            f"There is no model `{model}`: it is no directory here, and the Hugging Face hub did not give it "
            f"({first_line(error)}). Check the name and the network, or give the directory of a downloaded model."
        ) from None
