"""Tests of invalid requests and settings: one clear message each, and an engine that still works."""

import threading

import pytest

from tests.engine.watch import is_idle
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(qwen2_checkpoint) -> LLM:
    """Shared LLM; refusals leave it unchanged."""
    return LLM(str(qwen2_checkpoint), dtype="float32", max_model_len=64)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "The decoder prompt cannot be empty"),
        ({"prompt_token_ids": []}, "The decoder prompt cannot be empty"),
        ("a" * 64, r"\(length 64\) plus the number of .* maximum model length of 64.*at most 63"),
        ({"prompt_token_ids": [1] * 1000}, r"\(length 1000\) is longer than the maximum model length of 64"),
        ({"prompt_token_ids": [1, 320]}, r"Token id 320 is out of vocabulary \(at position 1\).*0 to 319"),
        ({"prompt_token_ids": [-1]}, "Token id -1 .* out of vocabulary"),
        ({"prompt_token_ids": ["1"]}, "list of token ids, got str '1' at position 0"),
        ({"prompt_token_ids": [True]}, "got bool True"),
        ({"prompt_token_ids": "12"}, "must be a list of token ids, got str"),
        ({"prompt_token_ids": None}, "must be a list of token ids, got None"),
        ({"prompt": None}, "The prompt must be a string"),
        ({"prompt": 3}, '"prompt" must be a string, got int 3'),
        ({"promt": "Hello"}, "unknown key 'promt'. Did you mean `prompt`?"),
        (
            {"prompt": "a", "multi_modal_data": {"image": 1}},
            '"multi_modal_data", but the model .* takes text only',
        ),
        ({}, "The prompt must be a string"),
        (None, "got None"),
        (3, "got int 3"),
        (b"Hello", "got bytes b'Hello'. Decode bytes"),
        ([1, 2], r'got list \[1, 2\]. Write token ids as \{"prompt_token_ids"'),
        (7, r'got int 7. Write token ids as \{"prompt_token_ids"'),
        ("half \ud83d", "half a surrogate pair"),
    ],
)
def test_a_bad_prompt_is_named_and_leaves_nothing_behind(llm, prompt, message):
    """A bad prompt is named by its number, nothing of its batch runs, and the next call works."""
    with pytest.raises(InvalidRequestError, match=f"(?s)^prompts\\[1\\]: .*{message}"):
        llm.generate(["fine", prompt, "fine too"], GREEDY)
    assert is_idle(llm)
    assert len(llm.generate(["fine", "fine too"], GREEDY)) == 2
    assert is_idle(llm)


def test_all_prompts_are_validated_before_the_first_is_added(llm, monkeypatch):
    """All prompts are validated before the engine core gets the first."""
    added: list[object] = []
    monkeypatch.setattr(llm.llm_engine.engine_core, "add_request", added.append)
    with pytest.raises(InvalidRequestError, match=r"^prompts\[2\]: The decoder prompt cannot be empty"):
        llm.generate(["fine", "fine too", ""], GREEDY)
    assert added == []


@pytest.mark.parametrize("prompts", [None, 3, b"Hello", 1.5])
def test_what_is_no_prompt_at_all_is_refused(llm, prompts):
    """An input that is neither a prompt nor a list is refused with the accepted types."""
    with pytest.raises(InvalidRequestError, match="generate takes a prompt or a list of prompts"):
        llm.generate(prompts, GREEDY)


def test_a_single_prompt_needs_no_number(llm):
    """For a single prompt the message has no number."""
    with pytest.raises(InvalidRequestError, match=r"^The decoder prompt cannot be empty"):
        llm.generate("", GREEDY)


