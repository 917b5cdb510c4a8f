"""The sampler's operations, with NumPy and indices that sort."""


def apply_all_penalties(
    logits, prompt_token_ids, presence_penalties, frequency_penalties, repetition_penalties, output_token_ids
):
    vocab_size = logits.shape[1]

    def count(rows):
        return np.stack([np.bincount(np.asarray(row, dtype=np.int64), minlength=vocab_size + 1) for row in rows])

    written = count(output_token_ids)[:, :vocab_size]
    read = count(prompt_token_ids.tolist())[:, :vocab_size]
    values = logits.numpy()
    repetition = repetition_penalties.numpy()[:, None]
    used = (written + read) > 0
    positive = values > 0
    np.divide(values, repetition, out=values, where=used & positive)
    np.multiply(values, repetition, out=values, where=used & ~positive)
    values -= written * frequency_penalties.numpy()[:, None]
    values -= np.minimum(written, 1) * presence_penalties.numpy()[:, None]
    return logits


def apply_top_k_top_p(logits, top_k, top_p):
    if top_k is not None:
        logits = apply_top_k_only(logits, top_k)
    if top_p is not None:
        values = logits.numpy().copy()
        order = np.argsort(-values, axis=1, kind="stable")
        descending = np.take_along_axis(values, order, axis=1).astype(np.float64)
        weights = np.exp(descending - descending[:, :1])
        probs = weights / weights.sum(axis=1, keepdims=True)
        before = np.cumsum(probs, axis=1) - probs
        descending[before >= top_p.numpy()[:, None].astype(np.float64)] = -np.inf
        np.put_along_axis(values, order, descending.astype(np.float32), axis=1)
        logits = torch.from_numpy(values)
    return logits


def apply_top_k_only(logits, top_k):
    values = logits.numpy()
    descending = -np.sort(-values, axis=1)
    limits = descending[np.arange(len(values)), top_k.numpy() - 1]
    return torch.from_numpy(np.where(values >= limits[:, None], values, -np.inf).astype(np.float32))


def random_sample(probs, generators, shared):
    points = torch.rand(len(probs), 1, generator=shared, dtype=torch.float64)
    for row, generator in generators.items():
        points[row] = torch.rand(1, generator=generator, dtype=torch.float64)
    sums = probs.double().cumsum(dim=1)
    return (sums <= points * sums[:, -1:]).sum(dim=1)
