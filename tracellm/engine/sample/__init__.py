"""From logits to tokens: greedy, or at random under temperature, top-k, top-p and a seed."""
