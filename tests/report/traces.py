"""Handmade traces of a small engine's calls, the same each time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace

LAYERS = 4


class Calls:
    """Recorder of nested calls, `with calls("Class.method"):`; each start and each end takes one microsecond."""

    def __init__(self, script: str = "hello.py", process: Process | None = None, start_ns: int = 0) -> None:
        self.spans: list[Span] = []
        self.process = process or Process(1, "main")
        self._now = start_ns
        self._stack: list[Span] = []
        self.script = script

    def tick(self, nanoseconds: int = 1000) -> int:
        """Advance the clock, and return the new time."""
        self._now += nanoseconds
        return self._now

    @contextmanager
    def __call__(
        self, name: str, level: str = "step", args: list[str] | None = None, result: str | None = None, **more: Any
    ) -> Iterator[Span]:
        """Context with one call; `line=(number, text)` is its line of the script, other keywords are attributes."""
        attributes: dict[str, Any] = {names.LEVEL: level, names.LIFELINE: more.pop("lifeline", name.rpartition(".")[0])}
        if args is not None:
            attributes[names.ARGUMENTS] = args
        if result is not None:
            attributes[names.RESULT] = result
        if line := more.pop("line", None):
            attributes |= {names.CALLER_FILE: self.script, names.CALLER_LINE: line[0], names.CALLER_TEXT: line[1]}
        if phase := more.pop("phase", None):
            attributes[names.PHASE] = phase
        attributes |= more
        parent = self._stack[-1].span_id if self._stack else None
        number = len(self.spans) + 1
        span = Span(name, "1" * 32, f"{self.process.pid:04x}{number:012x}", parent, self.tick(), 0, attributes)
        span.process = self.process
        self.spans.append(span)
        self._stack.append(span)
        try:
            yield span
        except Exception as error:
            span.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._stack.pop()
            span.end_ns = self.tick()

    def leaf(self, name: str, level: str = "step", **more: Any) -> None:
        """Make a call without callees."""
        with self(name, level, **more):
            pass

    def trace(self) -> Trace:
        """Return the trace of all calls so far."""
        return Trace(self.spans, [self.process])


def start_engine(calls: Calls, line: tuple[int, str] = (3, "llm = LLM()")) -> None:
    """Make the calls of `LLM()`."""
    with (
        calls("LLM.__init__", "request", args=["model='tiny'"], line=line, phase="startup"),
        calls("LLMEngine.from_engine_args", "request"),
    ):
        calls.leaf("EngineArgs.create_engine_config", "request", result="VllmConfig")
        with calls("LLMEngine.__init__", "request"):
            calls.leaf("Processor.__init__", "request")
            calls.leaf("OutputProcessor.__init__", "request")
            with (
                calls(
                    "EngineCoreClient.make_client", "request", args=["multiprocess_mode=False"], result="InprocClient"
                ),
                calls("InprocClient.__init__", "request"),
                calls("EngineCore.__init__", "request"),
            ):
                with calls("UniProcExecutor.__init__", "request"), calls("UniProcExecutor._init_executor", "request"):
                    calls.leaf("WorkerWrapperBase.init_worker", "request")
                    with calls("Worker.init_device", "request"):
                        calls.leaf("GPUModelRunner.__init__", "request")
                    with calls("Worker.load_model", "request"), calls("GPUModelRunner.load_model", "request"):
                        calls.leaf("Qwen2ForCausalLM.__init__", "request")
                        calls.leaf("DefaultModelLoader.load_weights", "request")
                with calls("EngineCore._initialize_kv_caches", "request"):
                    for method in ("get_kv_cache_spec", "determine_available_memory", "initialize_from_config"):
                        with calls("UniProcExecutor.collective_rpc", "request", args=[f"method='{method}'"]):
                            calls.leaf(f"Worker.{method}", "request")
                with calls("Scheduler.__init__", "request"):
                    calls.leaf("KVCacheManager.__init__", "request")


def generate(
    calls: Calls,
    prompts: int = 2,
    tokens: int = 6,
    first_step: int = 1,
    line: tuple[int, str] = (5, "outputs = llm.generate(prompts)"),
    first_request: int = 0,
    text: str = "Paris",
    fails_at: int | None = None,
) -> int:
    """Make the calls of `llm.generate` for prompts of `tokens` output tokens; return the next step's index."""
    ids = [str(first_request + i) for i in range(prompts)]
    with calls("LLM.generate", "request", args=[f"prompts=list[{prompts}]"], result=f"list[{prompts} RequestOutput]",
               line=line, phase="generation"):  # fmt: skip
        with calls("LLM._validate_and_add_requests", "request"):
            for id in ids:
                _add_request(calls, id, text)
        with calls("LLM._run_engine", "request"):
            for i in range(tokens):
                calls.leaf("LLMEngine.has_unfinished_requests", result="True")
                step(calls, first_step + i, ids, new=i == 0, last=i == tokens - 1, fails=fails_at == first_step + i)
            calls.leaf("LLMEngine.has_unfinished_requests", result="False")
    return first_step + tokens


def _add_request(calls: Calls, id: str, text: str) -> None:
    with calls("LLM._add_request", "request", args=[f"prompt={text!r}"]):
        with calls("Processor.process_inputs", "request", args=[f"request_id='{id}'"], result="EngineCoreRequest"):
            calls.leaf("InputPreprocessor.preprocess", "request")
        with calls("LLMEngine.add_request", "request"):
            calls.leaf("OutputProcessor.add_request", "request")
            with calls("InprocClient.add_request", "request"), calls("EngineCore.add_request", "request"):
                calls.leaf("Scheduler.add_request", "request")


