"""The sampler's operations, as few expressions over whole tensors."""

from torch.nn.functional import one_hot


def apply_all_penalties(
    logits, prompt_token_ids, presence_penalties, frequency_penalties, repetition_penalties, output_token_ids
):
    size = logits.shape[1]
    prompt = one_hot(prompt_token_ids, size + 1).sum(1)[:, :size]
    output = torch.stack([one_hot(torch.tensor(ids, dtype=torch.long), size).sum(0) for ids in output_token_ids])
    factor = torch.where(prompt + output > 0, repetition_penalties[:, None], 1)
    weaker = torch.minimum(logits * factor, logits / factor)
    stronger = torch.maximum(logits * factor, logits / factor)
    new = torch.where(factor >= 1, weaker, stronger)
    new = new - output * frequency_penalties[:, None] - (output > 0) * presence_penalties[:, None]
    logits.copy_(new)
    return logits


def apply_top_k_top_p(logits, top_k, top_p):
    if top_k is not None:
        logits = apply_top_k_only(logits, top_k)
    if top_p is None:
        return logits
    probs, order = logits.softmax(-1).sort(dim=-1, descending=True)
    more_likely = probs.cumsum(-1).roll(1, dims=-1)
    more_likely[:, 0] = 0
    drop = torch.empty_like(probs, dtype=torch.bool).scatter_(1, order, more_likely >= top_p[:, None])
    return logits.masked_fill(drop, -torch.inf)


def apply_top_k_only(logits, top_k):
    num_larger = (logits[:, None, :] > logits[:, :, None]).sum(-1)
    return logits.masked_fill(num_larger >= top_k[:, None], -torch.inf)


def random_sample(probs, generators, shared):
    return torch.cat(
        [torch.multinomial(row, 1, generator=generators.get(number, shared)) for number, row in enumerate(probs)]
    )
