"""`OpenAIServingCompletion`: completions of one or several prompts, complete or as a stream of chunks.

vLLM: vllm/entrypoints/openai/serving_completion.py::OpenAIServingCompletion. Left out: prompt embeddings.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from fastapi import Request

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.entrypoints.openai.async_utils import EnginePrompt, after_first, merge_async_iterators
from tracellm.engine.entrypoints.openai.http_responses import create_error_response
from tracellm.engine.entrypoints.openai.protocol import (
    CompletionLogProbs,
    CompletionRequest,
    CompletionResponse,
    CompletionResponseChoice,
    CompletionResponseStreamChoice,
    CompletionStreamResponse,
    ErrorResponse,
    unix_time,
)
from tracellm.engine.entrypoints.openai.serving_engine import (
    OpenAIServing,
    clamp_prompt_logprobs,
    decoded_token,
    finite_logprob,
)
from tracellm.engine.frontend.logprobs import LogprobsOnePosition
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["OpenAIServingCompletion"]

Results = AsyncGenerator[tuple[int, RequestOutput], None]
"""Outputs, each with the index of its prompt."""


class OpenAIServingCompletion(OpenAIServing):
    """Serving class of `/v1/completions`."""

    async def create_completion(
        self, request: CompletionRequest, raw_request: Request | None = None
    ) -> AsyncGenerator[str, None] | CompletionResponse | ErrorResponse:
        """Return the complete response, or with `stream` a generator of its events.

        Raises:
            EngineDeadError: The engine has died.
        """
        if (model_error := await self._check_model(request.model)) is not None:
            return model_error
        if self.engine_client.errored:
            raise self.engine_client.dead_error
        if (unsupported := self._unsupported(request)) is not None:
            return create_error_response(unsupported)
        request_id = f"cmpl-{self._base_request_id(raw_request, request.request_id)}"
        try:
            self._check_num_outputs(len(request.prompts), request.num_choices)  # before tokenizing them
            tokenizer = None if self.model_config.skip_tokenizer_init else await self.engine_client.get_tokenizer()
            engine_prompts = []
            options = self._engine_options(raw_request, request.priority) | {"cache_salt": request.cache_salt}
            generators = []
            for index, prompt in enumerate(request.prompts):
                if index:
                    await asyncio.sleep(0)  # let other requests run
                engine_prompt = await self._render(request, prompt, tokenizer)
                engine_prompts.append(engine_prompt)
                max_tokens = self._get_max_tokens(len(engine_prompt["prompt_token_ids"]), request.max_tokens)
                request_id_item = f"{request_id}-{index}"
                if request.use_beam_search:
                    beam_params = request.to_beam_search_params(max_tokens, self.default_sampling_params)
                    generators.append(self.beam_search(engine_prompt, request_id_item, beam_params, **options))
                    continue
                params = request.to_sampling_params(max_tokens, self.default_sampling_params)
                generate_arguments = await self._process_inputs(request_id_item, engine_prompt, params, **options)
                generators.append(self.engine_client.generate(**generate_arguments))
            result_generator = await after_first(merge_async_iterators(*generators))
            if request.stream and not request.use_beam_search:
                return self.completion_stream_generator(
                    request, engine_prompts, result_generator, request_id, tokenizer
                )
            results = {index: result async for index, result in result_generator}
        except ValueError as error:
            return self._error_response(error, request)
        ordered_results = [results[index] for index in range(len(engine_prompts))]
        response = await self.request_output_to_completion_response(
            ordered_results, engine_prompts, request, request_id, tokenizer
        )
        return _fake_stream(response) if request.stream else response

    @staticmethod
    def _unsupported(request: CompletionRequest) -> str | None:
        """Return the error of a request whose fields have the right types, but cannot be served."""
        if request.suffix:
            return "suffix is not currently supported: leave it out."
        if request.prompt_embeds:
            return "You must set `--enable-prompt-embeds` to input `prompt_embeds`. tracellm has no such option."
        has_prompt = request.prompt and request.prompt[0] != []
        return None if has_prompt else "please provide at least one prompt"

    async def _render(
        self, request: CompletionRequest, prompt: str | list[int], tokenizer: PreTrainedTokenizerFast | None
    ) -> EnginePrompt:
        """Return a prompt's token ids, with its text if it is available or echoed."""
        max_length = self._max_length(request)
        if isinstance(prompt, str):
            return await self.models.async_tokenizer.tokenize(
                prompt, add_special_tokens=request.add_special_tokens, max_length=max_length
            )
        token_ids = prompt if max_length is None else prompt[-max_length:]
        if not request.echo or request.return_token_ids:
            return {"prompt_token_ids": token_ids}
        if tokenizer is None:
            raise InvalidRequestError("`echo` needs the tokenizer, but the server runs with --skip-tokenizer-init.")
        self._check_token_ids(token_ids)
        return {"prompt": tokenizer.decode(token_ids), "prompt_token_ids": token_ids}

    # -- streams ------------------------------------------------------------------------------------------------------

    async def completion_stream_generator(
        self,
        request: CompletionRequest,
        engine_prompts: Sequence[EnginePrompt],
        result_generator: Results,
        request_id: str,
        tokenizer: PreTrainedTokenizerFast | None,
    ) -> AsyncGenerator[str, None]:
        """Yield the events of a stream: the new part of each choice, and the usage."""
        common: dict[str, Any] = {"id": request_id, "created": unix_time(), "model": self.models.model_name()}
        include_usage, continuous_usage = request.include_usage(self.enable_force_include_usage)
        num_choices = request.num_choices * len(engine_prompts)
        text_lengths, num_generated = [0] * num_choices, [0] * num_choices
        num_prompt_tokens = [0] * len(engine_prompts)
        num_cached_tokens: int | None = None
        started: set[int] = set()
        show_prompt_ids = request.return_token_ids or request.echo  # with `echo` as in vLLM
        try:
            async for prompt_index, result in result_generator:
                assert result.prompt_token_ids is not None
                if not any(num_prompt_tokens):
                    num_cached_tokens = result.num_cached_tokens
                num_prompt_tokens[prompt_index] = len(result.prompt_token_ids)
                for output in result.outputs:
                    index = output.index + prompt_index * request.num_choices
                    if not output.text and not output.token_ids and not num_generated[index] and not request.echo:
                        continue
                    first = index not in started
                    started.add(index)
                    text, token_ids, logprobs = self._select_output(
                        request, engine_prompts[prompt_index], result, output, echo=bool(request.echo) and first
                    )
                    choice = CompletionResponseStreamChoice(
                        index=index,
                        text=text,
                        logprobs=self._create_completion_logprobs(
                            request, token_ids, logprobs, tokenizer, text_lengths[index]
                        ),
                        finish_reason=output.finish_reason,
                        stop_reason=output.stop_reason,
                        prompt_token_ids=result.prompt_token_ids if first and show_prompt_ids else None,
                        token_ids=list(output.token_ids) if request.return_token_ids else None,
                    )
                    text_lengths[index] += len(output.text)  # as in vLLM 0.11.1, also with `echo`
                    num_generated[index] += len(output.token_ids)
                    chunk = CompletionStreamResponse(**common, choices=[choice])
                    if continuous_usage:
                        chunk.usage = self._usage(num_prompt_tokens[prompt_index], num_generated[index])
                    yield f"data: {chunk.model_dump_json()}\n\n"
            if include_usage:
                usage = self._usage(sum(num_prompt_tokens), sum(num_generated), num_cached_tokens)
                last = CompletionStreamResponse(**common, choices=[], usage=usage)
                yield f"data: {last.model_dump_json(exclude_none=True)}\n\n"
        except Exception as error:
            yield self.create_streaming_error_response(error)
        finally:
            await result_generator.aclose()
        yield "data: [DONE]\n\n"

    # -- complete responses -------------------------------------------------------------------------------------------

    async def request_output_to_completion_response(
        self,
        results: Sequence[RequestOutput],
        engine_prompts: Sequence[EnginePrompt],
        request: CompletionRequest,
        request_id: str,
        tokenizer: PreTrainedTokenizerFast | None,
    ) -> CompletionResponse:
        """Return the outputs of all prompts as one response."""
        choices: list[CompletionResponseChoice] = []
        num_prompt, num_generated = 0, 0
        for result, engine_prompt in zip(results, engine_prompts, strict=True):
            assert result.prompt_token_ids is not None
            clamp_prompt_logprobs(result.prompt_logprobs)
            num_prompt += len(result.prompt_token_ids)
            for output in result.outputs:
                if choices:
                    await asyncio.sleep(0)  # let other requests run
                text, token_ids, logprobs = self._select_output(
                    request, engine_prompt, result, output, echo=bool(request.echo)
                )
                num_generated += len(output.token_ids)
                choices.append(
                    CompletionResponseChoice(
                        index=len(choices),
                        text=text,
                        logprobs=self._create_completion_logprobs(request, token_ids, logprobs, tokenizer),
                        finish_reason=output.finish_reason,
                        stop_reason=output.stop_reason,
                        prompt_logprobs=result.prompt_logprobs,
                        prompt_token_ids=result.prompt_token_ids if request.return_token_ids else None,
                        token_ids=list(output.token_ids) if request.return_token_ids else None,
                    )
                )
        usage = self._usage(num_prompt, num_generated, results[-1].num_cached_tokens)
        return CompletionResponse(id=request_id, model=self.models.model_name(), choices=choices, usage=usage)

    # -- both ---------------------------------------------------------------------------------------------------------

    def _select_output(
        self,
        request: CompletionRequest,
        engine_prompt: EnginePrompt,
        result: RequestOutput,
        output: CompletionOutput,
        *,
        echo: bool,
    ) -> tuple[str, Sequence[int], Sequence[LogprobsOnePosition | None]]:
        """Return the text, tokens and log probabilities to send; with `echo` the prompt's come first."""
        if not echo:
            return output.text, output.token_ids, output.logprobs or ()
        assert result.prompt_token_ids is not None
        # As in vLLM: with token ids, the prompt's text may be unknown and is left out.
        prompt_text = "" if request.return_token_ids else engine_prompt["prompt"]
        prompt_logprobs = result.prompt_logprobs or [None] * len(result.prompt_token_ids)  # none of a beam
        if request.only_echo:
            return prompt_text, result.prompt_token_ids, prompt_logprobs
        return (
            prompt_text + output.text,
            [*result.prompt_token_ids, *output.token_ids],
            [*prompt_logprobs, *(output.logprobs or ())],
        )

    def _create_completion_logprobs(
        self,
        request: CompletionRequest,
        token_ids: Sequence[int],
        logprobs: Sequence[LogprobsOnePosition | None],
        tokenizer: PreTrainedTokenizerFast | None,
        initial_text_offset: int = 0,
    ) -> CompletionLogProbs | None:
        """Return text, offset and log probabilities of each token; a prompt's first token has no probability.

        There are up to `logprobs + 1` most likely tokens, as in OpenAI's API: the sampled one may not be among the top.
        """
        if request.logprobs is None:
            return None
        as_token_ids = self._as_token_ids(request.return_tokens_as_token_ids) or tokenizer is None
        result = CompletionLogProbs()
        offset = initial_text_offset
        for token_id, position in zip(token_ids, logprobs, strict=True):
            sampled = None if position is None else position[token_id]
            text = decoded_token(token_id, sampled, tokenizer, as_token_ids)
            result.tokens.append(text)
            result.text_offset.append(offset)
            offset += len(text)
            if position is None or sampled is None:
                result.token_logprobs.append(None)
                result.top_logprobs.append(None)
                continue
            result.token_logprobs.append(finite_logprob(sampled))
            result.top_logprobs.append(
                {
                    decoded_token(top_id, logprob, tokenizer, as_token_ids): finite_logprob(logprob)
                    for top_id, logprob in islice(position.items(), request.logprobs + 1)
                }
            )
        return result


async def _fake_stream(response: CompletionResponse) -> AsyncGenerator[str, None]:
    """Yield a complete response as one event: a beam search has nothing to send before its end."""
    yield f"data: {response.model_dump_json()}\n\n"
    yield "data: [DONE]\n\n"
