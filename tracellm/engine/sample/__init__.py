"""Sampling: from logits to tokens, under the constraints and preferences of each request's `SamplingParams`.

Read `sampler.py` first: it has the order of the operations. `metadata.py` holds its input, the sampling parameters of
the batch row by row. `ops.py` has the operations, `logits_processor.py` those that keep state between steps.
"""
