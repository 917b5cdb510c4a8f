"""Tests of `LLM`: forms of prompts, order and ids of outputs, ends of generations, settings."""

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.checkpoints import change_config
from tests.engine.watch import token_ids
from tracellm import LLM, RequestOutput, SamplingParams
from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.entrypoints import progress_bar

GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(qwen2_checkpoint) -> LLM:
    """Shared LLM; each test leaves it unchanged."""
    return LLM(str(qwen2_checkpoint), dtype="float32")


def test_without_a_model_it_is_the_bundled_one():
    """`LLM()` is `LLM("tiny")`, and completes the capital of France."""
    llm = LLM()
    assert llm.model_config.served_model_name == "tiny"
    assert "Paris" in llm.generate("The capital of France is", SamplingParams(temperature=0))[0].outputs[0].text


def test_all_forms_of_a_prompt_are_one_prompt(llm):
    """A string, a dict with text and a dict with token ids give the same tokens, alone or in a list."""
    ids = llm.get_tokenizer().encode("Hello")
    forms = ["Hello", {"prompt": "Hello"}, {"prompt_token_ids": ids}, {"prompt_token_ids": ids, "prompt": "Hello"}]
    expected = token_ids(llm.generate("Hello", GREEDY))[0]
    assert len(expected) == 5
    assert token_ids(llm.generate(forms, GREEDY)) == [expected] * 4
    assert [token_ids(llm.generate(form, GREEDY))[0] for form in forms] == [expected] * 4
    assert token_ids(llm.generate({"prompt": "Hello", "multi_modal_data": None}, GREEDY)) == [expected]


def test_outputs_come_in_the_order_of_the_prompts(llm):
    """Outputs come in the order of their prompts, each with prompt, ids, text and finish reason."""
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (9, 1, 4)]
    outputs = llm.generate(["one", "two", {"prompt_token_ids": [5, 6]}], params)
    assert [output.prompt for output in outputs] == ["one", "two", None]
    assert [len(output.outputs[0].token_ids) for output in outputs] == [9, 1, 4]
    assert [output.outputs[0].finish_reason for output in outputs] == ["length"] * 3
    assert all(output.finished and output.outputs[0].finished() for output in outputs)
    tokenizer = llm.get_tokenizer()
    for output in outputs:
        text = tokenizer.decode(output.outputs[0].token_ids, skip_special_tokens=True)
        assert output.outputs[0].text == text
    assert outputs[2].prompt_token_ids == [5, 6]


def test_request_ids_count_up(qwen2_checkpoint):
    """The requests of an LLM are "0", "1", ... over all its calls."""
    llm = LLM(str(qwen2_checkpoint))
    ids = [output.request_id for _ in range(2) for output in llm.generate(["a", "b"], GREEDY)]
    assert ids == ["0", "1", "2", "3"]


def test_no_prompts_no_outputs(llm):
    """An empty list of prompts gives an empty list."""
    assert llm.generate([], GREEDY) == []


def test_the_users_parameters_stay_as_they_are(llm):
    """`generate` does not change the user's sampling parameters."""
    params = SamplingParams(temperature=0, max_tokens=None, stop_token_ids=[7])
    before = repr(params)
    llm.generate({"prompt_token_ids": [1] * 250}, params)
    assert repr(params) == before


def test_without_max_tokens_it_goes_on_to_the_models_length(llm):
    """`max_tokens=None` ends when prompt and output together have `max_model_len` tokens."""
    output = llm.generate({"prompt_token_ids": [1] * 250}, SamplingParams(max_tokens=None, ignore_eos=True))[0]
    assert len(output.outputs[0].token_ids) == 256 - 250
    assert output.outputs[0].finish_reason == "length"


def test_a_stop_token_ends_the_generation(llm):
    """A stop token is the last of the tokens and the stop reason, and is not part of the text."""
    free = token_ids(llm.generate("Hello", SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)))[0]
    stop = free[3]
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, stop_token_ids=[stop])
    completion = llm.generate("Hello", params)[0].outputs[0]
    expected = free[: free.index(stop) + 1]
    assert list(completion.token_ids) == expected
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop)
    assert completion.text == llm.get_tokenizer().decode(expected[:-1])


