"""Small checkpoints of models that take images, shared by the tests of this folder."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.engine.multimodal.pictures import write_image_tokens, write_processor
from tests.multimodal_checkpoints import make_multimodal_checkpoint


@pytest.fixture(scope="session")
def vl_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family's checkpoint with image processor and chat template, made at its first use."""

    def make(family: str) -> Path:
        further: dict[str, Any] = (
            {"audio_config": {"max_source_positions": 50}} if family == "qwen2_audio" else {}
        )  # of one second
        folder = make_multimodal_checkpoint(tmp_path_factory.mktemp(family), family, **further)
        write_processor(folder)
        write_image_tokens(folder)
        return folder

    return cache(make)
