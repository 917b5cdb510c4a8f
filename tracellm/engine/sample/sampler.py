"""Picks each request's next token from the logits.

In a request's life: the end of a step, `GPUModelRunner._sample` -> `Sampler.forward`. Everything is done in float32
and for all rows at once; rows that are greedy and rows that are random may be mixed. The order matters:

1. Log probabilities of the raw logits, if a row asks for any.
2. What can change the likeliest token: allowed tokens, bad words, minimum tokens, logit bias, penalties.
3. Greedy rows are done: they take the likeliest token.
4. What cannot change it: temperature, min-p, top-k, top-p. Random rows draw from what is left.
5. The log probabilities of the sampled tokens and the likeliest ones are picked out.

vLLM: vllm/v1/sample/sampler.py::Sampler. Left out: draft tokens.
"""

import torch
from torch import Tensor, nn

from tracellm.engine.model_executor.ops import Ops, current_ops
from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sample.ops.bad_words import apply_bad_words
from tracellm.engine.sample.ops.logprobs import compute_logprobs, gather_logprobs
from tracellm.engine.sample.ops.order import argmax
from tracellm.engine.sample.ops.penalties import apply_all_penalties
from tracellm.engine.sample.ops.topk_topp_sampler import random_sample
from tracellm.engine.worker.model_runner_output import SamplerOutput

__all__ = ["Sampler"]


class Sampler(nn.Module):
    """Greedy or random sampling, row by row as `SamplingMetadata` asks."""

    def __init__(self, generator: torch.Generator, logprobs_mode: str = "raw_logprobs", ops: Ops | None = None) -> None:
        """`generator` is what the rows without a seed of their own share; `ops` are by default the `current_ops`.

        `logprobs_mode` says what is reported as log probability: `raw_logprobs` of the model's logits, or
        `processed_logprobs` of what is drawn from; or, by name, these logits themselves: `raw_logits`,
        `processed_logits`.
        """
        super().__init__()
        self.generator = generator
        self.logprobs_mode = logprobs_mode
        self.ops = ops or current_ops()

    def forward(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> SamplerOutput:
        """Logits [N, vocabulary] of any float dtype, left unchanged, to one token for each row."""
        num_logprobs = sampling_metadata.max_num_logprobs
        raw = None if num_logprobs is None else self._reported(logits, "raw")
        given = logits.float()
        logits = self.apply_logits_processors(given, sampling_metadata)
        sampled, processed = self.sample(logits, sampling_metadata)

        logprobs_tensors = None
        if num_logprobs is not None:
            reported = raw if raw is not None else self._reported(processed, "processed")
            assert reported is not None
            logprobs_tensors = gather_logprobs(reported, num_logprobs, sampled)
        sampled = sampled[:, None]
        if logits is not given:  # only then can a row have no token left
            sampled = sampled.masked_fill(logits.gather(1, sampled) == -torch.inf, -1)
        return SamplerOutput(sampled, logprobs_tensors)

    def apply_logits_processors(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> Tensor:
        """Everything that can change which token is the likeliest, on a copy of the logits; or they themselves."""
        mask, bad_words = sampling_metadata.allowed_token_ids_mask, sampling_metadata.bad_words_token_ids
        processors = sampling_metadata.logitsprocs.non_argmax_invariant
        if mask is None and not bad_words and not processors and sampling_metadata.no_penalties:
            return logits
        logits = logits.clone()
        if mask is not None:
            logits.masked_fill_(mask, -torch.inf)
        if bad_words:
            apply_bad_words(logits, bad_words, sampling_metadata.output_token_ids)
        for processor in processors:
            logits = processor.apply(logits)
        return self.apply_penalties(logits, sampling_metadata)

    def apply_penalties(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> Tensor:
        """Presence, frequency and repetition penalties, in place."""
        m = sampling_metadata
        if m.prompt_token_ids is None:
            return logits
        assert m.presence_penalties is not None
        assert m.frequency_penalties is not None
        assert m.repetition_penalties is not None
        return apply_all_penalties(
            logits,
            m.prompt_token_ids,
            m.presence_penalties,
            m.frequency_penalties,
            m.repetition_penalties,
            m.output_token_ids,
        )

    def sample(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> tuple[Tensor, Tensor]:
        """float32 logits [N, vocabulary] to token ids int64 [N], and the logits that these were drawn from."""
        if sampling_metadata.temperature is None:
            return self.greedy_sample(logits), logits
        scaled = self.apply_temperature(logits, sampling_metadata.temperature)
        for processor in sampling_metadata.logitsprocs.argmax_invariant:
            scaled = processor.apply(scaled)
        kept = self.ops.apply_top_k_top_p(scaled, sampling_metadata.top_k, sampling_metadata.top_p)
        sampled = random_sample(kept.softmax(dim=-1), sampling_metadata.generators, self.generator)
        if not sampling_metadata.all_random:
            sampled = torch.where(sampling_metadata.temperature == 0, self.greedy_sample(logits), sampled)
        return sampled, kept

    def greedy_sample(self, logits: Tensor) -> Tensor:
        """The likeliest token of each row, int64 [N]; of several that are equal, the first."""
        return argmax(logits)

    def apply_temperature(self, logits: Tensor, temperature: Tensor) -> Tensor:
        """Logits divided by the temperature [N] of their row, as new ones; greedy rows stay as they are."""
        return logits / torch.where(temperature == 0, 1.0, temperature)[:, None]

    def trial_run(self, logits: Tensor) -> None:
        """Sample from the logits [N, vocabulary] as all rows may ask at once, to see how much memory that takes.

        The tokens are dropped, and no request's random numbers are used up. vLLM: GPUModelRunner._dummy_sampler_run.
        """
        sampler = Sampler(torch.Generator(logits.device), self.logprobs_mode, self.ops)
        sampler(logits, SamplingMetadata.for_trial_run(logits.shape[0], logits.shape[1], logits.device))

    def _reported(self, logits: Tensor, stage: str) -> Tensor | None:
        """These logits as they are to be reported, float32; None if those of the other stage are."""
        if not self.logprobs_mode.startswith(stage):
            return None
        return compute_logprobs(logits) if self.logprobs_mode.endswith("logprobs") else logits.float()
