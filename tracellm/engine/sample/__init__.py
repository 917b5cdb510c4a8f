"""From logits to tokens: greedy, or at random; what a request allows, prefers and forbids; how likely its tokens were.

Read `sampler.py` first, which says in which order it is done. `metadata.py` is what it is told of the requests, `ops/`
are the operations, `logits_processor/` those that keep a state between steps.
"""
