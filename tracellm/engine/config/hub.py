"""Local folder of a model's files: a directory, or the download of a Hugging Face hub id.

Used for configuration, tokenizer and weights, so an unreachable hub is reported once, at the start.

vLLM: vllm/model_executor/model_loader/weight_utils.py::download_weights_from_hf. Left out: revisions, ModelScope, the
choice of a download directory.
"""

from pathlib import Path

from tracellm.engine.config.errors import ModelLoadError, first_line

__all__ = ["local_folder"]

_SMALL_FILES = ["*.json", "*.txt", "*.jinja", "*.model"]
_WEIGHTS = ["*.safetensors"]


def local_folder(model: str, *, weights: bool = False) -> Path:
    """Return the directory of the model's files; those of a hub id are downloaded, unless in the local cache.

    Without `weights` only configuration, tokenizer and chat template are downloaded.

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
