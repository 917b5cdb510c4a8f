"""Folding: repeated calls are drawn once, and none is lost."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.traces import Calls, hello
from tests.trees import bottom_up, fold
from tracellm.report.diagram.key_calls import choose, choose_all
from tracellm.report.diagram.story import DiagramTree
from tracellm.report.tree.folded import under_lines
from tracellm.report.tree.invariants import check
from tracellm.report.tree.nodes import DEEPEST, CallTree, Node, call_tree, walk
from tracellm.report.tree.select import down_to, focus_on, lifeline_names
from tracellm.report.tree.step_groups import condense, group_steps
from tracellm.trace import names
from tracellm.trace.model import Trace

Tree = tuple[str, list["Tree"]]

CLASSES = ["A.f", "A.g", "B.f", "ops.k"]
LEVEL = {"A.f": "request", "A.g": "step", "B.f": "layer", "ops.k": "kernel"}

TREES: st.SearchStrategy[Tree] = st.recursive(
    st.tuples(st.sampled_from(CLASSES), st.just([])),
    lambda below: st.tuples(st.sampled_from(CLASSES), st.lists(below, max_size=6)),
    max_leaves=20,
)


def trace_of(*trees: Tree, script: bool = True) -> Trace:
    """Return a trace of these trees, below a script or as roots."""
    calls = Calls()

    def make(tree: Tree) -> None:
        name, below = tree
        with calls(name, LEVEL.get(name, "step")):
            for one in below:
                make(one)

    if script:
        with calls("hello.py", "request", lifeline="hello.py"):
            for tree in trees:
                make(tree)
    else:
        for tree in trees:
            make(tree)
    return calls.trace()


def shape(nodes: Sequence[Node]) -> list[object]:
    """Return names with counts, or kinds of other nodes, with their children, for comparisons."""
    return [
        (
            node.span.name if node.kind == "call" else node.kind,
            node.count,
            *([shape(node.children)] * bool(node.children)),
        )
        for node in nodes
    ]


def folded(*trees: Tree) -> list[object]:
    """Return the shape of the folded trees below the script."""
    return shape(bottom_up(call_tree(trace_of(*trees)), fold)[0].children)


def leaf(name: str) -> Tree:
    """Return a call without callees."""
    return name, []


def test_a_call_made_many_times_running_is_one_node():
    """Consecutive equal calls, and the calls below them, are one node with a count."""
    layer = ("B.f", [leaf("ops.k"), leaf("ops.k")])
    assert folded(*[layer] * 24) == [("B.f", 24, [("ops.k", 48)])]


def test_a_sequence_made_many_times_running_is_a_repeat():
    """Alternating calls become a repeat node with one of each, in order."""
    assert folded(*[leaf("A.f"), leaf("B.f")] * 3) == [("repeat", 3, [("A.f", 3), ("B.f", 3)])]


def test_a_sequence_of_runs_is_folded_inside_out():
    """Runs fold first, then the sequence of them."""
    once = [leaf("A.f"), leaf("B.f"), leaf("B.f")]
    assert folded(*once * 2) == [("repeat", 2, [("A.f", 2), ("B.f", 4)])]


def test_a_call_that_does_a_little_more_is_still_alike():
    """Calls with one additional callee fold together, and the callee's count is how often it occurred."""
    plain, more = ("A.g", [leaf("A.f")]), ("A.g", [leaf("A.f"), leaf("ops.k")])
    assert folded(plain, more, plain) == [("A.g", 3, [("A.f", 3), ("ops.k", 1)])]


def test_calls_that_do_different_things_stay_apart():
    """Calls of one method with different callees are not folded."""
    first, second = ("A.g", [leaf("A.f")]), ("A.g", [leaf("B.f")])
    assert folded(first, second) == [("A.g", 1, [("A.f", 1)]), ("A.g", 1, [("B.f", 1)])]


def test_merging_keeps_the_order_of_the_calls():
    """A callee of only a later call keeps its position when calls are merged."""
    first, second = ("A.g", [leaf("A.f"), leaf("ops.k")]), ("A.g", [leaf("A.f"), leaf("B.f"), leaf("ops.k")])
    assert folded(first, second) == [("A.g", 2, [("A.f", 2), ("B.f", 1), ("ops.k", 2)])]


def test_one_round_joins_a_sequence_of_many():
    """Calls with two rounds fold, with their rounds summed; a call with one round stays apart."""
    once = [leaf("A.f"), leaf("B.f")]
    assert folded(("A.g", once), ("A.g", once * 2), ("A.g", once * 2)) == [
        ("A.g", 1, [("A.f", 1), ("B.f", 1)]),
        ("A.g", 2, [("repeat", 4, [("A.f", 4), ("B.f", 4)])]),
    ]


def test_a_failed_call_is_not_folded_with_those_that_went_well():
    """A failed call is not folded with successful ones."""
    calls = Calls()
    with calls("hello.py", lifeline="hello.py"):
        calls.leaf("A.f")
        with pytest.raises(ValueError, match="no"), calls("A.f"):
            raise ValueError("no")
    assert shape(bottom_up(call_tree(calls.trace()), fold)[0].children) == [("A.f", 1), ("A.f", 1)]