def test_a_stop_token_of_another_model_is_told(llm):
    """A stop token beyond the vocabulary gives a warning."""
    with pytest.warns(UserWarning, match=r"`stop_token_ids` \[9999\] can never be generated: .* 0 to 319"):
        llm.generate("a", SamplingParams(max_tokens=1, stop_token_ids=[5, 9999], min_tokens=1))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([GREEDY], "2 prompts and 1 sampling parameters"),
        ([GREEDY, {"temperature": 0}], r"prompts\[1\]: Sampling parameters must be a SamplingParams, got dict"),
        ({"temperature": 0}, "must be a SamplingParams, got dict"),
        ("x", "must be a SamplingParams, got str"),
        (
            SamplingParams(logit_bias={5: 1, 320: 1}),
            r"token_id\(s\) \[320\] in logit_bias contain .*hold the model's ids, 0 to 319",
        ),
        (SamplingParams(allowed_token_ids=[5, 400]), r"`allowed_token_ids` must hold ids .*the tokenizer's.*\[400\]"),
        (
            SamplingParams(allowed_token_ids=[]),
            "allowed_token_ids is not None and empty! .*must name at least one token",
        ),
        (
            SamplingParams(logprobs=21),
            "logprobs of 21, which is greater than max allowed: 20. .*`logprobs` must be at most 20, the LLM's",
        ),
        (
            SamplingParams(prompt_logprobs=-1),
            r"`prompt_logprobs` must be at most 20.*got -1 \(the whole vocabulary, 320\)",
        ),
        (SamplingParams(truncate_prompt_tokens=65), "`truncate_prompt_tokens` must be at most 64, .*got 65"),
        (
            SamplingParams(structured_outputs=StructuredOutputsParams(choice=[])),
            "`choice` must hold at least one string",
        ),
        (SamplingParams(structured_outputs=StructuredOutputsParams(grammar=" ")), "`grammar` must not be blank"),
    ],
)
def test_bad_sampling_parameters_are_refused(llm, params, message):
    """Sampling parameters of a wrong number, a wrong type, or unsuitable for this model are refused."""
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate(["a", "b"], params)
    assert is_idle(llm)


def test_allowed_tokens_that_only_the_tokenizer_knows_are_refused(qwen2_checkpoint):
    """Allowed tokens beyond the model's vocabulary are refused, even if the tokenizer has them."""
    llm = LLM(str(qwen2_checkpoint), tokenizer="tiny")
    with pytest.raises(InvalidRequestError, match=r"`allowed_token_ids` must hold ids from 0 to 319.*\[400\]"):
        llm.generate({"prompt_token_ids": [1]}, SamplingParams(allowed_token_ids=[5, 400]))
    assert is_idle(llm)


def test_the_bound_on_logprobs_is_the_llms(qwen2_checkpoint):
    """`max_logprobs` raises the limit, and -1 raises it to the vocabulary."""
    for limit, refused, accepted in ((5, 6, 5), (-1, 321, -1), (1000, 321, 320)):
        llm = LLM(str(qwen2_checkpoint), max_logprobs=limit)
        with pytest.raises(InvalidRequestError, match=f"`logprobs` must be at most {min(limit % 1001, 320)}"):
            llm.generate("a", SamplingParams(logprobs=refused))
        assert llm.generate("a", SamplingParams(logprobs=accepted, max_tokens=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"priority": 3}, "`priority` must be a list of whole numbers, one for each prompt, got 3"),
        ({"priority": [1, "2"]}, "`priority` must be a list of whole numbers"),
        ({"priority": [1]}, "2 prompts and 1 priorities"),
        ({"sampling_parms": GREEDY}, "^generate has no argument `sampling_parms`. Did you mean `sampling_params`?"),
        (
            {"max_tokens": 3},
            "^generate has no argument `max_tokens`. It takes: prompts, sampling_params, use_tqdm, prio",
        ),
        (
            {"lora_request": "x"},
            "^generate: tracellm does not have `lora_request`, which vLLM has: leave it out. Got 'x'",
        ),
    ],
)
def test_bad_arguments_of_generate(llm, arguments, message):
    """Wrong, missing and unknown arguments are reported in one message, and nothing runs."""
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate(["a", "b"], GREEDY, **arguments)
    assert is_idle(llm)
    assert len(llm.generate(["a", "b"], GREEDY, priority=[1, 2], lora_request=None)) == 2


def test_a_misspelt_prompt_argument(llm):
    """A misspelled prompt argument is answered with the intended name."""
    with pytest.raises(InvalidRequestError, match=r"generate has no argument `prompt`\. Did you mean `prompts`"):
        llm.generate(prompt="a")
    with pytest.raises(InvalidRequestError, match="generate takes a prompt or a list of prompts"):
        llm.generate(sampling_params=GREEDY)
    with pytest.raises(InvalidRequestError, match=r"chat has no argument `template`\. Did you mean `chat_template`"):
        llm.chat([{"role": "user", "content": "a"}], template="x")