def test_a_stop_string_ends_the_generation_in_both_halves(llm):
    """The text ends before a stop string, and the engine core drops the request."""
    free = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=30, ignore_eos=True))[0].outputs[0]
    stop = free.text[5:8]
    completion = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, stop=stop))[
        0
    ].outputs[0]
    assert completion.text == free.text[: free.text.index(stop)]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", stop)
    assert len(completion.token_ids) < len(free.token_ids)
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    assert not scheduler.running
    assert not scheduler.waiting
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1


def test_the_end_of_sequence_token_ends_the_generation(qwen2_checkpoint, tmp_path):
    """The tokenizer's EOS token gives no stop reason, and one of generation_config.json gives one."""
    llm = LLM(str(qwen2_checkpoint), dtype="float32")
    free = token_ids(llm.generate("Hello", SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)))[0]
    end = free[2]
    folder = shutil.copytree(qwen2_checkpoint, tmp_path / "model")
    generation_config = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(generation_config | {"eos_token_id": [256, end]}))
    other = LLM(str(folder), dtype="float32")
    completion = other.generate("Hello", SamplingParams(temperature=0, max_tokens=8))[0].outputs[0]
    assert list(completion.token_ids) == free[: free.index(end) + 1]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", end)
    ignored = other.generate("Hello", SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
    assert token_ids(ignored) == [free]


def test_seeds_make_sampling_repeatable(llm):
    """A request with a seed gets the same tokens each time and in any batch, and others change."""
    seeded = SamplingParams(temperature=1.5, seed=7, max_tokens=12, ignore_eos=True)
    free = SamplingParams(temperature=1.5, max_tokens=12, ignore_eos=True)
    alone = token_ids(llm.generate("Hello", seeded))[0]
    assert token_ids(llm.generate(["x", "Hello", "y"], [free, seeded, free]))[1] == alone
    assert len({tuple(token_ids(llm.generate("Hello", free))[0]) for _ in range(4)}) > 1


def test_the_engines_seed_makes_a_run_repeatable(qwen2_checkpoint):
    """Two LLMs with the same seed draw the same tokens, and another seed draws others."""
    params = SamplingParams(temperature=1.5, max_tokens=12, ignore_eos=True)
    drawn = [token_ids(LLM(str(qwen2_checkpoint), seed=seed).generate(["a", "b"], params)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.fixture(scope="module")
def with_recommendations(qwen2_checkpoint, tmp_path_factory) -> Path:
    """A checkpoint whose generation_config.json recommends sampling parameters."""
    folder = Path(shutil.copytree(qwen2_checkpoint, tmp_path_factory.mktemp("recommending") / "model"))
    recommended = {
        **{"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1},
        **{"max_new_tokens": 9, "do_sample": True, "eos_token_id": [256, 7]},
    }
    (folder / "generation_config.json").write_text(json.dumps(recommended))
    return folder


def test_default_sampling_params_are_the_models(with_recommendations):
    """Without sampling parameters, those recommended by generation_config.json are used."""
    llm = LLM(str(with_recommendations))
    assert llm.get_default_sampling_params() == SamplingParams(
        temperature=0.7, top_p=0.8, top_k=20, min_p=0.05, repetition_penalty=1.1, max_tokens=9
    )
    assert 0 < len(llm.generate("a")[0].outputs[0].token_ids) <= 9


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"generation_config": "vllm"}, SamplingParams()),
        ({"generation_config": "vllm", "override_generation_config": {"top_k": 3}}, SamplingParams(top_k=3)),
        (
            {"override_generation_config": {"temperature": 0.1, "max_new_tokens": 5}},
            SamplingParams(temperature=0.1, top_p=0.8, top_k=20, min_p=0.05, repetition_penalty=1.1, max_tokens=5),
        ),
    ],
)
def test_recommendations_are_the_users_choice(with_recommendations, arguments, expected):
    """Recommendations can be omitted or overridden, and the file's further EOS tokens still count."""
    llm = LLM(str(with_recommendations), **arguments)
    assert llm.get_default_sampling_params() == expected
    request = llm.processor.process_inputs("0", "a", SamplingParams())
    assert request.sampling_params is not None
    assert request.sampling_params.stop_token_ids == [7]


