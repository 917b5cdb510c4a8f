"""`OpenAIServingResponses`: responses, complete, as a stream of events, or in the background.

A request becomes a chat request: `utils.py` makes its messages and `protocol.py` its fields, so the prompt, the
parsers and the sampling parameters are those of `../serving_chat.py`.

vLLM: vllm/entrypoints/openai/serving_responses.py::OpenAIServingResponses. Left out: gpt-oss's harmony format, and with
it the tools that the server runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi import Request

from tracellm.engine.config.envs import enable_responses_api_store
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.openai.async_utils import after_first
from tracellm.engine.entrypoints.openai.http_responses import create_error_response, error_response
from tracellm.engine.entrypoints.openai.message_parser import ParserChoice
from tracellm.engine.entrypoints.openai.protocol import (
    ChatCompletionLogProbsContent,
    ChatCompletionRequest,
    ErrorResponse,
    unix_time,
)
from tracellm.engine.entrypoints.openai.responses.context import SimpleContext
from tracellm.engine.entrypoints.openai.responses.protocol import (
    ResponseError,
    ResponseOutputItem,
    ResponsesRequest,
    ResponsesResponse,
    ResponseStatus,
)
from tracellm.engine.entrypoints.openai.responses.store import ResponseStore, StoredResponse
from tracellm.engine.entrypoints.openai.responses.streaming_events import StreamEvent, StreamingEventProcessor
from tracellm.engine.entrypoints.openai.responses.utils import construct_input_messages, construct_output_messages
from tracellm.engine.entrypoints.openai.serving_engine import OpenAIServing
from tracellm.engine.entrypoints.openai.serving_models import OpenAIServingModels
from tracellm.engine.frontend.async_llm import AsyncLLM
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["OpenAIServingResponses"]

_INVALID = "invalid_request_error"
"""vLLM's type for errors about stored responses."""
_MAX_UNFINISHED = 1000
"""Maximum number of responses in the background that are not done; the store keeps all of them."""

ResultGenerator = AsyncGenerator[RequestOutput, None]


@dataclass
class _Work:
    """State of one request, shared by its generators."""

    request: ResponsesRequest
    chat_request: ChatCompletionRequest
    messages: list[dict[str, Any]]
    sampling_params: SamplingParams
    context: SimpleContext
    tokenizer: PreTrainedTokenizerFast
    created_time: int
    stored: StoredResponse | None = None
    """Entry of a response in the background."""


