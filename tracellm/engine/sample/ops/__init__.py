"""What the sampler does to the logits, each as a function of tensors: penalties, bad words, top-k and top-p, ranks."""
