"""A model's forward pass over one prompt, in chunks, without the model runner."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.engine.worker.driver import make_config
from tracellm.engine.attention.backend import CommonAttentionMetadata
from tracellm.engine.model_executor.layers.attention import Attention
from tracellm.engine.model_executor.layers.forward_context import set_forward_context
from tracellm.engine.model_executor.model_loader import DefaultModelLoader
from tracellm.engine.model_executor.ops import make_ops, using_ops

__all__ = ["forward", "load"]

BLOCK_SIZE = 4


def load(folder: Path, ops_name: str = "torch", dtype: torch.dtype = torch.float32) -> Any:
    """Load a checkpoint, with its weights prepared for the operations."""
    ops = make_ops(ops_name)
    with using_ops(ops):
        model = DefaultModelLoader().load_model(make_config(folder, dtype=dtype))
    ops.prepare_weights(model)
    return model


def forward(
    model: Any, input_ids: Tensor, positions: Tensor, inputs_embeds: Tensor | None = None, chunks: int = 2
) -> Tensor:
    """Return the hidden states [T, hidden] of a prompt's ids [T] and positions [T] or [3, T]."""
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    blocks = -(-len(input_ids) // BLOCK_SIZE)
    for layer in layers:
        layer.kv_cache = torch.full((2, blocks, BLOCK_SIZE, layer.num_kv_heads, layer.head_size), torch.nan)
    block_table = torch.randperm(blocks, generator=torch.Generator().manual_seed(0))[None].int()
    hidden = []
    for rows in torch.arange(len(input_ids)).chunk(chunks):
        seq_len = int(rows[-1]) + 1
        common = CommonAttentionMetadata(
            query_start_loc=torch.tensor([0, len(rows)], dtype=torch.int32),
            seq_lens=torch.tensor([seq_len], dtype=torch.int32),
            block_table=block_table,
            slot_mapping=block_table[0, rows // BLOCK_SIZE].long() * BLOCK_SIZE + rows % BLOCK_SIZE,
            query_lens_cpu=[len(rows)],
            seq_lens_cpu=[seq_len],
        )
        spec = layers[0].get_kv_cache_spec(BLOCK_SIZE, torch.float32)
        metadata = layers[0].attn_backend.get_builder_cls()(spec, [layer.impl for layer in layers]).build(common)
        with set_forward_context({layer.layer_name: metadata for layer in layers}):
            embeds = None if inputs_embeds is None else inputs_embeds[rows]
            given = {} if embeds is None else {"inputs_embeds": embeds}
            hidden.append(model(input_ids[rows], positions[..., rows], **given))
    return torch.cat(hidden)
