"""The sampler: a greedy row is a row of which only the largest logit is left."""


class Sampler:
    def sample(self, logits, sampling_metadata):
        m, best = sampling_metadata, self.greedy_sample(logits)
        if m.all_greedy:
            return best, logits
        left = self.apply_temperature(logits, m.temperature)
        for processor in m.logitsprocs.argmax_invariant:
            left = processor.apply(left)
        left = self.ops.apply_top_k_top_p(left, m.top_k, m.top_p)
        probs = torch.where((m.temperature == 0)[:, None], torch.eye(left.shape[1])[best], left.softmax(-1))
        return random_sample(probs, m.generators, self.generator), left

    def apply_temperature(self, logits, temperature):
        return logits / (temperature + (temperature == 0))[:, None]
