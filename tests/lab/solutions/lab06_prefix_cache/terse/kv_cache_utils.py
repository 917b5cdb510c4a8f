"""Tuples, accumulate, and a hash of their text."""

from itertools import accumulate


def hash_block_tokens(parent_block_hash, curr_block_token_ids):
    return hashlib.md5(repr((parent_block_hash or NONE_HASH, tuple(curr_block_token_ids))).encode()).digest()


def get_request_block_hasher(block_size):
    def hasher(request):
        tokens, count = request.all_token_ids, request.num_tokens // block_size
        blocks = (tokens[i * block_size : (i + 1) * block_size] for i in range(count))
        return list(accumulate(blocks, hash_block_tokens, initial=NONE_HASH))[1 + len(request.block_hashes) :]

    return hasher
