"""Twelve stops of docs/reading.md: the files of the main loop, their length, and the functions to look at.

`make_docs.py` writes the table between the page's marks. `tests/docs/test_reading_page.py` checks that a run of
`examples/hello.py` executes every function listed here, and that the files stay short enough to read in an afternoon.
"""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["MAX_LINES", "STOPS", "Stop", "blocks"]

_ROOT = Path(__file__).parents[1]
_ENGINE = "tracellm/engine"

MAX_LINES = 3500
"""Lines of all stops together, docstrings and blank lines included."""


@dataclass(frozen=True)
class Stop:
    """One stop of the reading path.

    Attributes:
        files: files to read, relative to tracellm/engine.
        functions: functions to look at, as `Class.method`; a run of examples/hello.py executes each.
        vllm: the counterparts in vLLM 0.11.1.
    """

    files: tuple[str, ...]
    functions: tuple[str, ...]
    vllm: tuple[str, ...]

    @property
    def num_lines(self) -> int:
        """Number of lines of all files of this stop."""
        return sum(len((_ROOT / _ENGINE / file).read_text(encoding="utf-8").splitlines()) for file in self.files)


STOPS = (
    Stop(
        ("entrypoints/llm.py",),
        ("LLM.generate", "LLM._run_engine"),
        ("vllm/entrypoints/llm.py",),
    ),
    Stop(
        ("frontend/llm_engine.py",),
        ("LLMEngine.add_request", "LLMEngine.step"),
        ("vllm/v1/engine/llm_engine.py",),
    ),
    Stop(
        ("frontend/processor.py",),
        ("Processor.process_inputs",),
        ("vllm/v1/engine/processor.py", "vllm/inputs/preprocess.py"),
    ),
    Stop(
        ("ipc/core_client.py",),
        ("EngineCoreClient.make_client", "InprocClient.get_output"),
        ("vllm/v1/engine/core_client.py",),
    ),
    Stop(
        ("core/core.py",),
        ("EngineCore.step_fn", "EngineCore.preprocess_add_request"),
        ("vllm/v1/engine/core.py",),
    ),
    Stop(
        ("core/sched/scheduler.py",),
        ("Scheduler.schedule", "Scheduler._schedule_running", "Scheduler._schedule_waiting"),
        ("vllm/v1/core/sched/scheduler.py",),
    ),
    Stop(
        ("core/kv_cache/kv_cache_manager.py", "core/kv_cache/block_pool.py"),
        ("KVCacheManager.allocate_slots", "BlockPool.get_new_blocks", "KVCacheManager.free"),
        ("vllm/v1/core/kv_cache_manager.py", "vllm/v1/core/block_pool.py"),
    ),
    Stop(
        ("worker/gpu_model_runner.py",),
        ("GPUModelRunner.execute_model", "GPUModelRunner._prepare_inputs", "GPUModelRunner.sample_tokens"),
        ("vllm/v1/worker/gpu_model_runner.py",),
    ),
    Stop(
        ("model_executor/models/qwen2.py",),
        ("Qwen2ForCausalLM.forward", "Qwen2DecoderLayer.forward"),
        ("vllm/model_executor/models/qwen2.py",),
    ),
    Stop(
        ("model_executor/layers/attention.py",),
        ("Attention.forward",),
        ("vllm/attention/layer.py", "vllm/v1/attention/backends/cpu_attn.py"),
    ),
    Stop(
        ("sample/sampler.py",),
        ("Sampler.forward", "Sampler.greedy_sample"),
        ("vllm/v1/sample/sampler.py",),
    ),
    Stop(
        ("frontend/output_processor.py", "frontend/detokenizer.py"),
        ("OutputProcessor.process_outputs", "FastIncrementalDetokenizer.decode_next"),
        ("vllm/v1/engine/output_processor.py", "vllm/v1/engine/detokenizer.py"),
    ),
)

_HEADS = {
    "en": ("stop", "file", "look at", "lines", "in vLLM 0.11.1", "Total"),
    "zh": ("站", "文件", "重点", "行数", "vLLM 0.11.1 中的对应文件", "合计"),
}


def blocks(lang: str) -> dict[str, str]:
    """Return the table of stops as Markdown, by the name of its mark."""
    *heads, total = _HEADS[lang]
    up = "../" if lang == "en" else "../../"
    rows = [f"| {' | '.join(heads)} |", "| ---: | --- | --- | ---: | --- |"]
    for number, stop in enumerate(STOPS, start=1):
        files = "<br>".join(f"[`{file}`]({up}{_ENGINE}/{file})" for file in stop.files)
        functions = "<br>".join(f"`{function}`" for function in stop.functions)
        counterparts = "<br>".join(f"`{file}`" for file in stop.vllm)
        rows.append(f"| {number} | {files} | {functions} | {stop.num_lines} | {counterparts} |")
    rows.append(f"| | {total} | | {sum(stop.num_lines for stop in STOPS):,} | |")
    return {"reading-stops": "\n".join(rows) + "\n"}
