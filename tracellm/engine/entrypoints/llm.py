"""`LLM`: load a model once, then generate from batches of prompts. Where a script enters the engine.

    from tracellm import LLM, SamplingParams

    llm = LLM()  # the model that comes with tracellm; or LLM("path/to/a/model")
    for output in llm.generate(["The capital of France is"], SamplingParams(temperature=0)):
        print(output.prompt, output.outputs[0].text)

vLLM: vllm/entrypoints/llm.py::LLM. Left out: beam search, embedding, scoring, LoRA, multimodal input.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineDeadError, EngineError, InvalidRequestError
from tracellm.engine.config.hf_config import BUNDLED_MODEL, HfOverrides
from tracellm.engine.config.validation import reject_unknown_arguments
from tracellm.engine.entrypoints.batch import make_batch, named
from tracellm.engine.entrypoints.chat_utils import (
    Message,
    apply_hf_chat_template,
    parse_chat_messages,
    split_conversations,
)
from tracellm.engine.entrypoints.interrupts import Interrupts, deferred_interrupts
from tracellm.engine.entrypoints.progress import ProgressBar, progress_bar
from tracellm.engine.frontend.llm_engine import LLMEngine
from tracellm.engine.frontend.outputs import RequestOutput
from tracellm.engine.frontend.preprocess import PromptType, get_prompt_text
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

__all__ = ["LLM"]


class LLM:
    """A model, ready to generate.

    Args:
        model: a directory in Hugging Face format, a hub id, or `tiny`, the model that comes with tracellm.
        tokenizer: where the tokenizer is, if not with the model.
        dtype: in what to compute: `auto` (the checkpoint's; bfloat16 for a float32 one), `float32`, `bfloat16` or
            `float16`.
        skip_tokenizer_init: load no tokenizer: prompts must be token ids, and outputs have no text.
        hf_overrides: entries to change in the model's config.json, or a function that changes the whole.
        seed: of the random generator for sampling; `None` is 0.
        max_model_len: the most tokens of prompt and output together; `None`: all that the model was made for.
        gpu_memory_utilization: the share of a GPU's memory to use.
        block_size: tokens in a KV block; `None` is 16.
        num_gpu_blocks_override: the number of KV blocks, whatever the memory would hold.
        kv_cache_memory_bytes: the size of the KV cache, in place of a measured one.
        max_num_batched_tokens: the token budget of a step; `None`: 4096 on a CPU, 8192 or 16384 on a GPU.
        max_num_seqs: the most requests in a step; `None`: 256, or 1024 on a large GPU.
        enable_prefix_caching: reuse KV blocks of equal prompt beginnings; `None` is True.
        enable_chunked_prefill: compute long prompts in pieces over several steps; `None` is True.
        enforce_eager: `True` captures no CUDA graphs on a GPU, so that each step calls its layers one by one.
        disable_log_stats: `False` fills `RequestOutput.metrics`.
        multiprocess_mode: should the engine core run in a process of its own? `None`: as the environment variable
            VLLM_ENABLE_V1_MULTIPROCESSING says (1: yes; 0, the default here: no, in this one). vLLM has the variable
            only, and 1 is its default.
        **kwargs: further arguments of `EngineArgs`, as in vLLM:

            - `long_prefill_token_threshold`: compute at most so many tokens of a prompt in a step; 0: as the budget
              allows.
            - `scheduling_policy`: who runs first: `fcfs` (first come, first served), or `priority`, as `generate` is
              told.
            - `async_scheduling`: schedule a step before the tokens of the one before are known, so that a GPU never
              waits for the CPU; by default on a GPU. Tokens are the same, but for random ones without a seed.
            - `disable_hybrid_kv_cache_manager`: keep all blocks in all layers, in a model with sliding windows in some.
            - `max_logprobs`: the most `logprobs` that a request may ask for (20); -1 sets no bound.
            - `logprobs_mode`: what these are: `raw_logprobs` or `raw_logits`, before penalties, temperature and the
              like, or `processed_logprobs` or `processed_logits`, after them.
            - `generation_config`: whose recommendations are the default sampling parameters: `auto` (the model's),
              `vllm` (nobody's), or those of the generation_config.json in a directory.
            - `override_generation_config`: what is recommended instead, such as `{"temperature": 0.5}`.
            - `served_model_name`: what the model is called in recordings.
            - All others, as long as they ask for nothing that tracellm does not have (not_here.py).

    Raises:
        EngineError: an argument that is unknown, out of range or unsupported, a model that cannot be loaded
            (`ModelLoadError`), or memory that cannot hold `max_model_len`. The message says what to do.
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
        """The model's tokenizer.

        Raises:
            EngineError: there is none, under `skip_tokenizer_init`.
        """
        return self.llm_engine.get_tokenizer()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached KV blocks; `False`, and nothing done, while requests hold blocks."""
        return self.llm_engine.reset_prefix_cache()

    def get_default_sampling_params(self) -> SamplingParams:
        """The sampling that the model's makers recommend in generation_config.json, changed by
        `override_generation_config`; vLLM's defaults for the rest.

        Raises:
            EngineError: a recommended value is out of range.
        """
        recommended = self.model_config.get_diff_sampling_param()
        try:
            return SamplingParams(**recommended)
        except EngineError as error:
            raise EngineError(
                f"The generation_config.json of `{self.model_config.model}`, or LLM(override_generation_config=...), "
                f"recommends what cannot be: {error} Correct it, or give `sampling_params`."
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
        """Continue each prompt. All run together, as the scheduler sees fit.

        Args:
            prompts: one prompt or a list; each a string, `{"prompt": text}` or `{"prompt_token_ids": [ids]}`.
            sampling_params: one for all, or a list with one for each prompt; `None`: `get_default_sampling_params()`.
            use_tqdm: show a progress bar on stderr when that is a terminal and the work takes longer than a second;
                or a function that makes another bar.
            priority: one number for each prompt; lower ones run first. It counts under scheduling_policy="priority".
            **unknown: refused by name.

        Returns:
            The finished outputs, in the order of the prompts.

        Raises:
            InvalidRequestError: an argument, a prompt or a parameter cannot be served; the message says which. None of
                the prompts has been run, and the LLM can be used again.
            EngineError: another call of this LLM has not returned yet, or a step computed no valid numbers.
            KeyboardInterrupt: Ctrl-C; unfinished requests are given up, and the LLM can be used again.
        """
        reject_unknown_arguments(self.generate, unknown)
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        with deferred_interrupts() as interrupts, self._alone():
            self._validate_and_add_requests(prompts, sampling_params, priority, interrupts)
            return self._run_engine(use_tqdm=use_tqdm, interrupts=interrupts)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One call at a time: two would take each other's outputs out of the engine. vLLM does not check."""
        if not self._generating.acquire(blocking=False):
            raise EngineError(
                "This LLM is generating already: an earlier call of generate or chat, in another thread or in a "
                "progress bar's function, has not returned. Give all prompts in one call (they run together), call one "
                "after the other, or make a second LLM."
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
        """Answer one conversation or each of several.

        Args:
            messages: a list of `{"role": ..., "content": ...}`, or a list of such lists.
            sampling_params: as for `generate`.
            use_tqdm: as for `generate`.
            chat_template: a Jinja template in place of the tokenizer's own.
            chat_template_content_format: what the template gets as a message's content: `string`, one text; `openai`,
                a list of `{"type": "text", "text": ...}`; `auto` is `string`.
            add_generation_prompt: end the prompt with what opens an answer.
            continue_final_message: go on with the last message instead of answering it; needs
                `add_generation_prompt=False`.
            tools: descriptions of functions that the model may call, for the template.
            chat_template_kwargs: further variables for the template; one of the names above takes that one's place.
            **unknown: refused by name.

        Returns:
            The answers, in the order of the conversations. Their `prompt` is the filled-in template.

        Raises:
            InvalidRequestError: as for `generate`; or there is no chat template, or it refuses the messages.
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
        """The prompts that `chat` gives to `generate`: text and token ids of each conversation. Arguments as there."""
        tokenizer = self.get_tokenizer()
        further = {} if chat_template_kwargs is None else chat_template_kwargs
        if not isinstance(further, Mapping) or not all(isinstance(name, str) for name in further):
            raise InvalidRequestError(
                f"`chat_template_kwargs` must be a dict of variables, by their names, got {chat_template_kwargs!r}."
            )
        conversations = split_conversations(messages)
        several = not isinstance(messages[0], Mapping)
        template_arguments = {
            "chat_template": chat_template,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "tools": tools,
            **further,
        }
        prompts: list[PromptType] = []
        for index, conversation in enumerate(conversations):
            with named(f"conversations[{index}]" if several else ""):
                parsed = parse_chat_messages(conversation, chat_template_content_format)
                text = apply_hf_chat_template(tokenizer, parsed, **template_arguments)
                # The template writes the special tokens itself.
                token_ids = self.processor.input_preprocessor.tokenize_prompt(text, add_special_tokens=False)
            prompts.append({"prompt": text, "prompt_token_ids": token_ids})
        return prompts

    def _validate_and_add_requests(
        self,
        prompts: PromptType | Sequence[PromptType] | None,
        params: SamplingParams | Sequence[SamplingParams],
        priority: Sequence[int] | None,
        interrupts: Interrupts,
    ) -> None:
        batch = make_batch(prompts, params, priority)
        added: list[str] = []
        try:
            for item in batch:
                with named(item.place):
                    added.append(self._add_request(item.prompt, item.params, item.priority))
                interrupts.check()
        except BaseException:
            self.llm_engine.abort_request(added)
            raise

    def _process_inputs(
        self, request_id: str, prompt: PromptType, params: SamplingParams, priority: int
    ) -> EngineCoreRequest:
        request = self.processor.process_inputs(request_id, prompt, params, priority=priority)
        request.sampling_params.output_kind = RequestOutputKind.FINAL_ONLY
        return request

    def _add_request(self, prompt: PromptType, params: SamplingParams, priority: int) -> str:
        request_id = str(next(self.request_counter))
        request = self._process_inputs(request_id, prompt, params, priority)
        self.llm_engine.add_request(request_id, request, params, prompt_text=get_prompt_text(prompt))
        return request_id

    def _run_engine(
        self, *, use_tqdm: bool | Callable[..., ProgressBar], interrupts: Interrupts
    ) -> list[RequestOutput]:
        outputs: list[RequestOutput] = []
        bar: ProgressBar | None = None
        try:
            bar = progress_bar(use_tqdm, self.llm_engine.get_num_unfinished_requests())
            while self.llm_engine.has_unfinished_requests():
                finished = [output for output in self.llm_engine.step() if output.finished]
                _raise_errors(finished)
                outputs += finished
                if bar is not None:
                    bar.update(sum(len(output.outputs) for output in finished))
                interrupts.check()
        except BaseException:
            self._give_up()
            raise
        finally:
            if bar is not None:
                bar.close()
        return sorted(outputs, key=lambda output: int(output.request_id))

    def _give_up(self) -> None:
        """Drop all requests. A step may have been cut short, so nothing that is cached can be relied on."""
        self.llm_engine.abort_request(list(self.llm_engine.output_processor.request_states))
        with suppress(EngineDeadError):  # which is what the caller is told anyway
            self.llm_engine.reset_prefix_cache()


def _raise_errors(finished: list[RequestOutput]) -> None:
    """Raise what has ended a request, if an error has."""
    for output in finished:
        for completion in output.outputs:
            if completion.finish_reason == "error":
                raise InvalidRequestError(str(completion.stop_reason))
