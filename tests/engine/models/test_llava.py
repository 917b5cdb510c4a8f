"""Tests of LLaVA against transformers: features of pictures, logits, loading."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.models.forward import forward, load
from tests.multimodal_checkpoints import IMAGE_TOKEN, make_multimodal_checkpoint, reference_model
from tracellm.engine.config.errors import ModelLoadError

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "last-layer-qwen2": {"vision_feature_layer": -1, "text_config": {"model_type": "qwen2"}},
    "two-layers-and-class": {"vision_feature_layer": [0, 2], "vision_feature_select_strategy": "full"},
    "tied-mistral-no-bias": {
        "text_config": {"model_type": "mistral", "sliding_window": 20},
        "tie_word_embeddings": True,
        "multimodal_projector_bias": False,
    },
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small LLaVA."""
    return make_multimodal_checkpoint(tmp_path_factory.mktemp("llava"), "llava")


@pytest.mark.parametrize("ops_name", ["torch", "cpu"])
@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_features_and_logits_equal_transformers(name: str, ops_name: str, tmp_path: Path) -> None:
    """The vectors of three pictures, and the logits of a prompt with them, are within 1e-4 of transformers'."""
    folder = make_multimodal_checkpoint(tmp_path, "llava", **VARIANTS[name])
    reference, model = reference_model(folder), load(folder, ops_name)
    pictures = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected = reference.get_image_features(pictures).pooler_output
    features = model.get_multimodal_embeddings(pixel_values=pictures)
    torch.testing.assert_close(features, list(expected), atol=1e-4, rtol=0)
    assert expected[0].std(dim=0).mean() > 0.1, "vectors so alike would prove nothing"

    picture = [IMAGE_TOKEN] * len(expected[0])
    ids = torch.tensor([1, 2, *picture, 3, *picture, *picture, 4, 5])
    embeds = model.get_input_embeddings(ids, features, ids == IMAGE_TOKEN)
    logits = model.compute_logits(forward(model, ids, torch.arange(len(ids)), embeds))
    wanted = reference(input_ids=ids[None], pixel_values=pictures).logits[0]
    torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=0)
    assert wanted.std() > 0.1, "logits so alike would prove nothing"


@pytest.mark.parametrize(
    ("vision", "others"), [("vision_tower.vision_model.", ""), ("model.vision_tower.vision_model.", "model.")]
)
def test_names_of_transformers_4(vision: str, others: str, checkpoint: Path, tmp_path: Path) -> None:
    """Checkpoints with the names of transformers 4, before and since 4.52, load to the same model."""
    renamed = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        if name.startswith("vision_tower."):
            renamed[vision + name.removeprefix("vision_tower.")] = tensor
        elif others:
            name = name.replace("language_model.lm_head", "lm_head")
            name = name.replace("language_model.model.", "model.language_model.")
            renamed[name.replace("multi_modal_projector", "model.multi_modal_projector")] = tensor
        else:
            renamed[name] = tensor
    save_file(renamed, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    expected = load(checkpoint).state_dict()
    for name, tensor in load(tmp_path).state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_pictures_of_another_size_are_refused(checkpoint: Path) -> None:
    """Pictures of another size than config.json's are refused."""
    with pytest.raises(ValueError, match=r"must be 16 x 16, got \[1, 3, 16, 20\]"):
        load(checkpoint).get_multimodal_embeddings(pixel_values=torch.zeros(1, 3, 16, 20))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"vision_config": {"model_type": "siglip_vision_model"}}, "`siglip_vision_model`"),
        ({"text_config": {"model_type": "gemma2"}}, "Gemma2ForCausalLM in a model of the type `llava`"),
    ],
)
def test_unsupported_parts_are_refused(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Picture encoders and language models that are not supported are named."""
    folder = make_multimodal_checkpoint(tmp_path, "llava", **config)
    with pytest.raises(ModelLoadError, match=message):
        load(folder)
