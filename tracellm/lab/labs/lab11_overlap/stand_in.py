"""An engine without a model: requests, settings, and a fake model whose next token follows from all tokens before it.

A case has `settings`, `requests` and `ahead`, the most steps in flight. A request has `at` (the step before which it
arrives), `prompt`, `max_tokens`, `stop` (true if token 1 ends it), `gives_up` (the number of tokens after which its
client aborts it; null if never), `again` (it is then sent anew, under the same id) and `grammar` (its output is
constrained, by a grammar that allows every token). With `fails`, requests can end by an error. Before the step
`interrupt` all steps in flight are lost.
"""

from concurrent.futures import Future
from typing import Any, NamedTuple

__all__ = ["BLOCK", "Model", "Problem", "make_config", "make_core", "make_request", "make_scheduler"]

BLOCK = 4
_MAX_MODEL_LEN = 32
_VOCABULARY = 11
_STOP, _FORBIDDEN = 1, 2


class Problem(Exception):
    """A step that no model could compute: a kind, and the numbers of the case."""

    def __init__(self, *values: Any) -> None:
        super().__init__(values)
        self.values = list(values)


class _Dtype(NamedTuple):
    itemsize: int = 4


_FLOAT: Any = _Dtype()


def make_config(settings: dict[str, Any], asynchronous: bool) -> Any:
    """Return the settings of an engine; those of the model have no meaning."""
    from tracellm.engine.config.vllm_config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig

    device: Any = None
    length = settings.get("max_model_len", _MAX_MODEL_LEN)
    return VllmConfig(
        ModelConfig("", "", "", dtype=_FLOAT, seed=0, max_model_len=length, hf_config=device),
        CacheConfig(
            BLOCK,
            num_gpu_blocks=settings["num_blocks"],
            num_gpu_blocks_override=settings["num_blocks"],
            enable_prefix_caching=settings["caching"],
        ),
        SchedulerConfig(settings["budget"], settings["max_num_seqs"], length, async_scheduling=asynchronous),
        DeviceConfig(device),
    )


def make_scheduler(settings: dict[str, Any], asynchronous: bool) -> Any:
    """Return a scheduler with these settings."""
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from tracellm.engine.core.sched.async_scheduler import AsyncScheduler
    from tracellm.engine.core.sched.scheduler import Scheduler
    from tracellm.engine.core.structured_output.manager import StructuredOutputManager

    config = make_config(settings, asynchronous)
    group = KVCacheGroupSpec(["layers.0"], FullAttentionSpec(BLOCK, 1, 1, _FLOAT))
    scheduler_class = AsyncScheduler if asynchronous else Scheduler
    return scheduler_class(config, KVCacheConfig(settings["num_blocks"], [], [group]), StructuredOutputManager(config))


