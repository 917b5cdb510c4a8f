"""A complete small LLM engine in the shape of vLLM V1 (0.11.1). It imports nothing from the floors above it.

To read it, follow a request. Each step names the file to open and the vLLM class that it mirrors.

Start-up, once:

 1. `entrypoints/llm.py` `LLM.__init__` takes the arguments; `arg_utils.py` `EngineArgs` checks them, `hf_config.py`
    reads the checkpoint's config.json, and `config.py` `VllmConfig` holds what was settled.
 2. `llm_engine.py` `LLMEngine` puts the front half together: `tokenizer.py`, `processor.py`, `output_processor.py`.
 3. `core_client.py` `EngineCoreClient.make_client` decides how to reach the engine core: here `InprocClient`, a
    method call.
 4. `core.py` `EngineCore` makes the executor (`executor/`, `worker/`), which loads the model (`model_loader/`,
    `models/`); then it measures the memory, divides it into KV blocks (`kv_cache/kv_cache_utils.py`) and makes the
    scheduler.

A request, from text to tokens:

 5. `LLM.generate` hands each prompt to `processor.py` `Processor.process_inputs`, which tokenizes it by
    `preprocess.py`, refuses what cannot be served, completes its `SamplingParams` (`sampling_params.py`), and makes an
    `EngineCoreRequest` (`messages.py`).
 6. `LLMEngine.add_request` registers it twice: in the `OutputProcessor`, which will make its text, and through the
    client in the engine core, where it becomes a `Request` (`request.py`) in the scheduler's waiting queue. With
    `n > 1` it is n requests there, whose outputs come together again (`parallel_sampling.py`).

The loop, once a step, until no request is left:

 7. `LLM._run_engine` calls `LLMEngine.step`, that `InprocClient.get_output`, that `EngineCore.step_fn`.
 8. Phase 1, `_schedule`: `sched/scheduler.py` `Scheduler.schedule` shares out the step's token budget among running
    and waiting requests and gives them KV blocks (`kv_cache/kv_cache_manager.py`, `kv_cache/block_pool.py`). The
    decision is a `SchedulerOutput` (`sched/output.py`), with a reason for each request that was held back.
 9. Phase 2, `_execute_model`: `UniProcExecutor.execute_model`, `Worker.execute_model`, `worker/gpu_model_runner.py`
    `GPUModelRunner.execute_model`: update the persistent batch, lay out the input tensors, run the model (`models/`,
    `layers/`, `ops/`), compute logits. Then, by the same way, `sample_tokens`: forbid what grammars do not allow
    (`structured_output/`), pick a token for each request (`sample/`), note it.
10. Phase 3, `_process_model_outputs`: `Scheduler.update_from_output` appends the tokens, finds who has finished, and
    frees their blocks.
11. Back in `LLMEngine.step`: `output_processor.py` turns tokens into text (`detokenizer.py`), looks for stop strings,
    adds log probabilities (`logprobs.py`) and times (`metrics/stats.py`) where they are wanted, and makes the
    `RequestOutput` (`outputs.py`) that `LLM.generate` returns.

For asyncio callers `async_llm.py` `AsyncLLM` takes the place of `LLM` and `LLMEngine`: its output handler
(`output_handling.py`) is the loop of the front half, and puts each output into its request's queue
(`output_collector.py`), which `AsyncLLM.generate` reads. Statistics of every step go to `metrics/loggers.py`.
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

_HOMES = {
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
    """Import a name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
