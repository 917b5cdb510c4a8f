"""Requests and settings that cannot be served: one clear message each, and an engine that can be used again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import change_config
from tracellm import LLM, SamplingParams
from tracellm.engine.errors import EngineError, InvalidRequestError, ModelLoadError

GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(qwen2_checkpoint) -> LLM:
    """One for all tests here: refusals leave it as it was."""
    return LLM(str(qwen2_checkpoint), dtype="float32", max_model_len=64)


def is_idle(llm: LLM) -> bool:
    """Is nothing of any request left, on either side?"""
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler  # type: ignore[attr-defined]
    pool = scheduler.kv_cache_manager.block_pool
    return (
        not llm.llm_engine.has_unfinished_requests()
        and not scheduler.requests
        and not scheduler.running
        and not scheduler.waiting
        and pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    )


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "The prompt is empty"),
        ({"prompt_token_ids": []}, "The prompt is empty"),
        ("a" * 64, r"has 64 tokens.*`max_model_len`\) is 64.*at most 63"),
        ({"prompt_token_ids": [1] * 1000}, "has 1000 tokens"),
        ({"prompt_token_ids": [1, 320]}, r"Token id 320 \(at position 1\) is out of vocabulary.*0 to 319"),
        ({"prompt_token_ids": [-1]}, "Token id -1 .* out of vocabulary"),
        ({"prompt_token_ids": ["1"]}, "list of token ids, got str '1' at position 0"),
        ({"prompt_token_ids": [True]}, "got bool True"),
        ({"prompt_token_ids": "12"}, "must be a list of token ids, got str"),
        ({"prompt_token_ids": None}, "must be a list of token ids, got None"),
        ({"prompt": None}, "The prompt must be a string"),
        ({"prompt": 3}, '"prompt" must be a string, got int 3'),
        ({"promt": "Hello"}, "'promt' that is not known. Did you mean `prompt`?"),
        ({}, "The prompt must be a string"),
        (None, "got None"),
        (3, "got int 3"),
        (b"Hello", "got bytes b'Hello'. Decode bytes"),
        ([1, 2], r'got list \[1, 2\]. Write token ids as \{"prompt_token_ids"'),
        ("half \ud83d", "half a surrogate pair"),
    ],
)
def test_a_bad_prompt_is_named_and_leaves_nothing_behind(llm, prompt, message):
    """In a batch the message says which prompt it was; nothing of the batch runs, and the next call works."""
    with pytest.raises(InvalidRequestError, match=f"(?s)^prompts\\[1\\]: .*{message}"):
        llm.generate(["fine", prompt, "fine too"], GREEDY)
    assert is_idle(llm)
    assert len(llm.generate(["fine", "fine too"], GREEDY)) == 2
    assert is_idle(llm)


@pytest.mark.parametrize("prompts", [None, 3, b"Hello", 1.5])
def test_what_is_no_prompt_at_all_is_refused(llm, prompts):
    """Neither a prompt nor a list: the message says what generate takes."""
    with pytest.raises(InvalidRequestError, match="generate takes a prompt or a list of prompts"):
        llm.generate(prompts, GREEDY)


def test_a_single_prompt_needs_no_number(llm):
    """When only one prompt was given, the message does not count."""
    with pytest.raises(InvalidRequestError, match=r"^The prompt is empty"):
        llm.generate("", GREEDY)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([GREEDY], "2 prompts and 1 sampling parameters"),
        ([GREEDY, {"temperature": 0}], r"prompts\[1\]: Sampling parameters must be a SamplingParams, got dict"),
        ({"temperature": 0}, "must be a SamplingParams, got dict"),
        (SamplingParams(stop_token_ids=[5, 9999]), r"`stop_token_ids` must be below 320.*\[9999\]"),
    ],
)
def test_bad_sampling_parameters_are_refused(llm, params, message):
    """A wrong number of them, a wrong type, or one that does not suit this model."""
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate(["a", "b"], params)
    assert is_idle(llm)


def test_a_request_that_the_kv_cache_can_never_hold_is_refused(qwen2_checkpoint):
    """With few blocks a long request is refused when it comes, by name, and shorter ones go on working."""
    llm = LLM(str(qwen2_checkpoint), num_gpu_blocks_override=3)
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\]: .*can never run.*KV blocks"):
        llm.generate(["fine", {"prompt_token_ids": [1] * 100}], GREEDY)
    assert is_idle(llm)
    assert len(llm.generate("fine", GREEDY)) == 1


def test_a_failing_step_leaves_the_engine_usable(llm, monkeypatch):
    """When a step breaks off, its requests are dropped and what it marked as cached is not believed."""
    prompt = {"prompt_token_ids": [7] * 40}
    expected = llm.generate(prompt, GREEDY)[0].outputs[0].token_ids
    llm.llm_engine.reset_prefix_cache()
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner

    def fail(*args, **kwargs):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_model_forward", fail)
        with pytest.raises(MemoryError, match="no room"):
            llm.generate([prompt, prompt], GREEDY)
    assert is_idle(llm)
    assert [output.outputs[0].token_ids for output in llm.generate([prompt, "x", prompt], GREEDY)][::2] == [
        expected
    ] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mdoel": "x"}, "LLM has no argument `mdoel`. Did you mean `model`?.*It takes: model, tokenizer"),
        ({"gpu_memory_utilisation": 0.5}, "Did you mean `gpu_memory_utilization`?"),
        ({"max_batch_tokens": 5}, "LLM has no argument `max_batch_tokens`"),
        ({"tensor_parallel_size": 2}, "does not have `tensor_parallel_size`.*Got 2, only 1 is accepted"),
        ({"quantization": "awq"}, "does not have `quantization`.*only None"),
        ({"trust_remote_code": True}, "does not have `trust_remote_code`"),
        ({"dtype": "int8"}, "`dtype` must be one of auto, half, float16.*'int8'"),
        ({"seed": -1}, "`seed` must be"),
        ({"seed": "7"}, "`seed` must be"),
        ({"max_model_len": 0}, "`max_model_len` must be"),
        ({"max_model_len": 257}, "`max_model_len` must be at most 256"),
        ({"gpu_memory_utilization": 0}, r"`gpu_memory_utilization` must be a share of the memory, in \(0, 1\], got 0"),
        ({"gpu_memory_utilization": 1.1}, "`gpu_memory_utilization` must be"),
        ({"block_size": 7}, "`block_size` must be one of 1, 8, 16.*got 7"),
        ({"num_gpu_blocks_override": 1}, "`num_gpu_blocks_override` must be"),
        ({"max_num_batched_tokens": 0}, "`max_num_batched_tokens` must be"),
        ({"max_num_seqs": True}, "`max_num_seqs` must be"),
        ({"max_num_seqs": 8, "max_num_batched_tokens": 4}, "at least `max_num_seqs`"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 100, "max_num_seqs": 8}, "whole prompt must fit"),
        ({"enable_prefix_caching": "yes"}, "`enable_prefix_caching` must be True or False"),
        ({"model": ""}, "`model` must be a directory or a hub id, got ''"),
        ({"model": None}, "`model` must be a directory or a hub id, got None"),
    ],
)
def test_bad_arguments_are_refused_by_name(qwen2_checkpoint, arguments, message):
    """Unknown, unsupported and impossible arguments: the message names them and what is accepted."""
    with pytest.raises(EngineError, match=f"(?s){message}"):
        LLM(**{"model": str(qwen2_checkpoint)} | arguments)


def test_arguments_of_vllm_that_ask_for_nothing_are_accepted(qwen2_checkpoint):
    """A script written for vLLM may spell out its defaults."""
    spelled_out: dict[str, Any] = {
        "tensor_parallel_size": 1,
        "trust_remote_code": False,
        "quantization": None,
        "swap_space": 4,
    }
    assert len(LLM(str(qwen2_checkpoint), **spelled_out).generate("a", GREEDY)) == 1


def test_a_length_that_the_memory_cannot_hold_says_what_would_fit(qwen2_checkpoint, monkeypatch):
    """`max_model_len` beyond the KV cache is refused with the length that fits, and that length then works."""
    monkeypatch.setenv("TRACELLM_CPU_KVCACHE_SPACE", "0.0001")
    with pytest.raises(EngineError, match=r"max_model_len=256.*Set max_model_len to") as error:
        LLM(str(qwen2_checkpoint), dtype="float32")
    fits = int(str(error.value).split("Set max_model_len to ")[1].split()[0])
    assert LLM(str(qwen2_checkpoint), dtype="float32", max_model_len=fits).generate("a", GREEDY)


def copy(folder: Path, target: Path) -> Path:
    """A checkpoint that a test may spoil."""
    return Path(shutil.copytree(folder, target / "model"))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("/no/such/place", "no model directory `/no/such/place`"),
        ("./here", "no model directory `./here`"),
        ("no such model", "no model directory `no such model`"),
        ("nobody/no-such-model", "no directory here, and the Hugging Face hub did not give it"),
    ],
)
def test_a_model_that_is_not_there(model, message):
    """A path that does not exist, and a hub id that the hub does not give."""
    with pytest.raises(ModelLoadError, match=message):
        LLM(model)


def test_a_model_that_is_a_file(qwen2_checkpoint):
    """The weight file in place of its directory."""
    with pytest.raises(ModelLoadError, match="is a file; give the directory"):
        LLM(str(qwen2_checkpoint / "model.safetensors"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "has no config.json"),
        ("config.json", '{"model_type": "qw', "config.json` is damaged"),
        ("config.json", "[]", "names no `model_type`"),
        ("config.json", '{"model_type": "no-such-type", "architectures": ["Qwen2ForCausalLM"]}', "cannot be used"),
        ("generation_config.json", "{", "generation_config.json` is damaged"),
        ("tokenizer.json", "{", "The tokenizer of .* cannot be loaded"),
        ("tokenizer.json", None, "The tokenizer of .* cannot be loaded"),
        ("model.safetensors", None, "no weights"),
    ],
)
def test_missing_and_damaged_files(qwen2_checkpoint, tmp_path, file, content, message):
    """Each file that a model needs, gone or damaged: the message names it."""
    folder = copy(qwen2_checkpoint, tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(ModelLoadError, match=message):
        LLM(str(folder))


def test_an_architecture_that_is_not_supported_says_which_are(qwen2_checkpoint, tmp_path):
    """The message names the checkpoint's architecture and those that can run."""
    folder = copy(qwen2_checkpoint, tmp_path)
    change_config(folder, architectures=["LlamaForCausalLM"], model_type="llama")
    with pytest.raises(ModelLoadError, match=r"LlamaForCausalLM.*Supported: OPTForCausalLM, Qwen2ForCausalLM"):
        LLM(str(folder))


def test_a_length_that_is_not_known(qwen2_checkpoint, tmp_path):
    """Were config.json silent about the length, transformers' default for the architecture counts."""
    folder = copy(qwen2_checkpoint, tmp_path)
    change_config(folder, max_position_embeddings=None)
    assert json.loads((folder / "config.json").read_text()).get("max_position_embeddings") is None
    assert LLM(str(folder), max_num_seqs=1).model_config.max_model_len == 32768
