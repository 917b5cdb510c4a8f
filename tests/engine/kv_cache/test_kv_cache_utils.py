"""Tests of block hashes, and of the number of blocks that memory can hold."""

import hashlib
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.sched.harness import make_config, make_kv_cache_config, make_request, make_spec
from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheGroupSpec
from tracellm.engine.core.kv_cache.kv_cache_utils import (
    NONE_HASH,
    BlockHash,
    check_enough_kv_cache_memory,
    check_request_fits,
    get_kv_cache_configs,
    get_request_block_hasher,
    hash_block_tokens,
)

MIB = 1024 * 1024
SPEC = {f"layers.{i}": make_spec() for i in range(4)}
GROUPS = [KVCacheGroupSpec(list(SPEC), make_spec())]
BYTES_PER_BLOCK = 4 * 2 * 16 * 2 * 8 * 4  # layers, key and value, tokens, heads, head size, float32


def test_a_hash_depends_on_the_tokens_and_on_all_before_them():
    """Equal chains have equal hashes; another token, order or parent gives another hash."""
    parent = hash_block_tokens(None, [1, 2])
    assert parent == hash_block_tokens(None, (1, 2))
    others = [[2, 1], [1, 3], [1], [1, 2, 0], [258]]
    assert len({parent, *(hash_block_tokens(None, tokens) for tokens in others)}) == 6
    assert hash_block_tokens(parent, [3, 4]) != hash_block_tokens(None, [3, 4])


def test_only_full_blocks_are_hashed_and_each_once():
    """Every full block is hashed once, with the token that fills it."""
    request = make_request("a", [1, 2, 3, 4, 5, 6, 7], block_size=4)
    assert len(request.block_hashes) == 1
    request.append_output_token_ids(8)
    assert request.block_hashes == [
        hash_block_tokens(None, [1, 2, 3, 4]),
        hash_block_tokens(hash_block_tokens(None, [1, 2, 3, 4]), [5, 6, 7, 8]),
    ]
    assert get_request_block_hasher(4)(request) == []


def test_several_tokens_at_once_complete_several_blocks():
    """Appending a list hashes every block that it fills."""
    request = make_request("a", [1], block_size=4)
    request.append_output_token_ids(list(range(2, 13)))
    assert request.block_hashes == make_request("b", list(range(1, 13)), block_size=4).block_hashes
    assert len(request.block_hashes) == 3


def hashes_of(*items: tuple[str, int, int], num_tokens: int = 24, outputs: int = 0) -> list[BlockHash]:
    """Return the hashes, for blocks of 4, of equal tokens with these items; the last tokens are generated."""
    request = make_request("a", [7] * (num_tokens - outputs), block_size=4, items=items)
    for _ in range(outputs):
        request.append_output_token_ids(7)
    return request.block_hashes


def test_a_hash_depends_on_the_items_that_overlap_the_block():
    """Blocks before an item have the hash of the text; with an item, its identifier counts, not its offset."""
    text, item, other = hashes_of(), hashes_of(("x", 5, 6)), hashes_of(("y", 5, 6))
    assert text[:1] == item[:1] == other[:1]
    assert all(len({one, two, three}) == 3 for one, two, three in zip(text[1:], item[1:], other[1:], strict=True))
    assert item[1] == hash_block_tokens(text[0], [7] * 4, ("x",))
    assert item[3] == hash_block_tokens(item[2], [7] * 4)


def test_a_text_has_the_hashes_that_it_had_without_items():
    """The hash of a block without items is the SHA-256 of its parent and its tokens as 64-bit numbers."""
    digest = hashlib.sha256(NONE_HASH + b"".join(token.to_bytes(8, "little") for token in (1, 2, 3, 4)))
    assert make_request("a", [1, 2, 3, 4], block_size=4).block_hashes == [digest.digest()]


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 4), st.integers(1, 9)), max_size=5))
def test_the_keys_of_a_block_are_those_of_its_items(parts):
    """Each block has the identifiers of the items that overlap it, also if generated tokens complete it."""
    items, end = [], 0
    for name, gap, length in parts:
        items.append((name, end + gap, length))
        end += gap + length
    parent, expected = None, []
    for start in range(0, 80, 4):
        keys = tuple(name for name, offset, length in items if offset < start + 4 and offset + length > start)
        parent = hash_block_tokens(parent, [7] * 4, keys or None)
        expected.append(parent)
    assert hashes_of(*items, num_tokens=80) == hashes_of(*items, num_tokens=80, outputs=80 - max(end, 1)) == expected


