"""Tests of Qwen2-VL, Qwen2.5-VL and Qwen3-VL against transformers: features of pictures, positions, logits, loading."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.checkpoints import VOCAB_SIZE, change_config
from tests.engine.models.forward import forward, load
from tests.multimodal_checkpoints import IMAGE_TOKEN, make_multimodal_checkpoint, reference_model
from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
GRIDS = {
    "one": [(1, 4, 6)],
    "square": [(1, 2, 2)],
    "several": [(1, 4, 6), (1, 2, 2), (1, 10, 14), (1, 6, 4), (1, 4, 6)],
}
TEXT = [[5, 6, 301], [302, 7, 301], [302, 301], [302, 9, 10, 11, 301], [302, 301], [302, 12]]
"""Tokens before, between and after the pictures."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family's checkpoint, made at its first use."""
    return cache(lambda family: make_multimodal_checkpoint(tmp_path_factory.mktemp(family), family))


def make_pictures(grids: list[tuple[int, int, int]]) -> dict[str, Tensor]:
    """Make random tensors of pictures with these grids, as an image processor would."""
    generator = torch.Generator().manual_seed(len(grids))
    patches = sum(t * h * w for t, h, w in grids)
    return {
        "pixel_values": torch.randn(patches, 3 * 2 * 4 * 4, generator=generator),
        "image_grid_thw": torch.tensor(grids),
    }


