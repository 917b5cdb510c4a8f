"""Beam search: the best continuations of a prompt by the sum of their log probabilities.

    from tracellm import LLM, BeamSearchParams

    [output] = LLM().beam_search(["The capital of France is"], BeamSearchParams(beam_width=4, max_tokens=8))

The engine has no beams. `LLM.beam_search` and `OpenAIServing.beam_search` send each beam as a request for one token
with `2 * beam_width` log probabilities; the prefix cache has the blocks of its earlier tokens. A search runs for
`max_tokens` steps: vLLM does not end it early. transformers divides a sum by the length of the output, vLLM by that of
prompt and output.

vLLM: vllm/beam_search.py; BeamSearchParams is in vllm/sampling_params.py. Left out: LoRA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import InvalidRequestError, shorten
from tracellm.engine.config.validation import reject_unknown_arguments
from tracellm.engine.entrypoints.progress_bar import ProgressBar, make_progress_bar
from tracellm.engine.entrypoints.prompt_batch import labeled_errors, make_batch
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput
from tracellm.engine.sample.sampling_params import RequestOutputKind, SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.config.vllm_config import ModelConfig
    from tracellm.engine.frontend.logprobs import SampleLogprobs
    from tracellm.engine.frontend.preprocess import PromptType
    from tracellm.engine.frontend.processor import Processor

__all__ = [
    "BeamSearchInstance",
    "BeamSearchMethods",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "get_beam_search_score",
]


@dataclass
class BeamSearchParams:
    """Parameters of a beam search; other fields of `SamplingParams` have no effect on it."""

    beam_width: int
    """Number of beams, and of outputs."""
    max_tokens: int
    """Number of steps, and maximum number of generated tokens of an output."""
    ignore_eos: bool = False
    """Continue after the end-of-sequence token."""
    temperature: float = 0.0
    """Temperature at which one more candidate is drawn, as in vLLM. The sums are of log probabilities at 1."""
    length_penalty: float = 1.0
    """Power of a sequence's length that its sum of log probabilities is divided by; above 1 prefers long ones."""
    include_stop_str_in_output: bool = False
    """Keep the end-of-sequence token in `token_ids` of the server's responses."""

    def to_sampling_params(self) -> SamplingParams:
        """Return the parameters of the request for a beam's next token.

        Raises:
            InvalidRequestError: a parameter is out of range.
        """
        for name in ("beam_width", "max_tokens"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidRequestError(f"{name} must be at least 1, got {shorten(value)}.")
        return SamplingParams(
            logprobs=2 * self.beam_width,
            max_tokens=1,
            temperature=self.temperature,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


@dataclass
class BeamSearchSequence:
    """A beam: its tokens, those of the prompt included, and the log probabilities of the generated ones."""

    tokens: list[int]
    logprobs: SampleLogprobs
    """Log probabilities of all candidates, for each generated token."""
    lora_request: None = None
    cum_logprob: float = 0.0
    """Sum of the generated tokens' log probabilities."""
    text: str | None = None
    """Text of the tokens, special ones included; set when the search has ended."""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    multi_modal_data: Any = None
    mm_processor_kwargs: dict[str, Any] | None = None


@dataclass
class BeamSearchOutput:
    """The best sequences for one prompt, at most `beam_width`, best first."""

    sequences: list[BeamSearchSequence]


class BeamSearchInstance:
    """The search for one prompt: its beams, and the sequences that have ended.

    Args:
        prompt: `prompt_token_ids`, with `multi_modal_data` and more where the prompt has them.
        params: parameters of the search.
        eos_token_id: end-of-sequence token of the tokenizer.
    """

    def __init__(self, prompt: dict[str, Any], params: BeamSearchParams, eos_token_id: int | None) -> None:
        self.prompt = {name: value for name, value in prompt.items() if name != "prompt"}
        self.params = params
        self.eos_token_id = eos_token_id
        first = BeamSearchSequence(
            tokens=list(prompt["prompt_token_ids"]),
            logprobs=[],
            multi_modal_data=prompt.get("multi_modal_data"),
            mm_processor_kwargs=prompt.get("mm_processor_kwargs"),
        )
        self.beams = [first]
        self.completed: list[BeamSearchSequence] = []

    def prompts(self) -> list[dict[str, Any]]:
        """Return the prompts of the requests for the next token of each beam."""
        return [{**self.prompt, "prompt_token_ids": beam.tokens} for beam in self.beams]

    def advance(self, outputs: Sequence[RequestOutput]) -> None:
        """Replace the beams by the best of their continuations; `outputs` are those of the requests of `prompts`."""
        candidates = []
        for beam, output in zip(self.beams, outputs, strict=True):
            for token_id, candidate in self._continuations(beam, output.outputs[0].logprobs):
                if token_id == self.eos_token_id and not self.params.ignore_eos:
                    self.completed.append(candidate)
                else:
                    candidates.append(candidate)
        self.beams = self._best(candidates)

    @staticmethod
    def _continuations(
        beam: BeamSearchSequence, logprobs: SampleLogprobs | None
    ) -> list[tuple[int, BeamSearchSequence]]:
        """Return a beam followed by each candidate; none if the request was aborted."""
        if not logprobs:
            return []
        [candidates] = logprobs
        return [
            (
                token_id,
                BeamSearchSequence(
                    tokens=[*beam.tokens, token_id],
                    logprobs=[*beam.logprobs, candidates],
                    cum_logprob=beam.cum_logprob + logprob.logprob,
                    multi_modal_data=beam.multi_modal_data,
                    mm_processor_kwargs=beam.mm_processor_kwargs,
                ),
            )
            for token_id, logprob in candidates.items()
        ]

    def best(self) -> list[BeamSearchSequence]:
        """Return the best of the ended and the unfinished sequences, best first."""
        return self._best([*self.completed, *self.beams])

    def _best(self, sequences: list[BeamSearchSequence]) -> list[BeamSearchSequence]:
        def score(sequence: BeamSearchSequence) -> float:
            return get_beam_search_score(
                sequence.tokens, sequence.cum_logprob, self.eos_token_id, self.params.length_penalty
            )

        return sorted(sequences, key=score, reverse=True)[: self.params.beam_width]

    def request_output(self, request_id: str, prompt: str | None, tokenizer: PreTrainedTokenizerFast) -> RequestOutput:
        """Return the best sequences as the outputs of one request, as the server sends them."""
        token_ids = self.prompt["prompt_token_ids"]
        outputs = []
        for index, beam in enumerate(self.best()):
            generated = beam.tokens[len(token_ids) :]
            ended = bool(generated) and generated[-1] == self.eos_token_id and not self.params.ignore_eos
            without_eos = generated[:-1] if ended else generated
            kept = generated if self.params.include_stop_str_in_output else without_eos
            outputs.append(
                CompletionOutput(
                    index=index,
                    text=tokenizer.decode(without_eos),
                    token_ids=kept,
                    cumulative_logprob=beam.cum_logprob,
                    logprobs=beam.logprobs[: len(kept)],
                    finish_reason="stop" if ended else "length",
                    stop_reason=self.eos_token_id if ended else None,
                )
            )
        return RequestOutput(request_id, prompt, token_ids, None, outputs, finished=True)


def get_beam_search_score(
    tokens: Sequence[int], cumulative_logprob: float, eos_token_id: int | None, length_penalty: float = 1.0
) -> float:
    """Return the sum of log probabilities, divided by a power of the length without a final end-of-sequence token.

    vLLM: vllm/beam_search.py::get_beam_search_score.
    """
    length = len(tokens) - (tokens[-1] == eos_token_id)
    return cumulative_logprob / float(length**length_penalty)


class BeamSearchMethods:
    """Base class of `LLM` with its method for beam search. In vLLM it is `LLM`'s own."""

    model_config: ModelConfig
    processor: Processor
    get_tokenizer: Callable[[], PreTrainedTokenizerFast]
    generate: Callable[..., list[RequestOutput]]

    def beam_search(
        self,
        prompts: PromptType | Sequence[PromptType],
        params: BeamSearchParams,
        *,
        use_tqdm: bool | Callable[..., ProgressBar] = False,
        concurrency_limit: int | None = None,
        **unknown: Any,
    ) -> list[BeamSearchOutput]:
        """Search the best continuations of each prompt.

        Args:
            prompts: as for `generate`.
            params: parameters of the search.
            use_tqdm: show a bar of the steps, as for `generate`.
            concurrency_limit: maximum number of prompts at a time; None is all.
            **unknown: rejected by name.

        Returns:
            The best sequences of each prompt, in the order of the prompts.

        Raises:
            InvalidRequestError: as for `generate`; or prompt and `max_tokens` exceed the model's length.
        """
        reject_unknown_arguments(self.beam_search, unknown)
        tokenizer, sampling_params = self.get_tokenizer(), params.to_sampling_params()
        instances = []
        for item in make_batch(prompts, sampling_params, None):
            with labeled_errors(item.label):
                prompt = self._beam_prompt(item.prompt, params.max_tokens)
            instances.append(BeamSearchInstance(prompt, params, tokenizer.eos_token_id))
        if concurrency_limit is not None and concurrency_limit < 1:
            raise InvalidRequestError(f"`concurrency_limit` must be at least 1, or None; got {concurrency_limit!r}.")
        limit = concurrency_limit or max(len(instances), 1)
        bar = make_progress_bar(use_tqdm, params.max_tokens * -(-len(instances) // limit))
        try:
            for start in range(0, len(instances), limit):
                batch = instances[start : start + limit]
                for _ in range(params.max_tokens):
                    prompts_of_step = [prompt for instance in batch for prompt in instance.prompts()]
                    outputs = iter(self.generate(prompts_of_step, sampling_params, use_tqdm=False))
                    for instance in batch:
                        instance.advance([*islice(outputs, len(instance.beams))])
                    if bar is not None:
                        bar.update(1)
        finally:
            if bar is not None:
                bar.close()
        results = [BeamSearchOutput(instance.best()) for instance in instances]
        for result in results:
            for sequence in result.sequences:
                sequence.text = tokenizer.decode(sequence.tokens)
        return results

    def _beam_prompt(self, prompt: Any, max_tokens: int) -> dict[str, Any]:
        """Return a prompt with token ids and room for `max_tokens` more; the first step validates the rest."""
        preprocessor, limit = self.processor.input_preprocessor, self.model_config.max_model_len
        fields = prompt if isinstance(prompt, Mapping) else {"prompt": prompt}
        if not isinstance(fields.get("prompt_token_ids"), (list, tuple)):
            fields = {**fields, "prompt_token_ids": preprocessor.preprocess(prompt)["prompt_token_ids"]}
        num_prompt_tokens = len(fields["prompt_token_ids"])
        if num_prompt_tokens + max_tokens > limit:
            raise InvalidRequestError(
                f"This model's maximum context length is {limit} tokens. However, the prompt has {num_prompt_tokens} "
                f"tokens, and BeamSearchParams asks for max_tokens={max_tokens}. Shorten the prompt, or ask for fewer."
            )
        return dict(fields)
