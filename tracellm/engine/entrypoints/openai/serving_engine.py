"""`OpenAIServing`: what chat, completions and tokenization share: from a request's fields to what the engine is given.

Called by `serving_chat.py` and its like, once a request. Whatever cannot be served is refused here or by the
`Processor`, before a response begins.

vLLM: vllm/entrypoints/openai/serving_engine.py::OpenAIServing. Left out: LoRA, beam search, pooling, tool parsers,
multimodal input. There `_process_inputs` calls the `Processor`, and the engine gets a finished `EngineCoreRequest`;
here `AsyncLLM.add_request` calls it, as in the documents' diagram.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import Request

from tracellm.engine.config.errors import EngineDeadError, InvalidRequestError
from tracellm.engine.entrypoints.chat_utils import apply_hf_chat_template, parse_chat_messages
from tracellm.engine.entrypoints.openai.http_errors import error_response_of
from tracellm.engine.entrypoints.openai.protocol import (
    ErrorResponse,
    PromptTokenUsageInfo,
    SamplingFields,
    UsageInfo,
)
from tracellm.engine.entrypoints.openai.protocol.base import LONGEST_ID, random_uuid
from tracellm.engine.entrypoints.openai.serving_models import OpenAIServingModels
from tracellm.engine.entrypoints.openai.tokenizing import EnginePrompt
from tracellm.engine.frontend.async_llm import AsyncLLM
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["OpenAIServing"]

_MOST_CHOICES = 1024
"""The most continuations that one HTTP request may ask for."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class OpenAIServing:
    """Turns requests into prompts and sampling parameters, and numbers into tokens and back."""

    def __init__(
        self,
        engine_client: AsyncLLM,
        models: OpenAIServingModels,
        *,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        trust_request_chat_template: bool = False,
        return_tokens_as_token_ids: bool = False,
        enable_prompt_tokens_details: bool = False,
        enable_force_include_usage: bool = False,
    ) -> None:
        """Serve `models` with an engine; the other arguments are options of the command line, of the same names."""
        self.engine_client = engine_client
        self.models = models
        self.chat_template = chat_template
        self.chat_template_content_format = chat_template_content_format
        self.trust_request_chat_template = trust_request_chat_template
        self.return_tokens_as_token_ids = return_tokens_as_token_ids
        self.enable_prompt_tokens_details = enable_prompt_tokens_details
        self.enable_force_include_usage = enable_force_include_usage
        self.model_config = models.model_config
        self.max_model_len = self.model_config.max_model_len
        self.default_sampling_params = self.model_config.get_diff_sampling_param()

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _refusal(self, error: ValueError) -> ErrorResponse:
        """A refusal that was raised, as an answer. A dead engine is none: it ends the server."""
        if isinstance(error, EngineDeadError):
            raise error
        return error_response_of(error)

    def create_streaming_error_response(self, error: Exception) -> str:
        """An error as an event, for a stream that has begun: its status has been sent."""
        return f"data: {error_response_of(error).model_dump_json()}\n\n"

    async def _check_model(self, model: str | None) -> ErrorResponse | None:
        """The refusal of a model that is not served; without a name the one that there is is meant."""
        if not model or self.models.is_base_model(model):
            return None
        return self.models.not_found(model)

    def _validate_chat_template(
        self, request_chat_template: str | None, chat_template_kwargs: Mapping[str, Any] | None
    ) -> None:
        """Templates are programs, so by default only the server's owner chooses one."""
        further = chat_template_kwargs or {}
        if self.trust_request_chat_template or (request_chat_template or further.get("chat_template")) is None:
            return
        raise InvalidRequestError(
            "`chat_template` is not taken from requests: templates are programs. Whoever runs the server can allow it "
            "with --trust-request-chat-template."
        )

    # -- prompts ------------------------------------------------------------------------------------------------------

    async def _preprocess_chat(
        self,
        tokenizer: PreTrainedTokenizerFast,
        messages: Sequence[Mapping[str, Any]],
        chat_template: str | None,
        chat_template_content_format: str,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tool_dicts: list[dict[str, Any]] | None = None,
        documents: list[dict[str, str]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_special_tokens: bool = False,
        max_length: int | None = None,
        bounded: bool = True,
    ) -> tuple[list[dict[str, Any]], EnginePrompt]:
        """Fill a conversation into the chat template, and tokenize what comes out.

        Returns:
            The conversation with all contents in one form, and the prompt.

        Raises:
            InvalidRequestError: a message is not right, the template refuses it, or the text is far too long.
        """
        conversation = parse_chat_messages(list(messages), chat_template_content_format)
        arguments: dict[str, Any] = {
            "chat_template": chat_template,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "tools": tool_dicts,
            "documents": documents,
            **(chat_template_kwargs or {}),
        }
        arguments["chat_template"] = arguments["chat_template"] or chat_template  # null does not undo --chat-template
        text = apply_hf_chat_template(tokenizer, conversation, **arguments)
        return conversation, await self.models.async_tokenizer.tokenize(
            text, add_special_tokens=add_special_tokens, max_length=max_length, bounded=bounded
        )

    def _max_length(self, request: SamplingFields) -> int | None:
        """To how many tokens the request wants its prompt cut; `None`: not at all.

        Raises:
            InvalidRequestError: more than the model takes, or none.
        """
        asked = request.truncate_prompt_tokens
        if asked is not None and (asked == 0 or asked > self.max_model_len):
            raise InvalidRequestError(
                f"`truncate_prompt_tokens` must be from 1 to {self.max_model_len}, the model's length "
                f"(`max_model_len`), or -1 for that; got {asked}."
            )
        return self.max_model_len if asked == -1 else asked

    @staticmethod
    def _check_num_outputs(num_prompts: int, n: int) -> None:
        """Refuse a request that asks for more outputs than one may have.

        Raises:
            InvalidRequestError: it does.
        """
        if num_prompts * n > _MOST_CHOICES:
            raise InvalidRequestError(
                f"`n` is too large: a request may have {_MOST_CHOICES} outputs, and {num_prompts} prompt(s) with n={n} "
                f"make {num_prompts * n}. Send several requests."
            )

    def _check_token_ids(self, token_ids: Sequence[int]) -> None:
        """The library that makes text of tokens takes none that is out of vocabulary.

        Raises:
            InvalidRequestError: there is one.
        """
        vocab_size = self.model_config.get_vocab_size()
        for position, token_id in enumerate(token_ids):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequestError(
                    f"Token id {token_id} (at position {position}) is out of vocabulary: "
                    f"this model has the ids 0 to {vocab_size - 1}."
                )

    def _get_max_tokens(self, num_prompt_tokens: int, asked: int | None) -> int:
        """How many tokens may be generated after a prompt.

        vLLM: vllm/entrypoints/utils.py::get_max_tokens, and the checks of `_validate_input`.

        Raises:
            InvalidRequestError: the prompt fills the model's length, or leaves no room for as many as were asked for.
        """
        room = self.max_model_len - num_prompt_tokens
        if room < 1 or (asked is not None and asked > room):
            wanted = "" if asked is None else f" and `max_tokens` asks for {asked} more"
            raise InvalidRequestError(
                f"The prompt has {num_prompt_tokens} tokens{wanted}, but the model's length (`max_model_len`) is "
                f"{self.max_model_len}, prompt and output together. Shorten the prompt, or ask for fewer."
            )
        return min(
            value for value in (room, asked, self.default_sampling_params.get("max_tokens")) if value is not None
        )

    async def _process_inputs(
        self,
        request_id: str,
        engine_prompt: EnginePrompt,
        params: SamplingParams,
        *,
        trace_headers: Mapping[str, str] | None,
        priority: int,
    ) -> dict[str, Any]:
        """Put together what `AsyncLLM.generate` is called with.

        Raises:
            InvalidRequestError: more continuations are asked for than one request may have.
        """
        self._check_num_outputs(1, params.n)
        # vLLM adds how to truncate; here the prompt is tokenized by now, and so cut.
        return {
            "prompt": engine_prompt,
            "sampling_params": params,
            "request_id": request_id,
            "trace_headers": trace_headers,
            "priority": priority,
        }

    # -- headers ------------------------------------------------------------------------------------------------------

    def _get_trace_headers(self, headers: Mapping[str, str]) -> dict[str, str] | None:
        """The caller's W3C trace context, if it sent one that is valid; `None`: it did not.

        vLLM passes it on only under --otlp-traces-endpoint.
        """
        traceparent = headers.get("traceparent", "")
        if not _TRACEPARENT.fullmatch(traceparent) or traceparent.startswith("ff"):
            return None
        found = {"traceparent": traceparent}
        if tracestate := headers.get("tracestate"):
            found["tracestate"] = tracestate[:512]  # as long as the standard wants it passed on
        return found

    @staticmethod
    def _base_request_id(raw_request: Request | None, default: str | None = None) -> str:
        """The id that the caller chose in the header X-Request-Id, or `default`, or a random one."""
        chosen = None if raw_request is None else raw_request.headers.get("X-Request-Id")
        return chosen[:LONGEST_ID] if chosen else default or random_uuid()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _as_token_ids(self, asked: bool | None) -> bool:
        """Does this request want `token_id:17` in place of a token's text?"""
        return self.return_tokens_as_token_ids if asked is None else asked

    def _usage(self, num_prompt: int, num_generated: int, num_cached: int | None = None) -> UsageInfo:
        """So many tokens; under --enable-prompt-tokens-details with those that the prefix cache had."""
        usage = UsageInfo(
            prompt_tokens=num_prompt, completion_tokens=num_generated, total_tokens=num_prompt + num_generated
        )
        if self.enable_prompt_tokens_details and num_cached:
            usage.prompt_tokens_details = PromptTokenUsageInfo(cached_tokens=num_cached)
        return usage
