"""Reference implementation of a row's logits before the draw: token by token in float64, by the definitions."""

import math
import random
from typing import Any

import torch
from torch import Tensor

from tests.engine.sample.rows import VOCAB, Row

__all__ = ["processed_logits", "random_row"]


def processed_logits(logits: Tensor, row: Row) -> Tensor:
    """Return one row's processed logits [vocabulary], float64, in vLLM's order of operations."""
    params: dict[str, Any] = {
        "temperature": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_p": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_tokens": 0,
        "stop_token_ids": [],
        "logit_bias": {},
        "allowed_token_ids": range(len(logits)),
    } | row.params
    scores = {
        token: score for token, score in enumerate(logits.double().tolist()) if token in params["allowed_token_ids"]
    }
    for *beginning, last in row.bad_words:
        if row.output[len(row.output) - len(beginning) :] == beginning:
            scores.pop(last, None)
    if len(row.output) < params["min_tokens"]:
        for token in params["stop_token_ids"]:
            scores.pop(token, None)
    for token in scores:
        scores[token] += params["logit_bias"].get(token, 0.0)
        if token in row.prompt or token in row.output:
            penalty = params["repetition_penalty"]
            scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
        count = row.output.count(token)
        scores[token] -= params["frequency_penalty"] * count + params["presence_penalty"] * (count > 0)
    if params["temperature"] > 0:
        scores = _draw_from(scores, params)
    processed = torch.full((len(logits),), -torch.inf, dtype=torch.float64)
    for token, score in scores.items():
        processed[token] = score
    return processed


def _draw_from(scores: dict[int, float], params: dict[str, Any]) -> dict[int, float]:
    """Apply temperature, min-p, top-k and top-p."""
    scores = {token: score / params["temperature"] for token, score in scores.items()}
    least = max(scores.values(), default=0.0) + math.log(params["min_p"]) if params["min_p"] else -math.inf
    scores = {token: score for token, score in scores.items() if score >= least}
    if 0 < params["top_k"] < len(scores):
        smallest = sorted(scores.values())[-params["top_k"]]
        scores = {token: score for token, score in scores.items() if score >= smallest}
    total = sum(math.exp(score) for score in scores.values())
    kept: dict[int, float] = {}
    mass = 0.0
    for token, score in sorted(scores.items(), key=lambda item: -item[1]):
        if params["top_p"] < 1 and mass >= params["top_p"] and kept:
            break
        kept[token] = score
        mass += math.exp(score) / total
    return kept


def random_row(seed: int) -> Row:
    """Make a request with random sampling parameters; at least one token always stays."""
    rng = random.Random(seed)
    params: dict[str, Any] = {"temperature": rng.choice([0.0, 0.5, 1.0, 2.0])}
    choices: dict[str, list[Any]] = {
        "presence_penalty": [-1.5, 0.7],
        "frequency_penalty": [-0.9, 0.4, 2.0],
        "repetition_penalty": [0.6, 1.3],
        "top_k": [1, 4, 10],
        "top_p": [1e-6, 0.3, 0.8],
        "min_p": [0.05, 0.4, 1.0],
        "min_tokens": [2, 4],
        "logit_bias": [{rng.randrange(VOCAB): rng.choice([-20.0, 4.0]) for _ in range(4)}],
        "allowed_token_ids": [rng.sample(range(VOCAB), 14)],
    }
    for name, values in choices.items():
        if rng.random() < 0.35:
            params[name] = rng.choice(values)
    params["stop_token_ids"] = rng.sample(range(VOCAB), 3)
    prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 6))]
    output = [rng.randrange(VOCAB) for _ in range(rng.randint(0, 5))]
    bad_words = [[rng.randrange(VOCAB)], [*output[-2:], rng.randrange(VOCAB)]] if rng.random() < 0.3 else []
    return Row(params, prompt, output, bad_words)
