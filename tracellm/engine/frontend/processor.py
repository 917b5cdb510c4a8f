"""From a prompt and its sampling parameters to an `EngineCoreRequest`: the last place where a request can be refused.

vLLM: vllm/v1/engine/processor.py::Processor. Left out: pooling, LoRA, multimodal input.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.frontend.preprocess import InputPreprocessor, PromptType, TokenInputs
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.core.structured_output.backend_guidance import GuidanceBackend

__all__ = ["Processor"]


class Processor:
    """Tokenizes, checks, and completes what a request needs."""

    def __init__(self, vllm_config: VllmConfig, tokenizer: PreTrainedTokenizerFast | None) -> None:
        self.model_config = vllm_config.model_config
        self.generation_config_fields = self.model_config.try_get_generation_config()
        self.tokenizer = tokenizer
        self.input_preprocessor = InputPreprocessor(self.model_config, tokenizer)

    def process_inputs(
        self,
        request_id: str,
        prompt: PromptType,
        params: SamplingParams,
        arrival_time: float | None = None,
        priority: int = 0,
        trace_headers: Mapping[str, str] | None = None,
    ) -> EngineCoreRequest:
        """Make the request that the engine core receives. `trace_headers` go with it as they are.

        Raises:
            InvalidRequestError: the prompt or the parameters cannot be served by this model.
        """
        self._validate_params(params)
        inputs = self.input_preprocessor.preprocess(prompt, self._get_max_length(params))
        eos_token_id = self.input_preprocessor.get_eos_token_id()
        self._validate_model_input(inputs)

        sampling_params = params.clone()
        if sampling_params.max_tokens is None:
            sampling_params.max_tokens = self.model_config.max_model_len - len(inputs["prompt_token_ids"])
        sampling_params.update_from_generation_config(self.generation_config_fields, eos_token_id)
        if self.tokenizer is not None:
            sampling_params.update_from_tokenizer(self.tokenizer)
        return EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=inputs["prompt_token_ids"],
            mm_features=None,
            sampling_params=sampling_params,
            pooling_params=None,
            eos_token_id=eos_token_id,
            arrival_time=time.time() if arrival_time is None else arrival_time,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            priority=priority,
            trace_headers=trace_headers,
        )

    def _get_max_length(self, params: SamplingParams) -> int | None:
        """To how many tokens the prompt is cut; `None`: it is not."""
        limit = self.model_config.max_model_len
        asked = params.truncate_prompt_tokens
        if asked is not None and asked > limit:
            raise InvalidRequestError(
                f"SamplingParams: `truncate_prompt_tokens` must be at most {limit}, the model's length "
                f"(`max_model_len`); got {asked}."
            )
        return limit if asked == -1 else asked

    def _validate_params(self, params: SamplingParams) -> None:
        if not isinstance(params, SamplingParams):
            raise InvalidRequestError(f"Sampling parameters must be a SamplingParams, got {type(params).__name__}.")
        self._validate_logprobs(params)
        self._validate_token_ids(params)
        self._validate_structured_output(params)
        if self.tokenizer is None and (params.stop or params.bad_words):
            raise InvalidRequestError(
                "SamplingParams: `stop` and `bad_words` need the tokenizer, but the LLM was made with "
                "skip_tokenizer_init=True: use `stop_token_ids` or `logit_bias`."
            )

    def _validate_logprobs(self, params: SamplingParams) -> None:
        vocab_size = self.model_config.get_vocab_size()
        limit, whose = self.model_config.max_logprobs, "the LLM's `max_logprobs`"
        if limit == -1 or limit > vocab_size:
            limit, whose = vocab_size, "the model's vocabulary"
        for name in ("logprobs", "prompt_logprobs"):
            asked = getattr(params, name)
            if asked is not None and (vocab_size if asked == -1 else asked) > limit:
                all_of_them = f" (the whole vocabulary, {vocab_size})" if asked == -1 else ""
                raise InvalidRequestError(
                    f"SamplingParams: `{name}` must be at most {limit}, {whose}; got {asked}{all_of_them}. "
                    "Ask for fewer, or make the LLM with a larger max_logprobs (-1: no bound but the vocabulary)."
                )

    def _validate_token_ids(self, params: SamplingParams) -> None:
        vocab_size = self.model_config.get_vocab_size()
        num_known = vocab_size if self.tokenizer is None else len(self.tokenizer)  # may be fewer or more
        if params.allowed_token_ids is not None and not params.allowed_token_ids:
            raise InvalidRequestError(
                "SamplingParams: `allowed_token_ids` must name at least one token, got []; None allows all."
            )
        for name, size, whose in (
            ("logit_bias", vocab_size, "model"),
            ("allowed_token_ids", min(num_known, vocab_size), "tokenizer" if num_known < vocab_size else "model"),
        ):
            unknown = [token for token in getattr(params, name) or () if not 0 <= token < size]
            if unknown:
                raise InvalidRequestError(
                    f"SamplingParams: `{name}` must hold ids from 0 to {size - 1}, the {whose}'s vocabulary; "
                    f"got {unknown}."
                )
        never = [token for token in params.stop_token_ids or () if token >= vocab_size]
        if never:  # vLLM accepts them without a word
            warnings.warn(
                f"SamplingParams: `stop_token_ids` {never} can never be generated: the model's vocabulary has the ids "
                f"0 to {vocab_size - 1}. Were they meant for another model?",
                stacklevel=2,
            )

    def _validate_structured_output(self, params: SamplingParams) -> None:
        constraint = params.structured_outputs
        if constraint is None or constraint.all_constraints_none():
            return
        if self.tokenizer is None:
            raise InvalidRequestError(
                "SamplingParams: `structured_outputs` need the tokenizer, but the LLM was made with "
                "skip_tokenizer_init=True."
            )
        if constraint.choice is not None and not constraint.choice:
            raise InvalidRequestError("StructuredOutputsParams: `choice` must hold at least one string, got [].")
        if constraint.grammar is not None and not constraint.grammar.strip():
            raise InvalidRequestError(
                f"StructuredOutputsParams: `grammar` must not be blank, got {constraint.grammar!r}."
            )
        from tracellm.engine.core.structured_output.backend_guidance import validate_guidance_grammar

        validate_guidance_grammar(constraint, self._guidance_backend)

    @cached_property
    def _guidance_backend(self) -> GuidanceBackend:
        """The library for grammars, loaded when the first request asks for structured outputs."""
        from tracellm.engine.core.structured_output.backend_guidance import get_guidance_backend

        assert self.tokenizer is not None
        return get_guidance_backend(self.tokenizer, self.model_config.get_vocab_size())

    def _validate_model_input(self, inputs: TokenInputs) -> None:
        token_ids = inputs["prompt_token_ids"]
        if not token_ids:
            raise InvalidRequestError("The prompt is empty: the model needs at least one token to go on from.")
        vocab_size = self.model_config.get_vocab_size()
        for position, token in enumerate(token_ids):
            if not 0 <= token < vocab_size:
                raise InvalidRequestError(
                    f"Token id {token} (at position {position}) is out of vocabulary: "
                    f"this model has the ids 0 to {vocab_size - 1}."
                )
        limit = self.model_config.max_model_len
        if len(token_ids) >= limit:
            raise InvalidRequestError(
                f"The prompt has {len(token_ids)} tokens, but the model's length (`max_model_len`) is {limit}, prompt "
                f"and output together: at most {limit - 1} leave room for one new token. Shorten the prompt, or raise "
                "`max_model_len` if the model allows it."
            )
