"""`LLM`: load a model once, then generate from batches of prompts. The entry point for scripts.

    from tracellm import LLM, SamplingParams

    llm = LLM()  # the bundled model; or LLM("path/to/a/model")
    for output in llm.generate(["The capital of France is"], SamplingParams(temperature=0)):
        print(output.prompt, output.outputs[0].text)

vLLM: vllm/entrypoints/llm.py::LLM. Left out: classification, LoRA.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineDeadError, EngineError, InvalidRequestError
from tracellm.engine.config.hf_config import BUNDLED_MODEL, HfOverrides
from tracellm.engine.config.validation import reject_unknown_arguments
from tracellm.engine.entrypoints.beam_search import BeamSearchMethods
from tracellm.engine.entrypoints.chat_utils import (
    Message,
    apply_hf_chat_template,
    parse_chat_messages,
    split_conversations,
    track_items,
)
from tracellm.engine.entrypoints.interrupts import Interrupts, deferred_interrupts
from tracellm.engine.entrypoints.pooling.methods import PoolingMethods
from tracellm.engine.entrypoints.progress_bar import ProgressBar, make_progress_bar
from tracellm.engine.entrypoints.prompt_batch import Params, labeled_errors, make_batch
from tracellm.engine.frontend.llm_engine import LLMEngine
from tracellm.engine.frontend.outputs import PoolingRequestOutput, RequestOutput
from tracellm.engine.frontend.preprocess import PromptType, get_prompt_text
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

__all__ = ["LLM"]

logger = logging.getLogger(__name__)


class LLM(BeamSearchMethods, PoolingMethods):
    """A model for offline generation, or for pooling (pooling/methods.py); one call at a time.

    Args:
        model: a directory in Hugging Face format, a hub id, or `tiny`, the bundled model.
        tokenizer: directory or hub id of the tokenizer, if not the model's.
        dtype: dtype to compute in: `auto` (the checkpoint's, or bfloat16 for a float32 one), `float32`, `bfloat16` or
            `float16`.
        skip_tokenizer_init: load no tokenizer; prompts must be token ids, and outputs have no text.
        hf_overrides: entries to change in config.json, or a function from the configuration to the changed one.
        seed: seed of the sampling generator; None is 0.
        max_model_len: maximum number of tokens of prompt and output together; None is the model's length.
        gpu_memory_utilization: share of a GPU's memory to use.
        block_size: tokens per KV cache block; None is 16.
        num_gpu_blocks_override: number of KV cache blocks, regardless of memory.
        kv_cache_memory_bytes: size of the KV cache, instead of a measured one.
        max_num_batched_tokens: token budget of a step; None is 4096 on a CPU, 8192 or 16384 on a GPU.
        max_num_seqs: maximum number of requests in a step; None is 256, or 1024 on a large GPU.
        enable_prefix_caching: reuse KV cache blocks of shared prompt prefixes; None is True.
        enable_chunked_prefill: compute long prompts in chunks over several steps; None is True.
        enforce_eager: capture no CUDA graphs on a GPU, so that each step calls its layers one by one.
        disable_log_stats: leave `RequestOutput.metrics` empty.
        multiprocess_mode: run the engine core in a process of its own; None follows the environment variable
            VLLM_ENABLE_V1_MULTIPROCESSING, which is 0 by default here. vLLM has only the variable, 1 by default.
        **kwargs: more arguments of `EngineArgs`, as in vLLM:

            - `long_prefill_token_threshold`: maximum number of tokens of one prompt in a step; 0 is no limit.
            - `scheduling_policy`: `fcfs` (first come, first served) or `priority`, given to `generate`.
            - `async_scheduling`: schedule a step before the previous step's tokens are known, so a GPU never waits for
              the CPU; the default on a GPU. Only random tokens without a seed differ.
            - `disable_hybrid_kv_cache_manager`: keep all blocks in all layers, if only some have sliding windows.
            - `max_logprobs`: maximum of a request's `logprobs` (20); -1 is no limit.
            - `logprobs_mode`: `raw_logprobs` or `raw_logits`, before penalties and temperature, or
              `processed_logprobs` or `processed_logits`, after them.
            - `generation_config`: source of the default sampling parameters: `auto` (the model), `vllm` (none), or a
              directory with a generation_config.json.
            - `override_generation_config`: replaced defaults, such as `{"temperature": 0.5}`.
            - `reasoning_parser`: `deepseek_r1` or `qwen3`: constraints apply after the reasoning.
            - `served_model_name`: name of the model in recordings.
            - `runner`: `generate`, `pooling` (for `embed`, `encode`, `score`), or `auto`, by the model's files.
            - `pooler_config`: such as `{"pooling_type": "MEAN", "normalize": False}`.
            - Any other, with its default value (unsupported_args.py).

    Raises:
        EngineError: an argument is unknown, out of range or unsupported, the model cannot be loaded
            (`ModelLoadError`), or the memory cannot hold `max_model_len`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = BUNDLED_MODEL,
        *,
        tokenizer: str | os.PathLike[str] | None = None,
        dtype: str | torch.dtype = "auto",
        skip_tokenizer_init: bool = False,
        hf_overrides: HfOverrides | None = None,
        seed: int | None = None,
        max_model_len: int | None = None,
        gpu_memory_utilization: float = 0.9,
        block_size: int | None = None,
        num_gpu_blocks_override: int | None = None,
        kv_cache_memory_bytes: int | None = None,
        max_num_batched_tokens: int | None = None,
        max_num_seqs: int | None = None,
        enable_prefix_caching: bool | None = None,
        enable_chunked_prefill: bool | None = None,
        enforce_eager: bool = False,
        disable_log_stats: bool = True,
        multiprocess_mode: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if multiprocess_mode not in (True, False, None):
            raise EngineError(f"LLM: `multiprocess_mode` must be True, False or None, got {multiprocess_mode!r}.")
        engine_args = EngineArgs.from_arguments(
            model=model,
            tokenizer=tokenizer,
            dtype=dtype,
            skip_tokenizer_init=skip_tokenizer_init,
            hf_overrides=hf_overrides,
            seed=seed,
            max_model_len=max_model_len,
            gpu_memory_utilization=gpu_memory_utilization,
            block_size=block_size,
            num_gpu_blocks_override=num_gpu_blocks_override,
            kv_cache_memory_bytes=kv_cache_memory_bytes,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            enable_prefix_caching=enable_prefix_caching,
            enable_chunked_prefill=enable_chunked_prefill,
            enforce_eager=enforce_eager,
            disable_log_stats=disable_log_stats,
            **kwargs,
        )
        self.llm_engine = LLMEngine.from_engine_args(engine_args, multiprocess_mode)
        self.model_config = self.llm_engine.model_config
        self.processor = self.llm_engine.processor
        self.request_counter = itertools.count()
        self._generating = threading.Lock()

    def get_tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the model's tokenizer.

        Raises:
            EngineError: the LLM was made with `skip_tokenizer_init`.
        """
        return self.llm_engine.get_tokenizer()

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache. Return False, and change nothing, while requests hold blocks."""
        return self.llm_engine.reset_prefix_cache()

    def get_default_sampling_params(self) -> SamplingParams:
        """Return the parameters that the model's generation_config.json and `override_generation_config` recommend.

        Raises:
            EngineError: a recommended value is out of range.
        """
        recommended = self.model_config.get_diff_sampling_param()
        try:
            return SamplingParams(**recommended)
        except EngineError as error:
            raise EngineError(
                f"The generation_config.json of `{self.model_config.model}`, or LLM(override_generation_config=...), "
                f"recommends invalid sampling parameters: {error} Correct it, or give `sampling_params`."
            ) from None

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType] | None = None,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., ProgressBar] = True,
        priority: Sequence[int] | None = None,
        **unknown: Any,
    ) -> list[RequestOutput]:
        """Generate from each prompt; the scheduler batches them.

        Args:
            prompts: one prompt or a list; each a string, `{"prompt": text}` or `{"prompt_token_ids": [ids]}`.
            sampling_params: one for all prompts, or a list; None is `get_default_sampling_params()`.
            use_tqdm: show a progress bar on stderr, if it is a terminal and the work takes longer than a second; or a
                function that makes another bar.
            priority: one number per prompt; lower ones run first under scheduling_policy="priority".
            **unknown: rejected by name.

        Returns:
            The finished outputs in the order of the prompts. A request that failed while generating has the finish
            reason `error` and the message as its stop reason, as in vLLM.

        Raises:
            InvalidRequestError: an argument, prompt or parameter is invalid; the message names it. No prompt was run,
                and the LLM can be used again.
            EngineError: the model is for pooling, another call of this LLM has not returned yet, or a step computed
                invalid numbers.
            KeyboardInterrupt: Ctrl-C; unfinished requests are aborted, and the LLM can be used again.
        """
        reject_unknown_arguments(self.generate, unknown)
        self._check_runner("generate", needs="generate")
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        with deferred_interrupts() as interrupts, self._exclusive():
            self._validate_and_add_requests(prompts, sampling_params, priority, interrupts)
            outputs = self._run_engine(use_tqdm=use_tqdm, interrupts=interrupts)
        return [output for output in outputs if isinstance(output, RequestOutput)]

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Allow one call at a time, as two would take each other's outputs. vLLM does not check."""
        if not self._generating.acquire(blocking=False):
            raise EngineError(
                "This LLM is generating already: an earlier call of generate or chat, in another thread or in a "
                "progress bar's function, has not returned. Give all prompts in one call (they are batched), make the "
                "calls one after the other, or make a second LLM."
            )
        try:
            yield
        finally:
            self._generating.release()

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool | Callable[..., ProgressBar] = True,
        *,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        **unknown: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation, or each of several.

        Args:
            messages: a list of `{"role": ..., "content": ...}`, or a list of such lists.
            sampling_params: as for `generate`.
            use_tqdm: as for `generate`.
            chat_template: a Jinja template instead of the tokenizer's own.
            chat_template_content_format: form of a message's content in the template: `string`, one text; `openai`, a
                list of `{"type": "text", "text": ...}`; `auto` is what the template expects.
            add_generation_prompt: end the prompt with the opening of an answer.
            continue_final_message: continue the last message instead of answering it; needs
                `add_generation_prompt=False`.
            tools: descriptions of functions that the model may call, for the template.
            chat_template_kwargs: more variables for the template; they override the arguments above.
            **unknown: rejected by name.

        Returns:
            The answers in the order of the conversations. Their `prompt` is the filled-in template.

        Raises:
            InvalidRequestError: as for `generate`; or there is no chat template, or it rejects the messages.
        """
        reject_unknown_arguments(self.chat, unknown)
        prompts = self.preprocess_chat(
            messages,
            chat_template,
            chat_template_content_format,
            add_generation_prompt,
            continue_final_message,
            tools,
            chat_template_kwargs,
        )
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def preprocess_chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[PromptType]:
        """Return the prompts that `chat` passes to `generate`, each with text and token ids."""
        tokenizer = self.get_tokenizer()
        variables = {} if chat_template_kwargs is None else chat_template_kwargs
        if not isinstance(variables, Mapping) or not all(isinstance(name, str) for name in variables):
            raise InvalidRequestError(
                f"`chat_template_kwargs` must be a dict of variables, by their names, got {chat_template_kwargs!r}."
            )
        conversations = split_conversations(messages)
        is_batch = not isinstance(messages[0], Mapping)
        template_arguments = {
            "chat_template": chat_template,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "tools": tools,
            **variables,
        }
        preprocessor = self.processor.input_preprocessor
        prompts: list[PromptType] = []
        for index, conversation in enumerate(conversations):
            with labeled_errors(f"conversations[{index}]" if is_batch else ""):
                items, content_format = track_items(
                    preprocessor.mm_processor,
                    chat_template_content_format,
                    variables.get("chat_template") or chat_template or tokenizer.chat_template,
                )
                parsed = parse_chat_messages(conversation, content_format, items)
                text = apply_hf_chat_template(tokenizer, parsed, **template_arguments)
                # The template writes the special tokens itself.
                token_ids = preprocessor.tokenize_prompt(text, add_special_tokens=False)
            prompt = {"prompt": text, "prompt_token_ids": token_ids}
            prompts.append(prompt if items is None else prompt | items.prompt_fields())
        return prompts

    def _validate_and_add_requests(
        self,
        prompts: PromptType | Sequence[PromptType] | None,
        params: Params | Sequence[Params],
        priority: Sequence[int] | None,
        interrupts: Interrupts,
        method: str = "generate",
    ) -> None:
        batch = make_batch(prompts, params, priority, method)
        requests: list[EngineCoreRequest] = []
        # Validate all before adding any: an engine core in another process runs a request as soon as it is added.
        for item in batch:
            with labeled_errors(item.label):
                requests.append(self._process_inputs(item.prompt, item.params, item.priority))
            interrupts.check()
        added: list[str] = []
        try:
            for item, request in zip(batch, requests, strict=True):
                with labeled_errors(item.label):
                    self._add_request(request, get_prompt_text(item.prompt))
                added.append(request.request_id)
                interrupts.check()
        except BaseException:
            self.llm_engine.abort_request(added)
            raise

    def _process_inputs(self, prompt: PromptType, params: Params, priority: int) -> EngineCoreRequest:
        request_id = str(next(self.request_counter))
        request = self.processor.process_inputs(request_id, prompt, params, priority=priority)
        request.params.output_kind = RequestOutputKind.FINAL_ONLY
        return request

    def _add_request(self, request: EngineCoreRequest, prompt_text: str | None) -> None:
        self.llm_engine.add_request(request.request_id, request, request.params, prompt_text=prompt_text)

    def _run_engine(
        self, *, use_tqdm: bool | Callable[..., ProgressBar], interrupts: Interrupts
    ) -> list[RequestOutput | PoolingRequestOutput[Any]]:
        outputs: list[RequestOutput | PoolingRequestOutput[Any]] = []
        bar: ProgressBar | None = None
        try:
            bar = make_progress_bar(use_tqdm, self.llm_engine.get_num_unfinished_requests())
            while self.llm_engine.has_unfinished_requests():
                finished = [output for output in self.llm_engine.step() if output.finished]
                outputs += finished
                if bar is not None:
                    bar.update(sum(len(o.outputs) if isinstance(o, RequestOutput) else 1 for o in finished))
                interrupts.check()
        except BaseException:
            self._abort_all()
            raise
        finally:
            if bar is not None:
                bar.close()
        _log_errors(outputs)
        return sorted(outputs, key=lambda output: int(output.request_id))

    def _abort_all(self) -> None:
        """Abort all requests and clear the prefix cache, which an interrupted step may have left inconsistent."""
        self.llm_engine.abort_request(list(self.llm_engine.output_processor.request_states))
        with suppress(EngineDeadError):  # the caller gets the original exception
            self.llm_engine.reset_prefix_cache()


def _log_errors(outputs: list[RequestOutput | PoolingRequestOutput[Any]]) -> None:
    for output in outputs:
        for completion in output.outputs if isinstance(output, RequestOutput) else ():
            if completion.finish_reason == "error":
                logger.warning("A request has failed. %s", completion.stop_reason)
