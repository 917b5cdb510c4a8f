"""Tests of rotary embeddings: every type against transformers, from config.json of transformers 4 and 5."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb

from tracellm.engine.config.errors import EngineError, ModelLoadError
from tracellm.engine.config.hf_config import get_max_model_len
from tracellm.engine.config.rope_config import get_rope_parameters
from tracellm.engine.model_executor.layers.rotary_embedding import get_rope
from tracellm.engine.model_executor.ops import make_ops, using_ops

HEAD_SIZE, TRAINED = 64, 2048
PAIRS = HEAD_SIZE // 2

CASES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "dynamic-not-stretched": {"rope_type": "dynamic", "factor": 1.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
        "rope_theta": 500000.0,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    "yarn-ramp": {
        "rope_type": "yarn",
        "factor": 3.0,
        "original_max_position_embeddings": 300,
        "beta_fast": 20.0,
        "beta_slow": 2.0,
        "truncate": False,
        "rope_theta": 1e6,
    },
    "yarn-one-pair": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e-9, "beta_slow": 1e-9},
    "yarn-attention-factor": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5},
    "yarn-mscale": {"rope_type": "yarn", "factor": 8.0, "mscale": 0.7, "mscale_all_dim": 1.3},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.01 * i for i in range(PAIRS)],
        "long_factor": [1.0 + 0.5 * i for i in range(PAIRS)],
        "original_max_position_embeddings": 512,
    },
    "longrope-factor": {
        "rope_type": "longrope",
        "short_factor": [1.5] * PAIRS,
        "long_factor": [2.5] * PAIRS,
        "original_max_position_embeddings": 512,
        "factor": 32.0,
    },
    "longrope-attention-factor": {
        "rope_type": "longrope",
        "short_factor": [1.5] * PAIRS,
        "long_factor": [2.5] * PAIRS,
        "original_max_position_embeddings": 512,
        "attention_factor": 1.25,
    },
}


def make_config(**rope_parameters: Any) -> LlamaConfig:
    """Make the config.json of a Llama with heads of 64, trained for 2048 tokens."""
    return LlamaConfig(
        hidden_size=4 * HEAD_SIZE,
        num_attention_heads=4,
        max_position_embeddings=TRAINED,
        rope_parameters={"rope_theta": 10000.0, **rope_parameters},
    )


def old_config(**values: Any) -> Any:
    """Return the config's attributes as transformers 4 stores them: `rope_theta` and `rope_scaling` side by side."""
    return SimpleNamespace(max_position_embeddings=TRAINED, **values)