def test_the_memory_is_divided_into_blocks_that_serve_all_layers():
    """The memory is split into as many blocks as fit, with one tensor per layer and one group."""
    config = get_kv_cache_configs(make_config(), [SPEC], [100 * BYTES_PER_BLOCK + 1])[0]
    assert config.num_blocks == 100
    assert [(tensor.size, tensor.shared_by) for tensor in config.kv_cache_tensors] == [
        (100 * BYTES_PER_BLOCK // 4, [name]) for name in SPEC
    ]
    (group,) = config.kv_cache_groups
    assert group.layer_names == list(SPEC)
    assert group.kv_cache_spec == make_spec()


def test_an_override_decides_the_number_of_blocks():
    """`num_gpu_blocks_override` is used even if it is too small for `max_model_len`, as in vLLM 0.11.1."""
    config = get_kv_cache_configs(make_config(num_gpu_blocks_override=3), [SPEC], [100 * BYTES_PER_BLOCK])[0]
    assert config.num_blocks == 3


@pytest.mark.parametrize(
    ("override", "blocks", "message"),
    [
        (1, 100, "num_gpu_blocks_override=1 leaves no block for requests.*at least 2"),
        (101, 100, r"num_gpu_blocks_override=101 takes .* MiB .*at most 100"),
    ],
)
def test_an_override_that_cannot_be_is_refused(override, blocks, message):
    """An override without usable blocks, or above the memory's limit, raises an error with the accepted range."""
    with pytest.raises(EngineError, match=message):
        get_kv_cache_configs(make_config(num_gpu_blocks_override=override), [SPEC], [blocks * BYTES_PER_BLOCK])[0]


def test_too_little_memory_is_refused_with_the_longest_length_that_fits():
    """An error about too little memory names the longest length that fits, which is then accepted."""
    with pytest.raises(
        EngineError, match=r"max_model_len=256 .* 17 blocks .*Set max_model_len to 240 or less"
    ) as error:
        get_kv_cache_configs(make_config(), [SPEC], [17 * BYTES_PER_BLOCK - 1])[0]
    assert f"{17 * BYTES_PER_BLOCK / MIB:.2f} MiB" in str(error.value)
    check_enough_kv_cache_memory(make_config(), GROUPS, 17 * BYTES_PER_BLOCK)
    check_enough_kv_cache_memory(make_config(max_model_len=240), GROUPS, 17 * BYTES_PER_BLOCK - 1)


@pytest.mark.parametrize(
    ("device", "setting"), [("cpu", r"TRACELLM_CPU_KVCACHE_SPACE \(in GiB\)"), ("cuda", "gpu_memory_utilization")]
)
@pytest.mark.parametrize("available", [-5, 0, BYTES_PER_BLOCK])
def test_no_memory_at_all_is_refused_without_a_length(available, device, setting):
    """Without room for any request the error proposes more memory by the device's setting, and no length."""
    config = make_config()
    config.device_config.device = torch.device(device)
    with pytest.raises(EngineError, match=rf"MiB are available\. Raise {setting}\."):
        get_kv_cache_configs(config, [SPEC], [available])[0]


def test_layers_that_differ_are_refused():
    """Layers of different shapes in one group raise an error that lists them."""
    spec = SPEC | {"layers.9": replace(make_spec(), head_size=64)}
    with pytest.raises(EngineError, match=r"different shapes.*layers\.9"):
        get_kv_cache_configs(make_config(), [spec], [MIB])[0]


def test_a_request_that_can_never_fit_is_refused_with_the_numbers():
    """With 3 usable blocks of 16 a request may have 49 tokens: 48 slots, as the last token is not computed."""
    config, kv_cache = make_config(), make_kv_cache_config(4)
    check_request_fits("a", 40, 9, config, kv_cache)
    with pytest.raises(
        InvalidRequestError, match=r"Request a can never run .*needs 4 KV cache blocks .* has 3 .* at most 49"
    ):
        check_request_fits("a", 40, 10, config, kv_cache)


def test_a_request_is_held_against_max_model_len_too():
    """`max_model_len` limits a request's size, so a larger `max_tokens` does not count."""
    check_request_fits("a", 10, 10_000, make_config(max_model_len=256), make_kv_cache_config(17))


def test_a_window_lets_longer_requests_fit():
    """With a window of 20 and steps of 30 tokens, a request needs at most 5 blocks, and fewer for a short prompt."""
    config = make_config(max_num_batched_tokens=30)
    check_request_fits("a", 200, 50, config, make_kv_cache_config(6, windows=(20,)))
    with pytest.raises(InvalidRequestError, match=r"needs 10 KV cache blocks .* has 5 .* at most 33"):
        check_request_fits("a", 50, 50, config, make_kv_cache_config(6, windows=(None, 20)))
    check_request_fits("a", 2, 200, config, make_kv_cache_config(4, windows=(20,)))
    with pytest.raises(InvalidRequestError, match=r"needs 4 KV cache blocks .* has 3 "):
        check_request_fits("a", 60, 200, config, make_kv_cache_config(4, windows=(20,)))


def test_small_chunks_let_longer_requests_fit():
    """A prompt in chunks of `long_prefill_token_threshold` leaves the window step by step, and needs no more blocks."""
    windows = make_kv_cache_config(4, windows=(20,))
    check_request_fits("a", 200, 1, make_config(long_prefill_token_threshold=4), windows)
    with pytest.raises(InvalidRequestError, match=r"needs 13 KV cache blocks .* has 3 "):
        check_request_fits("a", 200, 1, make_config(), windows)
