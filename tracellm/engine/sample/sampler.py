"""The sampler: picks each request's next token from the logits.

In a request's life: the end of a step, `GPUModelRunner._sample` -> `Sampler.forward`. It works in float32 on all rows
at once, and greedy and random rows may be mixed. The order matters:

1. Compute log probabilities of the raw logits, if any row requests them.
2. Apply what can change the most likely token: allowed tokens, bad words, minimum tokens, logit bias, penalties.
3. Pick the most likely token of each greedy row.
4. Apply what cannot change it: temperature, min-p, top-k, top-p. Draw the token of each random row.
5. Gather the log probabilities of the sampled tokens and of the most likely ones.

vLLM: vllm/v1/sample/sampler.py::Sampler. Left out: draft tokens.
"""

import torch
from torch import Tensor, nn

from tracellm.engine.model_executor.ops import Ops, current_ops
from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sample.ops import (
    apply_all_penalties,
    apply_bad_words,
    argmax,
    compute_logprobs,
    gather_logprobs,
    random_sample,
)
from tracellm.engine.worker.model_runner_output import SamplerOutput

__all__ = ["Sampler"]


class Sampler(nn.Module):
    """Greedy or random sampling by `SamplingMetadata`; used by `GPUModelRunner`."""

    def __init__(self, generator: torch.Generator, logprobs_mode: str = "raw_logprobs", ops: Ops | None = None) -> None:
        """Make a sampler.

        Args:
            generator: shared by the rows without a seed.
            logprobs_mode: what is reported as log probability. `raw_logprobs` come from the model's logits,
                `processed_logprobs` from the logits that are drawn from; `raw_logits` and `processed_logits` are these
                logits themselves.
            ops: operations of this engine; by default `current_ops`.
        """
        super().__init__()
        self.generator = generator
        self.logprobs_mode = logprobs_mode
        self.ops = ops or current_ops()

    def forward(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> SamplerOutput:
        """Sample one token per row from logits [N, vocabulary] of any float dtype, which are not modified."""
        num_logprobs = sampling_metadata.max_num_logprobs
        raw = None if num_logprobs is None else self._reported_logprobs(logits, "raw")
        float_logits = logits.float()
        logits = self.apply_logits_processors(float_logits, sampling_metadata)
        sampled, processed = self.sample(logits, sampling_metadata)

        logprobs_tensors = None
        if num_logprobs is not None:
            reported = raw if raw is not None else self._reported_logprobs(processed, "processed")
            assert reported is not None
            logprobs_tensors = gather_logprobs(reported, num_logprobs, sampled)
        sampled = sampled[:, None]
        if logits is not float_logits:  # only then can every token of a row be masked
            sampled = sampled.masked_fill(logits.gather(1, sampled) == -torch.inf, -1)
        return SamplerOutput(sampled, logprobs_tensors)

    def apply_logits_processors(self, logits: Tensor, sampling_metadata: SamplingMetadata) -> Tensor:
        """Apply what can change the most likely token, to a copy; without anything to apply, return the logits."""
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
        """Apply presence, frequency and repetition penalties, in place."""
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
        """Sample token ids, int64 [N], from float32 logits [N, vocabulary]; also return the logits drawn from."""
        if sampling_metadata.temperature is None:
            return self.greedy_sample(logits), logits
        scaled = self.apply_temperature(logits, sampling_metadata.temperature)
        for processor in sampling_metadata.logitsprocs.argmax_invariant:
            scaled = processor.apply(scaled)
        masked = self.ops.apply_top_k_top_p(scaled, sampling_metadata.top_k, sampling_metadata.top_p)
        sampled = random_sample(masked.softmax(dim=-1), sampling_metadata.generators, self.generator)
        if not sampling_metadata.all_random:
            sampled = torch.where(sampling_metadata.temperature == 0, self.greedy_sample(logits), sampled)
        return sampled, masked

    def greedy_sample(self, logits: Tensor) -> Tensor:
        """Return the most likely token of each row, int64 [N]; among ties, the first."""
        return argmax(logits)

    def apply_temperature(self, logits: Tensor, temperature: Tensor) -> Tensor:
        """Return the logits divided by the temperature [N] of their row; greedy rows are unchanged."""
        return logits / torch.where(temperature == 0, 1.0, temperature)[:, None]

    def _reported_logprobs(self, logits: Tensor, stage: str) -> Tensor | None:
        """Return these logits as `logprobs_mode` reports them, float32; None if it reports the other stage's."""
        if not self.logprobs_mode.startswith(stage):
            return None
        return compute_logprobs(logits) if self.logprobs_mode.endswith("logprobs") else logits.float()
