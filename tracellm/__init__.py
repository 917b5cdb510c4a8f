"""A small LLM engine in the shape of vLLM V1, and the tools that record a run and explain it.

    from tracellm import LLM, SamplingParams

    llm = LLM()  # the bundled model, `tiny`
    for output in llm.generate(["The capital of France is"], SamplingParams(temperature=0)):
        print(output.outputs[0].text)

`tracellm run --explain script.py` records such a run. Importing this module does not import torch.

vLLM: vllm/__init__.py
"""

from importlib import import_module
from os import environ as _environ
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracellm.engine.entrypoints.beam_search import BeamSearchParams
    from tracellm.engine.entrypoints.llm import LLM
    from tracellm.engine.frontend.async_llm import AsyncLLM
    from tracellm.engine.frontend.outputs import (
        CompletionOutput,
        EmbeddingRequestOutput,
        PoolingRequestOutput,
        RequestOutput,
        ScoringRequestOutput,
    )
    from tracellm.engine.pool.pooling_params import PoolingParams
    from tracellm.engine.sample.sampling_params import SamplingParams, StructuredOutputsParams
    from tracellm.notebook.explain import explain
    from tracellm.notebook.run import Run, open_run
    from tracellm.probes import probe

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AsyncLLM",
    "BeamSearchParams",
    "CompletionOutput",
    "EmbeddingRequestOutput",
    "PoolingParams",
    "PoolingRequestOutput",
    "RequestOutput",
    "Run",
    "SamplingParams",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
    "__version__",
    "explain",
    "open_run",
    "probe",
]

_HOMES = {
    "LLM": "tracellm.engine.entrypoints.llm",
    "AsyncLLM": "tracellm.engine.frontend.async_llm",
    "BeamSearchParams": "tracellm.engine.entrypoints.beam_search",
    "SamplingParams": "tracellm.engine.sample.sampling_params",
    "StructuredOutputsParams": "tracellm.engine.sample.sampling_params",
    "PoolingParams": "tracellm.engine.pool.pooling_params",
    "RequestOutput": "tracellm.engine.frontend.outputs",
    "CompletionOutput": "tracellm.engine.frontend.outputs",
    "EmbeddingRequestOutput": "tracellm.engine.frontend.outputs",
    "PoolingRequestOutput": "tracellm.engine.frontend.outputs",
    "ScoringRequestOutput": "tracellm.engine.frontend.outputs",
    "probe": "tracellm.probes",
    "explain": "tracellm.notebook.explain",
    "open_run": "tracellm.notebook.run",
    "Run": "tracellm.notebook.run",
    "load_ipython_extension": "tracellm.notebook.magics",
}
"""Module of each lazily imported name."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value  # this function is not called again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


if "TRACELLM_LAB" in _environ:  # a lab's folder, whose files take the place of modules of the engine
    from tracellm.lab.loader import install_from_environment as _install

    _install(_environ["TRACELLM_LAB"])

if "TRACELLM_RECORDING" in _environ:  # set by a recorded process for those that it starts
    from tracellm.probes.join import join_recording as _join

    _join()
