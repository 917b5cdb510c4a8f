"""Tests of invalid arguments of `LLM(...)`: each is refused by its name, with the accepted values."""

from typing import Any

import pytest

from tracellm import LLM, AsyncLLM, SamplingParams
from tracellm.engine.config.errors import EngineError

GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mdoel": "x"}, "LLM has no argument `mdoel`. Did you mean `model`?.*It takes: model, tokenizer"),
        ({"gpu_memory_utilisation": 0.5}, "Did you mean `gpu_memory_utilization`?"),
        ({"max_batch_tokens": 5}, "LLM has no argument `max_batch_tokens`"),
        (
            {"decode_context_parallel_size": 2},
            "have `decode_context_parallel_size`.*Got 2, only 1 is accepted",
        ),
        ({"quantization": "awq"}, "does not have `quantization`.*only None"),
        ({"trust_remote_code": True}, "does not have `trust_remote_code`"),
        ({"dtype": "int8"}, "`dtype` must be one of auto, half, float16.*'int8'"),
        ({"seed": -1}, "`seed` must be"),
        ({"seed": "7"}, "`seed` must be"),
        ({"max_model_len": 0}, "`max_model_len` must be"),
        (
            {"max_model_len": 1},
            "`max_model_len` must be .*at least 2 .one of the prompt and one that is generated.*got 1",
        ),
        ({"long_prefill_token_threshold": -1}, "`long_prefill_token_threshold` must be a whole number .*got -1"),
        ({"override_generation_config": {"temprature": 1}}, "must be a dict with any of .*temperature, .*'temprature'"),
        ({"scheduling_policy": "lifo"}, "`scheduling_policy` must be one of fcfs, priority, got 'lifo'"),
        ({"max_logprobs": -2}, "`max_logprobs` must be .*got -2"),
        (
            {"logprobs_mode": "raw"},
            "`logprobs_mode` must be one of raw_logprobs, raw_logits, processed_logprobs.*'raw'",
        ),
        ({"generation_config": ""}, "`generation_config` must be `auto`, `vllm` or a directory, got ''"),
        ({"generation_config": "/no/such/place"}, "no model directory `/no/such/place`"),
        ({"override_generation_config": 3}, "`override_generation_config` must be a dict"),
        ({"hf_overrides": 3}, "`hf_overrides` must be a dict of entries of config.json, or a function, got 3"),
        ({"hf_overrides": {"vocab_size": -1}}, "`hf_overrides`: `vocab_size` must be a whole number.*but it is -1"),
        ({"hf_overrides": lambda config: 1 / 0}, "`hf_overrides` cannot be used: ZeroDivisionError"),
        ({"kv_cache_memory_bytes": 0}, "`kv_cache_memory_bytes` must be a whole number of bytes.*got 0"),
        ({"kv_cache_memory_bytes": 10**18}, "`kv_cache_memory_bytes` must be at most .*got 1000000000000000000"),
        ({"skip_tokenizer_init": 1}, "`skip_tokenizer_init` must be True or False"),
        ({"max_num_partial_prefills": 2}, "does not have `max_num_partial_prefills`.*Got 2, only 1 is accepted"),
        ({"max_model_len": 257}, "`max_model_len` must be at most 256"),
        (
            {"gpu_memory_utilization": 0},
            r"`gpu_memory_utilization` must be a fraction of .*, in \(0, 1\], got 0",
        ),
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
        (
            {"max_num_seqs": 10**12, "max_num_batched_tokens": 10**15},
            "no memory for .*max_num_seqs=1000000000000.*lower",
        ),
    ],
)
def test_bad_arguments_are_refused_by_name(qwen2_checkpoint, arguments, message):
    """Unknown, unsupported and invalid arguments are named with the accepted values."""
    with pytest.raises(EngineError, match=f"(?s){message}"):
        LLM(**{"model": str(qwen2_checkpoint)} | arguments)


def test_arguments_of_vllm_that_ask_for_nothing_are_accepted(qwen2_checkpoint):
    """Arguments of vLLM at their defaults are accepted."""
    spelled_out: dict[str, Any] = {
        "tensor_parallel_size": 1,
        "trust_remote_code": False,
        "quantization": None,
        "swap_space": 4,
    }
    assert len(LLM(str(qwen2_checkpoint), **spelled_out).generate("a", GREEDY)) == 1


def test_a_length_that_the_memory_cannot_hold_says_what_would_fit(qwen2_checkpoint, monkeypatch):
    """`max_model_len` beyond the KV cache is refused with the length that fits, which is then accepted."""
    monkeypatch.setenv("TRACELLM_CPU_KVCACHE_SPACE", "0.0001")
    with pytest.raises(EngineError, match=r"max_model_len=256.*Set max_model_len to") as error:
        LLM(str(qwen2_checkpoint), dtype="float32")
    fits = int(str(error.value).split("Set max_model_len to ")[1].split()[0])
    assert LLM(str(qwen2_checkpoint), dtype="float32", max_model_len=fits).generate("a", GREEDY)


def test_bytes_that_cannot_hold_a_length_are_named(qwen2_checkpoint):
    """If `kv_cache_memory_bytes` sets the limit, the message advises raising it."""
    with pytest.raises(EngineError, match=r"max_model_len=256.*kv_cache_memory_bytes"):
        LLM(str(qwen2_checkpoint), kv_cache_memory_bytes=1000)


def test_more_kv_cache_than_the_machine_has_is_refused(qwen2_checkpoint, monkeypatch):
    """A KV cache larger than the machine's memory is refused with the variable's name and the memory's size."""
    monkeypatch.setenv("TRACELLM_CPU_KVCACHE_SPACE", "1000000")
    with pytest.raises(EngineError, match=r"TRACELLM_CPU_KVCACHE_SPACE is 1000000 GiB, more than .* GiB\). Lower it"):
        LLM(str(qwen2_checkpoint))


def test_an_asynchronous_engine_in_this_process():
    """`AsyncLLM` refuses `multiprocess_mode=False`, and the message names `LLM` for it."""
    with pytest.raises(EngineError, match=r"^AsyncLLM has no argument `multiprocess_mode`: .*use LLM"):
        AsyncLLM(model="tiny", multiprocess_mode=False)
