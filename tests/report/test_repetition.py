"""Repetition among siblings: found on digests, nested, and within a window."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trees import bottom_up, fold
from tracellm.report.tree.fold import Folder
from tracellm.report.tree.nodes import Node, Shape, walk
from tracellm.report.tree.repetition import LONGEST_SEQUENCE, Part, Several, repetition


def calls(*names: str) -> list[Node]:
    """Return calls by name; `A(BC)` calls B and C."""
    found = []
    for name in names:
        key, _, below = name.partition("(")
        found.append(Node("call", key, children=calls(*below.rstrip(")"))))
    return found


def drawn(nodes: Sequence[Node]) -> str:
    """Return short notation: `A*3` for repeated calls, `[A B]*2` for repeated sequences."""
    said = []
    for node in nodes:
        name = f"[{drawn(node.children)}]" if node.kind == "repeat" else str(node.key)
        said.append(name if node.count == 1 else f"{name}*{node.count}")
    return " ".join(said)


@pytest.mark.parametrize(
    ("made", "folded"),
    [
        ("ABCABC", "[A*2 B*2 C*2]*2"),
        ("ABABCABABC", "[[A*4 B*4]*4 C*2]*2"),
        ("ABABCABABCDABABCABABCD", "[[[A*8 B*8]*8 C*4]*4 D*2]*2"),
        ("AABAAB", "[A*4 B*2]*2"),
        ("XABABY", "X [A*2 B*2]*2 Y"),
        ("ABCABD", "A B C A B D"),
        ("ABACADAE", "A B A C A D A E"),
    ],
)
def test_sequences_fold_however_deep_they_nest(made: str, folded: str):
    """Repeated calls and sequences fold, however deeply nested."""
    assert drawn(fold(calls(*made))) == folded


def test_the_window_has_an_end():
    """A repeated sequence of eight calls is found, one of nine is not."""
    eight = "ABCDEFGH"
    assert len(eight) == LONGEST_SEQUENCE
    assert len(fold(calls(*eight * 3))) == 1
    assert len(fold(calls(*(eight + "I") * 3))) == 27


def test_equal_subtrees_have_one_digest():
    """Trees with the same calls in the same order share a digest object; others do not."""
    folder = Folder()
    one, other, more, turned = calls("A(BC)", "A(BC)", "A(BCC)", "A(CB)")
    assert folder.shape(one) is folder.shape(other)
    assert len({id(folder.shape(node)) for node in (one, more, turned)}) == 3


def test_the_digest_of_a_chain_needs_no_stack():
    """A chain of ten thousand nested calls has a digest."""
    node = Node("call", "A")
    for _ in range(10_000):
        node = Node("call", "A", children=[node])
    assert Folder().shape(node) is not None


def test_what_changes_below_changes_the_digest():
    """A node with other children has another digest."""
    folder = Folder()
    one, other = calls("A(BC)", "A(BC)")
    before = folder.shape(one)
    one.replace_children(calls("B"))
    other.add(Node("call", "D"))
    assert before not in (folder.shape(one), folder.shape(other))


def test_groups_of_steps_stay_apart():
    """Two adjacent groups of engine steps are never folded, even if equal."""
    groups = [Node("steps", "steps", children=calls("A")) for _ in range(4)]
    assert fold(groups) == groups


def _places(parts: Sequence[Part]) -> list[int]:
    found = []
    for part in parts:
        found += [part] if isinstance(part, int) else _places(part.parts)
    return found


def _same_length(part: Part) -> bool:
    """Return whether all rounds of a sequence have the same number of parts."""
    if isinstance(part, int):
        return True
    rounds = [len(one.parts) for one in part.parts if isinstance(one, Several) and not one.merged]
    return len(set(rounds)) <= 1 and all(map(_same_length, part.parts))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from("ABC"), max_size=60))
def test_each_sibling_is_in_one_place(names: list[str]):
    """Every call is kept once and in order, and calls without repetition are unchanged."""
    shapes = {name: Shape(name, frozenset(), (), apart=False) for name in "ABC"}
    parts = repetition([shapes[name] for name in names])
    if parts is None:
        assert all(one != other for one, other in pairwise(names))
    else:
        assert _places(parts) == list(range(len(names)))
        assert len(parts) < len(names)
        assert all(map(_same_length, parts))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["A", "B", "A(B)", "A(BC)", "B(AA)"]), max_size=24))
def test_lists_that_were_seen_before_fold_the_same(names: list[str]):
    """A cached list of digests folds as it would without the cache."""
    folder = Folder()
    first, again, apart = ([Node("call", "top", children=calls(*names))] for _ in range(3))
    assert drawn(folder.fold_all(first)[0].children) == drawn(folder.fold_all(again)[0].children)
    bottom_up(apart, fold)
    assert drawn(apart[0].children) == drawn(first[0].children)
    assert sum(node.count for node in walk(first) if node.kind == "call") == sum(
        len(calls(name)[0].children) + 1 for name in names
    ) + 1  # fmt: skip
