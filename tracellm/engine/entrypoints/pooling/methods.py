"""`LLM`'s methods for pooling models: `embed`, `encode` and `score`.

    llm = LLM("path/to/a/model", runner="pooling")
    for output in llm.embed(["Hello", "Good morning"]):
        print(output.outputs.embedding)

vLLM: vllm/entrypoints/llm.py::LLM, and vllm/entrypoints/score_utils.py. Left out: classification, rewards, scores of
cross-encoders and of images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.config.validation import reject_unknown_arguments
from tracellm.engine.config.vllm_config import ModelConfig
from tracellm.engine.entrypoints.interrupts import deferred_interrupts
from tracellm.engine.entrypoints.progress_bar import ProgressBar
from tracellm.engine.entrypoints.prompt_batch import as_batch
from tracellm.engine.frontend.outputs import (
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
    RequestOutput,
    ScoringRequestOutput,
)
from tracellm.engine.frontend.preprocess import PromptType
from tracellm.engine.frontend.processor import Processor
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["PoolingMethods", "cosine_similarity", "validate_score_input_lens"]

_NO_TASK = """pooling_task required for `LLM.encode`
Please use one of the more specific methods or set the pooling_task when using `LLM.encode`:
  - For embeddings, use `LLM.embed(...)` or `pooling_task="embed"`.
  - For similarity scores, use `LLM.score(...)`.
  - For multi-vector retrieval, use `pooling_task="token_embed"`"""


class PoolingMethods:
    """Base class of `LLM` with its methods for pooling models. In vLLM they are `LLM`'s own."""

    model_config: ModelConfig
    processor: Processor
    get_tokenizer: Callable[[], PreTrainedTokenizerFast]
    _exclusive: Callable[[], AbstractContextManager[None]]
    _validate_and_add_requests: Callable[..., None]
    _run_engine: Callable[..., list[RequestOutput | PoolingRequestOutput[Any]]]

    @property
    def supported_tasks(self) -> tuple[str, ...]:
        """Tasks of the model: `generate`, or `embed` and `token_embed`."""
        return self.processor.supported_tasks

    def encode(
        self,
        prompts: PromptType | Sequence[PromptType],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool | Callable[..., ProgressBar] = True,
        pooling_task: str | None = None,
        **unknown: Any,
    ) -> list[PoolingRequestOutput[PoolingOutput]]:
        """Pool the hidden states of each prompt.

        Args:
            prompts: as for `generate`.
            pooling_params: one for all prompts, or a list; None is `PoolingParams()`.
            truncate_prompt_tokens: number of first tokens to keep of each text prompt; -1 is the model's length.
            use_tqdm: as for `generate`.
            pooling_task: `embed`, one vector for a prompt, or `token_embed`, one for each token, which needs
                LLM(enable_chunked_prefill=False).
            **unknown: rejected by name.

        Returns:
            The outputs in the order of the prompts; `outputs.data` is a float32 tensor, [values] or [tokens, values].

        Raises:
            EngineError: the model generates, there is no task, or another call of this LLM has not returned yet.
            InvalidRequestError: an argument, prompt or parameter is invalid, or the model computed invalid numbers for
                a prompt; the message names it. The LLM can be used again.
        """
        reject_unknown_arguments(self.encode, unknown)
        if pooling_task is None:
            raise EngineError(_NO_TASK)
        self._check_runner("encode")
        if pooling_task not in self.supported_tasks:
            raise EngineError(f"pooling_task must be one of {self.supported_tasks}.")
        given = PoolingParams() if pooling_params is None else pooling_params
        params: PoolingParams | list[PoolingParams]
        if isinstance(given, (list, tuple)):
            params = [_complete(one, pooling_task, truncate_prompt_tokens) for one in given]
        else:
            params = _complete(given, pooling_task, truncate_prompt_tokens)
        with deferred_interrupts() as interrupts, self._exclusive():
            self._validate_and_add_requests(prompts, params, None, interrupts, "encode")
            outputs = self._run_engine(use_tqdm=use_tqdm, interrupts=interrupts)
        return [output for output in outputs if isinstance(output, PoolingRequestOutput)]

    def embed(
        self,
        prompts: PromptType | Sequence[PromptType],
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool | Callable[..., ProgressBar] = True,
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        **unknown: Any,
    ) -> list[EmbeddingRequestOutput]:
        """Return an embedding for each prompt: `outputs.embedding` is a list of floats.

        Arguments and errors are those of `encode`. By default an embedding is the last token's hidden state after the
        model's last norm, divided by its Euclidean norm; see `pooler_config`.
        """
        reject_unknown_arguments(self.embed, unknown)
        if "embed" not in self.supported_tasks:
            raise EngineError(
                "Embedding API is not supported by this model. Try converting the model using `--convert embed`."
            )
        outputs = self.encode(
            prompts,
            pooling_params,
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
            pooling_task="embed",
        )
        return [EmbeddingRequestOutput.from_base(output) for output in outputs]

    def score(
        self,
        data_1: PromptType | Sequence[PromptType],
        data_2: PromptType | Sequence[PromptType],
        /,
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool | Callable[..., ProgressBar] = True,
        pooling_params: PoolingParams | None = None,
        **unknown: Any,
    ) -> list[ScoringRequestOutput]:
        """Return the similarity of each pair of prompts: the cosine of their embeddings, in [-1, 1].

        Args:
            data_1: one prompt for all of `data_2`, or as many as there.
            data_2: one prompt, or several.
            truncate_prompt_tokens: as for `encode`.
            use_tqdm: as for `generate`.
            pooling_params: as for `encode`.
            **unknown: rejected by name.

        Raises:
            EngineError: as for `encode`, or the numbers of prompts differ.
        """
        reject_unknown_arguments(self.score, unknown)
        self._check_runner("score")
        if "embed" not in self.supported_tasks:
            raise EngineError(
                "Score API is not supported by this model. Try converting the model using `--convert embed`."
            )
        tokenizer = self.get_tokenizer()
        prompts_1, prompts_2 = (as_batch(data, "score") for data in (data_1, data_2))
        validate_score_input_lens(prompts_1, prompts_2)
        encoded = self.encode(
            prompts_1 + prompts_2,
            pooling_params,
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
            pooling_task="embed",
        )
        scores = cosine_similarity(tokenizer.pad_token_id, encoded[: len(prompts_1)], encoded[len(prompts_1) :])
        return [ScoringRequestOutput.from_base(score) for score in scores]

    def _check_runner(self, method: str, needs: str = "pooling") -> None:
        """Refuse a method for the other kind of models."""
        if self.model_config.runner_type != needs:
            kind = "generative" if needs == "generate" else "pooling"
            raise EngineError(
                f"LLM.{method}() is only supported for {kind} models. Try passing `--runner {needs}` to use the model "
                f"as a {kind} model."
            )