class OpenAIServingResponses(OpenAIServing):
    """Serving class of `/v1/responses`."""

    def __init__(
        self,
        engine_client: AsyncLLM,
        models: OpenAIServingModels,
        *,
        parsers: ParserChoice,
        **options: Any,
    ) -> None:
        """Serve responses.

        Args:
            engine_client: Engine.
            models: Served model names.
            parsers: Parsers of reasoning and tool calls.
            options: Those of `OpenAIServing`.

        Raises:
            EngineError: VLLM_ENABLE_RESPONSES_API_STORE is neither 0 nor 1.
        """
        super().__init__(engine_client, models, **options)
        self.parsers = parsers
        self.enable_store = enable_responses_api_store()
        self.store = ResponseStore()

    # -- requests -----------------------------------------------------------------------------------------------------

    async def create_responses(
        self, request: ResponsesRequest, raw_request: Request | None = None
    ) -> AsyncGenerator[str, None] | ResponsesResponse | ErrorResponse:
        """Return the complete response, with `stream` a generator of its events, with `background` a queued response.

        Raises:
            EngineDeadError: The engine has died.
        """
        if (refusal := await self._check_model(request.model) or self._check_request(request)) is not None:
            return refusal
        if self.engine_client.errored:
            raise self.engine_client.dead_error
        request.store = bool(request.store) and self.enable_store  # the default is true, so no error, as in vLLM
        previous = None
        if request.previous_response_id is not None:
            previous = self.store.get(request.previous_response_id)
            if previous is None:
                return self._make_not_found_error(request.previous_response_id)
        try:
            work, generate_arguments = await self._make_request(request, previous, raw_request)
            result_generator = self.engine_client.generate(**generate_arguments)
            if request.background:
                return self._start_in_background(work, result_generator)
            result_generator = await after_first(result_generator)
            if request.stream:
                return self.responses_stream_generator(work, result_generator)
            return await self.responses_full_generator(work, result_generator)
        except ValueError as error:
            return self._error_response(error, request)

    def _check_request(self, request: ResponsesRequest) -> ErrorResponse | None:
        """Return an error for what no response can have."""
        if request.background and request.store and not self.enable_store:
            return create_error_response(
                "This vLLM engine does not support `store=True` and therefore does not support the background mode. To "
                "enable these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when "
                "launching the vLLM server. (So it is for `tracellm serve`, too.)",
                err_type=_INVALID,
                param="background",
            )
        if request.previous_input_messages and request.previous_response_id:
            return create_error_response(
                "Only one of `previous_input_messages` and `previous_response_id` can be set.",
                err_type=_INVALID,
                param="previous_response_id",
            )
        for name in ("previous_input_messages", "enable_response_messages"):
            if getattr(request, name):
                return create_error_response(f"{name} is currently only supported for gpt-oss", param=name)
        if (request.model_extra or {}).get("conversation") is not None:
            return create_error_response(
                "`conversation` is not supported: continue a response by `previous_response_id`."
            )
        if self.store.get(request.request_id) is not None:
            return create_error_response("`request_id` is the id of a stored response: choose another, or none.")
        if request.background and self.store.num_unfinished >= _MAX_UNFINISHED:
            return create_error_response(
                f"{_MAX_UNFINISHED} responses are in progress in the background, and there may be no more. Wait for "
                "some, or cancel them.",
                HTTPStatus.TOO_MANY_REQUESTS,
            )
        return None

    async def _make_request(
        self, request: ResponsesRequest, previous: StoredResponse | None, raw_request: Request | None
    ) -> tuple[_Work, Mapping[str, Any]]:
        """Return the request with its prompt and parsers, and the arguments of `AsyncLLM.generate`.

        Raises:
            InvalidRequestError: A field or an item is invalid, the previous response is not done, or the prompt is too
                long.
        """
        tokenizer = await self.engine_client.get_tokenizer()
        messages = self._construct_input_messages(request, previous)
        instructions = [{"role": "system", "content": request.instructions}] if request.instructions else []
        chat_request = request.to_chat_request(instructions + messages)
        self.parsers.adjust_request(chat_request)
        truncates = request.truncation == "auto"
        max_length = self.max_model_len if truncates else None
        _, engine_prompt = await self._preprocess_chat(chat_request, tokenizer, max_length=max_length)
        if truncates and len(token_ids := engine_prompt["prompt_token_ids"]) >= self.max_model_len:
            room = request.max_output_tokens or 1
            engine_prompt["prompt_token_ids"] = token_ids[-max(self.max_model_len - room, 1) :]
        max_tokens = self._get_max_tokens(len(engine_prompt["prompt_token_ids"]), None)
        if request.max_output_tokens is not None:
            max_tokens = min(max_tokens, request.max_output_tokens)
        sampling_params = chat_request.to_sampling_params(max_tokens, self.default_sampling_params)
        generate_arguments = await self._process_inputs(
            request.request_id,
            engine_prompt,
            sampling_params,
            **self._engine_options(raw_request, request.priority),
            cache_salt=request.cache_salt,
        )
        context = SimpleContext(self.parsers.get_message_parser(chat_request, engine_prompt["prompt"]))
        work = _Work(request, chat_request, messages, sampling_params, context, tokenizer, unix_time())
        return work, generate_arguments

    @staticmethod
    def _construct_input_messages(request: ResponsesRequest, previous: StoredResponse | None) -> list[dict[str, Any]]:
        """Return the conversation without `instructions`, which are those of one response only, as in OpenAI's API."""
        messages = construct_input_messages(request.input)
        if previous is None:
            return messages
        if previous.response.status in ("queued", "in_progress", "failed", "cancelled"):
            raise InvalidRequestError(
                f"Response with id '{previous.response.id}' is {previous.response.status}, so `previous_response_id` "
                "cannot continue it."
            )
        return [*previous.messages, *construct_output_messages(previous.response.output), *messages]

    # -- responses ----------------------------------------------------------------------------------------------------

    async def responses_full_generator(self, work: _Work, result_generator: ResultGenerator) -> ResponsesResponse:
        """Wait for the final output, and return the complete response."""
        text, logprobs = "", None
        async for result in result_generator:
            if (output := work.context.append_output(result)) is not None:
                text = output.text
                logprobs = self._create_response_logprobs(work, output)
        return self._complete(work, await work.context.make_response_output_items(text, logprobs))

    async def responses_stream_generator(
        self, work: _Work, result_generator: ResultGenerator
    ) -> AsyncGenerator[str, None]:
        """Yield the events of a stream; an error is the last one."""
        processor = StreamingEventProcessor()
        context = work.context
        initial = self._response(work, [], "in_progress")
        try:
            yield processor.event("response.created", response=initial).to_sse()
            yield processor.event("response.in_progress", response=initial).to_sse()
            async for result in result_generator:
                if (output := context.append_output(result)) is None:
                    continue
                delta = context.parser.parse_delta(output.text, finished=output.finish_reason is not None)
                for event in processor.process(delta, self._create_response_logprobs(work, output) or []):
                    yield event.to_sse()
            for event in processor.close(context.status):
                yield event.to_sse()
            response = self._complete(work, processor.output_items)
            yield processor.event("response.completed", response=response).to_sse()
        except Exception as error:
            if work.request.background:
                raise
            body = error_response(error).error
            # OpenAI's event; its client raises an error if there is a field `error`
            fields = {"code": str(body.code), "message": body.message, "param": body.param}
            yield processor.event("error", **fields, error=body).to_sse()
        finally:
            await result_generator.aclose()

    def _complete(self, work: _Work, output: list[ResponseOutputItem]) -> ResponsesResponse:
        """Return the response to a request whose output has ended, and store it."""
        response = self._response(work, output, work.context.status)
        if work.request.store:
            stored = work.stored or StoredResponse(response, work.messages)
            stored.response = response
            self.store.put(stored)
        return response

    def _response(self, work: _Work, output: list[ResponseOutputItem], status: ResponseStatus) -> ResponsesResponse:
        usage = work.context.usage() if status in ("completed", "incomplete") else None
        return ResponsesResponse.from_request(
            work.request, work.sampling_params, self.models.model_name(), work.created_time, output, status, usage
        )

    def _create_response_logprobs(
        self, work: _Work, output: CompletionOutput
    ) -> list[ChatCompletionLogProbsContent] | None:
        logprobs = self._create_chat_logprobs(work.chat_request, output, work.tokenizer)
        return None if logprobs is None else logprobs.content

    # -- in the background --------------------------------------------------------------------------------------------

    def _start_in_background(
        self, work: _Work, result_generator: ResultGenerator
    ) -> AsyncGenerator[str, None] | ResponsesResponse:
        """Store a queued response and start a task for it. Return the response, or with `stream` its events."""
        work.stored = stored = StoredResponse(self._response(work, [], "queued"), work.messages)
        queued = stored.response.model_copy()
        if work.request.stream:
            stored.events = []
        self.store.put(stored)
        name = f"create_{work.request.request_id}"
        stored.task = asyncio.create_task(self._run_background_request(stored, work, result_generator), name=name)
        return stored.read_events(0) if work.request.stream else queued

    async def _run_background_request(
        self, stored: StoredResponse, work: _Work, result_generator: ResultGenerator
    ) -> None:
        """Generate a response in the background; an error is stored as that of the response."""
        stored.response.status = "in_progress"
        try:
            if work.request.stream:
                async for event in self.responses_stream_generator(work, result_generator):
                    stored.add_event(event)
            else:
                await self.responses_full_generator(work, result_generator)
        except Exception as error:
            stored.response.status = "failed"
            stored.response.error = ResponseError(message=error_response(error).error.message)
            if stored.events is not None:
                fields: dict[str, Any] = {"response": stored.response}
                failed = StreamEvent(type="response.failed", sequence_number=len(stored.events), **fields)
                stored.events.append(failed.to_sse())
        finally:
            stored.task = None
            self.store.put(stored)
            stored.wake()

    async def retrieve_responses(
        self, response_id: str, starting_after: int | None = None, stream: bool | None = False
    ) -> AsyncGenerator[str, None] | ResponsesResponse | ErrorResponse:
        """Return a stored response, or with `stream` the events of one in the background, after a sequence number."""
        if (stored := self.store.get(response_id)) is None:
            return self._make_not_found_error(response_id)
        if not stream:
            return stored.response
        if stored.events is None:
            return create_error_response(
                f"Unknown response_id: {response_id[:200]}. Only a response that was created with `background` and "
                "`stream` has events.",
                err_type=_INVALID,
                param="response_id",
            )
        return stored.read_events(0 if starting_after is None else max(starting_after + 1, 0))

    async def cancel_responses(self, response_id: str) -> ResponsesResponse | ErrorResponse:
        """Cancel a response in the background, and abort its request in the engine."""
        if (stored := self.store.get(response_id)) is None:
            return self._make_not_found_error(response_id)
        if stored.is_done:
            return create_error_response(
                "Cannot cancel a synchronous response.", err_type=_INVALID, param="response_id"
            )
        stored.response.status = "cancelled"
        if stored.task is not None:
            stored.task.cancel()
            await asyncio.wait([stored.task])
        stored.wake()
        return stored.response

    @staticmethod
    def _make_not_found_error(response_id: str) -> ErrorResponse:
        message = f"Response with id '{response_id[:200]}' not found."
        return create_error_response(message, HTTPStatus.NOT_FOUND, err_type=_INVALID, param="response_id")
