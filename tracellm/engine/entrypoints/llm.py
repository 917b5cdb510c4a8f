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
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracellm.engine.arg_utils import EngineArgs
from tracellm.engine.entrypoints.chat_utils import (
    Message,
    apply_hf_chat_template,
    parse_chat_messages,
    split_conversations,
)
from tracellm.engine.entrypoints.interrupts import Interrupts, deferred_interrupts
from tracellm.engine.entrypoints.progress import ProgressBar, progress_bar
from tracellm.engine.errors import EngineError, InvalidRequestError
from tracellm.engine.hf_config import EMBEDDED_MODEL
from tracellm.engine.llm_engine import LLMEngine
from tracellm.engine.messages import EngineCoreRequest
from tracellm.engine.outputs import RequestOutput
from tracellm.engine.preprocess import PromptType, get_prompt_text, tokenize
from tracellm.engine.sampling_params import RequestOutputKind, SamplingParams

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
        seed: of the random generator for sampling; `None` is 0.
        max_model_len: the most tokens of prompt and output together; `None`: all that the model was made for.
        gpu_memory_utilization: the share of a GPU's memory to use.
        block_size: tokens in a KV block; `None` is 16.
        num_gpu_blocks_override: the number of KV blocks, whatever the memory would hold.
        max_num_batched_tokens: the token budget of a step; `None`: 4096 on a CPU, 8192 or 16384 on a GPU.
        max_num_seqs: the most requests in a step; `None`: 256, or 1024 on a large GPU.
        enable_prefix_caching: reuse KV blocks of equal prompt beginnings; `None` is True.
        enable_chunked_prefill: compute long prompts in pieces over several steps; `None` is True.
        enforce_eager: accepted for vLLM's sake; nothing is compiled or captured here.
        disable_log_stats: `False` fills `RequestOutput.metrics`.
        **kwargs: further arguments of vLLM, as long as they ask for nothing that tracellm does not have.

    Raises:
        EngineError: an argument that is unknown, out of range or unsupported, a model that cannot be loaded
            (`ModelLoadError`), or memory that cannot hold `max_model_len`. The message says what to do.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = EMBEDDED_MODEL,
        *,
        tokenizer: str | os.PathLike[str] | None = None,
        dtype: str | torch.dtype = "auto",
        seed: int | None = None,
        max_model_len: int | None = None,
        gpu_memory_utilization: float = 0.9,
        block_size: int | None = None,
        num_gpu_blocks_override: int | None = None,
        max_num_batched_tokens: int | None = None,
        max_num_seqs: int | None = None,
        enable_prefix_caching: bool | None = None,
        enable_chunked_prefill: bool | None = None,
        enforce_eager: bool = False,
        disable_log_stats: bool = True,
        **kwargs: Any,
    ) -> None:
        engine_args = EngineArgs.from_arguments(
            model=model,
            tokenizer=tokenizer,
            dtype=dtype,
            seed=seed,
            max_model_len=max_model_len,
            gpu_memory_utilization=gpu_memory_utilization,
            block_size=block_size,
            num_gpu_blocks_override=num_gpu_blocks_override,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            enable_prefix_caching=enable_prefix_caching,
            enable_chunked_prefill=enable_chunked_prefill,
            enforce_eager=enforce_eager,
            disable_log_stats=disable_log_stats,
            **kwargs,
        )
        self.llm_engine = LLMEngine.from_engine_args(engine_args)
        self.model_config = self.llm_engine.model_config
        self.processor = self.llm_engine.processor
        self.request_counter = itertools.count()
        self._generating = threading.Lock()

    def get_tokenizer(self) -> PreTrainedTokenizerFast:
        """The model's tokenizer."""
        return self.llm_engine.get_tokenizer()

    def get_default_sampling_params(self) -> SamplingParams:
        """The sampling that the model's makers recommend in generation_config.json; vLLM's defaults for the rest.

        Raises:
            EngineError: that file recommends a value that is out of range.
        """
        for name, neutral in (("repetition_penalty", 1.0), ("min_p", 0.0)):
            value = self.model_config.generation_config.get(name)
            if value is not None and value != neutral:
                warnings.warn(
                    f"The model's generation_config.json recommends {name}={value}, which is not supported yet "
                    "and therefore left out.",
                    stacklevel=3,
                )
        try:
            return SamplingParams(**self.model_config.get_diff_sampling_param())
        except EngineError as error:
            raise EngineError(
                f"The generation_config.json of `{self.model_config.model}` recommends what cannot be: {error} "
                "Correct it, or give `sampling_params`."
            ) from None

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | Callable[..., ProgressBar] = True,
    ) -> list[RequestOutput]:
        """Continue each prompt. All run together, as the scheduler sees fit.

        Args:
            prompts: one prompt or a list; each a string, `{"prompt": text}` or `{"prompt_token_ids": [ids]}`.
            sampling_params: one for all, or a list with one for each prompt; `None`: `get_default_sampling_params()`.
            use_tqdm: show a progress bar on stderr when that is a terminal and the work takes longer than a second;
                or a function that makes another bar.

        Returns:
            The finished outputs, in the order of the prompts.

        Raises:
            InvalidRequestError: a prompt or parameter cannot be served; the message says which. None of the prompts has
                been run, and the LLM can be used again.
            EngineError: another call of this LLM has not returned yet, or a step computed no valid numbers.
            KeyboardInterrupt: Ctrl-C; unfinished requests are given up, and the LLM can be used again.
        """
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        with deferred_interrupts() as interrupts, self._alone():
            self._validate_and_add_requests(prompts, sampling_params, interrupts)
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
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or each of several.

        Args:
            messages: a list of `{"role": ..., "content": ...}`, or a list of such lists.
            sampling_params: as for `generate`.
            use_tqdm: as for `generate`.
            chat_template: a Jinja template in place of the tokenizer's own.
            add_generation_prompt: end the prompt with what opens an answer.
            continue_final_message: go on with the last message instead of answering it; needs
                `add_generation_prompt=False`.
            chat_template_kwargs: further variables for the template.

        Returns:
            The answers, in the order of the conversations. Their `prompt` is the filled-in template.

        Raises:
            InvalidRequestError: as for `generate`; or there is no chat template, or it refuses the messages.
        """
        tokenizer = self.get_tokenizer()
        if not isinstance(chat_template_kwargs or {}, Mapping):
            raise InvalidRequestError(
                f"`chat_template_kwargs` must be a dict of variables, got {chat_template_kwargs!r}."
            )
        conversations = split_conversations(messages)
        several = not isinstance(messages[0], Mapping)
        prompts: list[PromptType] = []
        for index, conversation in enumerate(conversations):
            with _named(f"conversations[{index}]" if several else ""):
                text = apply_hf_chat_template(
                    tokenizer,
                    parse_chat_messages(conversation),
                    chat_template,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continue_final_message,
                    **(chat_template_kwargs or {}),
                )
                # The template writes the special tokens itself.
                token_ids = tokenize(tokenizer, text, add_special_tokens=False)
            prompts.append({"prompt": text, "prompt_token_ids": token_ids})
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def _validate_and_add_requests(
        self,
        prompts: PromptType | Sequence[PromptType],
        params: SamplingParams | Sequence[SamplingParams],
        interrupts: Interrupts,
    ) -> None:
        one = isinstance(prompts, (str, Mapping))
        if not one and (isinstance(prompts, bytes) or not isinstance(prompts, Iterable)):
            raise InvalidRequestError(
                "generate takes a prompt or a list of prompts: strings, "
                f'{{"prompt": text}} or {{"prompt_token_ids": [ids]}}; got {type(prompts).__name__}.'
            )
        batch: list[Any] = [prompts] if one else list(prompts)
        each: Sequence[Any] = params if isinstance(params, (list, tuple)) else [params] * len(batch)
        if len(each) != len(batch):
            raise InvalidRequestError(
                f"There are {len(batch)} prompts and {len(each)} sampling parameters: "
                "give one SamplingParams for all, or one for each prompt."
            )
        added: list[str] = []
        try:
            for index, (prompt, its_params) in enumerate(zip(batch, each, strict=True)):
                with _named("" if one else f"prompts[{index}]"):
                    added.append(self._add_request(prompt, its_params))
                interrupts.check()
        except BaseException:
            self.llm_engine.abort_request(added)
            raise

    def _process_inputs(self, request_id: str, prompt: PromptType, params: SamplingParams) -> EngineCoreRequest:
        request = self.processor.process_inputs(request_id, prompt, params)
        request.sampling_params.output_kind = RequestOutputKind.FINAL_ONLY
        return request

    def _add_request(self, prompt: PromptType, params: SamplingParams) -> str:
        request_id = str(next(self.request_counter))
        request = self._process_inputs(request_id, prompt, params)
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
                outputs += finished
                if bar is not None:
                    bar.update(len(finished))
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
        self.llm_engine.reset_prefix_cache()


@contextmanager
def _named(which: str) -> Iterator[None]:
    """Refusals inside the `with` block begin with `which`, a place in the batch; empty when there is only one."""
    try:
        yield
    except InvalidRequestError as error:
        if not which:
            raise
        raise InvalidRequestError(f"{which}: {error}") from None
