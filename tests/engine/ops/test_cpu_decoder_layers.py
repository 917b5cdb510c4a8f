"""One call for all decoder layers: the same bits as layer by layer, while nobody changes or watches a layer."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.checkpoints import make_checkpoint
from tests.engine.models.variants import VARIANTS
from tests.engine.worker.driver import Driver, Job, make_config, record_hidden_states, runner_of, start_executor
from tracellm.engine.config import OpsChoice
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.ops.cpu import native
from tracellm.engine.ops.cpu.decoder_layers import DecoderLayers
from tracellm.engine.sampling_params import SamplingParams

pytestmark = pytest.mark.skipif(native.load().library is None, reason="needs the compiled kernels")

AT_ONCE = ["qwen2", "qwen2-untied-mha", "llama", "llama-biases-tied", "mistral", "mistral-no-window"]
"""Families and variants of them that layers.cpp knows: biases, none, a window, heads of several sizes."""
ONE_BY_ONE = ["qwen3", "phi3", "gemma2"]
"""Norms of heads, heads that are rotated in part, another layer altogether."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each step that was computed by one call."""
    tokens: list[int] = []
    run = DecoderLayers.run

    def counted(self: DecoderLayers, library: Any, positions: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        tokens.append(len(positions))
        return run(self, library, positions, *rest)

    monkeypatch.setattr(DecoderLayers, "run", counted)
    return tokens


def start(folder: Path, dtype: torch.dtype = torch.float32) -> Executor:
    """An executor with the CPU's kernels."""
    return start_executor(replace(make_config(folder, dtype=dtype), ops_choice=OpsChoice("cpu", "argument")))


def hidden_states(folder: Path, dtype: torch.dtype = torch.float32) -> Tensor:
    """Of prompts in pieces and of tokens that were decoded, mixed, [all tokens of all steps, hidden]."""
    executor = start(folder, dtype)
    recorded = record_hidden_states(executor)
    params = SamplingParams(temperature=0, max_tokens=6)
    Driver(executor).run([Job(str(n), list(range(3, 3 + n)), params) for n in (1, 2, 17, 40, 90)], max_chunk=300)
    return torch.cat(recorded)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", AT_ONCE)
def test_the_same_bits(
    name: str, dtype: torch.dtype, tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts, pieces of prompts and decoding, batched: all layers in one call give what they give one by one."""
    folder = make_checkpoint(tmp_path, VARIANTS[name].model_type, **VARIANTS[name].config)
    at_once = hidden_states(folder, dtype)
    assert sum(calls) == len(at_once)
    monkeypatch.setattr(DecoderLayers, "can_run", lambda self: False)
    one_by_one = hidden_states(folder, dtype)
    assert sum(calls) == len(at_once)
    assert torch.equal(at_once, one_by_one)


def test_a_long_prompt(tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of more tokens than scratch memory is kept for, and than the feed-forward block takes at a time."""
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
    """Layers that the kernels' call does not know are computed one by one."""
    hidden_states(make_checkpoint(tmp_path, VARIANTS[name].model_type, **VARIANTS[name].config))
    assert calls == []


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """As a probe wraps it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("path", ["", "self_attn", "self_attn.attn", "mlp.act_fn", "input_layernorm", "mlp.down_proj"])
def test_who_watches_a_layer_sees_it(
    path: str, tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that is wrapped, a hook, or a `forward` of a module's own: each is called; without it nothing is."""
    executor = start(make_checkpoint(tmp_path, "qwen2"))
    layer = runner_of(executor).model.model.layers[1]
    module, seen = layer.get_submodule(path), []
    driver, params = Driver(executor), SamplingParams(temperature=0, max_tokens=9)
    job = Job("watched", [5, 6, 7], params)

    def step() -> int:
        driver.step({"watched": len(job.tokens) - job.computed}, [job])
        return len(calls)

    assert step() == 1
    with monkeypatch.context() as context:
        context.setattr(type(module), "forward", wrapped(type(module).forward))
        assert step() == 1
    assert step() == 2
    hook = module.register_forward_hook(lambda *_: seen.append("hook"))
    assert step() == 2
    hook.remove()
    assert step() == 3
    module.forward = wrapped(module.forward)
    assert step() == 3
    del module.forward
    assert step() == 4
    assert seen == ["hook"]


def test_who_watches_an_operation_sees_it(tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As with layers: an operation that a probe has wrapped is called."""
    executor = start(make_checkpoint(tmp_path, "qwen2"))
    ops = type(runner_of(executor).ops)
    for name in ("linear", "rms_norm", "fused_add_rms_norm", "rotary_embedding", "silu_and_mul", "paged_attention"):
        with monkeypatch.context() as context:
            context.setattr(ops, name, wrapped(getattr(ops, name)))
            job = Job(name, [5, 6, 7], SamplingParams(temperature=0, max_tokens=2))
            Driver(executor).step({name: 3}, [job])
    assert calls == []


def test_who_watched_from_the_start_may_stop(tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that were watched when the first step came are computed by one call when nobody watches them any more."""
    executor = start(make_checkpoint(tmp_path, "qwen2"))
    driver, params = Driver(executor), SamplingParams(temperature=0, max_tokens=2)
    with monkeypatch.context() as context:
        ops = type(runner_of(executor).ops)
        context.setattr(ops, "linear", wrapped(ops.linear))
        driver.step({"watched": 3}, [Job("watched", [5, 6, 7], params)])
    assert calls == []
    driver.step({"alone": 3}, [Job("alone", [5, 6, 7], params)])
    assert calls == [3]