def passes(trace: Trace) -> list[Callable[[list[Node]], list[Node]]]:
    """Return every pass and every change of siblings."""

    def alone(one: Callable[[DiagramTree], DiagramTree]) -> Callable[[list[Node]], list[Node]]:
        return lambda roots: one(DiagramTree(trace, roots)).roots

    return [
        lambda roots: bottom_up(roots, fold),
        lambda roots: bottom_up(roots, under_lines),
        lambda roots: bottom_up(roots, group_steps(trace)),
        *map(alone, [lambda tree: down_to(tree, "step"), lambda tree: focus_on(tree, lifeline_names(tree.roots)[-1:])]),
        *map(alone, [lambda tree: choose(tree, 5), choose_all]),
    ]


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(TREES, min_size=1, max_size=4), script=st.booleans())
def test_no_pass_loses_a_call_or_time(trees: list[Tree], script: bool):
    """Each pass alone, and all in a row, keep every span once, the own times, and the order."""
    trace = trace_of(*trees, script=script)
    for number in range(len(passes(trace))):
        check(call_tree(trace), passes(trace)[number](call_tree(trace)))
    tree = call_tree(trace)
    for change in passes(trace):
        tree = change(tree)
        check(call_tree(trace), tree)


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(TREES, min_size=1, max_size=4))
def test_own_times_sum_to_the_whole(trees: list[Tree]):
    """Folding keeps the sum of own times equal to the root's total."""
    trace = trace_of(*trees)
    root = trace.roots[0]
    for tree in (call_tree(trace), bottom_up(call_tree(trace), fold)):
        assert sum(node.own_ns for node in walk(tree)) == tree[0].total_ns == root.duration_ns


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(TREES, min_size=1, max_size=4))
def test_folding_what_is_folded_changes_nothing(trees: list[Tree]):
    """Folding twice changes nothing, and the counts match the trace."""
    trace = trace_of(*trees)
    for node in walk(bottom_up(call_tree(trace), fold)):
        if node.kind == "call":
            assert node.count == len(node.spans)
            assert node.total_ns == sum(span.duration_ns for span in node.spans)


@pytest.mark.parametrize("most", [4, 5, 10])
def test_many_groups_of_steps_become_few(most: int):
    """When every step differs, at most `most` groups remain, with every step."""
    calls = Calls()
    with calls("hello.py", lifeline="hello.py"):
        for index in range(1, 41):
            with calls("EngineCore.step_fn", **_facts(index)):
                calls.leaf("Scheduler.schedule")
    trace = calls.trace()
    tree = condense(CallTree(trace, bottom_up(call_tree(trace), group_steps(trace))), most).roots
    check(call_tree(trace), tree)
    groups = tree[0].children
    assert len(groups) <= most
    assert [step.index for group in groups for step in group.steps] == list(range(1, 41))
    assert groups[0].steps[0].kind == "prefill"
    assert any(group.count == 1 and group.steps[0].kind == "decode" for group in groups)


def _facts(index: int) -> dict[str, Any]:
    kind = "decode" if index > 30 else "prefill"
    return {
        names.STEP_INDEX: index,
        names.STEP_KIND: kind,
        names.STEP_REQUESTS: [str(index)],
        names.STEP_NEW: [str(index)],
    }


def test_alike_steps_become_one_group():
    """The first and the last step stand alone, and those between are one group."""
    trace = hello(tokens=17)
    grouped = group_steps(trace)
    tree = bottom_up(call_tree(trace), lambda siblings: fold(under_lines(grouped(siblings))))
    check(call_tree(trace), tree)
    groups = [node for node in walk(tree) if node.kind == "steps"]
    assert [[step.index for step in group.steps] for group in groups] == [[1], list(range(2, 17)), [17]]
    assert [child.span.name for child in groups[1].children] == ["LLMEngine.has_unfinished_requests", "LLMEngine.step"]


def test_calls_deeper_than_can_be_shown_are_counted():
    """A recursion of a thousand calls gives a tree of bounded depth that counts them all."""
    calls = Calls()
    stack = [calls("A.f") for _ in range(1000)]
    for one in stack:
        one.__enter__()
    for one in reversed(stack):
        one.__exit__(None, None, None)
    trace = calls.trace()
    tree = bottom_up(call_tree(trace), fold)
    check(call_tree(trace), tree)
    assert len(list(walk(tree))) == DEEPEST + 1
    assert sum(node.own_ns for node in walk(tree)) == tree[0].total_ns


def test_each_generation_keeps_a_group_of_steps():
    """Several generations share the limit: the first shows most, and each keeps a group."""
    calls = Calls()
    with calls("hello.py", lifeline="hello.py"):
        for number in range(5):
            with calls("LLM.generate", line=(number, "llm.generate()")):
                for index in range(1, 21):
                    calls.leaf("EngineCore.step_fn", **_facts(20 * number + index))
    trace = calls.trace()
    tree = condense(CallTree(trace, bottom_up(call_tree(trace), group_steps(trace))), 10).roots
    check(call_tree(trace), tree)
    counts = [len(node.children) for node in walk(tree) if node.kind == "call" and node.span.name == "LLM.generate"]
    assert counts == [6, 1, 1, 1, 1] or (sum(counts) <= 10 and min(counts) >= 1 and counts[0] == max(counts))
    assert [step.index for node in walk(tree) for step in node.steps] == list(range(1, 101))
