"""Attributes of a request's life: what was asked for, and what came of it."""

from tracellm.trace.names.attribute import Group
from tracellm.trace.names.spans import REQUEST_SPAN

_define = Group("A request", on=(REQUEST_SPAN,))
REQUEST_ID = _define(
    "tracellm.request.id",
    "str",
    "the engine's name of the request",
    on=(REQUEST_SPAN, "LLMEngine._add_request", "AsyncLLM._add_request", "OutputProcessor.add_request"),
)
REQUEST_PROMPT = _define("tracellm.request.prompt", "str", "the prompt's text", private=True)
REQUEST_OUTPUT = _define("tracellm.request.output", "str", "the generated text", private=True)
REQUEST_PROMPT_TOKENS = _define(
    "tracellm.request.prompt_token_ids", "int[]", "the prompt's token ids (the first 512)", private=True
)
REQUEST_PARENT = _define("tracellm.request.parent", "str", "with n > 1: the request that this is one output of")
REQUEST_INDEX = _define("tracellm.request.index", "int", "with n > 1: which of its outputs, from 0")
REQUEST_PRIORITY = _define("tracellm.request.priority", "int", "under the priority policy: lower goes first")
REQUEST_PARAMS = _define(
    "tracellm.request.params", "str[]", "the sampling parameters that differ from their defaults, each as `name=value`"
)
REQUEST_TEXT_PARAMS = _define(
    "tracellm.request.text_params",
    "str[]",
    "those of them whose values are texts, as `name=value`: stop, bad_words, structured_outputs",
    private=True,
)
REQUEST_STEPS = _define("tracellm.request.steps", "int", "in how many engine steps the request took part")
GEN_AI_OPERATION = _define("gen_ai.operation.name", "str", "text_completion or chat")
GEN_AI_MODEL = _define("gen_ai.request.model", "str", "the model that was asked for")
GEN_AI_RESPONSE_ID = _define("gen_ai.response.id", "str", "the request's id again, under the standard's name")
GEN_AI_MAX_TOKENS = _define("gen_ai.request.max_tokens", "int", "the most tokens to generate")
GEN_AI_TEMPERATURE = _define("gen_ai.request.temperature", "float", "0 is greedy")
GEN_AI_TOP_P = _define("gen_ai.request.top_p", "float", "nucleus sampling: the probability mass kept")
GEN_AI_TOP_K = _define("gen_ai.request.top_k", "int", "how many candidates are kept; 0 keeps all")
GEN_AI_CHOICES = _define("gen_ai.request.choice.count", "int", "n: how many outputs were asked for, when not one")
GEN_AI_SEED = _define("gen_ai.request.seed", "int", "the request's own random seed")
GEN_AI_STOP = _define("gen_ai.request.stop_sequences", "str[]", "texts that end the generation", private=True)
GEN_AI_INPUT_TOKENS = _define("gen_ai.usage.input_tokens", "int", "tokens in the prompt")
GEN_AI_OUTPUT_TOKENS = _define("gen_ai.usage.output_tokens", "int", "tokens generated")
GEN_AI_FIRST_CHUNK = _define(
    "gen_ai.response.time_to_first_chunk",
    "float",
    "seconds from the submission until the first token reached the process that had submitted it; absent where "
    "steps were not recorded",
)
GEN_AI_FINISH_REASONS = _define(
    "gen_ai.response.finish_reasons", "str[]", "why the generation ended: stop, length, abort"
)
