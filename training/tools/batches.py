"""Rows of tokens to train on: a list of tools once, and after it several conversations that do not see one another.

Each conversation has the positions that it would have alone after the list, so a row gives the same losses as its
conversations one by one, with a fraction of the tokens. Documents of the corpus of `tiny`, which have no tools, share
rows too.
"""

# ruff: noqa: SIM905 - a word list is read more easily as one string

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from training.corpus import documents
from training.corpus.render import Document

from .conversations import Part, conversation, toolbox
from .draw import Draw

__all__ = ["Row", "make_row", "rows"]

TOKENS_PER_ROW = 900
PLAIN_ROWS = 0.15
"""Share of rows with documents of the corpus of `tiny`."""


class Row(NamedTuple):
    """One row.

    Attributes:
        input_ids: (1, length) int64.
        position_ids: (1, length) int64, the position of each token in its conversation.
        ends: where the list of tools ends, then where each conversation does.
        targets: (learned,) int64, the tokens to predict.
        positions: (learned,) int64, the index of the token that predicts each target.
        copies: (copied, 2) int64, the index of the token that predicts a copy, and that of the token to copy.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    ends: tuple[int, ...]
    targets: torch.Tensor
    positions: torch.Tensor
    copies: torch.Tensor


def copied(text: str, before: str) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and source of each piece of `text` that is also in `before`: names, values, numbers, results."""
    start = 0
    while start < len(text):
        if not text[start].isalnum() or (start and _within_word(text, start)):
            start += 1
            continue
        end = start
        while end < len(text) and text[start : end + 1] in before:
            end += 1
        while end > start and (_within_word(text, end) or not text[end - 1].isalnum()):
            end -= 1
        piece = text[start:end]
        if piece and (
            len(piece) >= 12 or (piece not in _USUAL and (len(piece) > 2 or not piece.isascii() or piece.isdigit()))
        ):
            source = before.rfind(piece)
            while source > 0 and (_within_word(before, source) or _within_word(before, source + len(piece))):
                source = before.rfind(piece, 0, source + len(piece) - 1)
            if source >= 0:
                yield start, end, source
                start = end
                continue
        start += 1


def _within_word(text: str, index: int) -> bool:
    return 0 < index < len(text) and all(c.isascii() and c.isalnum() for c in text[index - 1 : index + 1])


_USUAL = frozenset(
    (
        *"The|weather|The weather|The weather in|time|The time|The time in|tool|call".split("|"),
        *"的 的天气 天气 现在 现在是 是".split(),
    )
)
"""Words of the answers' own."""


class _Encoder:
    """Tokens of a text that grows, each with the character that it begins."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.text = tokenizer, ""
        self.ids: list[int] = []
        self.starts: list[int] = []
        self.tokens_at: dict[int, list[int]] = defaultdict(list)  # those of each character; several may share one

    def copy(self) -> "_Encoder":
        """Return an encoder that goes on from here."""
        other = _Encoder(self.tokenizer)
        other.text, other.ids, other.starts = self.text, [*self.ids], [*self.starts]
        other.tokens_at = self.tokens_at.copy()
        return other

    def add(self, text: str) -> range:
        """Add a text; return the indexes of its tokens."""
        encoding, first = self.tokenizer.encode(text), len(self.ids)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            begin = start + (end > start + 1 and text[start] == " ")
            for character in range(begin, max(end, begin + 1)):
                self.tokens_at[len(self.text) + character].append(len(self.ids))
            self.starts.append(len(self.text) + begin)
            self.ids.append(token)
        self.text += text
        return range(first, len(self.ids))

    def sources(self, tokens: range, text: str, before: str) -> Iterator[tuple[int, int]]:
        """Yield each of `tokens`, of the last `text`, that is copied, and the token of `before` that it copies."""
        pieces = list(copied(text, before))
        for token in tokens:
            place = self.starts[token] - len(before)
            for start, end, source in pieces:
                if start <= place < end:
                    which = self.tokens_at[len(before) + place].index(token)
                    found = self.tokens_at[source + place - start]
                    if found:
                        yield token, found[min(which, len(found) - 1)]


def make_row(tokenizer: Tokenizer, beginning: str, conversations: Iterable[list[Part]]) -> Row:
    """Return the row of `beginning` and as many of `conversations` as fit into `TOKENS_PER_ROW`, at least one."""
    base = _Encoder(tokenizer)
    shared = len(base.add(beginning))
    ids, places, ends = [*base.ids], [*range(shared)], [shared]
    targets, positions, copies = [], [], []
    for parts in conversations:
        encoder = base.copy()
        own_targets: list[int] = []
        own_copies: list[tuple[int, int]] = []
        for part in parts:
            before = encoder.text
            tokens = encoder.add(part.text)
            if part.learned:
                own_targets += tokens[1:] if part.forced else tokens
                own_copies += encoder.sources(tokens, part.text, before)
        if len(ends) > 1 and len(ids) + len(encoder.ids) - shared > TOKENS_PER_ROW:
            break
        shift = len(ids) - shared
        targets += [encoder.ids[token] for token in own_targets]
        positions += [token - 1 + shift for token in own_targets]
        copies += [(token - 1 + shift, source + shift * (source >= shared)) for token, source in own_copies]
        ids += encoder.ids[shared:]
        places += range(shared, len(encoder.ids))
        ends.append(len(ids))
    return Row(
        torch.tensor([ids]), torch.tensor([places]), tuple(ends), torch.tensor(targets), torch.tensor(positions),
        torch.tensor(copies, dtype=torch.long).view(-1, 2),
    )  # fmt: skip


def _plain(documents: Iterator[Document]) -> Iterator[list[Part]]:
    for document in documents:
        yield [Part(document.prompt, learned=False), Part(document.answer + document.end, learned=True)]


def rows(tokenizer: Tokenizer, seed: str) -> Iterator[Row]:
    """Yield rows without end."""
    draw, rng = Draw(seed), random.Random(seed)
    plain = documents(rng.randrange(2**60))
    while True:
        if rng.random() < PLAIN_ROWS:
            yield make_row(tokenizer, "", _plain(islice(plain, 60)))
        else:
            box = toolbox(draw)
            yield make_row(tokenizer, box.text(), (conversation(draw, box) for _ in range(60)))
