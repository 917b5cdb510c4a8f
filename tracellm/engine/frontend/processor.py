"""Input side of the front end: from a prompt and its sampling or pooling parameters to an `EngineCoreRequest`.

Rejects a request that cannot be served before the engine core gets it.

vLLM: vllm/v1/engine/processor.py::Processor. Left out: LoRA.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from tracellm.engine.config.errors import InvalidRequestError, shorten
from tracellm.engine.config.validation import is_a
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.frontend.preprocess import InputPreprocessor, PromptType, TokenInputs
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.pool.tasks import check_task, get_supported_tasks
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.core.structured_output.backend_guidance import GuidanceBackend
    from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec

__all__ = ["Processor"]


class Processor:
    """Makes requests: tokenizes and validates prompts, completes parameters. Used by both engines."""

    def __init__(self, vllm_config: VllmConfig, tokenizer: PreTrainedTokenizerFast | None) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.generation_config_fields = self.model_config.try_get_generation_config()
        self.tokenizer = tokenizer
        self.input_preprocessor = InputPreprocessor(self.model_config, tokenizer)
        self.supported_tasks = get_supported_tasks(vllm_config)
        self._guidance_backend: GuidanceBackend | None = None  # with the first constraint

    def process_inputs(
        self,
        request_id: str,
        prompt: PromptType,
        params: SamplingParams | PoolingParams,
        arrival_time: float | None = None,
        priority: int = 0,
        trace_headers: Mapping[str, str] | None = None,
        data_parallel_rank: int | None = None,
    ) -> EngineCoreRequest:
        """Create the request for the engine core. `trace_headers` are passed on unchanged.

        Raises:
            InvalidRequestError: the model cannot serve the prompt or the parameters, or there is no such engine core.
        """
        self._validate_params(params)
        size = self.vllm_config.parallel_config.data_parallel_size
        if data_parallel_rank is not None and not (is_a(data_parallel_rank, int) and 0 <= data_parallel_rank < size):
            raise InvalidRequestError(f"data_parallel_rank {data_parallel_rank!r} is out of range [0, {size}).")
        inputs = self.input_preprocessor.preprocess(prompt, self._get_max_length(params))
        eos_token_id = self.input_preprocessor.get_eos_token_id()
        self._validate_model_input(inputs)

        params = params.clone()
        if isinstance(params, PoolingParams):
            params.verify(str(params.task), self.model_config)
        else:
            if params.max_tokens is None:
                params.max_tokens = self.model_config.max_model_len - len(inputs["prompt_token_ids"])
            params.update_from_generation_config(self.generation_config_fields, eos_token_id)
            if self.tokenizer is not None:
                params.update_from_tokenizer(self.tokenizer)
        return EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=inputs["prompt_token_ids"],
            mm_features=cast("list[MultiModalFeatureSpec] | None", inputs.get("mm_features")),
            sampling_params=params if isinstance(params, SamplingParams) else None,
            pooling_params=params if isinstance(params, PoolingParams) else None,
            eos_token_id=eos_token_id,
            arrival_time=time.time() if arrival_time is None else arrival_time,
            lora_request=None,
            cache_salt=prompt.get("cache_salt") if isinstance(prompt, Mapping) else None,
            data_parallel_rank=data_parallel_rank,
            priority=priority,
            trace_headers=trace_headers,
        )

    def _get_max_length(self, params: SamplingParams | PoolingParams) -> int | None:
        """Return the number of tokens to truncate the prompt to, or None."""
        limit = self.model_config.max_model_len
        requested = params.truncate_prompt_tokens
        if requested is not None and requested > limit:
            raise InvalidRequestError(
                f"{type(params).__name__}: `truncate_prompt_tokens` must be at most {limit}, the model's length "
                f"(`max_model_len`); got {requested}."
            )
        return limit if requested == -1 else requested

    def _validate_params(self, params: SamplingParams | PoolingParams) -> None:
        if not isinstance(params, (SamplingParams, PoolingParams)):
            raise InvalidRequestError(f"Sampling parameters must be a SamplingParams, got {type(params).__name__}.")
        check_task(params, self.supported_tasks)
        if isinstance(params, PoolingParams):
            return
        self._validate_logprobs(params)
        self._validate_token_ids(params)
        if (trial := self.validate_structured_output(params)) is not None:
            trial()
        if self.tokenizer is None and (params.stop or params.bad_words):
            message = "`stop` and `bad_words` need the tokenizer, but skip_tokenizer_init=True: use `stop_token_ids`."
            raise InvalidRequestError(message)

    def _validate_logprobs(self, params: SamplingParams) -> None:
        vocab_size = self.model_config.get_vocab_size()
        limit, origin = self.model_config.max_logprobs, "the LLM's `max_logprobs`"
        if limit == -1 or limit > vocab_size:
            limit, origin = vocab_size, "the model's vocabulary"
        for name, kind in (("logprobs", "sample"), ("prompt_logprobs", "prompt")):
            requested = getattr(params, name)
            num_logprobs = vocab_size if requested == -1 else requested
            if num_logprobs is not None and num_logprobs > limit:
                explanation = f"; got {requested} (the whole vocabulary, {vocab_size})" if requested == -1 else ""
                raise InvalidRequestError(
                    f"Requested {kind} logprobs of {num_logprobs}, which is greater than max allowed: {limit}. "
                    f"SamplingParams: `{name}` must be at most {limit}, {origin}{explanation}. "
                    "Ask for fewer, or make the LLM with a larger max_logprobs (-1: the whole vocabulary)."
                )

    def _validate_token_ids(self, params: SamplingParams) -> None:
        vocab_size = self.model_config.get_vocab_size()
        num_known = vocab_size if self.tokenizer is None else len(self.tokenizer)  # may differ from the vocabulary size
        if params.allowed_token_ids is not None and not params.allowed_token_ids:
            raise InvalidRequestError(
                "allowed_token_ids is not None and empty! SamplingParams: `allowed_token_ids` must name at least one "
                "token; None allows all."
            )
        if unknown := [token for token in params.logit_bias or () if not 0 <= token < vocab_size]:
            raise InvalidRequestError(
                f"token_id(s) {shorten(unknown)} in logit_bias contain out-of-vocab token ids. Vocabulary size: "
                f"{vocab_size}. SamplingParams: `logit_bias` must hold the model's ids, 0 to {vocab_size - 1}."
            )
        size, owner = min(num_known, vocab_size), "tokenizer" if num_known < vocab_size else "model"
        if unknown := [token for token in params.allowed_token_ids or () if not 0 <= token < size]:
            raise InvalidRequestError(
                "allowed_token_ids contains out-of-vocab token id! SamplingParams: `allowed_token_ids` must hold ids "
                f"from 0 to {size - 1}, the {owner}'s vocabulary; got {shorten(unknown)}."
            )
        if impossible := [token for token in params.stop_token_ids or () if token >= vocab_size]:  # vLLM accepts them
            warnings.warn(
                f"SamplingParams: `stop_token_ids` {shorten(impossible)} can never be generated: the model's "
                f"vocabulary has the ids 0 to {vocab_size - 1}. Were they meant for another model?",
                stacklevel=2,
            )

    def validate_structured_output(self, params: SamplingParams) -> Callable[[], None] | None:
        """Compile the constraint; return a function for what may take seconds of that, or None.

        Both raise `InvalidRequestError` for a constraint that cannot be used.
        """
        constraint = params.structured_outputs
        if constraint is None or constraint.all_constraints_none():
            return None
        if self.tokenizer is None:
            raise InvalidRequestError("`structured_outputs` need the tokenizer, but skip_tokenizer_init=True.")
        from tracellm.engine.core.structured_output import backend_guidance as guidance

        if self._guidance_backend is None:
            vocab_size = self.model_config.get_vocab_size()
            self._guidance_backend = guidance.get_guidance_backend(self.tokenizer, vocab_size)
        return guidance.validate_guidance_grammar(constraint, self._guidance_backend)

    def _validate_model_input(self, inputs: TokenInputs) -> None:
        token_ids = inputs["prompt_token_ids"]
        if not token_ids:
            raise InvalidRequestError("The decoder prompt cannot be empty: the model needs at least one token.")
        vocab_size = self.model_config.get_vocab_size()
        for position, token in enumerate(token_ids):
            if not 0 <= token < vocab_size:
                raise InvalidRequestError(
                    f"Token id {shorten(token)} is out of vocabulary (at position {position}): "
                    f"this model has the ids 0 to {vocab_size - 1}."
                )
        limit, pools = self.model_config.max_model_len, "generate" not in self.supported_tasks
        if len(token_ids) >= limit + pools:  # pooling adds no token
            output = "" if len(token_ids) > limit else "plus the number of requested output tokens (at least 1) "
            room = "" if pools else f" (prompt + requested output tokens): at most {limit - 1} leave room for one"
            raise InvalidRequestError(
                f"The decoder prompt (length {len(token_ids)}) {output}is longer than the maximum model length of "
                f"{limit}. Make sure that `max_model_len` is no smaller than the number of text tokens{room}. Shorten "
                "the prompt, or raise it."
            )
