"""Similarity of submissions: a hint to a human, not a verdict.

Each function that a student wrote becomes a text of tokens in which all names of the student's own are one word, and
layout, comments, docstrings and annotations are gone. Fingerprints are hashes of k tokens in a row, of which the
smallest in each window are kept (winnowing). Functions are fingerprinted one by one, so their order does not matter.

    Schleimer, Wilkerson, Aiken: Winnowing: Local Algorithms for Document Fingerprinting, 2003.
"""

import ast
import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from tracellm.lab.lab import Lab

__all__ = ["Pair", "compare_submissions", "fingerprints", "write_similarity"]

THRESHOLD = 0.5
"""Share of the smaller submission's fingerprints from which a pair is listed."""

_LENGTH = 8
"""Tokens in a fingerprint."""

_WINDOW = 4
_FEWEST = 12
"""Fingerprints below which a submission is too short to be compared."""


class Pair(NamedTuple):
    """Two submissions, and the share of common fingerprints, 0 to 1."""

    one: str
    other: str
    share: float
    reason: str
    """`code`, or `seed` if both folders were made by one `tracellm lab start`."""


def compare_submissions(
    lab: Lab, sources: Mapping[str, Mapping[str, str]], seeds: Mapping[str, str], threshold: float = THRESHOLD
) -> list[Pair]:
    """Return the pairs of submissions that are alike, the most alike first.

    Args:
        lab: the lab.
        sources: texts of the lab's files by module, by submission.
        seeds: the seed in each submission's `lab.json`, which `tracellm lab start` draws.
        threshold: smallest share to list.
    """
    prints = {name: fingerprints(lab, texts) for name, texts in sources.items()}
    pairs = []
    for one, other in combinations(sorted(prints), 2):
        smaller = min(prints[one].total(), prints[other].total())
        common = (prints[one] & prints[other]).total()
        share = round(common / smaller, 2) if smaller >= _FEWEST else 0.0
        if share >= threshold:
            pairs.append(Pair(one, other, share, "code"))
        if seeds.get(one, "0") == seeds.get(other, "") != "0":
            pairs.append(Pair(one, other, share, "seed"))
    return sorted(pairs, key=lambda pair: (-pair.share, pair))


def fingerprints(lab: Lab, sources: Mapping[str, str]) -> "Counter[int]":
    """Return the fingerprints of what a student wrote: functions that differ from the starter's."""
    found: Counter[int] = Counter()
    for file in lab.files:
        given = set(_functions(file.starter()))
        for tokens in _functions(sources.get(file.module, "")):
            if tokens not in given:
                found.update(_winnow(tokens))
    return found


def _functions(source: str) -> Iterator[tuple[str, ...]]:
    """Yield the functions of a text as tokens; nothing if it cannot be parsed."""
    try:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own = {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
                own |= {
                    one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
                }
                yield tuple(token for statement in _body(node) for token in _tokens(statement, own))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def _tokens(node: ast.AST, own: set[str]) -> Iterator[str]:
    """Yield the kinds of the nodes in the order of the text, with the names that are not the student's own."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return  # it is yielded as a function of its own
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        node = ast.Assign([node.target], node.value)
    match node:
        case ast.Name(id=name):
            yield "name" if name in own else f"name {name}"
        case ast.Attribute(value=value, attr=name):
            yield from _tokens(value, own)
            yield f".{name}"
            return
        case ast.Constant(value=value):
            yield f"constant {value!r}" if not isinstance(value, str) else "text"
        case ast.expr_context() | ast.Pass():
            return
        case _:
            yield type(node).__name__
    for child in ast.iter_child_nodes(node):
        yield from _tokens(child, own)


def _winnow(tokens: Sequence[str]) -> set[int]:
    """Return the smallest hash of each window of consecutive hashes."""
    texts = [" ".join(tokens[start : start + _LENGTH]) for start in range(len(tokens) - _LENGTH + 1)]
    hashes = [int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()) for text in texts]
    return {min(hashes[start : start + _WINDOW]) for start in range(max(1, len(hashes) - _WINDOW + 1)) if hashes}


def write_similarity(pairs: Sequence[Pair], note: str) -> str:
    """Return the pairs as CSV, with the same note in each row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("one", "other", "similarity", "reason", "note"))
    writer.writerows((pair.one, pair.other, f"{pair.share:.2f}", pair.reason, note) for pair in pairs)
    return out.getvalue()
