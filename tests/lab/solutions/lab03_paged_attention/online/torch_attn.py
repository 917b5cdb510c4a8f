"""Walks over the blocks of a sequence, with an online softmax."""

import torch


class TorchAttentionMetadataBuilder:
    def build(self, common):
        starts = common.query_start_loc.tolist()
        ranges = list(zip(starts, starts[1:], common.seq_lens.tolist()))
        return TorchAttentionMetadata(**vars(common), groups={"ranges": ranges})


class TorchAttentionImpl:
    def reshape_and_cache(self, key, value, key_cache, value_cache, slot_mapping):
        for cache, new in ((key_cache, key), (value_cache, value)):
            cache.view(-1, *cache.shape[2:])[slot_mapping] = new

    def paged_attention(self, query, key_cache, value_cache, metadata):
        return torch.cat(
            [
                attend(self, query[start:stop], length, metadata.block_table[i], key_cache, value_cache)
                for i, (start, stop, length) in enumerate(metadata.groups["ranges"])
            ]
        )


def attend(impl, query, length, table, key_cache, value_cache):
    n, size, group = len(query), key_cache.shape[1], impl.num_heads // impl.num_kv_heads
    window = impl.sliding_window or length
    position = torch.arange(length - n, length)
    queries = query.view(n, impl.num_kv_heads, group, impl.head_size) * impl.scale
    best = torch.full(queries.shape[:3], -torch.inf)
    total = torch.zeros(queries.shape[:3])
    output = torch.zeros(queries.shape)
    for start in range(max(0, length - n - window + 1) // size * size, length, size):
        stop = min(start + size, length)
        block = table[start // size]
        keys, values = (cache[block, : stop - start] for cache in (key_cache, value_cache))
        scores = torch.einsum("nkgd,skd->nkgs", queries, keys)
        if impl.logits_soft_cap is not None:
            scores = (scores / impl.logits_soft_cap).tanh() * impl.logits_soft_cap
        distance = position[:, None] - torch.arange(start, stop)
        hidden = (distance < 0) | (distance >= window)
        scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
        new = torch.maximum(best, scores.amax(-1))
        base = torch.where(new == -torch.inf, 0.0, new)
        factor, weights = (best - base).exp(), (scores - base[..., None]).exp()
        total = total * factor + weights.sum(-1)
        output = output * factor[..., None] + torch.einsum("nkgs,skd->nkgd", weights, values)
        best = new
    return (output / total[..., None]).view(n, impl.num_heads, impl.head_size)