@pytest.mark.parametrize("ask", ["generate", "chat"])
def test_a_text_that_is_far_too_long_is_not_tokenized(llm, monkeypatch, ask):
    """A text of five million characters is refused by its length, without tokenizing it."""
    text = "All work and no play makes Jack a dull boy. " * (5_000_000 // 44)
    tokenized = []
    encode = type(llm.get_tokenizer()).encode

    def watch(self, text, *args, **kwargs):
        tokenized.append(len(text))
        return encode(self, text, *args, **kwargs)

    monkeypatch.setattr(type(llm.get_tokenizer()), "encode", watch)
    prompt = {"generate": text, "chat": [{"role": "user", "content": text}]}[ask]
    with pytest.raises(
        InvalidRequestError, match=r"length is 64 tokens. .* at least \d+ input tokens.* \d{7} characters.*Shorten"
    ):
        getattr(llm, ask)(prompt, GREEDY)
    assert not tokenized
    params = SamplingParams(max_tokens=1, truncate_prompt_tokens=3)
    assert len(llm.generate(text[:10_000], params)[0].prompt_token_ids) == 3


def test_a_request_that_the_kv_cache_can_never_hold_is_refused(qwen2_checkpoint):
    """A request too large for the KV cache is refused with its name, and shorter ones still run."""
    llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=3)
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\]: .*can never run.*KV cache blocks"):
        llm.generate(["fine", {"prompt_token_ids": [1] * 100}], GREEDY)
    assert is_idle(llm)
    assert len(llm.generate("fine", GREEDY)) == 1


def test_a_failing_step_leaves_the_engine_usable(llm, monkeypatch):
    """After a failed step its requests are dropped, and its blocks are not in the prefix cache."""
    prompt = {"prompt_token_ids": [7] * 40}
    expected = llm.generate(prompt, GREEDY)[0].outputs[0].token_ids
    llm.llm_engine.reset_prefix_cache()
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner

    def fail(*args, **kwargs):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_model_forward", fail)
        with pytest.raises(EngineError, match=r"There is no memory for a step of [0-9]+ tokens"):
            llm.generate([prompt, prompt], GREEDY)
    assert is_idle(llm)
    assert [output.outputs[0].token_ids for output in llm.generate([prompt, "x", prompt], GREEDY)][::2] == [
        expected
    ] * 2


def test_two_calls_at_once_are_refused(llm):
    """A second call while the first runs is refused, the first is not affected, and later calls work."""
    refusals = []

    class Bar:
        def update(self, n: int) -> None:
            with pytest.raises(EngineError, match="generating already"):
                llm.generate("b", GREEDY)
            thread = threading.Thread(target=self.generate)
            thread.start()
            thread.join()

        def generate(self) -> None:
            try:
                llm.generate("b", GREEDY)
            except EngineError as error:
                refusals.append(error)

        def close(self) -> None:
            pass

    expected = llm.generate("a", GREEDY)[0].outputs[0].token_ids
    outputs = llm.generate("a", GREEDY, use_tqdm=lambda **kwargs: Bar())
    assert len(refusals) == GREEDY.max_tokens
    assert [output.outputs[0].token_ids for output in outputs] == [expected]
    assert is_idle(llm)
    assert len(llm.generate("b", GREEDY)) == 1


def test_a_bar_that_is_none(llm):
    """An invalid progress bar is refused before anything runs."""
    with pytest.raises(InvalidRequestError, match=r"`use_tqdm` must be True, False or a function.*'yes'"):
        llm.generate("a", GREEDY, use_tqdm="yes")
    assert is_idle(llm)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("half \ud83d", {}, "The prompt is not valid text: half a surrogate pair"),
        ("x", {"chat_template": "{{ 1 / 0 }}"}, "rejects this conversation: division by zero"),
        ("x", {"chat_template": 3}, "`chat_template` must be a Jinja template as a string, got 3"),
        ("x", {"chat_template_kwargs": 3}, "`chat_template_kwargs` must be a dict"),
        ("x", {"chat_template_kwargs": {1: "a"}}, r"`chat_template_kwargs` must be a dict .*got \{1: 'a'\}"),
        ("x", {"chat_template_kwargs": {"conversation": []}}, "rejects this conversation"),
        (None, {}, r"messages\[0\] needs a `content`"),
        ("x", {"chat_template_content_format": "xml"}, "`chat_template_content_format` must be one of auto, string"),
    ],
)
def test_a_bad_chat_is_refused(llm, content, arguments, message):
    """A chat with a bad message, template or variable is refused, and nothing is left behind."""
    with pytest.raises(InvalidRequestError, match=f"^(The chat template )?{message}"):
        llm.chat([{"role": "user", "content": content}], GREEDY, **arguments)
    assert is_idle(llm)


def test_of_several_conversations_the_bad_one_is_named(llm):
    """The message numbers the conversation, then its message."""
    good, bad = {"role": "user", "content": "x"}, {"role": "user", "content": None}
    with pytest.raises(InvalidRequestError, match=r"^conversations\[1\]: messages\[1\] needs a `content`"):
        llm.chat([[good], [good, bad]], GREEDY)
