"""The sampler: random rows are worked on alone."""


class Sampler:
    def sample(self, logits, sampling_metadata):
        picked = self.greedy_sample(logits)
        if sampling_metadata.temperature is None:
            return picked, logits
        changed = _filtered(self, logits, sampling_metadata)
        is_random = sampling_metadata.temperature > 0
        drawn = random_sample(changed.softmax(-1), sampling_metadata.generators, self.generator)
        picked[is_random] = drawn[is_random]
        return picked, changed

    def apply_temperature(self, logits, temperature):
        temperature = temperature.clone()
        temperature[temperature == 0] = 1
        return logits / temperature.unsqueeze(1)


def _filtered(sampler, logits, metadata):
    logits = sampler.apply_temperature(logits, metadata.temperature)
    for processor in metadata.logitsprocs.argmax_invariant:
        logits = processor.apply(logits)
    return sampler.ops.apply_top_k_top_p(logits, metadata.top_k, metadata.top_p)
