"""From a prompt and its sampling parameters to an `EngineCoreRequest`: the last place where a request can be refused.

vLLM: vllm/v1/engine/processor.py::Processor. Left out: pooling, LoRA, multimodal input, structured outputs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tracellm.engine.config import VllmConfig
from tracellm.engine.errors import InvalidRequestError
from tracellm.engine.messages import EngineCoreRequest
from tracellm.engine.preprocess import InputPreprocessor, PromptType, TokenInputs
from tracellm.engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["Processor"]


class Processor:
    """Tokenizes, checks, and completes what a request needs."""

    def __init__(self, vllm_config: VllmConfig, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model_config = vllm_config.model_config
        self.tokenizer = tokenizer
        self.input_preprocessor = InputPreprocessor(tokenizer)

    def process_inputs(
        self,
        request_id: str,
        prompt: PromptType,
        params: SamplingParams,
        arrival_time: float | None = None,
        priority: int = 0,
    ) -> EngineCoreRequest:
        """Make the request that the engine core receives.

        Raises:
            InvalidRequestError: the prompt or the parameters cannot be served by this model.
        """
        self._validate_params(params)
        inputs = self.input_preprocessor.preprocess(prompt)
        eos_token_id = self.input_preprocessor.get_eos_token_id()
        self._validate_model_input(inputs)

        sampling_params = params.clone()
        if sampling_params.max_tokens is None:
            sampling_params.max_tokens = self.model_config.max_model_len - len(inputs["prompt_token_ids"])
        sampling_params.update_from_generation_config(self.model_config.generation_config, eos_token_id)
        return EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=inputs["prompt_token_ids"],
            sampling_params=sampling_params,
            eos_token_id=eos_token_id,
            arrival_time=time.time() if arrival_time is None else arrival_time,
            priority=priority,
        )

    def _validate_params(self, params: SamplingParams) -> None:
        if not isinstance(params, SamplingParams):
            raise InvalidRequestError(f"Sampling parameters must be a SamplingParams, got {type(params).__name__}.")
        vocab_size = self.model_config.get_vocab_size()
        unknown = [token for token in params.stop_token_ids or () if token >= vocab_size]
        if unknown:
            raise InvalidRequestError(
                f"SamplingParams: `stop_token_ids` must be below {vocab_size}, the model's vocabulary; got {unknown}."
            )

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
