"""Streams of tokens for lab 9: two tokenizers, texts split into tokens at any byte, and the detokenizer on them.

The tokenizer `bytes` is that of the bundled model, whose tokens are bytes. `fallback` has characters, and a token for
each byte, as Llama 2's has.
"""

from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from random import Random
from types import SimpleNamespace
from typing import Any

__all__ = ["decode", "make_case", "run_stream", "split", "steps_of", "tokenizer_of", "vocabulary_of"]


# -- tokenizers -------------------------------------------------------------------------------------------------------


@cache
def tokenizer_of(name: str) -> Any:
    """Return a tokenizer with the attribute `backend_tokenizer`."""
    if name == "fallback":
        return SimpleNamespace(backend_tokenizer=_fallback_tokenizer())
    from tracellm.engine.config.hf_config import BUNDLED_MODEL, resolve_model
    from tracellm.engine.config.tokenizer import get_tokenizer

    return get_tokenizer(resolve_model(BUNDLED_MODEL))


def _fallback_tokenizer() -> Any:
    """Make a tokenizer like Llama 2's: its decoder drops the space before a text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *_FALLBACK_PIECES]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in pieces[:3]])
    return tokenizer


_FALLBACK_PIECES = [*"abcdefghijklmnopqrstuvwxyz.,!", "▁", "▁the", "▁cat", "▁and", "▁a", "th", "he", "▁s", "sun", "你"]


@cache
def vocabulary_of(name: str) -> dict[bytes, int]:
    """Return the tokens, without special ones, by their bytes; a character goes before a byte token."""
    vocabulary = tokenizer_of(name).backend_tokenizer.get_vocab(with_added_tokens=False)
    special = tokenizer_of(name).backend_tokenizer.get_added_tokens_decoder()
    pieces = sorted(vocabulary.items(), key=lambda item: item[1])
    return {_bytes_of(name, piece): index for piece, index in pieces if index not in special}


def _bytes_of(name: str, piece: str) -> bytes:
    if name == "bytes":
        return bytes(_alphabet()[letter] for letter in piece)
    return bytes([int(piece[3:5], 16)]) if piece.startswith("<0x") else piece.replace("▁", " ").encode()


@cache
def _alphabet() -> dict[str, int]:
    """Return the byte for each letter of a byte-level vocabulary: bytes that cannot be printed have other letters."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    letters = {chr(byte): byte for byte in printed}
    return letters | {chr(256 + index): byte for index, byte in enumerate(others)}


def decode(case: Mapping[str, Any], token_ids: list[int]) -> str:
    """Return the text of tokens that are decoded at once, as a case's parameters have it."""
    decoded: str = tokenizer_of(case["tokenizer"]).backend_tokenizer.decode(
        token_ids, skip_special_tokens=case["params"].get("skip_special_tokens", True)
    )
    return decoded


def split(random: Random, text: str | bytes, name: str = "bytes", *, mixed: bool = False) -> list[int]:
    """Split a text into tokens at random places.

    With `mixed` a token may end inside a character that it does not begin with; otherwise it is part of one character,
    or some whole ones.
    """
    data = text.encode() if isinstance(text, str) else text
    starts = {index for index, byte in enumerate(data) if byte & 0xC0 != 0x80} | {len(data)}
    vocabulary, tokens, start = vocabulary_of(name), [], 0
    longest = random.choice((1, 2, 4, 8))
    while start < len(data):
        ends = [
            end
            for end in range(start + 1, min(start + longest, len(data)) + 1)
            if data[start:end] in vocabulary
            and (mixed or {start, end} <= starts or not starts.intersection(range(start + 1, end)))
        ]
        end = random.choice(ends)
        tokens.append(vocabulary[data[start:end]])
        start = end
    return tokens


def make_case(
    random: Random, prompt: list[int], tokens: list[int], *, per_step: int = 1, **more: Any
) -> dict[str, Any]:
    """Return a case with these tokens, shown as pieces or as the whole text so far."""
    case = {"tokenizer": "bytes", "prompt": prompt, "tokens": tokens, "per_step": per_step, "stop_token": False}
    return case | {"delta": random.random() < 0.6, "params": {}} | more


def run_stream(case: Mapping[str, Any]) -> dict[str, Any]:
    """Add a case's tokens step by step until a stop string is found; return the text that is shown after each step."""
    from tracellm.engine.frontend.detokenizer import IncrementalDetokenizer
    from tracellm.engine.ipc.messages import EngineCoreRequest
    from tracellm.engine.sample.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=1000, **case["params"])
    nothing: dict[str, Any] = dict.fromkeys(
        ("mm_features", "pooling_params", "eos_token_id", "lora_request", "cache_salt", "data_parallel_rank")
    )
    request = EngineCoreRequest(
        request_id="0", prompt_token_ids=list(case["prompt"]), sampling_params=params, arrival_time=0.0, **nothing
    )
    of = IncrementalDetokenizer.from_new_request(tokenizer_of(case["tokenizer"]), request)
    pieces: list[str] = []
    found = None
    for start, end in steps_of(case):
        last = end == len(case["tokens"])
        found = of.update(list(case["tokens"][start:end]), last and case["stop_token"])
        pieces.append(of.get_next_output_text(last or found is not None, case["delta"]))
        if found is not None:
            break
    shown = list(accumulate(pieces)) if case["delta"] else pieces
    return {"shown": shown, "found": found, "num_tokens": len(of.output_token_ids)}


def steps_of(case: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the first token of each step, and the one behind its last."""
    count, size = len(case["tokens"]), case["per_step"]
    return [(start, min(start + size, count)) for start in range(0, count, size)]
