"""Loops over tokens and heads: what is not seen is not read."""

import math

import torch


class TorchAttentionMetadataBuilder:
    def build(self, common):
        return TorchAttentionMetadata(**vars(common))


class TorchAttentionImpl:
    def reshape_and_cache(self, key, value, key_cache, value_cache, slot_mapping):
        size = key_cache.shape[1]
        for token, slot in enumerate(slot_mapping.tolist()):
            key_cache[slot // size, slot % size] = key[token]
            value_cache[slot // size, slot % size] = value[token]

    def paged_attention(self, query, key_cache, value_cache, metadata):
        size = key_cache.shape[1]
        group = self.num_heads // self.num_kv_heads
        output = torch.zeros_like(query)
        row = 0
        for i in range(len(metadata.seq_lens_cpu)):
            length, n = metadata.seq_lens_cpu[i], metadata.query_lens_cpu[i]
            for position in range(length - n, length):
                first = 0
                if self.sliding_window is not None:
                    first = max(0, position + 1 - self.sliding_window)
                places = [(int(metadata.block_table[i, p // size]), p % size) for p in range(first, position + 1)]
                for head in range(self.num_heads):
                    shared = head // group
                    scores = []
                    for block, offset in places:
                        score = float(query[row, head] @ key_cache[block, offset, shared]) * self.scale
                        if self.logits_soft_cap is not None:
                            score = math.tanh(score / self.logits_soft_cap) * self.logits_soft_cap
                        scores.append(score)
                    top = max(scores)
                    weights = [math.exp(score - top) for score in scores]
                    for (block, offset), weight in zip(places, weights):
                        output[row, head] += value_cache[block, offset, shared] * (weight / sum(weights))
                row += 1
        return output
