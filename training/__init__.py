"""Everything that makes the embedded model `tiny`: the corpus generator, the tokenizer, the training and the evaluation."""