def _complete(params: object, task: str, truncate_prompt_tokens: int | None) -> PoolingParams:
    """Return a copy with the task. vLLM changes the caller's."""
    if not isinstance(params, PoolingParams):
        given = "a SamplingParams" if isinstance(params, SamplingParams) else repr(params)
        raise InvalidRequestError(f"Pooling parameters must be a PoolingParams, got {given}.")
    params = params.clone()
    if params.task not in (None, task):
        raise InvalidRequestError(f"You cannot overwrite self.task={params.task!r} with task={task!r}!")
    params.task = task
    if truncate_prompt_tokens is not None:
        params.truncate_prompt_tokens = truncate_prompt_tokens
        params.__post_init__()
    return params


def validate_score_input_lens(data_1: Sequence[object], data_2: Sequence[object]) -> None:
    """Check that there is one first text, or one for each second text.

    Raises:
        InvalidRequestError: there are none, or their numbers differ.
    """
    if len(data_1) > 1 and len(data_1) != len(data_2):
        raise InvalidRequestError("Input lengths must be either 1:1, 1:N or N:N")
    if not data_1:
        raise InvalidRequestError("At least one text element must be given")
    if not data_2:
        raise InvalidRequestError("At least one text_pair element must be given")


def cosine_similarity(
    pad_token_id: int | None,
    embed_1: Sequence[PoolingRequestOutput[PoolingOutput]],
    embed_2: Sequence[PoolingRequestOutput[PoolingOutput]],
) -> list[PoolingRequestOutput[PoolingOutput]]:
    """Return an output for each pair: the cosine of the embeddings, and the tokens of both prompts around a padding.

    A single first embedding pairs with every second one.
    """
    import torch
    from torch.nn.functional import cosine_similarity as cosine

    padding = [] if pad_token_id is None else [pad_token_id]
    firsts = list(embed_1) * len(embed_2) if len(embed_1) == 1 else embed_1
    left, right = (torch.stack([one.outputs.data for one in side]) for side in (firsts, embed_2))
    scores = cosine(left, right, dim=1)
    return [
        PoolingRequestOutput(
            request_id=f"{first.request_id}_{second.request_id}",
            outputs=PoolingOutput(score),
            prompt_token_ids=first.prompt_token_ids + padding + second.prompt_token_ids,
            num_cached_tokens=first.num_cached_tokens + second.num_cached_tokens,
            finished=True,
        )
        for first, second, score in zip(firsts, embed_2, scores, strict=True)
    ]
