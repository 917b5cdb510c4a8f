"""A recorded workload, scheduled again by the engine's own `EngineCore`, `Scheduler` and `KVCacheManager`.

There is no model: each request gets the tokens that it got in the recording. The steps are spans with the same
attributes as recorded ones, made by the functions of the probes, so that everything that reads steps reads these too.
A step has no times: its start only gives it its place in the order.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.vllm_config import CacheConfig, DeviceConfig, ModelConfig, VllmConfig
from tracellm.engine.core.core import EngineCore
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, FullAttentionSpec, SlidingWindowSpec
from tracellm.engine.core.request import Request
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.structured_output.manager import StructuredOutputManager
from tracellm.engine.core.structured_output.request import StructuredOutputGrammar
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest
from tracellm.engine.sample.sampling_params import SamplingParams, StructuredOutputsParams
from tracellm.engine.worker.model_runner_output import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput
from tracellm.probes.catalog.engine.step import capture_schedule, capture_update, complete_step, give_schedule
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.report.facts.startup import KVCache
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.steps import STEP_SPAN, Step, read_step
from tracellm.whatif.workload import Period, RecordedRequest, Schedule, Workload

__all__ = ["engine_config", "replay"]

_UNLIMITED = 1 << 60
"""Bytes for the KV cache: the number of blocks is always set."""

_PLACEHOLDERS = 1 << 40
"""First id of the tokens that stand in for unrecorded ones; no vocabulary is so large."""


# -- settings ----------------------------------------------------------------------------------------------------------


def engine_config(workload: Workload, changes: Mapping[str, Any]) -> VllmConfig:
    """Return the settings of the recorded engine with these changes, by vLLM's names of engine arguments.

    Raises:
        EngineError: a value is out of range, or settings contradict each other.
    """
    settings = {**workload.settings, **changes}
    if "max_num_seqs" not in changes and "max_num_seqs" not in workload.chosen:  # the default is at most the budget
        settings["max_num_seqs"] = min(settings["max_num_seqs"], max(settings["max_num_batched_tokens"], 1))
    max_model_len = settings["max_model_len"]
    args = EngineArgs(**settings, async_scheduling=workload.asynchronous)
    device: Any = SimpleNamespace(type="cpu")  # only defaults depend on it, and the recorded values are given
    return VllmConfig(
        ModelConfig("", "", "", dtype=_NO_DTYPE, seed=0, max_model_len=max_model_len, hf_config=None),
        CacheConfig(
            args.block_size,
            num_gpu_blocks_override=args.num_gpu_blocks_override,
            enable_prefix_caching=args.enable_prefix_caching,
        ),
        args.create_scheduler_config(max_model_len, device, "LLM_CLASS"),
        DeviceConfig(device),
    )


class _Dtype(NamedTuple):
    """Stand-in for a dtype of PyTorch, which a replay does not import."""

    itemsize: int = 1


_NO_DTYPE: Any = _Dtype()


# -- the engine core without a model -----------------------------------------------------------------------------------


class _NoModel(Executor):
    """Executor without workers: it only has the layout of the KV cache, with a layer for each recorded group."""

    cache: KVCache

    def _init_executor(self) -> None:
        pass

    @property
    def max_concurrent_batches(self) -> int:
        """See `Executor`."""
        return 2 if self.vllm_config.scheduler_config.async_scheduling else 1

    def collective_rpc(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """See `Executor`."""
        layers = {f"layers.{i}": self._spec(window) for i, window in enumerate(self.cache.sliding_windows or (0,))}
        results: dict[str, Any] = {"get_kv_cache_spec": layers, "determine_available_memory": _UNLIMITED}
        return [results.get(method)]

    def _spec(self, window: int) -> AttentionSpec:
        size = self.cache.block_size
        return SlidingWindowSpec(size, 1, 1, _NO_DTYPE, window) if window else FullAttentionSpec(size, 1, 1, _NO_DTYPE)

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> None:
        """See `Executor`; `_Core` has the recorded tokens."""
        raise NotImplementedError

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """See `Executor`."""
        raise NotImplementedError


class _Grammars(StructuredOutputManager):
    """Grammars that `_Core` makes ready after as many steps as in the recording."""

    def grammar_init(self, request: Request) -> None:
        """Compile nothing."""


class _Grammar(StructuredOutputGrammar):
    """Grammar that accepts the recorded tokens."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """See `StructuredOutputGrammar`."""
        return True

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        """See `StructuredOutputGrammar`."""

    def is_terminated(self) -> bool:
        """See `StructuredOutputGrammar`."""
        return False


class _Core(EngineCore):
    """Engine core whose requests get their recorded tokens. It collects the facts of a step as the probes do."""

    def __init__(self, config: VllmConfig, workload: Workload) -> None:
        executor = type("_NoModelOfRun", (_NoModel,), {"cache": workload.cache})
        super().__init__(config, executor, log_stats=False)
        self.structured_output_manager = _Grammars(config)
        self._compiling: list[tuple[int, Future[Any]]] = []
        """Grammars that are not ready: the number of the schedule before which each will be."""
        self._num_schedules = 0
        self.facts: dict[str, Any] = {}
        self.leaving: list[str] = []
        """Requests to abort after the step, since the front half found a stop string."""
        self._vocab_size = workload.vocab_size
        self._recorded: dict[str, RecordedRequest] = {}
        self._tokens: dict[str, list[int]] = {}
        self._num_sampled: dict[str, int] = {}
        self._placeholders = count(_PLACEHOLDERS)

    def add(self, recorded: RecordedRequest, arrival_time: float) -> None:
        """Add a request to the waiting queue.

        Raises:
            InvalidRequestError: the KV cache is too small for it.
        """
        tokens = [next(self._placeholders) if token is None else token for token in recorded.tokens]
        self._recorded[recorded.id], self._tokens[recorded.id], self._num_sampled[recorded.id] = recorded, tokens, 0
        prompt = recorded.prompt
        prompt += [next(self._placeholders) for _ in range(recorded.num_prompt - len(prompt))]
        request = EngineCoreRequest(
            request_id=recorded.id,
            prompt_token_ids=prompt,
            mm_features=None,
            sampling_params=_sampling_params(recorded, tokens),
            pooling_params=None,
            eos_token_id=None,
            arrival_time=arrival_time,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            priority=recorded.number(names.REQUEST_PRIORITY) or 0,
        )
        arriving = self.preprocess_add_request(request)
        if arriving.structured_output_request is not None:
            arriving.structured_output_request.compiling = Future()
            ready = self._num_schedules + recorded.grammar_steps
            self._compiling.append((ready, arriving.structured_output_request.compiling))
        self.add_request(arriving)

    def _schedule(self) -> SchedulerOutput:
        for ready, grammar in self._compiling:
            if ready == self._num_schedules:
                grammar.set_result(_Grammar())
        self._num_schedules += 1
        output = super()._schedule()
        self.facts |= give_schedule(capture_schedule((self.scheduler,), {}, output))
        return output

    def _execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        request_ids = list(scheduler_output.num_scheduled_tokens)
        if not request_ids:
            return EMPTY_MODEL_RUNNER_OUTPUT
        sampled = [self._sample(request_id) for request_id in request_ids]
        rows = [
            (request_id, token) for request_id, tokens in zip(request_ids, sampled, strict=True) for token in tokens
        ]
        self.facts["sampled"] = {
            "requests": [request_id for request_id, _ in rows],
            "tokens": [token for _, token in rows],
            "options": [],
        }
        return ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(request_ids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            logits_shape=(len(request_ids), self._vocab_size),
            errors={request_id: "" for request_id in request_ids if self._fails(request_id)},
        )

    def _sample(self, request_id: str) -> list[int]:
        """Return the request's next recorded token, or no token while its prompt is incomplete.

        Past the end of the recorded tokens, each further token is a placeholder.
        """
        request, tokens = self.scheduler.requests[request_id], self._tokens[request_id]
        index = self._num_sampled[request_id]
        if request.num_computed_tokens < request.num_prompt_tokens + index:
            return []
        self._num_sampled[request_id] += 1
        return [tokens[index] if index < len(tokens) else next(self._placeholders)]

    def _fails(self, request_id: str) -> bool:
        recorded = self._recorded[request_id]
        return recorded.reason == "error" and self._num_sampled[request_id] == recorded.num_outputs

    def _process_model_outputs(
        self, scheduler_output: SchedulerOutput, model_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        outputs = super()._process_model_outputs(scheduler_output, model_output)
        self.facts |= capture_update((self.scheduler, scheduler_output, model_output), {}, outputs)
        for request_id in scheduler_output.num_scheduled_tokens:
            request, recorded = self.scheduler.requests.get(request_id), self._recorded[request_id]
            if recorded.reason == "text_stop" and request and request.num_output_tokens >= recorded.num_outputs:
                self.leaving.append(request_id)
        return outputs


def _sampling_params(recorded: RecordedRequest, tokens: list[int]) -> SamplingParams:
    """Return parameters under which `check_stop` ends the request at the recorded token, for the recorded reason."""
    number, params = recorded.number, recorded.span.attributes.get(names.REQUEST_PARAMS, ())
    has_prompt_logprobs = any(str(param).startswith("prompt_logprobs=") for param in params)
    skips = "skip_reading_prefix_cache=True" in params
    stops = recorded.reason == "stop"
    return SamplingParams(
        max_tokens=number(names.GEN_AI_MAX_TOKENS) or max(len(tokens), 1),
        ignore_eos=True,
        min_tokens=recorded.num_outputs if stops else 0,
        stop_token_ids=[tokens[recorded.num_outputs - 1]] if stops else None,
        skip_reading_prefix_cache=skips or has_prompt_logprobs,
        structured_outputs=_constraint(recorded.grammar) if recorded.grammar else None,
    )


def _constraint(kind: str) -> StructuredOutputsParams:
    """Return a constraint of this kind; only its kind is used."""
    values: dict[str, Any] = {"json_object": True, "choice": [""]}
    return StructuredOutputsParams(**{kind: values.get(kind, "{}")})


# -- the replay --------------------------------------------------------------------------------------------------------


class _Ids:
    """Ids of the spans of requests, which are not kept."""

    def trace(self) -> str:
        """See `RequestIds`."""
        return f"{1:032x}"

    def request_span(self) -> str:
        """See `RequestIds`."""
        return f"{1:016x}"


def replay(workload: Workload, config: VllmConfig, *, first: int = 1) -> Schedule:
    """Schedule the workload under these settings; `first` is the number of the first step.

    Raises:
        InvalidRequestError: the KV cache is too small for one of the requests.
    """
    running = _Replay(workload, config, first)
    for period in workload.periods:
        running.run(period)
    return Schedule(tuple(running.steps), tuple(running.arrivals))


class _Replay:
    """A replay under way."""

    def __init__(self, workload: Workload, config: VllmConfig, first: int) -> None:
        self.steps: list[Step] = []
        self.arrivals: list[tuple[RecordedRequest, int]] = []
        self._core = _Core(config, workload)
        sampled = [one for step in workload.recorded.steps for one in step.sampled]
        texts = {one.token_id: one.text for one in sampled if one.text is not None}
        self._tracker = RequestTracker(_Ids(), decode=(lambda token: texts.get(token, "?")) if texts else None)
        self._tracker.steps = first - 1
        submissions = dict.fromkeys(map(_submission, workload.requests))
        self._times = {request_id: float(time) for time, request_id in enumerate(submissions)}

    def run(self, period: Period) -> None:
        """Run the steps of a period. While no request is left, those that are to come need not be waited for."""
        events = sorted({*period.arrivals, *period.aborts})
        offset = 0
        while True:
            for request in period.arrivals.get(offset, ()):
                self._add(request)
            self._core.abort_requests([request.id for request in period.aborts.get(offset, ())])
            if self._core.scheduler.has_unfinished_requests() or (period.drains and self._core.has_work()):
                self._step()
                offset += 1
            elif later := [event for event in events if event > offset]:
                offset = later[0]
            else:
                return

    def _add(self, request: RecordedRequest) -> None:
        self._core.add(request, self._times[_submission(request)])
        self._tracker.link_remote(request.id, request.span.trace_id, request.span.span_id)
        self._tracker.arrived(request.id)
        self.arrivals.append((request, len(self.steps)))

    def _step(self) -> None:
        self._core.facts, self._core.leaving = {}, []
        _, executed = self._core.step_fn()
        number = self._tracker.steps + 1
        attributes: dict[str, Any] = {names.LIFELINE: "EngineCore", names.LEVEL: "step"}
        span = Span(STEP_SPAN, f"{1:032x}", f"{number:016x}", None, number, number, attributes)
        complete_step(self._tracker, span, (None, executed), self._core.facts)
        if self._tracker.decode is None:  # a recording without text: the tokens are placeholders
            attributes.pop(names.STEP_SAMPLED_IDS, None)
        self.steps.append(read_step(span))
        self._core.abort_requests(self._core.leaving)


def _submission(request: RecordedRequest) -> str:
    """Return the id of the submitted request: the outputs of one with n > 1 arrive at the same time."""
    return str(request.span.attributes.get(names.REQUEST_PARENT, request.id))
