"""Tokens are written out with separators, and every block is looked at in turn."""


def hash_block_tokens(parent_block_hash, curr_block_token_ids):
    text = ""
    for token in curr_block_token_ids:
        text = text + str(token) + ","
    if parent_block_hash is None:
        return hashlib.sha256(b"first block:" + text.encode()).digest()
    return hashlib.sha256(b"block after " + parent_block_hash + b":" + text.encode()).digest()


def get_request_block_hasher(block_size):
    def hasher(request):
        new = []
        done = len(request.block_hashes)
        parent = None
        if done > 0:
            parent = request.block_hashes[done - 1]
        while (done + 1) * block_size <= request.num_tokens:
            block = []
            for position in range(done * block_size, (done + 1) * block_size):
                block.append(request.all_token_ids[position])
            parent = hash_block_tokens(parent, block)
            new.append(parent)
            done += 1
        return new

    return hasher
