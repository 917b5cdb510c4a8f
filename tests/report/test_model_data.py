"""The loaded model as data for the page."""

from typing import Any

import pytest

from tests.report.synthetic import a_run
from tests.report.test_model_browser import with_model
from tracellm.report.html.data import run_data
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace


def model_of(spans: list[Span]) -> dict[str, Any]:
    """Return the model of a run's engine."""
    (engine,) = run_data(Trace(spans))["engines"]
    model: dict[str, Any] = engine["model"]
    return model


def test_parameters_and_heads_are_read():
    """Names have `*` for the layers, which are listed beside them."""
    model = model_of(with_model(a_run()))
    assert model["weights"][:2] == [
        ["model.embed_tokens.weight", None, "float32", [4096, 64]],
        ["model.layers.*.self_attn.qkv_proj.weight", [0, 1], "float32", [128, 64]],
    ]
    assert model["attention"] == [[[0, 1], 4, 2, 16, 0]]
    assert model["config"] == {"hidden_size": "64", "hidden_act": "silu", "rope": "True"}
    assert (model["architecture"], model["dtype"], model["device"]) == ("Qwen2ForCausalLM", "float32", "cpu")
    assert (model["kvSize"], model["workers"], model["peak"]) == (4, 1, None)


def test_a_run_without_shapes_has_no_model():
    """Nothing is guessed from the name of the architecture."""
    assert model_of(a_run()) == {}


def test_what_is_damaged_is_left_out():
    """Entries of another form do not stop the report."""
    spans = with_model(a_run())
    (load,) = [span for span in spans if names.LOAD_WEIGHTS in span.attributes]
    load.attributes[names.LOAD_WEIGHTS] = ["", "a=b", "model.norm.weight=float32[64]", 3]
    load.attributes[names.LOAD_ATTENTION] = "no list"
    model = model_of(spans)
    assert (model["weights"], model["attention"]) == ([["model.norm.weight", None, "float32", [64]]], [])


@pytest.mark.parametrize(
    ("gpu", "dtype", "peak"),
    [
        ("NVIDIA H200", "bfloat16", {"flops": 989e12, "bytes": 4.8e12}),
        ("NVIDIA H200", "float32", {"flops": 67e12, "bytes": 4.8e12}),
        ("NVIDIA B200", "float32", None),
        ("NVIDIA H200 of a friend", "bfloat16", None),
    ],
)
def test_peaks_are_those_of_known_gpus(gpu: str, dtype: str, peak: dict[str, float] | None):
    """A device has a limit only if its name is that of a data sheet, for the model's dtype."""
    spans = with_model(a_run(), gpu=gpu)
    for span in spans:
        if names.LOAD_DTYPE in span.attributes:
            span.attributes[names.LOAD_DTYPE] = dtype
    assert model_of(spans)["peak"] == peak


@pytest.mark.parametrize(("cache_dtype", "size"), [("fp8_e4m3", 1), ("bfloat16", 2), ("auto", 4)])
def test_settings_of_a_vllm_change_cache_and_workers(cache_dtype: str, size: int):
    """The size of a cached number and the number of workers come from the settings, even if a worker loads it."""
    spans = with_model(a_run())
    for span in spans:
        if names.CONFIG in span.attributes:
            span.attributes[names.CONFIG] = [
                f"cache_dtype={cache_dtype}",
                "tensor_parallel_size=2",
                "pipeline_parallel_size=2",
            ]
        if names.LOAD_WEIGHTS in span.attributes:
            span.process = Process(7, "Worker_0")
    model = model_of(spans)
    assert (model["kvSize"], model["workers"]) == (size, 4)
    assert len(model["weights"]) == 8
