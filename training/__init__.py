"""Everything that makes the embedded model `tiny`: corpus generator, tokenizer, training and evaluation."""