@pytest.mark.parametrize("rope_parameters", CASES.values(), ids=CASES)
@pytest.mark.parametrize("is_long", [False, True])
def test_angles_equal_transformers(rope_parameters: dict[str, Any], is_long: bool) -> None:
    """Cosines and sines of all positions equal transformers' in float32, within the original length and beyond."""
    config = make_config(**rope_parameters)
    length = get_max_model_len(None, config) if is_long else 300
    reference_length = length
    if rope_parameters["rope_type"] == "dynamic":  # transformers' base for the maximum length
        reference_length = int(TRAINED * rope_parameters["factor"])
    inv_freq, attention_factor = ROPE_INIT_FUNCTIONS[rope_parameters["rope_type"]](config, seq_len=reference_length)
    angles = torch.outer(torch.arange(length).float(), inv_freq)
    expected = torch.cat((angles.cos(), angles.sin()), dim=-1) * attention_factor
    torch.testing.assert_close(get_rope(config, HEAD_SIZE, length).cos_sin_cache, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("theta", [100.0, 10000.0, 5e6])
def test_plain_angles(theta: float) -> None:
    """Pair i of n turns by theta ** (-i / n) radians a position."""
    cache = get_rope(make_config(rope_type="default", rope_theta=theta), HEAD_SIZE, 100).cos_sin_cache
    frequencies = theta ** -(torch.arange(PAIRS, dtype=torch.float64) / PAIRS)
    angles = torch.arange(100)[:, None] * frequencies
    torch.testing.assert_close(cache, torch.cat((angles.cos(), angles.sin()), -1).float(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_only_the_first_dimensions_of_a_head_are_rotated(share: float) -> None:
    """Queries and keys are rotated as in transformers, and dimensions beyond the rotated share stay unchanged."""
    torch.manual_seed(0)
    config = make_config(rope_type="linear", factor=2.0, partial_rotary_factor=share)
    rope = get_rope(config, HEAD_SIZE, 128)
    positions = torch.tensor([0, 1, 127, 64, 3])
    query, key = torch.randn(5, 4, HEAD_SIZE), torch.randn(5, 2, HEAD_SIZE)
    inv_freq, _ = ROPE_INIT_FUNCTIONS["linear"](config)
    angles = (positions[:, None] * inv_freq).repeat(1, 2)
    expected = apply_rotary_pos_emb(query, key, angles.cos(), angles.sin())
    got = rope(positions, query.flatten(1), key.flatten(1))
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs.flatten(1))
    rotated = int(HEAD_SIZE * share)
    assert torch.equal(got[0].view_as(query)[..., rotated:], query[..., rotated:])


@pytest.mark.parametrize("rope_parameters", CASES.values(), ids=CASES)
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_config_of_transformers_4(rope_parameters: dict[str, Any], key: str) -> None:
    """`rope_theta`, `rope_scaling` and `partial_rotary_factor` at the top have the meaning of `rope_parameters`."""
    scaling = {name: value for name, value in rope_parameters.items() if name not in ("rope_type", "rope_theta")}
    scaling[key] = rope_parameters["rope_type"]
    theta = rope_parameters.get("rope_theta", 10000.0)
    old = old_config(rope_theta=theta, rope_scaling=scaling, partial_rotary_factor=0.5)
    new = make_config(**rope_parameters, partial_rotary_factor=0.5)
    assert get_rope_parameters(old) == get_rope_parameters(new)


def test_the_first_name_of_longrope() -> None:
    """The type `su` of Phi-3's first checkpoints is longrope, with the trained length next to `rope_scaling`."""
    scaling = {"type": "su", "short_factor": [1.0], "long_factor": [2.0]}
    parameters = get_rope_parameters(old_config(rope_scaling=scaling, original_max_position_embeddings=512))
    assert parameters.rope_type == "longrope"
    assert parameters.original_max_position_embeddings == 512
    assert parameters.factor == TRAINED / 512


@pytest.mark.parametrize("layer_type", ["full_attention", "sliding_attention"])
def test_layers_of_two_kinds(layer_type: str) -> None:
    """Gemma 3 rotates differently in its sliding layers, in configs of transformers 4 and 5."""
    full, sliding = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, {"rope_theta": 1e4}
    new = old_config()
    new.rope_parameters = {"full_attention": full, "sliding_attention": sliding}
    scaling = {"rope_type": "linear", "factor": 8.0}
    old = old_config(rope_theta=1e6, rope_scaling=scaling, rope_local_base_freq=1e4)
    parameters = get_rope_parameters(new, layer_type)
    assert parameters == get_rope_parameters(old, layer_type)
    assert (parameters.rope_theta, parameters.factor) == ((1e6, 8.0) if layer_type == "full_attention" else (1e4, 1.0))


def test_longrope_chooses_its_factors_by_the_engines_length() -> None:
    """An engine for texts beyond the trained length uses the long factors, for short texts too, as in vLLM."""
    config = make_config(**CASES["longrope"])
    at, beyond = get_rope(config, HEAD_SIZE, 512).cos_sin_cache, get_rope(config, HEAD_SIZE, 513).cos_sin_cache
    assert torch.equal(at[0], beyond[0])  # position 0 is not rotated
    assert not torch.allclose(at[1], beyond[1])


@pytest.mark.parametrize(
    ("rope_parameters", "length"),
    [
        ({"rope_type": "default"}, TRAINED),
        (CASES["linear"], TRAINED * 4),
        (CASES["dynamic"], TRAINED * 4),
        (CASES["yarn"], 512 * 4),
        (CASES["llama3"], TRAINED),
        (CASES["longrope"], TRAINED),
    ],
    ids=lambda value: value["rope_type"] if isinstance(value, dict) else None,
)
def test_the_greatest_length(rope_parameters: dict[str, Any], length: int) -> None:
    """The rotary embedding extends the maximum length as in vLLM, and a request beyond it is refused."""
    config = make_config(**rope_parameters)
    assert get_max_model_len(None, config) == length
    assert get_max_model_len(length, config) == length
    with pytest.raises(EngineError, match=rf"at most {length}.*got {length + 1}"):
        get_max_model_len(length + 1, config)


def test_the_length_of_a_longrope_model_is_the_trained_one() -> None:
    """A longrope model with its trained length at the top of config.json gets that length, or more on request."""
    config = make_config(**CASES["longrope"])
    config.original_max_position_embeddings = 512
    assert get_max_model_len(None, config) == 512
    assert get_max_model_len(1000, config) == 1000


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "spiral"}, r"`spiral`.*Supported: default, linear, dynamic, llama3, yarn, longrope"),
        ({"rope_type": "linear"}, r"`linear` lack factor"),
        ({"rope_type": "llama3", "factor": 8.0}, r"`llama3` lack low_freq_factor, high_freq_factor"),
        ({"rope_type": "yarn", "factor": "4"}, r"`yarn` are wrong: Expected `float.*`, got `str`.*factor"),
        ({"rope_type": "linear", "factor": 0}, r"`linear` are wrong: Expected `float.*` > 0"),
        ({"rope_type": "default", "mrope_section": [1, 2]}, r"`default` are wrong: Expected `array` of length 3"),
        ({"rope_type": "default", "mrope_section": [1, 2, 3]}, r"`mrope_section` \[1, 2, 3\] .* 32 pairs"),
        ({"rope_type": "longrope", "short_factor": [1], "long_factor": "x"}, r"`longrope` are wrong"),
        ({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, r"has 1 numbers, but 32 pairs"),
        ({"rope_type": "default", "partial_rotary_factor": 0.05}, r"to rotate 3 of a head's 64"),
    ],
)
def test_what_cannot_be_is_refused(scaling: dict[str, Any], message: str) -> None:
    """An unknown type, or missing and invalid numbers, are named in one message."""
    with pytest.raises(ModelLoadError, match=message):
        get_rope(old_config(rope_scaling=scaling), HEAD_SIZE, 16)


