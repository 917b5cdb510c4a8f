"""Min-p, row by row."""


class MinPLogitsProcessor:
    def apply(self, logits):
        for row in range(len(logits)):
            probs = logits[row].softmax(0)
            limit = self.min_p[row, 0] * probs.max()
            logits[row, probs < limit] = float("-inf")
        return logits
