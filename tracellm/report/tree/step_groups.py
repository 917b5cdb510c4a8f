"""Groups engine steps in which nothing changed into one node: "steps 3-17: decode, 2 requests".

Each step repeats more calls than `EngineCore.step_fn`: the `LLMEngine.step` around it, and calls before it
(`has_unfinished_requests`). The group contains all of these, merged. If the engine core has a process of its own, no
client's call is around its steps. Then the group contains the step's *turn*: the messages received before it, and those
sent and received after it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from tracellm.report.tree.fold import Folder, merge
from tracellm.report.tree.nodes import CallTree, Node, walk
from tracellm.report.wording.changes import alike
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN, Step, steps

__all__ = ["AROUND", "condense", "group_steps", "step_head", "steps_key"]

T = TypeVar("T", bound=CallTree)

AROUND = frozenset({"LLMEngine.step", "EngineCoreProc._process_engine_step"})
"""Calls around one engine step: in the client's process, and in the engine core's own process."""


def group_steps(
    trace: Trace,
    units: Mapping[str, str] | None = None,
    turns: Mapping[str, str] | None = None,
    folder: Folder | None = None,
) -> Callable[[Sequence[Node]], Sequence[Node]]:
    """Return a function for `Folder` that turns each run of alike steps among siblings into a `steps` node.

    Args:
        trace: the trace of the steps.
        units: for each span that repeats with a step, the span id of that step; None to find these spans from the
            calls around steps.
        turns: for each call of a step's turn, the span id of that step; for steps without a unit around them.
        folder: merges the steps of a group; pass the one that folds the levels below, as it has their digests.
    """
    folder = folder or Folder()
    known = {step.span.span_id: step for step in steps(trace)}
    if units is None:
        step_of = {_unit(trace, step.span).span_id: step for step in known.values()}
    else:
        step_of = {unit: known[id] for unit, id in units.items() if id in known}
    turn_of = {id: known[step] for id, step in (turns or {}).items() if step in known}

    def change(siblings: Sequence[Node]) -> Sequence[Node]:
        if turn_of and any(node.spans and node.spans[0].span_id in turn_of for node in siblings):
            siblings = _turns(siblings, turn_of, folder)
        if any(node.spans and node.spans[0].span_id in step_of for node in siblings):
            siblings = _units(siblings, step_of, folder)
        return siblings

    return change


def step_head(group: Node) -> Node:
    """Return the call of a group of steps that makes the step, as a representative of all."""
    for child in reversed(group.children):
        if any(node.kind == "call" and node.span.name == STEP_SPAN for node in walk([child])):
            return child
    return group.children[-1]


def _units(siblings: Sequence[Node], step_of: Mapping[str, Step], folder: Folder) -> list[Node]:
    """Return the siblings, with each run of alike steps and of the calls repeated with them as one node."""
    found: list[Node] = []
    waiting: list[Node] = []  # calls since the last step: do they belong to the next one?
    groups: list[list[Node]] = []
    usual = _between(siblings, step_of)
    for node in siblings:
        step = step_of.get(node.span.span_id) if node.kind == "call" else None
        if step is None:
            waiting.append(node)
            continue
        lead = _common_end(waiting, usual)
        found += waiting[: len(waiting) - lead]
        step_node = _one_step(step, [*waiting[len(waiting) - lead :], node])
        if groups and lead == len(waiting) and _goes_on(groups[-1][-1], step_node):
            groups[-1].append(step_node)
        else:
            groups.append([step_node])
            found.append(step_node)  # replaced by its whole group below
        waiting = []
    return [*_merged(found, groups, folder), *waiting]


def _turns(siblings: Sequence[Node], turn_of: Mapping[str, Step], folder: Folder) -> list[Node]:
    """Return the siblings with each run of alike turns as one node."""
    found: list[Node] = []
    groups: list[list[Node]] = []

    def turn(node: Node) -> Step | None:
        return turn_of.get(node.span.span_id) if node.kind == "call" else None

    for step, members in groupby(siblings, turn):
        nodes = list(members)
        if step is None or not any(step.span is span for node in walk(nodes) for span in node.spans):
            found += nodes
            continue
        step_node = _one_step(step, folder.fold(nodes))
        if groups and found[-1] is groups[-1][0] and _goes_on(groups[-1][-1], step_node):
            groups[-1].append(step_node)
        else:
            groups.append([step_node])
            found.append(step_node)
    return _merged(found, groups, folder)


def _merged(found: Sequence[Node], groups: Sequence[Sequence[Node]], folder: Folder) -> list[Node]:
    """Return the nodes found, with each group merged at the position of its first node."""
    merged = {id(group[0]): folder.merge(group) for group in groups}
    return [merged.get(id(node), node) for node in found]


def _unit(trace: Trace, span: Span) -> Span:
    """Return the span that repeats with each step: the nearest caller in AROUND, or the step itself."""
    above: Span | None = span
    while above is not None:
        if above.name in AROUND:
            return above
        above = trace.parent(above)
    return span


def _between(siblings: Sequence[Node], step_of: Mapping[str, Step]) -> list[Hashable]:
    """Return the keys of the calls between the first step and the second; empty for one step."""
    positions = [i for i, node in enumerate(siblings) if node.spans and node.span.span_id in step_of]
    return [node.key for node in siblings[positions[0] + 1 : positions[1]]] if len(positions) > 1 else []


def _common_end(nodes: list[Node], keys: list[Hashable]) -> int:
    """Return how many nodes at the end have the same keys as the end of `keys`."""
    length = 0
    while length < min(len(nodes), len(keys)) and nodes[-1 - length].key == keys[-1 - length]:
        length += 1
    return length


def _one_step(step: Step, children: Sequence[Node]) -> Node:
    failed = any(node.failed for node in children)
    total_ns = sum(node.total_ns for node in children)
    return Node("steps", steps_key(step, failed), total_ns=total_ns, children=children, steps=[step])


def steps_key(step: Step, failed: bool = False) -> Hashable:
    """Return a key that is equal for steps that may be folded with whole generations, whatever their requests."""
    changed = tuple(map(bool, (step.new, step.resumed, step.preempted, step.finished, step.aborted)))
    hit = any(request.prefix_hit_tokens for request in step.requests)
    prefills = sum(request.phase == "prefill" for request in step.requests)
    return "steps", step.kind, len(step.requests), prefills, len(step.sampled), changed, hit, failed


def _goes_on(before: Node, node: Node) -> bool:
    return before.key == node.key and alike(node.steps[0].span, before.steps[0].span)


def condense(tree: T, most: int) -> T:
    """Keep about `most` groups of steps: the first ones, and the last of each generation; the rest becomes one.

    Each call with steps below keeps at least one group.
    """
    top = Node("repeat", None, children=tree.roots)
    parents = [node for node in walk([top]) if any(child.kind == "steps" for child in node.children)]
    sizes = [sum(child.kind == "steps" for child in node.children) for node in parents]
    for node, limit in zip(parents, _limits(sizes, most), strict=True):
        if limit < sum(child.kind == "steps" for child in node.children):
            node.replace_children(_condensed(node.children, limit))
    return replace(tree, roots=list(top.children))


def _limits(sizes: Sequence[int], most: int) -> list[int]:
    """Return the number of groups that each call may keep; the first call can show prefill, decode and the rest."""
    limits = [min(size, 1 if i else 4) for i, size in enumerate(sizes)]
    left = most - sum(limits)
    while left > 0 and limits != list(sizes):
        for i, size in enumerate(sizes):
            if limits[i] < size and left > 0:
                limits[i] += 1
                left -= 1
    return limits


def _condensed(siblings: Sequence[Node], limit: int) -> list[Node]:
    groups = [node for node in siblings if node.kind == "steps"]
    # The first decode step is always kept; one node before it and one after it replace what is left out.
    decode = next((i for i, node in enumerate(groups) if node.steps[0].kind == "decode"), 0)
    last = len(groups) - 1
    kept = {1: set[int](), 2: {0}, 3: {0, last}, 4: {0, decode}}.get(limit, {*range(limit - 4), decode, last})
    apart = {id(groups[i]) for i in kept}
    found: list[Node] = []
    gap: list[Node] = []
    for node in siblings:
        if node.kind == "steps" and id(node) not in apart:
            gap.append(node)
            continue
        if gap:
            found.append(merge(gap))
            gap = []
        found.append(node)
    return [*found, merge(gap)] if gap else found