@pytest.mark.parametrize("ops_name", ["torch", "cpu"])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rope_parameters", [{"rope_type": "default"}, CASES["yarn"]], ids=["default", "yarn"])
def test_mrope_rotates_each_pair_by_its_axis(rope_parameters: dict[str, Any], interleaved: bool, ops_name: str) -> None:
    """With three positions for each token, a pair is rotated as with the one position of its axis."""
    sections = {"mrope_section": [12, 10, 10], "mrope_interleaved": interleaved}
    config = make_config(**rope_parameters)
    with using_ops(make_ops(ops_name)):
        plain = get_rope(config, HEAD_SIZE, 128)
        config.rope_parameters |= sections
        rope = get_rope(config, HEAD_SIZE, 128)
    positions = torch.randint(128, (3, 20), generator=torch.Generator().manual_seed(0))
    query, key = torch.randn(20, 4 * HEAD_SIZE), torch.randn(20, 2 * HEAD_SIZE)
    rotated = rope(positions, query, key)
    one_axis = [plain(row, query, key) for row in positions]
    axes = [0] * 12 + [1] * 10 + [2] * 10
    if interleaved:  # time, height, width, time, ...; the two pairs after those in turn are time's
        axes = [0, 1, 2] * 10 + [0, 0]
    for which, tensor in enumerate(rotated):
        heads = tensor.unflatten(1, (-1, HEAD_SIZE))
        for pair, axis in enumerate(axes):
            expected = one_axis[axis][which].unflatten(1, (-1, HEAD_SIZE))
            assert torch.equal(heads[..., [pair, pair + PAIRS]], expected[..., [pair, pair + PAIRS]])


def test_mrope_with_equal_positions_is_the_plain_rotation() -> None:
    """A text's tokens, with three equal positions or with one, are rotated as without sections, bit for bit."""
    config = make_config(rope_type="default")
    plain = get_rope(config, HEAD_SIZE, 128)
    config.rope_parameters |= {"mrope_section": [12, 10, 10]}
    rope = get_rope(config, HEAD_SIZE, 128)
    positions, query, key = torch.arange(20) * 5, torch.randn(20, 4 * HEAD_SIZE), torch.randn(20, 2 * HEAD_SIZE)
    for same in (rope(positions, query, key), rope(positions.expand(3, -1), query, key)):
        assert all(map(torch.equal, same, plain(positions, query, key)))
