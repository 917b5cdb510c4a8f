"""Tests of the grouping of layers: which share a block table, and which share tensors."""

from dataclasses import replace

import pytest

from tests.engine.sched.harness import make_config, make_spec
from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, FullAttentionSpec, SlidingWindowSpec
from tracellm.engine.core.kv_cache.kv_cache_utils import get_kv_cache_configs, get_kv_cache_groups, get_max_num_blocks


def layers(*windows: int | None) -> dict[str, AttentionSpec]:
    """Make layers l0, l1, ... with these windows."""
    return {f"l{index}": make_spec(sliding_window=window) for index, window in enumerate(windows)}


def config(*, disabled: bool = False, **settings) -> VllmConfig:
    """Make a configuration with or without the hybrid KV cache manager."""
    made = make_config(**settings)
    made.scheduler_config.disable_hybrid_kv_cache_manager = disabled
    return made


@pytest.mark.parametrize(
    ("windows", "names"),
    [
        ((None, None, None), [["l0", "l1", "l2"]]),
        ((8, 8, 8), [["l0", "l1", "l2"]]),
        ((8, None, 8, None), [["l0", "l2"], ["l1", "l3"]]),
        ((8, 8, None, 8, 8, None), [["l0", "l3"], ["l1", "l4"], ["l2", "l5"]]),
        ((None, None, 8, 8, 8), [["l0", "l1"], ["l2", "l4"], ["l3"]]),  # one group is smaller
        ((8, 8, 8, 8, 8, None), [["l0"], ["l1"], ["l2"], ["l3"], ["l4"], ["l5"]]),
    ],
)
def test_groups_are_of_one_kind_and_of_one_size(windows, names):
    """Each kind of attention is split into groups as large as the rarest kind, layers dealt out in turn, as in vLLM."""
    groups = get_kv_cache_groups(config(), layers(*windows))
    assert [group.layer_names for group in groups] == names
    assert all(layers(*windows)[name] == group.kv_cache_spec for group in groups for name in group.layer_names)


def test_layers_of_different_groups_share_a_tensor():
    """There are as many tensors as layers in the largest group, and the number of blocks follows from that."""
    page = make_spec().page_size_bytes
    made = get_kv_cache_configs(config(), [layers(None, None, 8, 8, 8)], [2 * page * 100 + 1])[0]
    assert made.num_blocks == 100
    assert [tensor.shared_by for tensor in made.kv_cache_tensors] == [["l0", "l2", "l3"], ["l1", "l4"]]
    assert {tensor.size for tensor in made.kv_cache_tensors} == {100 * page}


def test_without_the_hybrid_manager_all_layers_keep_everything():
    """Without the hybrid manager, layers with windows use full attention too if any layer does."""
    (group,) = get_kv_cache_groups(config(disabled=True), layers(8, None, 8))
    assert type(group.kv_cache_spec) is FullAttentionSpec
    assert group.layer_names == ["l0", "l1", "l2"]
    (group,) = get_kv_cache_groups(config(disabled=True), layers(8, 8))
    assert type(group.kv_cache_spec) is SlidingWindowSpec


def test_windows_of_several_lengths_are_refused_with_prefix_caching():
    """Windows of several lengths are refused with prefix caching, and accepted without."""
    with pytest.raises(EngineError, match=r"several lengths.*enable_prefix_caching=False"):
        get_kv_cache_groups(config(), layers(8, 9, None))
    assert len(get_kv_cache_groups(config(enable_prefix_caching=False), layers(8, 9, None))) == 3


def test_layers_of_different_shapes_are_refused():
    """Layers of different shapes are refused, as one pool has one block size."""
    specs = layers(8, None)
    with pytest.raises(EngineError, match="different shapes"):
        get_kv_cache_groups(config(), specs | {"l9": replace(specs["l0"], num_kv_heads=4)})


@pytest.mark.parametrize(
    ("windows", "num_tokens", "blocks"),
    [
        ((None,), 33, 3),
        ((20,), 33, 3),
        ((20,), 1000, 5),  # 19 before and 30 in the step make 4 blocks, and one more for an unaligned start
        ((None, 20), 1000, 63 + 5),
        ((1,), 1000, 3),
    ],
)
def test_the_most_blocks_that_a_request_holds(windows, num_tokens, blocks):
    """The block limit of a request counts all its tokens with full attention, and a window plus a step otherwise."""
    groups = get_kv_cache_groups(config(), layers(*windows))
    assert get_max_num_blocks(groups, num_tokens, config(max_num_batched_tokens=30)) == blocks
