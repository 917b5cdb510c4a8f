"""A complete small LLM engine in the shape of vLLM V1 (0.11.1). It imports nothing from tracellm's other packages.

To read it, follow a request. Each step names the file to open and the class, which has the same name in vLLM.

Start-up, once:

 1. `entrypoints/llm.py`: `LLM.__init__` takes the arguments. `config/arg_utils.py`: `EngineArgs` checks them, reads the
    checkpoint's config.json (`config/hf_config.py`), and resolves them to a `VllmConfig` (`config/vllm_config.py`).
 2. `frontend/llm_engine.py`: `LLMEngine` makes the front end: tokenizer, `Processor` and `OutputProcessor`.
 3. `ipc/core_client.py`: `EngineCoreClient.make_client` chooses the way to the engine core, here `InprocClient`, a
    method call.
 4. `core/core.py`: `EngineCore` makes the executor (`executor/`) and its worker (`worker/`), which load the model
    (`model_executor/`). It measures the memory, divides it into KV cache blocks (`core/kv_cache/`) and makes the
    scheduler.

A request, from text to tokens:

 5. `frontend/processor.py`: `LLM.generate` passes each prompt to `Processor.process_inputs`, which tokenizes it
    (`frontend/preprocess.py`), validates it, completes its `SamplingParams` (`sample/sampling_params.py`) and makes an
    `EngineCoreRequest` (`ipc/messages.py`).
 6. `LLMEngine.add_request` adds it to the `OutputProcessor`, which will make its text, and to the engine core, where it
    becomes a `Request` (`core/request.py`) in the scheduler's waiting queue. With `n > 1` it is n requests there
    (`frontend/parallel_sampling.py`).

The loop, once per step, until no request is left:

 7. `LLM._run_engine` calls `LLMEngine.step`, which calls `InprocClient.get_output`, which calls `EngineCore.step_fn`.
 8. Phase 1, `_schedule`: `core/sched/scheduler.py`: `Scheduler.schedule` divides the step's token budget among running
    and waiting requests and allocates their KV cache blocks (`core/kv_cache/kv_cache_manager.py`). The result is a
    `SchedulerOutput` (`core/sched/output.py`), with a reason for each request not scheduled.
 9. Phase 2, `_execute_model`: `worker/gpu_model_runner.py`: through executor and worker, `GPUModelRunner.execute_model`
    updates the persistent batch, lays out the input tensors, runs the model (`model_executor/`) and computes logits.
    Then `sample_tokens` masks what grammars forbid (`core/structured_output/`) and samples a token per request
    (`sample/`).
10. Phase 3, `_process_model_outputs`: `Scheduler.update_from_output` appends the tokens, ends finished requests and
    frees their blocks.
11. `frontend/output_processor.py`: back in `LLMEngine.step`, the `OutputProcessor` turns tokens into text
    (`frontend/detokenizer.py`), finds stop strings, adds log probabilities (`frontend/logprobs.py`) and times
    (`metrics/stats.py`), and makes the `RequestOutput`s (`frontend/outputs.py`) that `LLM.generate` returns.

For asyncio callers, `AsyncLLM` (`frontend/async_llm.py`) replaces `LLM` and `LLMEngine`, with the engine core in a
process of its own (`core/core_proc.py`): its output handler is the loop, and puts each output into the queue of the
request that `AsyncLLM.generate` reads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracellm.engine.config.arg_utils import EngineArgs
    from tracellm.engine.config.errors import EngineError
    from tracellm.engine.core.core import EngineCore
    from tracellm.engine.entrypoints.llm import LLM
    from tracellm.engine.frontend.llm_engine import LLMEngine
    from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput
    from tracellm.engine.sample.sampling_params import SamplingParams

_MODULES = {
    "LLM": "entrypoints.llm",
    "LLMEngine": "frontend.llm_engine",
    "EngineArgs": "config.arg_utils",
    "EngineCore": "core.core",
    "EngineError": "config.errors",
    "SamplingParams": "sample.sampling_params",
    "RequestOutput": "frontend.outputs",
    "CompletionOutput": "frontend.outputs",
}

__all__ = [
    "LLM",
    "CompletionOutput",
    "EngineArgs",
    "EngineCore",
    "EngineError",
    "LLMEngine",
    "RequestOutput",
    "SamplingParams",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
