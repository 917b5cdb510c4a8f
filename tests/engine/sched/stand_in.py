"""Engine core without a model: each token follows from the tokens before it.

The same events must give the same outputs with synchronous and asynchronous scheduling. So an event is defined by what
a client can observe: a request is aborted after a number of tokens.
"""

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tests.engine.core_requests import core_request
from tests.engine.sched.harness import make_config, make_spec
from tracellm.engine.core.core import EngineCore
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.executor.uniproc_executor import FutureOutput
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker.model_runner_output import (
    EMPTY_MODEL_RUNNER_OUTPUT,
    AsyncModelRunnerOutput,
    ModelRunnerOutput,
)

__all__ = ["BLOCK", "EOS", "STOP", "Happening", "NeverFailing", "StandInExecutor", "make_core", "run"]

BLOCK, MAX_MODEL_LEN, VOCABULARY = 4, 32, 11
EOS, STOP, FORBIDDEN = 0, 1, 2


class Later(AsyncModelRunnerOutput):
    """Result of a step, available on request."""

    def __init__(self, output: ModelRunnerOutput) -> None:
        self.output = output

    def get_output(self) -> ModelRunnerOutput:
        return self.output


class StandInExecutor(Executor):
    """Executor that generates each request's tokens, and checks that the scheduler requests the next ones, and encodes
    the images among them."""

    fails = True
    """True if a request can run out of allowed tokens."""

    def _init_executor(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.places: dict[str, list[tuple[str, int, int]]] = {}
        """Identifier, begin and end of each request's items."""
        self.encoder_cache: set[str] = set()
        self.result = EMPTY_MODEL_RUNNER_OUTPUT

    @property
    def max_concurrent_batches(self) -> int:
        return 2 if self.vllm_config.scheduler_config.async_scheduling else 1

    def collective_rpc(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        return [{"layers.0": make_spec(BLOCK)} if method == "get_kv_cache_spec" else 1 << 20]

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> ModelRunnerOutput | None:
        for request_id in scheduler_output.finished_req_ids:
            self.tokens.pop(request_id, None)
        cached = scheduler_output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        for new in scheduler_output.scheduled_new_reqs:
            assert new.req_id not in self.tokens
            self.tokens[new.req_id] = list(new.prompt_token_ids)
            positions = [(feature.identifier, feature.mm_position) for feature in new.mm_features]
            self.places[new.req_id] = [(name, one.offset, one.offset + one.length) for name, one in positions]
            computed[new.req_id] = new.num_computed_tokens
        self.encoder_cache -= set(scheduler_output.free_encoder_mm_hashes)
        for request_id, input_ids in scheduler_output.scheduled_encoder_inputs.items():
            self.encoder_cache |= {self.places[request_id][index][0] for index in input_ids}
        if not computed:
            return EMPTY_MODEL_RUNNER_OUTPUT
        sampled: list[list[int]] = []
        errors = {}
        for request_id, start in computed.items():
            tokens, end = self.tokens[request_id], start + scheduler_output.num_scheduled_tokens[request_id]
            assert 0 <= start < end <= len(tokens)
            needed = {name for name, begin, stop in self.places[request_id] if begin < end and stop > start}
            assert needed <= self.encoder_cache
            token = (sum(tokens) * 7 + len(tokens) * 5 + tokens[-1]) % VOCABULARY
            sampled.append([token] if end == len(tokens) else [])
            if end == len(tokens):
                tokens.append(token)
                if self.fails and token == FORBIDDEN and sum(tokens) % 3 == 0:
                    errors[request_id] = "no token is left"
                    sampled[-1] = []
        req_ids = list(computed)
        self.result = ModelRunnerOutput(
            req_ids=req_ids,
            req_id_to_index={request_id: row for row, request_id in enumerate(req_ids)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            logits_shape=(len(req_ids), VOCABULARY),
            errors=errors,
        )
        return None

    def sample_tokens(
        self, grammar_output: Any, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput]:
        return FutureOutput(Later(self.result)) if non_block else self.result


class NeverFailing(StandInExecutor):
    """Executor that always has an allowed token."""

    fails = False


def make_core(
    async_scheduling: bool, num_blocks: int = 40, executor: type[Executor] = StandInExecutor, **settings: Any
) -> EngineCore:
    """Make an engine core with such an executor."""
    config = make_config(block_size=BLOCK, max_model_len=MAX_MODEL_LEN, num_gpu_blocks_override=num_blocks, **settings)
    config.scheduler_config.async_scheduling = async_scheduling
    return EngineCore(config, executor, log_stats=False)


@dataclass
class Happening:
    """Request, its arrival, and its abort."""

    at: int
    """Step before which the request arrives."""
    prompt: list[int]
    max_tokens: int
    gives_up_at: int | None = None
    """Number of tokens after which the client aborts, or None; 0 aborts at once."""
    again: bool = False
    """True if the client then sends the request again, under the same id."""
    priority: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    items: tuple[tuple[str, int, int], ...] = ()
    """Identifier, offset and length of each image that lies within the prompt."""


def _request(request_id: str, one: Happening) -> EngineCoreRequest:
    params = SamplingParams(max_tokens=one.max_tokens, stop_token_ids=[STOP], **one.params)
    features = [
        MultiModalFeatureSpec(None, "image", name, PlaceholderRange(offset, length))
        for name, offset, length in one.items
        if offset + length <= len(one.prompt)
    ]
    return core_request(
        request_id,
        one.prompt,
        params,
        eos_token_id=EOS,
        arrival_time=float(one.at),
        priority=one.priority,
        mm_features=features,
    )


def run(core: EngineCore, happenings: list[Happening]) -> dict[str, list[int | str]]:
    """Return each client's tokens and how its request ended, by request id, with an apostrophe per reuse of the id."""
    got: dict[str, list[int | str]] = {}
    name: dict[str, str] = {}
    begun: Counter[str] = Counter()

    def give_up(request_id: str, one: Happening) -> None:
        core.abort_requests([request_id])
        got[name.pop(request_id)].append("gave up")
        if one.again and begun[request_id] == 1:
            add(request_id, one)

    def add(request_id: str, one: Happening) -> None:
        name[request_id] = request_id + "'" * begun[request_id]
        begun[request_id] += 1
        got[name[request_id]] = []
        core.add_request(core.preprocess_add_request(_request(request_id, one)))
        if one.gives_up_at == 0 and begun[request_id] == 1:
            give_up(request_id, one)

    step = 0
    while step <= max((one.at for one in happenings), default=0) or name:
        for number, one in enumerate(happenings):
            if one.at == step:
                add(str(number), one)
        outputs, _ = core.step_fn()
        for output in [output for of_client in (outputs or {}).values() for output in of_client.outputs]:
            tokens = got[name[output.request_id]]
            tokens += output.new_token_ids
            one = happenings[int(output.request_id)]
            if output.finish_reason is not None:
                tokens.append(f"{output.finish_reason} {output.stop_reason}")
                del name[output.request_id]
            elif len(tokens) == one.gives_up_at and begun[output.request_id] == 1:
                give_up(output.request_id, one)
        step += 1
        assert step < 3000, f"{sorted(name)} never end"
    while core.has_work():
        core.step_fn()
    return got
