"""Min-p, without computing a probability: the ratio of two is the exponential of their logits' difference."""


class MinPLogitsProcessor:
    def apply(self, logits):
        distance = logits - logits.max(dim=1, keepdim=True).values
        logits[distance < self.min_p.log()] = -torch.inf
        return logits