def make_prompt(grids: list[tuple[int, int, int]]) -> tuple[list[int], list[MultiModalFeatureSpec]]:
    """Make a prompt with these pictures, and their places in it."""
    tokens, features = list(TEXT[0]), []
    for i, grid in enumerate(grids):
        place = PlaceholderRange(len(tokens), grid[0] * grid[1] * grid[2] // 4)
        features.append(MultiModalFeatureSpec({"image_grid_thw": torch.tensor(grid)}, "image", str(i), place))
        tokens += [IMAGE_TOKEN] * place.length + TEXT[i + 1]
    return tokens, features


@pytest.mark.parametrize("ops_name", ["torch", "cpu"])
@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_features_equal_transformers(family: str, name: str, ops_name: str, checkpoint: Callable[[str], Path]) -> None:
    """The vectors of one or several pictures, of different sizes, are within 1e-4 of transformers'."""
    pictures = make_pictures(GRIDS[name])
    output = reference_model(checkpoint(family)).get_image_features(**pictures)
    levels = [output.pooler_output, *getattr(output, "deepstack_features", [])]
    expected = [torch.cat(parts, dim=1) for parts in zip(*levels, strict=True)]
    ours = load(checkpoint(family), ops_name).get_multimodal_embeddings(**pictures)
    assert len(ours) == len(expected) == len(GRIDS[name])
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
        assert len(other) == 1 or other.std(dim=0).mean() > 0.1, "vectors so alike would prove nothing"


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_mrope_positions_equal_transformers(family: str, name: str, checkpoint: Callable[[str], Path]) -> None:
    """The positions in time, height and width, and the delta, equal transformers'."""
    tokens, features = make_prompt(GRIDS[name])
    positions, delta = load(checkpoint(family)).get_mrope_input_positions(tokens, features[::-1])
    ids = torch.tensor([tokens])
    model = reference_model(checkpoint(family)).model
    expected, expected_delta = model.get_rope_index(
        ids, (ids == IMAGE_TOKEN).int(), image_grid_thw=torch.tensor(GRIDS[name])
    )
    assert positions.dtype == torch.int64
    assert torch.equal(positions, expected[:, 0])
    assert delta == expected_delta.item()


def test_a_picture_with_another_number_of_tokens_is_refused(checkpoint: Callable[[str], Path]) -> None:
    """A picture whose placeholder tokens do not fit its grid is refused."""
    feature = MultiModalFeatureSpec({"image_grid_thw": torch.tensor([1, 4, 6])}, "image", "", PlaceholderRange(0, 5))
    with pytest.raises(ValueError, match="1 x 2 x 3 tokens has 5 placeholder tokens"):
        load(checkpoint("qwen2_vl")).get_mrope_input_positions([IMAGE_TOKEN] * 5, [feature])


@pytest.mark.parametrize("ops_name", ["torch", "cpu"])
@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_logits_of_a_prompt_with_pictures_equal_transformers(
    family: str, name: str, ops_name: str, checkpoint: Callable[[str], Path]
) -> None:
    """The logits of a prompt with pictures, computed in chunks, are within 1e-4 of transformers'."""
    model, (tokens, features), pictures = (
        load(checkpoint(family), ops_name),
        make_prompt(GRIDS[name]),
        make_pictures(GRIDS[name]),
    )
    ids = torch.tensor(tokens)
    embeds = model.get_input_embeddings(ids, model.get_multimodal_embeddings(**pictures), ids == IMAGE_TOKEN)
    positions, _ = model.get_mrope_input_positions(tokens, features)
    logits = model.compute_logits(forward(model, ids, positions, embeds))
    expected = reference_model(checkpoint(family))(
        input_ids=ids[None], mm_token_type_ids=(ids == IMAGE_TOKEN).int()[None], **pictures
    ).logits[0]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert expected.std() > 0.1, "logits so alike would prove nothing"


@pytest.mark.parametrize("ops_name", ["torch", "cpu"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_logits_of_a_text_equal_transformers(family: str, ops_name: str, checkpoint: Callable[[str], Path]) -> None:
    """A text has transformers' logits, with one position for each token or with three equal ones."""
    model, ids = load(checkpoint(family), ops_name), torch.arange(40) * 7 % VOCAB_SIZE
    expected = reference_model(checkpoint(family))(input_ids=ids[None]).logits[0]
    three, _ = model.get_mrope_input_positions(ids.tolist(), [])
    with_three = model.compute_logits(forward(model, ids, three, model.get_input_embeddings(ids)))
    with_one = model.compute_logits(forward(model, ids, torch.arange(40)))
    assert torch.equal(with_three, with_one)
    torch.testing.assert_close(with_one, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_names_of_transformers_4(family: str, checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    """A checkpoint with the names that transformers 4.52 to 4.57 wrote loads to the same model."""
    expected = load(checkpoint(family)).state_dict()
    tensors = load_file(checkpoint(family) / "model.safetensors")
    renamed = {
        name
        if name.startswith(("model.language_model.", "model.visual."))
        else name.replace("model.", "model.language_model.").replace("visual.", "model.visual."): tensor
        for name, tensor in tensors.items()
    }
    save_file(renamed, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((checkpoint(family) / "config.json").read_bytes())
    for name, tensor in load(tmp_path).state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
@torch.inference_mode()
def test_tied_embeddings_and_flat_config(family: str, tmp_path: Path) -> None:
    """Tied embeddings, and a config.json as in the published checkpoints, with the text's settings at the top."""
    folder = make_multimodal_checkpoint(tmp_path, family, tie_word_embeddings=True)
    ids = torch.arange(40)
    expected = reference_model(folder)(input_ids=ids[None]).logits[0]
    text: dict[str, Any] = json.loads((folder / "config.json").read_text())["text_config"]
    rope = text.pop("rope_parameters")
    scaling = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    text.pop("model_type")
    change_config(folder, **text, rope_theta=rope["rope_theta"], rope_scaling=scaling, text_config=None)
    model = load(folder)
    assert model.language_model.lm_head.weight is model.language_model.model.embed_tokens.weight
    logits = model.compute_logits(forward(model, ids, torch.arange(40)))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@torch.inference_mode()
def test_embeddings_need_as_many_places(checkpoint: Callable[[str], Path]) -> None:
    """Vectors of pictures that do not fit the placeholder tokens are refused."""
    model, ids = load(checkpoint("qwen2_vl")), torch.tensor([1, IMAGE_TOKEN, IMAGE_TOKEN])
    with pytest.raises(ValueError, match="3 multimodal embeddings for 2 placeholder tokens"):
        model.get_input_embeddings(ids, [torch.zeros(1, 64), torch.zeros(2, 64)], ids == IMAGE_TOKEN)


def test_unknown_activation_is_refused(tmp_path: Path) -> None:
    """An activation of the vision transformer that is not supported is named."""
    folder = make_multimodal_checkpoint(tmp_path, "qwen2_vl", vision_config={"hidden_act": "gelu_10"})
    with pytest.raises(ModelLoadError, match="activation `gelu_10`"):
        load(folder)


@pytest.mark.parametrize(
    ("family", "rope"),
    [("qwen2_vl", {"rope_type": "default", "rope_theta": 1e4}), ("qwen3_vl", {"mrope_section": [2, 3, 3]})],
)
def test_other_positions_are_refused(family: str, rope: dict[str, Any], tmp_path: Path) -> None:
    """Models without `mrope_section`, or with sections in another order than theirs, are refused."""
    folder = make_multimodal_checkpoint(tmp_path, family, text_config={"rope_parameters": rope})
    with pytest.raises(ModelLoadError, match="must set `mrope_section` for a model of the type"):
        load(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_sixteen_bits_stay_near_float32(family: str, dtype: torch.dtype, checkpoint: Callable[[str], Path]) -> None:
    """A 16-bit model encodes pictures in 16 bits, and stays near float32."""
    pictures = make_pictures(GRIDS["several"])
    wide, narrow = (
        torch.cat(load(checkpoint(family), dtype=one).get_multimodal_embeddings(**pictures))
        for one in (torch.float32, dtype)
    )
    assert narrow.dtype == dtype
    assert 0 < (narrow.float() - wide).std() / wide.std() < 0.05
