"""Tests of Qwen2-Audio against transformers: features of sounds, logits, loading."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.models.forward import forward, load
from tests.multimodal_checkpoints import AUDIO_TOKEN, make_multimodal_checkpoint, reference_model

MAX_FRAMES = 80
PREFIXES = {"language_model.lm_head.": "lm_head.", "language_model.model.": "model.language_model."}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small Qwen2-Audio."""
    return make_multimodal_checkpoint(tmp_path_factory.mktemp("qwen2_audio"), "qwen2_audio")


def make_sounds(lengths: list[int]) -> dict[str, torch.Tensor]:
    """Make spectrograms with these numbers of frames, as a feature extractor would."""
    features = torch.randn(len(lengths), 16, MAX_FRAMES, generator=torch.Generator().manual_seed(len(lengths)))
    mask = (torch.arange(MAX_FRAMES) < torch.tensor(lengths)[:, None]).int()
    return {"input_features": features, "feature_attention_mask": mask}


@pytest.mark.parametrize("ops_name", ["torch", "cpu"])
@pytest.mark.parametrize("lengths", [[MAX_FRAMES], [4], [80, 3, 41, 42, 43, 44, 41]], ids=str)
@torch.inference_mode()
def test_logits_of_a_prompt_with_sounds_equal_transformers(lengths: list[int], ops_name: str, checkpoint: Path) -> None:
    """The number of vectors of each sound, and the logits of a prompt with them, are transformers'."""
    model, sounds = load(checkpoint, ops_name), make_sounds(lengths)
    features = model.get_multimodal_embeddings(**sounds)
    tokens = [1, 2]
    for feature in features:
        tokens += [AUDIO_TOKEN] * len(feature) + [3]
    ids = torch.tensor(tokens)
    embeds = model.get_input_embeddings(ids, features, ids == AUDIO_TOKEN)
    logits = model.compute_logits(forward(model, ids, torch.arange(len(ids)), embeds))

    reference = reference_model(checkpoint)
    _, expected_lengths = reference.model.audio_tower._get_feat_extract_output_lengths(torch.tensor(lengths))
    assert [len(feature) for feature in features] == expected_lengths.tolist()
    expected = reference(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None], **sounds).logits[0]
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert expected.std() > 0.1, "logits so alike would prove nothing"


def test_names_in_transformers_5(checkpoint: Path, tmp_path: Path) -> None:
    """A checkpoint with the names that transformers 5 has in memory loads to the same model."""
    renamed = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        prefix = next(filter(name.startswith, PREFIXES), "")
        renamed[PREFIXES.get(prefix, "model.") + name.removeprefix(prefix)] = tensor
    save_file(renamed, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    expected = load(checkpoint).state_dict()
    for name, tensor in load(tmp_path).state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_spectrograms_of_another_length_are_refused(checkpoint: Path) -> None:
    """Spectrograms that are not padded to the length of config.json are refused."""
    sounds = {"input_features": torch.zeros(1, 16, 60), "feature_attention_mask": torch.ones(1, 60)}
    with pytest.raises(ValueError, match="must have 80 frames, got 60"):
        load(checkpoint).get_multimodal_embeddings(**sounds)
