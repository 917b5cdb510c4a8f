"""One padded batch of all sequences; what a query does not see is replaced by zero before it is used."""

import torch


class TorchAttentionMetadataBuilder:
    def build(self, common):
        metadata = TorchAttentionMetadata(**vars(common))
        metadata.sequence_of_row = torch.repeat_interleave(
            torch.arange(len(common.query_lens_cpu)), torch.tensor(common.query_lens_cpu)
        )
        before = common.seq_lens - common.query_start_loc[1:]
        metadata.position_of_row = torch.arange(len(metadata.sequence_of_row)) + before[metadata.sequence_of_row]
        return metadata


class TorchAttentionImpl:
    def reshape_and_cache(self, key, value, key_cache, value_cache, slot_mapping):
        blocks, offsets = slot_mapping // key_cache.size(1), slot_mapping % key_cache.size(1)
        key_cache[blocks, offsets] = key
        value_cache[blocks, offsets] = value

    def paged_attention(self, query, key_cache, value_cache, metadata):
        size = key_cache.size(1)
        columns = -(-int(metadata.seq_lens.max()) // size)
        rows = metadata.block_table[metadata.sequence_of_row, :columns].long()  # [T, columns]
        at = torch.arange(columns * size)
        distance = metadata.position_of_row[:, None] - at  # [T, S]
        seen = distance >= 0
        if self.sliding_window:
            seen &= distance < self.sliding_window
        heads = torch.arange(self.num_heads) // (self.num_heads // self.num_kv_heads)

        def gathered(cache):
            tokens = cache[rows].flatten(1, 2)  # [T, S, K, D]
            return tokens.masked_fill(~seen[:, :, None, None], 0.0)[:, :, heads]

        scores = (query[:, None] * gathered(key_cache)).sum(-1) * self.scale  # [T, S, H]
        if self.logits_soft_cap:
            scores = self.logits_soft_cap * torch.tanh(scores / self.logits_soft_cap)
        weights = torch.where(seen[:, :, None], scores, -torch.inf).softmax(1)
        return (weights[..., None] * gathered(value_cache)).sum(1)
