"""Tests of the choice of an engine's implementation of the operations."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.vllm_config import OpsChoice
from tracellm.engine.entrypoints.llm import LLM
from tracellm.engine.model_executor.layers.activation import SiluAndMul
from tracellm.engine.model_executor.ops import choice, current_ops, make_ops, using_ops
from tracellm.engine.model_executor.ops.choice import choose_ops
from tracellm.engine.model_executor.ops.cpu_ops import CpuOps
from tracellm.engine.model_executor.ops.torch_ops import TorchOps
from tracellm.engine.sample.sampling_params import SamplingParams

WHY_UNCOMPILED = choice._missing_compiler
CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


@pytest.fixture(autouse=True)
def _triton_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: name)
    monkeypatch.setattr(choice, "_missing_compiler", lambda: None)


def test_the_device_decides() -> None:
    """A GPU gets Triton's kernels, or the reference without the package triton; a CPU gets its own."""
    assert choose_ops(None, CPU) in (OpsChoice("cpu", "cpu"), OpsChoice("cpu", "cpu_uncompiled"))
    assert choose_ops(None, GPU) == OpsChoice("triton", "gpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "find_spec", lambda name: None)
        assert choose_ops(None, GPU) == OpsChoice("torch", "no_triton")


def test_who_asks_is_heard_and_the_argument_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument overrides TRACELLM_OPS, which overrides the device, in any case of letters."""
    monkeypatch.setenv("TRACELLM_OPS", "Torch")
    assert choose_ops(None, CPU) == OpsChoice("torch", "environment")
    assert choose_ops("CPU", CPU) == OpsChoice("cpu", "argument")
    assert choose_ops("triton", GPU) == OpsChoice("triton", "argument")
    monkeypatch.setenv("TRACELLM_OPS", "")
    assert choose_ops(None, CPU).reason.startswith("cpu")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("asked", [None, "cpu"])
def test_a_cpu_without_kernels_is_told(
    asked: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without CPU kernels a warning gives the reason, whether they were requested or the default."""
    monkeypatch.setenv("TRACELLM_CXX", "")
    assert choose_ops(asked, CPU).name == "cpu"
    (message,) = caplog.messages
    assert message.startswith("PyTorch computes the layers, slower")
    assert message.endswith(": no C++ compiler: TRACELLM_CXX is ''")
    caplog.clear()
    choose_ops("torch", CPU)
    assert not caplog.messages


def test_triton_on_a_cpu_needs_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, Triton's kernels run only with TRITON_INTERPRET=1."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert choose_ops("triton", CPU) == OpsChoice("triton", "argument")
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(EngineError, match=r"^LLM: `attention_backend` asks for `triton`.*TRITON_INTERPRET=1"):
        choose_ops("triton", CPU)


@pytest.mark.parametrize(
    ("asked", "device", "says"),
    [
        ("trition", CPU, "must be one of torch, cpu, triton, got 'trition'. Did you mean `triton`?"),
        ("FLASH_ATTN", CPU, "must be one of torch, cpu, triton, got 'FLASH_ATTN'"),
        ("cpu", GPU, "asks for `cpu`, but the model runs on cuda:0"),
    ],
)
def test_what_cannot_be(asked: str, device: torch.device, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name, or one that cannot run on the device, is refused with the setting's source."""
    with pytest.raises(EngineError) as message:
        choose_ops(asked, device)
    assert str(message.value).startswith("LLM: `attention_backend` ")
    assert says in str(message.value)
    monkeypatch.setenv("TRACELLM_OPS", asked)
    with pytest.raises(EngineError, match=r"^The environment variable TRACELLM_OPS "):
        choose_ops(None, device)


def test_without_the_package_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requesting triton without the package raises an error with the command to install it."""
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"pip install 'tracellm\[triton\]'"):
        choose_ops("triton", GPU)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("gcc", "Triton finds no C compiler (gcc, clang, or what CC names)"),
        ("Python.h", "Triton's C compiler finds no Python.h (python3-dev has it, or python3-devel)"),
    ],
)
def test_a_gpu_without_a_compiler(
    missing: str, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Without a C compiler for Triton, PyTorch computes after a warning, and an explicit request is refused."""
    monkeypatch.setattr(choice, "_missing_compiler", WHY_UNCOMPILED)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("CC", "" if missing == "gcc" else "cc")
    monkeypatch.setattr("shutil.which", lambda name: None)
    (tmp_path / ("other.h" if missing == "Python.h" else "Python.h")).touch()
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    assert choose_ops(None, GPU) == OpsChoice("torch", "no_compiler")
    assert caplog.messages == [f"PyTorch computes the layers, slower than Triton's kernels would: {message}"]
    with pytest.raises(EngineError) as caught:
        choose_ops("triton", GPU)
    assert (
        str(caught.value) == f"LLM: `attention_backend` asks for `triton`, but {message}. Install it, or take `torch`."
    )
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert choose_ops("triton", GPU) == OpsChoice("triton", "argument")


@pytest.mark.parametrize("value", [3, True, ["torch"]])
def test_a_name_is_a_text(value: Any) -> None:
    """A name that is not a string is refused like any argument of a wrong type."""
    with pytest.raises(EngineError, match="attention_backend"):
        EngineArgs(attention_backend=value)


def test_layers_keep_what_they_were_made_with() -> None:
    """Each layer keeps the operations that were in use when it was made."""
    ops = make_ops("torch")
    with using_ops(ops):
        kept = SiluAndMul()
        with using_ops(CpuOps()):
            assert SiluAndMul().ops is not ops
        assert current_ops() is ops
    assert kept.ops is ops
    assert type(current_ops()) is TorchOps
    assert current_ops() is not ops


def test_two_engines_of_one_process_may_differ() -> None:
    """Two engines in a process can use different operations, and generate the same tokens."""
    small: dict[str, Any] = {"num_gpu_blocks_override": 16, "max_model_len": 32, "dtype": "float32"}
    engines = {name: LLM(attention_backend=name, **small) for name in ("torch", "cpu")}
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    tokens = [
        llm.generate("Once upon a time", params, use_tqdm=False)[0].outputs[0].token_ids for llm in engines.values()
    ]
    assert tokens[0] == tokens[1]
    for name, llm in engines.items():
        executor: Any = llm.llm_engine.engine_core.engine_core.model_executor  # type: ignore[attr-defined]
        runner = executor.driver_worker.worker.model_runner
        assert runner.vllm_config.ops_choice == OpsChoice(name, "argument")
        assert type(runner.ops) is type(make_ops(name))
        assert {id(module.ops) for module in runner.model.modules() if hasattr(module, "ops")} == {id(runner.ops)}
        assert runner.sampler.ops is runner.ops