def make_core(settings: dict[str, Any], model: "Model", ahead: int) -> Any:
    """Return an engine core whose steps `model` computes, with at most `ahead` steps in flight."""
    from tracellm.engine.core.core import EngineCore
    from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec
    from tracellm.engine.executor.abstract import Executor

    class FakeExecutor(Executor):
        """Executor with the fake model."""

        def _init_executor(self) -> None:
            pass

        @property
        def max_concurrent_batches(self) -> int:
            return ahead

        def collective_rpc(
            self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> list[Any]:
            spec = {"layers.0": FullAttentionSpec(BLOCK, 1, 1, _FLOAT)}
            return [spec if method == "get_kv_cache_spec" else 1 << 20]

        def execute_model(self, scheduler_output: Any, non_block: bool = False) -> None:
            self.result = model.execute(scheduler_output)

        def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
            return _Later(model, self.result)

    return EngineCore(make_config(settings, True), FakeExecutor, log_stats=False)


class _Later(Future[Any]):
    """Result of a step in flight; waiting for it is logged."""

    def __init__(self, model: "Model", output: Any) -> None:
        super().__init__()
        self._model, self._output = model, output

    def result(self, timeout: float | None = None) -> Any:
        self._model.finish(self._output)
        return self._output


def make_request(request_id: str, one: dict[str, Any], caching: bool) -> Any:
    """Return the scheduler's request."""
    from tracellm.engine.core.kv_cache.kv_cache_utils import get_request_block_hasher
    from tracellm.engine.core.request import Request
    from tracellm.engine.sample.sampling_params import SamplingParams, StructuredOutputsParams

    params = SamplingParams(
        max_tokens=one["max_tokens"],
        ignore_eos=True,
        stop_token_ids=[_STOP] if one.get("stop") else None,
        structured_outputs=StructuredOutputsParams(json="{}") if one.get("grammar") else None,
    )
    request = Request(
        request_id,
        list(one["prompt"]),
        params,
        eos_token_id=None,
        arrival_time=float(one["at"]),
        block_hasher=get_request_block_hasher(BLOCK) if caching else None,
    )
    if request.structured_output_request is not None:
        request.structured_output_request.compiling = Future()
        request.structured_output_request.compiling.set_result(_any_grammar())
    return request


def _any_grammar() -> Any:
    """Return a grammar that accepts every token."""
    from tracellm.engine.core.structured_output.request import StructuredOutputGrammar

    class AnyGrammar(StructuredOutputGrammar):
        def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
            return True

        def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
            pass

        def is_terminated(self) -> bool:
            return False

    return AnyGrammar()


class _Launched(NamedTuple):
    """A step in flight, and the requests that get a token from it."""

    number: int
    result: Any
    getting: set[str]


class Model:
    """Fake model: it keeps each request's tokens, as the model runner does, and checks what it is to compute."""

    def __init__(self, fails: bool = False) -> None:
        self.log: list[str] = []
        """`launch N` and `wait N`, in the order in which they happened."""
        self.scheduled: list[dict[str, int]] = []
        """Scheduled tokens of each launched step, by request."""
        self.in_flight: list[_Launched] = []
        """Steps whose results were not taken, the oldest first."""
        self._fails = fails
        self._tokens: dict[str, list[int]] = {}
        self._computed: dict[str, int] = {}
        self._num_blocks: dict[str, int] = {}

    def execute(self, output: Any) -> Any:
        """Launch a step, and return its result.

        Raises:
            Problem: the step cannot be computed.
        """
        from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

        self.scheduled.append(dict(output.num_scheduled_tokens))
        if output.num_scheduled_tokens:
            self.log.append(f"launch {len(self.scheduled)}")
        for request_id in output.finished_req_ids:
            self._tokens.pop(request_id, None)
        cached = output.scheduled_cached_reqs
        for new in output.scheduled_new_reqs:
            self._tokens[new.req_id] = list(new.prompt_token_ids)
            self._computed[new.req_id] = new.num_computed_tokens
            self._num_blocks[new.req_id] = len(new.block_ids[0])
        starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        for request_id, start, blocks in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        ):
            starts[request_id] = start
            if request_id in cached.resumed_req_ids:
                self._computed[request_id], self._num_blocks[request_id] = start, 0
            self._num_blocks[request_id] += len(blocks[0]) if blocks else 0
        rows = [self._sample(request_id, start, output.num_scheduled_tokens) for request_id, start in starts.items()]
        result = ModelRunnerOutput(
            req_ids=list(starts),
            req_id_to_index={request_id: row for row, request_id in enumerate(starts)},
            sampled_token_ids=[[] if token in (None, "") else [token] for token in rows],
            logprobs=None,
            prompt_logprobs_dict={},
            logits_shape=(len(starts), _VOCABULARY),
            errors={
                request_id: "no token is left" for request_id, token in zip(starts, rows, strict=True) if token == ""
            },
        )
        getting = {request_id for request_id, token in zip(starts, rows, strict=True) if token is not None}
        self.in_flight.append(_Launched(len(self.scheduled), result, getting))
        return result

    def _sample(self, request_id: str, start: int, num_scheduled: dict[str, int]) -> Any:
        """Return the next token, "" if it fails, or None while the prompt is incomplete."""
        tokens, end = self._tokens[request_id], start + num_scheduled[request_id]
        if start != self._computed[request_id]:
            raise Problem("start", request_id, start, self._computed[request_id])
        if not start < end <= len(tokens):
            raise Problem("beyond", request_id, end, len(tokens))
        if self._num_blocks[request_id] * BLOCK < end:
            raise Problem("blocks", request_id, end, self._num_blocks[request_id])
        self._computed[request_id] = end
        if end < len(tokens):
            return None
        token = (sum(tokens) * 7 + len(tokens) * 5 + tokens[-1]) % _VOCABULARY
        tokens.append(token)
        return "" if self._fails and token == _FORBIDDEN and sum(tokens) % 3 == 0 else token

    def finish(self, result: Any) -> None:
        """Take the result of a step in flight."""
        for step in self.in_flight:
            if step.result is result:
                if result.req_ids:
                    self.log.append(f"wait {step.number}")
                self.in_flight.remove(step)
                return

    def count_in_flight(self, request_id: str) -> int:
        """Return the number of a request's tokens in flight."""
        return sum(request_id in step.getting for step in self.in_flight)

    def forget(self, request_id: str) -> None:
        """Do not count the tokens in flight of a request that has ended."""
        for step in self.in_flight:
            step.getting.discard(request_id)
