"""The sampler's operations, row by row and token by token."""


def apply_all_penalties(
    logits, prompt_token_ids, presence_penalties, frequency_penalties, repetition_penalties, output_token_ids
):
    vocab_size = logits.shape[1]
    for row in range(len(logits)):
        output = output_token_ids[row]
        prompt = [token for token in prompt_token_ids[row].tolist() if token != vocab_size]
        for token in set(output) | set(prompt):
            if logits[row, token] > 0:
                logits[row, token] /= repetition_penalties[row]
            else:
                logits[row, token] *= repetition_penalties[row]
        for token in output:
            logits[row, token] -= frequency_penalties[row]
        for token in set(output):
            logits[row, token] -= presence_penalties[row]
    return logits


def apply_top_k_top_p(logits, top_k, top_p):
    result = logits if top_k is None else apply_top_k_only(logits, top_k)
    if top_p is None:
        return result
    result = result.clone()
    for row in range(len(result)):
        probs = result[row].softmax(0).tolist()
        order = sorted(range(len(probs)), key=lambda token: probs[token], reverse=True)
        total, kept = 0.0, []
        for token in order:
            kept.append(token)
            total += probs[token]
            if total >= top_p[row]:
                break
        for token in order:
            if token not in kept:
                result[row, token] = float("-inf")
    return result


def apply_top_k_only(logits, top_k):
    result = logits.clone()
    for row in range(len(result)):
        kth = sorted(result[row].tolist())[-int(top_k[row])]
        for token in range(result.shape[1]):
            if result[row, token] < kth:
                result[row, token] = float("-inf")
    return result


def random_sample(probs, generators, shared):
    tokens = []
    for row in range(len(probs)):
        generator = generators.get(row, shared)
        u = torch.rand((), generator=generator, dtype=torch.float64).item()
        last = 0
        for token, prob in enumerate(probs[row].tolist()):
            if prob > 0:
                last = token
                u -= prob
                if u < 0:
                    break
        tokens.append(last)
    return torch.tensor(tokens)
