"""The recorded shape of a model: sizes, parameters, attention layers, and the name of the GPU."""

from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

from tracellm.probes.catalog.model_shape import device_name, model_config, model_shape
from tracellm.trace import names


class Attention(nn.Module):
    """An attention layer with the names that this engine and a vLLM share."""

    def __init__(self, layer_name: str, window: int | None) -> None:
        super().__init__()
        self.layer_name, self.sliding_window = layer_name, window
        self.num_heads, self.num_kv_heads, self.head_size = 8, 2, 64


class Layer(nn.Module):
    """A layer with one parameter."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.attn = Attention(f"layers.{number}.attn", 128 if number % 2 == 0 else None)
        self.proj = nn.Linear(2, 3 if number < 3 else 4, bias=False, dtype=torch.bfloat16)


class Model(nn.Module):
    """Four layers; the last one has another shape, and every other one a sliding window."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 2)
        self.layers = nn.ModuleList(map(Layer, range(4)))


def test_layers_with_the_same_shapes_are_one_entry() -> None:
    """Parameters and attention layers are listed once for all layers that have the same."""
    assert model_shape(Model()) == {
        names.LOAD_WEIGHTS: [
            "embed.weight=float32[5, 2]",
            "layers.0-2.proj.weight=bfloat16[3, 2]",
            "layers.3.proj.weight=bfloat16[4, 2]",
        ],
        names.LOAD_ATTENTION: [
            "layers.0,2.attn: heads=8 kv_heads=2 head_size=64 window=128",
            "layers.1,3.attn: heads=8 kv_heads=2 head_size=64 window=0",
        ],
    }


def test_sizes_are_those_of_the_text_model() -> None:
    """The text half of a configuration with images counts; entries that a model lacks are left out."""
    text = SimpleNamespace(model_type="qwen2", hidden_size=64, rope_theta=10000.0, sliding_window=None)

    class WithImages(SimpleNamespace):
        def get_text_config(self) -> SimpleNamespace:
            return text

    assert model_config(WithImages(hidden_size=1)) == {
        names.LOAD_CONFIG: ["model_type=qwen2", "hidden_size=64", "rope=True"]
    }
    assert model_config(SimpleNamespace(n_embd=4)) == {names.LOAD_CONFIG: ["rope=False"]}


def test_only_a_gpu_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's name of a CUDA device is recorded."""
    assert device_name(torch.device("cpu")) == {}
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"NVIDIA {device}")
    assert device_name(torch.device("cuda:1")) == {names.LOAD_DEVICE_NAME: "NVIDIA cuda:1"}


def test_a_configuration_is_not_asked_for_what_it_lacks():
    """Only entries that are there are read, by name or alias: a missing one would import transformers."""

    class Light:
        attribute_map: ClassVar[dict[str, str]] = {"hidden_size": "n_embd"}

        def __init__(self) -> None:
            self.n_embd, self.vocab_size = 64, 100

        def __getattr__(self, name: str) -> None:
            pytest.fail(f"{name} was asked for")

    assert model_config(Light()) == {names.LOAD_CONFIG: ["hidden_size=64", "vocab_size=100", "rope=False"]}
