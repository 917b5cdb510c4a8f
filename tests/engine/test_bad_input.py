"""Requests and settings that cannot be served: one clear message each, and an engine that can be used again."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoints import change_config
from tracellm import LLM, SamplingParams
from tracellm.engine.errors import EngineError, InvalidRequestError, ModelLoadError
from tracellm.engine.model_loader import default_loader

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
        (7, r'got int 7. Write token ids as \{"prompt_token_ids"'),
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
        ("x", "must be a SamplingParams, got str"),
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
        ({"tokenizer": ""}, "`tokenizer` must be a directory or a hub id, got ''"),
        ({"tokenizer": 3}, "`tokenizer` must be a directory or a hub id, got 3"),
        ({"tokenizer": b"x"}, "`tokenizer` must be a directory or a hub id, got b'x'"),
        ({"max_num_batched_tokens": 10**15}, "no memory for .*max_num_batched_tokens=1000000000000000.*lower"),
        ({"generation_config": "vllm"}, "does not have `generation_config`.*only 'auto'"),
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


def test_more_kv_cache_than_the_machine_has_is_refused(qwen2_checkpoint, monkeypatch):
    """The variable is named, with what the machine has."""
    monkeypatch.setenv("TRACELLM_CPU_KVCACHE_SPACE", "1000000")
    with pytest.raises(EngineError, match=r"TRACELLM_CPU_KVCACHE_SPACE is 1000000 GiB, more than .* GiB\). Lower it"):
        LLM(str(qwen2_checkpoint))


def test_two_calls_at_once_are_refused(llm):
    """A second call while the first runs says so, and takes nothing away from the first; afterwards both work."""
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
    """What is no bar is refused before anything runs."""
    with pytest.raises(InvalidRequestError, match=r"`use_tqdm` must be True, False or a function.*'yes'"):
        llm.generate("a", GREEDY, use_tqdm="yes")
    assert is_idle(llm)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("half \ud83d", {}, "The prompt is not valid text: half a surrogate pair"),
        ("x", {"chat_template": "{{ 1 / 0 }}"}, "does not take this conversation: division by zero"),
        ("x", {"chat_template": 3}, "`chat_template` must be a Jinja template as a string, got 3"),
        ("x", {"chat_template_kwargs": 3}, "`chat_template_kwargs` must be a dict"),
        (None, {}, r"messages\[0\] needs a `content`"),
    ],
)
def test_a_bad_chat_is_refused(llm, content, arguments, message):
    """Text, template or variables that cannot be; nothing is left behind."""
    with pytest.raises(InvalidRequestError, match=f"^(The chat template )?{message}"):
        llm.chat([{"role": "user", "content": content}], GREEDY, **arguments)
    assert is_idle(llm)


def test_of_several_conversations_the_bad_one_is_named(llm):
    """The message counts the conversations, then the messages."""
    good, bad = {"role": "user", "content": "x"}, {"role": "user"}
    with pytest.raises(InvalidRequestError, match=r"^conversations\[1\]: messages\[1\] needs a `content`"):
        llm.chat([[good], [good, bad]], GREEDY)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_no_numbers(qwen2_checkpoint, tmp_path, value):
    """A tensor with NaN or infinity in it is named when the model is loaded."""
    name = "model.layers.0.self_attn.q_proj.weight"
    folder = copy(qwen2_checkpoint, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors[name][3, 5] = float(value)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=f"tensor {name} holds NaN or infinity in torch.bfloat16"):
        LLM(str(folder))


def test_a_model_that_computes_nan_is_not_believed(qwen2_checkpoint, tmp_path):
    """When numbers outgrow the dtype on the way, the step says so instead of making up tokens."""
    folder = copy(qwen2_checkpoint, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"].mul_(1e4)
    tensors["model.layers.0.mlp.up_proj.weight"].mul_(1e4)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    llm = LLM(str(folder), dtype="float16")
    with pytest.raises(EngineError, match=r"computed NaN instead of scores, in torch\.float16.*Try another dtype"):
        llm.generate(["a", "b"], GREEDY)
    assert is_idle(llm)
    assert len(LLM(str(folder), dtype="float32").generate(["a", "b"], GREEDY)) == 2


def test_a_weight_file_that_may_not_be_read(qwen2_checkpoint, monkeypatch):
    """Another error than damage is told as it is."""

    def refuse(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(default_loader, "safe_open", refuse)
    with pytest.raises(ModelLoadError, match=r"model\.safetensors cannot be read: .*Permission denied"):
        LLM(str(qwen2_checkpoint))


def test_a_weight_file_of_eight_bits(qwen2_checkpoint, tmp_path):
    """8-bit floats mean little without their scales: refused like other quantized weights."""
    folder = copy(qwen2_checkpoint, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=f"{name} holds torch.float8_e4m3fn"):
        LLM(str(folder))


def test_a_recommendation_that_is_out_of_range(qwen2_checkpoint, tmp_path):
    """What generation_config.json recommends is checked when it is used, and the message says whose value it is."""
    folder = copy(qwen2_checkpoint, tmp_path)
    (folder / "generation_config.json").write_text('{"temperature": -3}')
    llm = LLM(str(folder))
    with pytest.raises(
        EngineError, match=r"(?s)generation_config.json of .*`temperature` must be.*got -3.*give `sampl"
    ):
        llm.generate("a")
    assert len(llm.generate("a", GREEDY)) == 1


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
        ("generation_config.json", "[]", "generation_config.json` is damaged"),
        ("generation_config.json", '{"eos_token_id": "x"}', "`eos_token_id` must be a token id or a list of them.*'x'"),
        ("model.safetensors.index.json", '{"weight_map": {"a": 3}}', "index.json is damaged"),
        ("model.safetensors", "", "model.safetensors is damaged or cut short"),
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 0}, "`num_attention_heads` must be a whole number, at least 1, but it is 0"),
        ({"hidden_size": "64"}, "`hidden_size` must be a whole number, at least 1, but it is '64'"),
        ({"vocab_size": -1}, "`vocab_size` must be"),
        ({"max_position_embeddings": 0}, "`max_position_embeddings` must be"),
        ({"architectures": "Qwen2ForCausalLM"}, "`architectures` must be a list of names, got 'Qwen2ForCausalLM'"),
        ({"num_hidden_layers": 4}, "cannot be used: .*num_hidden_layers"),
        ({"rms_norm_eps": "a"}, "cannot be used: .*rms_norm_eps"),
        ({"dtype": "bogus"}, "cannot be used: .*bogus"),
    ],
)
def test_a_config_that_cannot_be(qwen2_checkpoint, tmp_path, changes, message):
    """Values that no model has: the message names the entry."""
    folder = copy(qwen2_checkpoint, tmp_path)
    change_config(folder, **changes)
    with pytest.raises(ModelLoadError, match=message):
        LLM(str(folder))


def test_a_vocabulary_without_its_merges(qwen2_checkpoint, tmp_path):
    """The older layout of a tokenizer is two files; the message names both."""
    folder = copy(qwen2_checkpoint, tmp_path)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.json, nor vocab.json with merges.txt"):
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
