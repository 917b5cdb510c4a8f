"""Image processors and feature extractors of transformers, loaded from a checkpoint's preprocessor_config.json.

vLLM: vllm/transformers_utils/processor.py.
"""

from __future__ import annotations

from typing import Any

from tracellm.engine.config.errors import ModelLoadError, first_line
from tracellm.engine.config.hf_config import local_folder
from tracellm.engine.config.libraries import import_libraries, require_extra

__all__ = ["get_feature_extractor", "get_image_processor"]


def get_image_processor(model: str) -> Any:
    """Return the checkpoint's image processor, on Pillow: the one on torchvision gives other pixels when it resizes.

    Raises:
        ModelLoadError: preprocessor_config.json is missing or damaged.
        EngineError: Pillow is not installed.
    """
    require_extra("PIL", "multimodal")
    import_libraries("transformers")
    import transformers

    choice = {"backend": "pil"} if int(transformers.__version__.partition(".")[0]) >= 5 else {"use_fast": False}
    return _load(transformers.AutoImageProcessor, model, **choice)


def get_feature_extractor(model: str) -> Any:
    """Return the checkpoint's feature extractor for sound.

    Raises:
        ModelLoadError: preprocessor_config.json is missing or damaged.
    """
    import_libraries("transformers")
    from transformers import AutoFeatureExtractor

    return _load(AutoFeatureExtractor, model)


def _load(auto_class: Any, model: str, **choice: Any) -> Any:
    try:
        return auto_class.from_pretrained(local_folder(model), **choice)
    except ModelLoadError:
        raise
    except Exception as error:  # a wrong value can raise anything in transformers
        raise ModelLoadError(f"The preprocessor_config.json of `{model}` cannot be used: {first_line(error)}") from None
