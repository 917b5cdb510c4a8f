"""Another hash function, fixed width numbers, and a recursive chain."""


def hash_block_tokens(parent_block_hash, curr_block_token_ids):
    own = b"".join(int(token).to_bytes(8, "little") for token in curr_block_token_ids)
    return hashlib.blake2b(own, key=(parent_block_hash or NONE_HASH)[:32], digest_size=32).digest()


def get_request_block_hasher(block_size):
    def chain(parent, token_ids):
        if len(token_ids) < block_size:
            return []
        first = hash_block_tokens(parent, token_ids[:block_size])
        return [first, *chain(first, token_ids[block_size:])]

    def hasher(request):
        known = request.block_hashes
        rest = list(request.all_token_ids)[len(known) * block_size :]
        return chain(known[-1] if known else None, rest)

    return hasher
