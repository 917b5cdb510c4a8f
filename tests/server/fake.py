"""Fake engine for tests of the server: real refusals, invented tokens, failures on request."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput
from tracellm.engine.frontend.processor import Processor
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams


class FakeEngine:
    """Engine that answers every prompt with `a` per step, up to the requested number of tokens."""

    prometheus_registry = None

    def __init__(self) -> None:
        config = EngineArgs(max_model_len=128).create_engine_config()
        self.model_config = config.model_config
        self.tokenizer = get_tokenizer(self.model_config.tokenizer)
        self.processor = Processor(config, self.tokenizer)
        self.errored = False
        self.dead_error = EngineDeadError()
        self.fails_after: int | None = None
        """Number of tokens after which `failure` is raised."""
        self.failure: BaseException = EngineDeadError()
        self.stalls_after: int | None = None
        """Number of tokens after which no more come."""
        self.stalled = asyncio.Event()
        self.requests: list[dict[str, Any]] = []
        """Arguments of the calls of `generate`."""
        self.given_up: list[str] = []

    async def get_tokenizer(self) -> Any:
        return self.tokenizer

    async def check_health(self) -> None:
        if self.errored:
            raise self.dead_error

    async def generate(
        self,
        prompt: Mapping[str, Any],
        sampling_params: SamplingParams,
        request_id: str,
        *,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        data_parallel_rank: int | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        request = self.processor.process_inputs(request_id, prompt, sampling_params, priority=priority)
        self.requests.append({"request_id": request_id, "trace_headers": trace_headers, "params": sampling_params})
        delta = sampling_params.output_kind is RequestOutputKind.DELTA
        num_tokens = sampling_params.max_tokens or 1
        try:
            for number in range(1, num_tokens + 1):
                if number - 1 == self.fails_after:
                    raise self.failure
                if number - 1 == self.stalls_after:
                    self.stalled.set()
                    await asyncio.Event().wait()
                await asyncio.sleep(0)
                if delta or number == num_tokens:
                    count = 1 if delta else num_tokens
                    reason = "length" if number == num_tokens else None
                    outputs = [
                        CompletionOutput(index, "a" * count, [97] * count, finish_reason=reason)
                        for index in range(sampling_params.n)
                    ]
                    yield RequestOutput(
                        request_id, None, request.prompt_token_ids, None, outputs, finished=number == num_tokens
                    )
        except (asyncio.CancelledError, GeneratorExit):
            self.given_up.append(request_id)
            raise
