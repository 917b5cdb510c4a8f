"""The sampler: greedy rows are replaced after the draw."""


class Sampler:
    def sample(self, logits, sampling_metadata):
        m = sampling_metadata
        greedy = self.greedy_sample(logits)
        if m.all_greedy:
            return greedy, logits
        changed = self.apply_temperature(logits, m.temperature)
        for processor in m.logitsprocs.argmax_invariant:
            changed = processor.apply(changed)
        changed = self.ops.apply_top_k_top_p(changed, m.top_k, m.top_p)
        tokens = random_sample(torch.softmax(changed, dim=1), m.generators, self.generator)
        for row in range(len(tokens)):
            if m.temperature[row] == 0:
                tokens[row] = greedy[row]
        return tokens, changed

    def apply_temperature(self, logits, temperature):
        result = logits.clone()
        for row, value in enumerate(temperature.tolist()):
            if value > 0:
                result[row] = result[row] / value
        return result