def test_recommendations_of_another_directory(qwen2_checkpoint, with_recommendations):
    """`generation_config` can be a directory with a generation_config.json."""
    llm = LLM(str(qwen2_checkpoint), generation_config=with_recommendations)
    assert llm.get_default_sampling_params().top_k == 20
    with pytest.raises(EngineError, match=r"has no generation_config\.json"):
        LLM(str(qwen2_checkpoint), generation_config=str(with_recommendations.parent))


def test_an_old_checkpoint_has_its_end_of_sequence_tokens_in_the_config(qwen2_checkpoint, tmp_path):
    """Without generation_config.json, the EOS tokens of config.json count."""
    folder = Path(shutil.copytree(qwen2_checkpoint, tmp_path / "model"))
    (folder / "generation_config.json").unlink()
    change_config(folder, eos_token_id=[256, 9])
    request = LLM(str(folder)).processor.process_inputs("0", "a", SamplingParams())
    assert request.sampling_params is not None
    assert request.sampling_params.stop_token_ids == [9]


def test_the_config_can_be_overridden(qwen2_checkpoint):
    """`hf_overrides` changes entries of config.json, or replaces it by a function's result."""
    assert LLM(str(qwen2_checkpoint), hf_overrides={"max_position_embeddings": 100}).model_config.max_model_len == 100

    def shorten(config):
        config.max_position_embeddings = 50
        return config

    assert LLM(str(qwen2_checkpoint), hf_overrides=shorten).model_config.max_model_len == 50


def test_the_kv_cache_can_be_given_in_bytes(qwen2_checkpoint):
    """The KV cache takes `kv_cache_memory_bytes`, rounded down to a whole block."""
    config = LLM(str(qwen2_checkpoint), dtype="float32", kv_cache_memory_bytes=10**6).llm_engine.vllm_config
    model = config.model_config
    layer = (
        2 * config.cache_config.block_size * model.get_num_kv_heads() * model.get_head_size() * 4
    )  # bytes of a block
    assert config.cache_config.num_gpu_blocks == 10**6 // (layer * model.get_num_layers())


def test_without_a_tokenizer(qwen2_checkpoint, llm):
    """`skip_tokenizer_init` accepts and returns tokens only, and refuses parameters that need text."""
    bare = LLM(str(qwen2_checkpoint), dtype="float32", skip_tokenizer_init=True)
    prompt = {"prompt_token_ids": [3, 4, 5]}
    output = bare.generate(prompt, GREEDY)[0]
    assert token_ids([output]) == token_ids(llm.generate(prompt, GREEDY))
    assert output.outputs[0].text == ""
    for params in (SamplingParams(stop="x"), SamplingParams(bad_words=["x"])):
        with pytest.raises(InvalidRequestError, match="need the tokenizer"):
            bare.generate(prompt, params)
    with pytest.raises(InvalidRequestError, match="prompt is text, but the LLM was made with skip_tokenizer_init"):
        bare.generate("a", GREEDY)
    with pytest.raises(EngineError, match="has no tokenizer"):
        bare.chat([{"role": "user", "content": "Hello"}])


def test_a_prompt_can_be_truncated(llm):
    """`truncate_prompt_tokens` keeps the end of a text and the prompt's text, and leaves token ids, as in vLLM."""
    text = "one two three"
    ids = llm.get_tokenizer().encode(text)
    output = llm.generate(text, SamplingParams(temperature=0, truncate_prompt_tokens=4))[0]
    assert (output.prompt, output.prompt_token_ids) == (text, ids[-4:])
    output = llm.generate({"prompt_token_ids": ids}, SamplingParams(temperature=0, truncate_prompt_tokens=4))[0]
    assert output.prompt_token_ids == ids
    assert llm.get_tokenizer().encode(text) == ids  # the tokenizer does not keep truncating