def step(calls: Calls, index: int, ids: list[str], *, new: bool, last: bool, fails: bool = False) -> None:
    """Make one engine step for these requests."""
    facts = step_facts(index, ids, new=new, last=last)
    with calls("LLMEngine.step"):
        with calls("InprocClient.get_output"):
            with calls("EngineCore.step_fn", result="({0: EngineCoreOutputs}, True)", **facts):
                with calls("EngineCore._schedule"), calls("Scheduler.schedule", result=f"SchedulerOutput({index})"):
                    for _ in ids:
                        if new:
                            calls.leaf("KVCacheManager.get_computed_blocks")
                        with calls("KVCacheManager.allocate_slots"):
                            if new or index % 16 == 0:
                                calls.leaf("BlockPool.get_new_blocks")
                with calls("EngineCore._execute_model"):
                    _execute(calls, ids, facts, fails)
                with calls("EngineCore._process_model_outputs"):
                    calls.leaf("Scheduler.update_from_output", result="{0: EngineCoreOutputs}")
            calls.leaf("EngineCore.post_step")
        calls.leaf("OutputProcessor.process_outputs", args=[f"engine_core_outputs=list[{len(ids)}]"])


def _execute(calls: Calls, ids: list[str], facts: dict[str, Any], fails: bool) -> None:
    tokens = sum(facts[names.STEP_TOKENS])
    with (
        calls("UniProcExecutor.execute_model", result="ModelRunnerOutput"),
        calls("UniProcExecutor.collective_rpc"),
        calls("WorkerWrapperBase.execute_model"),
        calls("Worker.execute_model"),
        calls("GPUModelRunner.execute_model", result="ModelRunnerOutput"),
    ):
        calls.leaf("GPUModelRunner._update_states")
        calls.leaf("GPUModelRunner._prepare_inputs", result=f"input_ids=int64[{tokens}]")
        with (
            calls("GPUModelRunner._model_forward"),
            calls(
                "Qwen2ForCausalLM.forward",
                "layer",
                args=[f"input_ids=int64[{tokens}]"],
                result=f"float32[{tokens}, 256]",
            ),
            calls("Qwen2Model.forward", "layer"),
        ):
            for _ in range(LAYERS):
                with calls("Qwen2DecoderLayer.forward", "layer"):
                    calls.leaf("ops.rms_norm", "kernel", lifeline="ops")
                    with calls("Qwen2Attention.forward", "layer"):
                        calls.leaf("ops.rotary_embedding", "kernel", lifeline="ops")
                        calls.leaf("ops.paged_attention", "kernel", lifeline="ops")
                    with calls("Qwen2MLP.forward", "layer"):
                        calls.leaf("ops.silu_and_mul", "kernel", lifeline="ops")
            if fails:
                raise RuntimeError('out of memory; tried #9 "quoted"\nsecond line')
        calls.leaf("Qwen2ForCausalLM.compute_logits", "layer", result=f"float32[{len(ids)}, 4096]")
        with calls("GPUModelRunner._sample"), calls("Sampler.forward", args=[f"logits=float32[{len(ids)}, 4096]"]):
            calls.leaf("Sampler.greedy_sample")


def step_facts(
    index: int, ids: list[str], *, new: bool = False, last: bool = False, prompt_tokens: int = 7
) -> dict[str, Any]:
    """Return the attributes of a step span."""
    return {
        names.STEP_INDEX: index,
        names.STEP_KIND: "prefill" if new else "decode",
        names.STEP_REQUESTS: ids,
        names.STEP_TOKENS: [prompt_tokens if new else 1] * len(ids),
        names.STEP_COMPUTED: [0 if new else prompt_tokens + index] * len(ids),
        names.STEP_PHASES: ["prefill" if new else "decode"] * len(ids),
        names.STEP_CACHED: [0] * len(ids),
        names.STEP_NEW_BLOCKS: [str(i + 1) if new else "" for i in range(len(ids))],
        names.STEP_NEW: ids if new else [],
        names.STEP_FINISHED: ids if last else [],
        names.STEP_FINISH_REASONS: ["length"] * len(ids) if last else [],
        names.STEP_RUNNING: ids,
        names.STEP_BUDGET: 2048,
        names.STEP_BLOCKS_FREE: 100 - len(ids),
        names.STEP_BLOCKS_TOTAL: 100,
        names.STEP_LOGITS: [len(ids), 4096],
        names.STEP_SAMPLED: ids,
        names.STEP_SAMPLED_IDS: [index] * len(ids),
        names.STEP_SAMPLED_TEXTS: [" Paris" if new else " is"] * len(ids),
        names.STEP_SAMPLED_PROBS: [0.5] * len(ids),
        names.STEP_CANDIDATES: [f'[[{index}, " Paris", 0.5]]'] * len(ids),
    }


def hello(prompts: int = 2, tokens: int = 6, **more: Any) -> Trace:
    """Return a small complete run: start the engine, generate for two prompts."""
    calls = Calls()
    try:
        with calls("hello.py", "request", lifeline="hello.py"):
            start_engine(calls)
            generate(calls, prompts, tokens, **more)
    except RuntimeError:
        pass
    return calls.trace()
