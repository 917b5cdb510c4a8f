"""Tests of one call for all decoder layers: the same bits as layer by layer, unless a layer is changed or observed."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from tests.checkpoints import make_checkpoint
from tests.engine.models.variants import VARIANTS
from tests.engine.ops.implementations import DTYPES
from tests.engine.worker.driver import Driver, Job, make_config, record_hidden_states, runner_of, start_executor
from tracellm.engine.config.vllm_config import OpsChoice
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.model_executor.layers.rotary_embedding import RotaryEmbedding
from tracellm.engine.model_executor.models import qwen2
from tracellm.engine.model_executor.ops import cpu_ops, using_ops
from tracellm.engine.model_executor.ops.cpu import decoder_layers
from tracellm.engine.model_executor.ops.cpu.decoder_layers import DecoderLayers
from tracellm.engine.model_executor.ops.torch_ops import TorchOps
from tracellm.engine.sample.sampling_params import SamplingParams

pytestmark = pytest.mark.usefixtures("own_kernels")

AT_ONCE = ["qwen2", "qwen2-untied-mha", "llama", "llama-biases-tied", "mistral", "mistral-no-window"]
"""Families and variants that layers.cpp supports: biases, none, a window, heads of several sizes."""
ONE_BY_ONE = ["qwen3", "phi3", "gemma2"]
"""Families it does not support: norms of heads, partly rotated heads, other layers."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of tokens of each step that one call computed."""
    tokens: list[int] = []
    run = DecoderLayers.run

    def counted(self: DecoderLayers, library: Any, positions: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        tokens.append(len(positions))
        return run(self, library, positions, *rest)

    monkeypatch.setattr(DecoderLayers, "run", counted)
    return tokens


def start(folder: Path, dtype: torch.dtype = torch.float32) -> Executor:
    """Start an executor with the CPU's kernels."""
    return start_executor(replace(make_config(folder, dtype=dtype), ops_choice=OpsChoice("cpu", "argument")))


def hidden_states(folder: Path, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the hidden states of mixed prompt chunks and decode tokens, [all tokens of all steps, hidden]."""
    executor = start(folder, dtype)
    recorded = record_hidden_states(executor)
    params = SamplingParams(temperature=0, max_tokens=6)
    Driver(executor).run([Job(str(n), list(range(3, 3 + n)), params) for n in (1, 2, 17, 40, 90)], max_chunk=300)
    return torch.cat(recorded)


class Steps:
    """Steps of an executor, each with a prompt of three tokens."""

    def __init__(self, folder: Path) -> None:
        self.executor = start(make_checkpoint(folder, "qwen2"))
        self.runner = runner_of(self.executor)
        self.layer = self.runner.model.model.layers[1]
        self.recorded = record_hidden_states(self.executor)
        self.driver = Driver(self.executor)

    def step(self) -> Tensor:
        """Run a step and return its hidden states [3, hidden]."""
        job = Job(str(len(self.recorded)), [5, 6, 7], SamplingParams(temperature=0, max_tokens=2))
        self.driver.step({job.req_id: 3}, [job])
        return self.recorded[-1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", AT_ONCE)
def test_the_same_bits(
    name: str, dtype: torch.dtype, tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All layers in one call give the same bits as one by one, for prompts, chunks and decodes."""
    folder = make_checkpoint(tmp_path, VARIANTS[name].model_type, **VARIANTS[name].config)
    at_once = hidden_states(folder, dtype)
    assert sum(calls) == len(at_once)
    monkeypatch.setattr(DecoderLayers, "can_run", lambda self: False)
    one_by_one = hidden_states(folder, dtype)
    assert sum(calls) == len(at_once)
    assert torch.equal(at_once, one_by_one)


def test_a_long_prompt(tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step larger than the scratch memory and the feed-forward block gives the same bits."""
    folder = make_checkpoint(tmp_path, "qwen2", max_position_embeddings=1024)

    def long() -> Tensor:
        executor = start(folder)
        recorded = record_hidden_states(executor)
        job = Job("long", [token % 300 for token in range(500)], SamplingParams(temperature=0, max_tokens=2))
        Driver(executor).step({"long": 500}, [job])
        return recorded[0]

    at_once = long()
    assert calls == [500]
    monkeypatch.setattr(DecoderLayers, "can_run", lambda self: False)
    assert torch.equal(at_once, long())


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_other_layers(name: str, tmp_path: Path, calls: list[int]) -> None:
    """Layers that the call does not support are computed one by one."""
    hidden_states(make_checkpoint(tmp_path, VARIANTS[name].model_type, **VARIANTS[name].config))
    assert calls == []


def test_weights_for_onednn(tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With oneDNN's matrix products, layers are computed one by one."""
    monkeypatch.setattr(cpu_ops, "_onednn_is_faster", lambda dtype: True)
    hidden_states(make_checkpoint(tmp_path, "qwen2"))
    assert calls == []


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as a probe does."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("path", ["", "self_attn", "self_attn.attn", "mlp.act_fn", "input_layernorm", "mlp.down_proj"])
def test_watched_layer(path: str, tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapped function, a hook or an overridden `forward` of a layer is called, before and after the first step."""
    steps = Steps(tmp_path)
    module, seen = steps.layer.get_submodule(path), []

    def step() -> int:
        steps.step()
        return len(calls)

    with monkeypatch.context() as context:
        context.setattr(type(module), "forward", wrapped(type(module).forward))
        assert step() == 0
    assert step() == 1
    hook = module.register_forward_hook(lambda *_: seen.append("hook"))
    assert step() == 1
    hook.remove()
    assert step() == 2
    hook = module.register_forward_pre_hook(lambda *_: seen.append("pre-hook"))
    assert step() == 2
    hook.remove()
    assert step() == 3
    with register_module_forward_hook(lambda called, *_: seen.append("global") if called is module else None):
        assert step() == 3
    assert step() == 4
    with register_module_forward_pre_hook(lambda called, *_: seen.append("global pre") if called is module else None):
        assert step() == 4
    assert step() == 5
    module.forward = wrapped(module.forward)
    assert step() == 5
    del module.forward
    assert step() == 6
    assert seen == ["hook", "pre-hook", "global", "global pre"]


def test_watched_operation(tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that a probe wrapped, for all engines or for one, is called."""
    steps = Steps(tmp_path)
    ops = steps.runner.ops
    impl = steps.layer.self_attn.attn.impl
    operations = [(ops, name) for name in decoder_layers._OPS] + [(impl, name) for name in decoder_layers._IMPL]
    for number, (called, name) in enumerate(operations):
        for owner in (next(cls for cls in type(called).__mro__ if name in vars(cls)), called):
            with monkeypatch.context() as context:
                context.setattr(owner, name, wrapped(getattr(owner, name)))
                steps.step()
                assert len(calls) == number, name
        steps.step()
        assert len(calls) == number + 1, name


class Qwen2MLP(qwen2.Qwen2MLP):
    """Layer with twice the output of the class of this name."""

    def forward(self, x: Tensor) -> Tensor:
        """MLP with twice the output of Qwen2's, under the same name."""
        return 2 * super().forward(x)


class Twice(TorchOps):
    """Operations with doubled norms."""

    def fused_add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """Return twice the norm, and the sum."""
        normed, total = super().fused_add_rms_norm(x, residual, weight, epsilon)
        return 2 * normed, total


def other_part(layer: Any) -> None:
    """Replace a module of the engine."""
    layer.mlp = nn.Sequential(layer.mlp, nn.ReLU())


def other_angles(layer: Any) -> None:
    """Change the angles of this layer only; all layers share one rotary embedding."""
    size = layer.self_attn.attn.head_size
    with using_ops(layer.self_attn.rotary_emb.ops):
        layer.self_attn.rotary_emb = RotaryEmbedding(size, torch.ones(size // 2), max_position=256)


def other_weight(layer: Any) -> None:
    """Replace a parameter."""
    layer.input_layernorm.weight = nn.Parameter(layer.input_layernorm.weight * 2, requires_grad=False)


def other_numbers(layer: Any) -> None:
    """Replace a parameter's memory."""
    layer.self_attn.qkv_proj.bias.data = layer.self_attn.qkv_proj.bias + 1


CHANGES: dict[str, Callable[[Any], None]] = {
    "a part": other_part,
    "a class of the same name": lambda layer: setattr(layer.mlp, "__class__", Qwen2MLP),
    "the angles": other_angles,
    "a weight": other_weight,
    "numbers": other_numbers,
    "numbers in their place": lambda layer: layer.post_attention_layernorm.weight.mul_(2),
    "the scale": lambda layer: setattr(layer.self_attn.attn.impl, "scale", 2.0),
    "a window": lambda layer: setattr(layer.self_attn.attn.impl, "sliding_window", 1),
    "an epsilon": lambda layer: setattr(layer.input_layernorm, "variance_epsilon", 2.0),
    "operations": lambda layer: setattr(layer.input_layernorm, "ops", Twice()),
}
"""Changes to one layer between two steps."""


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_layer(change: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replaced module, weight or value of a layer is used in the next step."""
    steps = Steps(tmp_path)
    before = steps.step()
    change(steps.layer)
    after = steps.step()
    assert not torch.equal(after, before)
    monkeypatch.setattr(DecoderLayers, "can_run", lambda self: False)
    assert torch.equal(after, steps.step())


@pytest.mark.parametrize("target", [torch.bfloat16, torch.device("meta")], ids=str)
@pytest.mark.parametrize("path", ["input_layernorm", "self_attn.qkv_proj"])
def test_other_dtype_or_device(path: str, target: torch.dtype | torch.device, tmp_path: Path) -> None:
    """A tensor of another dtype or on another device excludes the call, until it is changed back."""
    steps = Steps(tmp_path)
    call = DecoderLayers(steps.runner.model.model.layers, steps.runner.ops)
    assert call.can_run()
    module = steps.layer.get_submodule(path)
    name = "bias" if path.endswith("proj") else "weight"
    tensor = getattr(module, name)
    setattr(module, name, nn.Parameter(tensor.to(target), requires_grad=False))
    assert not call.can_run()
    setattr(module, name, tensor)
    assert call.can_run()


def test_embeddings_are_not_overwritten(tmp_path: Path, calls: list[int]) -> None:
    """An embedding's output that a hook keeps is not overwritten by the layers."""
    steps, kept = Steps(tmp_path), []
    embedding = steps.runner.model.model.embed_tokens
    embedding.register_forward_hook(lambda module, args, result: kept.append(result))
    steps.step()
    assert calls == [3]
    assert torch.equal(kept[0], embedding.weight[[5, 6, 7]])
