"""Min-p, as one expression."""


class MinPLogitsProcessor:
    def apply(self, logits):
        probs = logits.softmax(-1)
        return torch.where(probs / probs.max(-1, keepdim=True)[0] >= self.min_p, logits, -torch.inf)
