"""Training of the bundled model `tiny`: corpus generator, tokenizer, training and evaluation."""
