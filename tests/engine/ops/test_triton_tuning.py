"""Tests of block size tuning: once per kind of launch, and separately for few and many rows. Nothing is timed here."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton import Config

from tests.engine.ops.implementations import need_triton
from tracellm.engine.attention.ops import reshape_and_cache as cache
from tracellm.engine.model_executor.ops.triton import TritonOps, activations, norms, rotary, sampling
from tracellm.engine.model_executor.ops.triton.launch import rows_bucket

ops = TritonOps()


def rope(rows: int) -> None:
    """Rotate heads of 8 numbers, 4 of the query and 2 of the key."""
    ops.rotary_embedding(torch.arange(rows), torch.ones(rows, 4, 8), torch.ones(rows, 2, 8), torch.ones(rows, 8))


def write(rows: int) -> None:
    """Write as many slots as there are tokens."""
    key, slots = torch.ones(rows, 2, 8), torch.zeros(1, rows, 2, 8)
    cache.reshape_and_cache(key, key, slots, slots.clone(), torch.arange(rows))


OVER_ROWS: dict[str, tuple[Any, Callable[[int], object]]] = {
    "rms_norm": (norms.rms_norm_kernel, lambda rows: ops.rms_norm(torch.ones(rows, 8), torch.ones(8), 1e-6)),
    "fused_add_rms_norm": (
        norms.fused_add_rms_norm_kernel,
        lambda rows: ops.fused_add_rms_norm(torch.ones(rows, 8), torch.ones(rows, 8), torch.ones(8), 1e-6),
    ),
    "silu_and_mul": (activations.act_and_mul_kernel, lambda rows: ops.silu_and_mul(torch.ones(rows, 8))),
    "rotary_embedding": (rotary.rotary_embedding_kernel, rope),
    "reshape_and_cache": (cache.reshape_and_cache_kernel, write),
    "top_k": (
        sampling.top_k_top_p_kernel,
        lambda rows: ops.apply_top_k_top_p(torch.ones(rows, 8), torch.full((rows,), 8), None),
    ),
}
"""Each operation as a function of its rows, with its kernel."""


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return the name of each tuned kernel, with its approximate number of rows."""
    need_triton("cpu")
    tried: list[tuple[str, int]] = []
    for name, (kernel, _) in OVER_ROWS.items():

        def bench(*args: Any, config: Any, name: str = name, **constants: Any) -> list[float]:
            rows = constants["ROWS_BUCKET"]
            tried.append((name, rows))
            return [float((config.num_warps == 8) != (rows > 16))] * 3

        (fixed,) = kernel.configs
        monkeypatch.setattr(kernel, "configs", [fixed, Config(fixed.kwargs, num_warps=8)])
        monkeypatch.setattr(kernel, "cache", {})
        monkeypatch.setattr(kernel, "_bench", bench)
    return tried


@pytest.mark.parametrize("name", OVER_ROWS)
def test_few_rows_and_many_are_tuned_apart(name: str, tried: list[tuple[str, int]]) -> None:
    """Each configuration is tried once for up to 16 rows and once for up to 256, and later launches use the best."""
    kernel, call = OVER_ROWS[name]
    best = []
    for rows in (3, 17, 16, 40, 1):
        call(rows)
        best.append(kernel.best_config.num_warps)
    assert tried == [(name, 16), (name, 16), (name, 256), (name, 256)]
    assert [warps == 8 for warps in best] == [False, True, False, True, False]


def test_about_how_many() -> None:
    """A class holds sixteen times as many rows as the one before."""
    assert [rows_bucket(rows) for rows in (0, 1, 16, 17, 256, 257, 70_000)] == [16, 16, 16, 256, 256, 4096, 1 << 20]