def test_who_runs_first_can_be_said(qwen2_checkpoint):
    """Under `priority` the lowest numbers begin in any order of arrival, and under `fcfs` the first arrivals."""
    prompts = ["a", "b", "c"]
    for policy, expected in (("priority", ["1", "2", "0"]), ("fcfs", ["0", "1", "2"])):
        llm = LLM(str(qwen2_checkpoint), scheduling_policy=policy, max_num_seqs=1)
        finished: list[RequestOutput] = []
        step = llm.llm_engine.step
        llm.llm_engine.step = lambda step=step, finished=finished: finished.extend(new := step()) or new  # type: ignore
        outputs = llm.generate(prompts, GREEDY, priority=[7, -1, 3])
        assert [output.request_id for output in finished] == expected
        assert [output.prompt for output in outputs] == prompts


def test_the_prefix_cache_can_be_emptied(llm):
    """After `reset_prefix_cache` no tokens come from the prefix cache."""
    prompt = {"prompt_token_ids": [11] * 40}
    assert [llm.generate(prompt, GREEDY)[0].num_cached_tokens for _ in range(2)] == [0, 32]
    assert llm.reset_prefix_cache()
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens == 0


def test_the_prefix_cache_is_reported(llm):
    """The second of two equal prompts gets its full blocks from the cache, and reports their tokens."""
    prompt = {"prompt_token_ids": [9] * 40}
    llm.llm_engine.reset_prefix_cache()
    first, second = (llm.generate(prompt, GREEDY)[0] for _ in range(2))
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 32)
    assert token_ids([first]) == token_ids([second])


def test_statistics_on_request(qwen2_checkpoint, llm):
    """`disable_log_stats=False` fills `metrics`, and the default leaves it empty."""
    assert llm.generate("a", GREEDY)[0].metrics is None
    metrics = LLM(str(qwen2_checkpoint), disable_log_stats=False).generate("a", GREEDY)[0].metrics
    assert metrics is not None
    assert metrics.num_generation_tokens == 5
    assert metrics.first_token_latency > 0
    assert metrics.first_token_ts <= metrics.last_token_ts


def test_a_progress_bar_of_ones_own(llm):
    """`use_tqdm` can be a function, whose bar is updated after each step with the finished requests."""
    seen = []

    class Bar:
        def __init__(self, **arguments):
            seen.append(arguments["total"])

        def update(self, n):
            seen.append(n)

        def close(self):
            seen.append("closed")

    llm.generate(["a", "b"], GREEDY, use_tqdm=Bar)
    assert seen == [2, 0, 0, 0, 0, 2, "closed"]


def test_a_progress_bar_on_long_work(monkeypatch):
    """The bar appears only on a terminal, when the work takes longer than the delay."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, delay, shown in ((Terminal(), 0.0, True), (Terminal(), 1000.0, False), (io.StringIO(), 0.0, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress_bar, "_DELAY", delay)
        bar = progress_bar.make_progress_bar(True, total=3)
        assert bar is not None
        bar.update(0)
        bar.update(3)
        bar.close()
        assert ("3/3" in stream.getvalue()) is shown
    assert progress_bar.make_progress_bar(False, total=3) is None


def test_nothing_is_printed(llm, capfd):
    """A short generation writes nothing to stdout or stderr."""
    llm.generate(["a", "b"], GREEDY)
    assert capfd.readouterr() == ("", "")


def test_the_models_length_can_be_shortened(qwen2_checkpoint):
    """`max_model_len` can be smaller than the model's own length."""
    llm = LLM(str(qwen2_checkpoint), max_model_len=20)
    output = llm.generate({"prompt_token_ids": [1] * 15}, SamplingParams(max_tokens=50, ignore_eos=True))[0]
    assert len(output.outputs[0].token_ids) == 5
    with pytest.raises(EngineError, match="20"):
        llm.generate({"prompt_token_ids": [1] * 20})


def test_dtype_auto_is_the_checkpoints(qwen2_checkpoint, tmp_path):
    """`auto` is the checkpoint's dtype, or bfloat16 if that is float32, as in vLLM."""
    import torch

    for written, expected in (("float16", torch.float16), ("bfloat16", torch.bfloat16), ("float32", torch.bfloat16)):
        folder = Path(shutil.copytree(qwen2_checkpoint, tmp_path / written))
        change_config(folder, dtype=written)
        assert LLM(str(folder)).model_config.dtype is expected
