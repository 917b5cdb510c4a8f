"""Engine steps in which nothing changed become one node: "steps 3-17: decode, 2 requests".

What repeats for each step is more than `EngineCore.step_fn`: the `LLMEngine.step` around it, and the questions before
it (`has_unfinished_requests`). All that stands in the group, merged.
"""

from collections.abc import Callable, Hashable

from tracellm.report.changes import alike
from tracellm.trace.fold import merge
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import Step, steps
from tracellm.trace.tree import Node

__all__ = ["group_steps", "steps_key"]

AROUND = "LLMEngine.step"
"""The call that makes one engine step happen, on clients of this process."""


def group_steps(trace: Trace) -> Callable[[list[Node]], list[Node]]:
    """A change of siblings, for `bottom_up`: each run of alike steps becomes a `steps` node."""
    step_of = {_unit(trace, step.span).span_id: step for step in steps(trace)}

    def change(siblings: list[Node]) -> list[Node]:
        if not any(node.spans and node.span.span_id in step_of for node in siblings):
            return siblings
        found: list[Node] = []
        waiting: list[Node] = []  # calls since the last step: do they belong to the next one?
        groups: list[list[Node]] = []
        usual: list[Hashable] | None = None  # what comes between two steps
        for node in siblings:
            step = step_of.get(node.span.span_id) if node.kind == "call" else None
            if step is None:
                waiting.append(node)
                continue
            if usual is None:
                usual = _between(siblings, step_of)
            lead = _common_end(waiting, usual)
            found += waiting[: len(waiting) - lead]
            one = _one_step(step, [*waiting[len(waiting) - lead :], node])
            if groups and lead == len(waiting) and _goes_on(groups[-1][-1], one):
                groups[-1].append(one)
            else:
                groups.append([one])
                found.append(one)  # its place; what it is merged with comes later
            waiting = []
        merged = {id(group[0]): merge(group) for group in groups}
        return [merged.get(id(node), node) for node in found] + waiting

    return change


def _unit(trace: Trace, span: Span) -> Span:
    """The span that repeats with each step: the nearest caller named AROUND, or the step itself."""
    above: Span | None = span
    while above is not None:
        if above.name == AROUND:
            return above
        above = trace.parent(above)
    return span


def _between(siblings: list[Node], step_of: dict[str, Step]) -> list[Hashable]:
    """The keys of the calls between the first step and the second; empty when there is one step only."""
    places = [i for i, node in enumerate(siblings) if node.spans and node.span.span_id in step_of]
    return [node.key for node in siblings[places[0] + 1 : places[1]]] if len(places) > 1 else []


def _common_end(nodes: list[Node], keys: list[Hashable]) -> int:
    """How many of the last `nodes` have the last of `keys`, in order."""
    length = 0
    while length < min(len(nodes), len(keys)) and nodes[-1 - length].key == keys[-1 - length]:
        length += 1
    return length


def _one_step(step: Step, children: list[Node]) -> Node:
    failed = any(node.failed for node in children)
    total_ns = sum(node.total_ns for node in children)
    return Node("steps", steps_key(step, failed), total_ns=total_ns, children=children, steps=[step])


def steps_key(step: Step, failed: bool = False) -> Hashable:
    """Equal for steps that may be folded with whole generations, whatever their requests are called."""
    changed = bool(step.new), bool(step.resumed), bool(step.preempted), bool(step.finished)
    return "steps", step.kind, len(step.requests), changed, failed


def _goes_on(before: Node, node: Node) -> bool:
    return before.key == node.key and alike(node.steps[0], before.steps[0])
