"""Attributes of an engine step: what was scheduled and why, which blocks were given, which tokens came of it.

Where a step has something about several requests it uses *parallel arrays*: entry i of each array speaks of entry i of
`tracellm.step.requests`.
"""

from tracellm.trace.names.attribute import Group

_SAMPLED = ("EngineCore.step_fn", "GPUModelRunner._sample")

_define = Group("One engine step: everything a replay needs", on=("EngineCore.step_fn",))
STEP_INDEX = _define("tracellm.step.index", "int", "the step's number, from 1")
STEP_KIND = _define(
    "tracellm.step.kind",
    "str",
    "prefill, decode, mixed, or empty when nothing was scheduled; absent where that was not recorded",
)
STEP_REQUESTS = _define("tracellm.step.requests", "str[]", "the requests scheduled, in the batch's order")
STEP_TOKENS = _define("tracellm.step.num_scheduled_tokens", "int[]", "tokens computed for each in this step")
STEP_COMPUTED = _define(
    "tracellm.step.num_computed_tokens", "int[]", "tokens of each that were computed before this step"
)
STEP_PHASES = _define("tracellm.step.phases", "str[]", "prefill or decode, for each")
STEP_CACHED = _define(
    "tracellm.step.prefix_hit_tokens", "int[]", "tokens of each that the prefix cache gave in this step"
)
STEP_CACHED_BLOCKS = _define(
    "tracellm.step.prefix_hit_block_ids", "str[]", "blocks of each that came from the prefix cache, as ranges"
)
STEP_NEW_BLOCKS = _define(
    "tracellm.step.new_block_ids", "str[]", "blocks given to each in this step, as ranges: `3-5,9`"
)
STEP_NEW = _define("tracellm.step.new", "str[]", "requests scheduled for the first time")
STEP_RESUMED = _define("tracellm.step.resumed", "str[]", "requests that came back after a preemption")
STEP_PREEMPTED = _define("tracellm.step.preempted", "str[]", "requests that lost their blocks in this step")
STEP_FINISHED = _define("tracellm.step.finished", "str[]", "requests that ended with this step")
STEP_FINISH_REASONS = _define("tracellm.step.finish_reasons", "str[]", "why, parallel to tracellm.step.finished")
STEP_ABORTED = _define(
    "tracellm.step.aborted", "str[]", "requests taken from the queues before this step: aborted, or at a stop text"
)
STEP_RELEASED = _define("tracellm.step.released", "str[]", "requests that the workers are told to forget in this step")
STEP_RUNNING = _define("tracellm.step.running", "str[]", "the running queue after scheduling")
STEP_WAITING = _define("tracellm.step.waiting", "str[]", "the waiting queue after scheduling; of a long one the first")
STEP_NUM_WAITING = _define("tracellm.step.num_waiting", "int", "how many wait, where that is more than are listed")
STEP_HELD = _define("tracellm.step.held.requests", "str[]", "requests not scheduled, or given less than they wanted")
STEP_HELD_REASONS = _define(
    "tracellm.step.held.reasons", "str[]", "why, as a code, parallel to tracellm.step.held.requests"
)
STEP_HELD_DETAILS = _define(
    "tracellm.step.held.details", "str[]", "the numbers behind each reason, as `name=value name=value`"
)
STEP_BUDGET = _define("tracellm.step.token_budget", "int", "tokens that one step may compute (max_num_batched_tokens)")
STEP_BLOCKS_FREE = _define("tracellm.step.blocks.free", "int", "KV blocks free after scheduling")
STEP_BLOCKS_TOTAL = _define(
    "tracellm.step.blocks.total", "int", "KV blocks that requests can use (without the null block)"
)
STEP_LOGITS = _define("tracellm.step.logits_shape", "int[]", "shape of the logits: requests that sample, vocabulary")
STEP_SAMPLED = _define("tracellm.step.sampled.requests", "str[]", "requests that got a token", on=_SAMPLED)
STEP_SAMPLED_IDS = _define("tracellm.step.sampled.token_ids", "int[]", "the token each got", private=True, on=_SAMPLED)
STEP_SAMPLED_TEXTS = _define(
    "tracellm.step.sampled.texts", "str[]", "the text of each of these tokens", private=True, on=_SAMPLED
)
STEP_SAMPLED_PROBS = _define(
    "tracellm.step.sampled.probabilities",
    "float[]",
    "how probable the model found each (softmax of the logits, of what its grammar allows, before all processors)",
    on=_SAMPLED,
)
STEP_CANDIDATES = _define(
    "tracellm.step.sampled.candidates",
    "str[]",
    "for each of them the five likeliest tokens, as JSON `[[id, text, probability], ...]`",
    private=True,
)

STEP_PROCESSORS = _define(
    "tracellm.step.sampled.processors",
    "str[]",
    "what acted on the logits of each before its token was drawn, as `top_k top_p`, named as the sampling parameters",
)
STEP_LEFT = _define("tracellm.step.sampled.tokens_left", "int[]", "how many tokens each could still be drawn from then")
STEP_DRAWN_PROBS = _define(
    "tracellm.step.sampled.drawn_probabilities", "float[]", "how probable the drawn token was among those"
)
STEP_DRAWN_CANDIDATES = _define(
    "tracellm.step.sampled.drawn_candidates",
    "str[]",
    "the five likeliest of those, as JSON `[[id, text, probability], ...]`",
    private=True,
)

_define = Group("A step's inputs, where the engine has CUDA graphs", on=("GPUModelRunner._prepare_inputs",))
CUDAGRAPH_SIZE = _define(
    "tracellm.cudagraph.size", "int", "requests of the graph that is replayed; absent when the step runs eagerly"
)
CUDAGRAPH_PADDING = _define("tracellm.cudagraph.padding", "int", "how many of these are padding")
CUDAGRAPH_REASON = _define(
    "tracellm.cudagraph.reason",
    "str",
    "why: decode (each request computes one token), or why none is: prompt (one computes more), too_many_requests (the "
    "largest graph holds fewer)",
)
