"""The calls that a diagram of limited size shows: the most important ones for how a request is served.

Each arrow has a rank, and the lowest are drawn until the limit is reached:

-1. messages between processes: the first few of each type, and those of the first prefill and decode step;
0. `STEP_CHAIN`, which makes a token, in the first prefill and the first decode step; the call that raised;
1. an arrow for each of the next groups of steps; the user's own functions and the calls of their lines; the chain in a
   step that failed; `ITEM_CALLS`, which images and sounds need;
2. `OTHER_CHAINS`, which build the engine and move requests in and out;
3. with several processes, the calls of `STEP_CHAIN` and not of `SHORT_CHAIN` in the first decode step; `RETURNS`, the
   results along the chain in the first prefill; `INSIDE`, the work of the scheduler and the runner there;
4. everything else: the first prefill before all others, the coarser and the less deep first.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tracellm.report.diagram.story import DiagramTree, Story
from tracellm.report.tree.nodes import Node, raised_here, walk
from tracellm.report.tree.select import hide
from tracellm.report.tree.step_groups import step_head
from tracellm.report.wording.titles import ended_from_outside, result, script_of
from tracellm.trace import names
from tracellm.trace.names import LEVELS
from tracellm.trace.steps import STEP_SPAN, Step

__all__ = ["choose", "choose_all"]

STEP_CHAIN = frozenset({
    "LLM.generate",
    "LLM.chat",
    "OpenAIServingChat.create_chat_completion",
    "OpenAIServingCompletion.create_completion",
    "OpenAIServingResponses.create_responses",
    "AsyncLLM.generate",
    "LLMEngine.step",
    "InprocClient.get_output",
    "SyncMPClient.get_output",
    "EngineCoreProc._process_engine_step",
    "EngineCore.step_fn",
    "EngineCore._schedule",
    "Scheduler.schedule",
    "EngineCore._execute_model",
    "UniProcExecutor.execute_model",
    "Worker.execute_model",
    "GPUModelRunner.execute_model",
    "UniProcExecutor.sample_tokens",
    "Worker.sample_tokens",
    "GPUModelRunner.sample_tokens",
    "Sampler.forward",
    "EngineCore._process_model_outputs",
    "Scheduler.update_from_output",
})  # fmt: skip
"""The calls that make a token; the model's own forward, of any model class, is one of them."""

SHORT_CHAIN = frozenset({
    "LLMEngine.step",
    "SyncMPClient.get_output",
    "EngineCore.step_fn",
    "Scheduler.schedule",
    "UniProcExecutor.execute_model",
    "Worker.execute_model",
    "GPUModelRunner.execute_model",
    "Scheduler.update_from_output",
})  # fmt: skip
"""The short form of the chain, for a second step."""

TAKEN_IN = frozenset({
    "SyncMPClient.add_request",
    "AsyncMPClient.add_request_async",
    "DPLBAsyncMPClient.add_request_async",
    "EngineCoreProc._handle_client_request",
    "DPEngineCoreProc._handle_client_request",
    "Scheduler.add_request",
})  # fmt: skip
"""The calls by which a request crosses the process boundary, on either side."""

OTHER_CHAINS = frozenset({
    "run_server",
    "build_app",
    "LLM.__init__",
    "LLMEngine.__init__",
    "EngineCoreClient.make_client",
    "InprocClient.__init__",
    "AsyncLLM.__init__",
    "AsyncLLM.from_vllm_config",
    "EngineCoreClient.make_async_mp_client",
    "SyncMPClient.__init__",
    "AsyncMPClient.__init__",
    "MPClient.launch_core_engines",
    "EngineCoreProc.run_engine_core",
    "EngineCoreProc.__init__",
    "EngineCoreProc.process_input_sockets",
    "EngineCoreProc.process_output_sockets",
    "EngineCoreProc.run_busy_loop",
    "DPEngineCoreProc.run_busy_loop",
    "DPCoordinatorProc.process_input_socket",
    "DPCoordinatorProc._send_start_wave",
    "DPLBAsyncMPClient.get_core_engine_for_request",
    "SyncMPClient.process_outputs_socket",
    "AsyncMPClient.process_outputs_socket",
    "AsyncLLM.output_handler",
    "EngineCore.__init__",
    "UniProcExecutor.__init__",
    "Worker.load_model",
    "GPUModelRunner.load_model",
    "EngineCore._initialize_kv_caches",
    "Scheduler.__init__",
    "LLMEngine.add_request",
    "AsyncLLM.add_request",
    "InprocClient.add_request",
    "SyncMPClient.add_request",
    "AsyncMPClient.add_request_async",
    "DPLBAsyncMPClient.add_request_async",
    "EngineCoreProc._handle_client_request",
    "DPEngineCoreProc._handle_client_request",
    "EngineCoreProc.add_request",
    "Processor.process_inputs",
    "EngineCore.add_request",
    "Scheduler.add_request",
    "OutputProcessor.process_outputs",
})  # fmt: skip
"""The calls that build the engine, and by which a request gets in and out."""

ITEM_CALLS = (
    "InputPreprocessor._process_multimodal",
    "MultiModalProcessor.apply",
    "MultiModalProcessor._to_mm_items",
    "MultiModalProcessor._cache_apply_hf_processor",
    "MultiModalProcessor._cached_apply_hf_processor",  # vLLM
    "MultiModalProcessor._maybe_apply_prompt_updates",
    "Scheduler._try_schedule_encoder_inputs",
    "GPUModelRunner._execute_mm_encoder",
    "ForConditionalGeneration.get_multimodal_embeddings",
    "ForConditionalGeneration.embed_multimodal",  # vLLM
)
"""Ends of the names of the calls that images and sounds need; their classes depend on the model."""

RETURNS = frozenset({
    "LLM.generate",
    "LLM.chat",
    "EngineCoreClient.make_client",
    "Scheduler.schedule",
    "UniProcExecutor.execute_model",
    "Sampler.forward",
    "Scheduler.update_from_output",
})  # fmt: skip
"""Calls whose result is shown, as that of the model's forward is."""

INSIDE = frozenset({
    "KVCacheManager.allocate_slots",
    "GPUModelRunner._prepare_inputs",
    "Scheduler.get_grammar_bitmask",
    "GPUModelRunner._sample",
    "EngineCore.post_step",
})  # fmt: skip
"""Calls of the scheduler and the runner along the chain."""


MOST_GROUPS = 12
"""Number of groups of steps, besides the first two, whose arrow is drawn before all of rank 2 and later."""

MOST_MESSAGES = 3
"""Messages of a type, sent outside of steps, that are drawn before anything else."""

_LATER = 1000
"""Added to the rank of calls in other steps than the first prefill and the first decode."""

_Section = Literal["", "prefill", "decode", "head", "later"]
"""Position of a call: outside of steps; in the first group of steps with a prefill; in the first group of decodes only;
at the head of another group; below such a head."""


@dataclass(frozen=True, slots=True)
class _Arrow:
    rank: int
    order: int
    node: Node
    is_return: bool


def choose(tree: DiagramTree, limit: int) -> DiagramTree:
    """Show the most important calls and returns, at most `limit` in all."""
    arrows = sorted(_arrows(tree.roots, tree.story), key=lambda arrow: (arrow.rank, arrow.order))
    calls: set[int] = set()
    returns: set[int] = set()
    for arrow in arrows:
        if len(calls) + len(returns) >= limit:
            break
        if not arrow.is_return:
            calls.add(id(arrow.node))
        elif id(arrow.node) in calls:
            returns.add(id(arrow.node))
    left_out = sum(arrow.node.count for arrow in arrows if not arrow.is_return and id(arrow.node) not in calls)
    rest = _rest(tree.roots, calls)
    return replace(_show(tree, calls, returns, "diagram.left_out", left_out), rest=rest)


def _rest(roots: Iterable[Node], drawn: Collection[int]) -> tuple[list[Step], bool]:
    """Return the steps after the last group with a drawn call, and whether earlier steps made all of their calls."""
    made: set[Hashable] = set()
    rest: list[Step] = []
    alike = True
    for group in walk(roots):
        if group.kind == "steps":
            calls = [node for node in walk(group.children) if node.kind == "call"]
            if any(id(node) in drawn for node in calls):
                rest, alike = [], True
            else:
                rest += group.steps
                alike = alike and made.issuperset(node.key for node in calls)
            made.update(node.key for node in calls)
    return rest, alike


def choose_all(tree: DiagramTree, limit: int | None = None) -> DiagramTree:
    """Show all calls, and every return with a result; a group of steps that called nothing new is one call.

    If these are more than `limit` arrows, the most important ones are shown.
    """
    repeated = _below_repeated_steps(tree.roots)
    arrows = [arrow for arrow in _arrows(tree.roots, tree.story) if id(arrow.node) not in repeated]
    if limit is not None and len(arrows) > limit:
        return choose(tree, limit)
    calls = {id(arrow.node) for arrow in arrows if not arrow.is_return}
    returns = {id(arrow.node) for arrow in arrows if arrow.is_return}
    return _show(tree, calls, returns, "diagram.repeated_steps", sum(repeated.values()))


def _show(tree: DiagramTree, calls: set[int], returns: set[int], remark: str, left_out: int) -> DiagramTree:
    roots = tree.roots
    if any(root.kind == "call" and id(root) not in calls and not script_of(root.span) for root in roots):
        roots = [Node("repeat", ("repeat", ()), children=roots)]  # calls without a caller may be left out, too
    shown = replace(
        tree,
        roots=roots,
        ordered=False,  # calls instead of several hidden ones take turns
        returns=frozenset(returns),
        remark=(remark, left_out) if left_out else None,
    )
    return hide(shown, lambda node: id(node) in calls)


def _below_repeated_steps(roots: Iterable[Node]) -> dict[int, int]:
    """Return the count of each call, by `id(node)`, in steps that made no new call for their kind."""
    known: dict[bool, set[Hashable]] = {}
    repeated: dict[int, int] = {}
    for group in walk(roots):
        if group.kind == "steps":
            calls = [node for node in walk(group.children) if node.kind == "call"]
            made = {node.key for node in calls}
            before = known.setdefault(group.steps[0].kind == "decode", set())
            if made <= before:
                head = step_head(group)
                repeated |= {id(node): node.count for node in calls if node is not head}
            before |= made
    return repeated


def _arrows(roots: list[Node], story: Story) -> Iterator[_Arrow]:
    """Yield every possible arrow, in the order of the calls."""
    first = _first_steps(roots)
    sent = story.steps_that_sent
    order = groups = 0
    seen: Counter[Hashable] = Counter()
    stack: list[tuple[Node, int, _Section]] = [(root, 0, "") for root in reversed(roots)]
    while stack:
        node, depth, section = stack.pop()
        order += 1
        if section == "head":
            groups += 1
            section = "head" if groups <= MOST_GROUPS else "later"
        if node.kind == "call" and node.span.span_id in story.messages:
            kind = node.span.attributes.get(names.MESSAGE_TYPE)
            seen[kind, section] += 1
            step = story.messages[node.span.span_id].step
            if step and not step.requests:
                rank = 4
            elif section in ("prefill", "decode") or seen[kind, section] <= MOST_MESSAGES:
                rank = -1
            else:
                rank = 1 if seen[kind, section] <= MOST_GROUPS else 4
            yield _Arrow(rank, order, node, is_return=False)
        elif node.kind == "call" and not (depth == 0 and script_of(node.span)):
            rank = _rank(node, depth, section)
            if story.lanes:
                rank = _rank_over_lanes(node, section, rank, sent)
            if section != "head" and node.span.span_id in story.callers:
                # work beside it counts as much as work before it: draw the first of each, then the rest
                seen[node.key, section] += 1
                rank += min(seen[node.key, section] - 1, MOST_GROUPS) * (5 if rank else 1)
            yield _Arrow(rank, order, node, is_return=False)
            if not (node.open or story.is_long(node.span)) and (node.failed or result(node.span, 1)):
                # never before its call
                yield _Arrow(max(rank, _return_rank(node, depth, section)), order, node, is_return=True)
        head = step_head(node) if node.kind == "steps" else None
        below = [(child, depth + 1, _section_below(node, child is head, section, first)) for child in node.children]
        stack += reversed(below)


def _first_steps(roots: Iterable[Node]) -> dict[int, _Section]:
    """Return the first group of steps with a prefill and the first of decodes only, by `id(node)`."""
    found: dict[_Section, int] = {}
    for node in walk(roots):
        if node.kind == "steps":
            found.setdefault("decode" if node.steps[0].kind == "decode" else "prefill", id(node))
    return {id: section for section, id in found.items()}


def _section_below(node: Node, is_head: bool, section: _Section, first: dict[int, _Section]) -> _Section:
    if node.kind == "steps":
        return first.get(id(node)) or ("head" if is_head else "later")
    if node.kind == "call" and node.span.name == "DPEngineCoreProc.execute_dummy_batch":
        return "later"  # its calls are those of a step, for no request
    return "later" if section == "head" else section


def _rank(node: Node, depth: int, section: _Section) -> int:
    name = node.span.name
    if (raised_here(node) and not ended_from_outside(node.span)) or (
        _in_chain(node) and section in ("", "prefill", "decode")
    ):
        return 0
    if section == "head" or (node.failed and _in_chain(node)):
        return 1
    if (_of_the_user(node) or name.endswith(ITEM_CALLS)) and section != "later":
        return 1
    inner = name == "EngineCore.__init__" and node.span.lifeline != "EngineCore"  # EngineCoreProc.__init__ is around it
    if name in OTHER_CHAINS and section != "later" and not inner:
        return 2
    if section == "prefill" and (
        name in INSIDE or name.endswith(("ForCausalLM.compute_logits", "DecoderLayer.forward"))
    ):
        return 3
    # a private method is a detail of its caller; a method that makes one call only does little but pass it on
    private = node.span.method.startswith("_") and not node.span.method.startswith("__")
    detail = 10 * LEVELS.index(node.level) + depth + 5 * private + 5 * (len(node.children) == 1)
    return 20 + detail + {"": 10, "prefill": -10, "decode": 20, "head": 0, "later": _LATER}[section]


def _return_rank(node: Node, depth: int, section: _Section) -> int:
    if node.failed:
        # where it was raised, and where it reached the user's line; the frames between only if there is room
        return 0 if raised_here(node) or _of_the_user(node) else 3
    if section in ("", "prefill") and (node.span.name in RETURNS or node.span.name.endswith("ForCausalLM.forward")):
        return 3 if section else 2
    return _rank(node, depth, section) + 100


def _in_chain(node: Node) -> bool:
    return node.span.name in STEP_CHAIN or node.span.name.endswith("ForCausalLM.forward")


def _rank_over_lanes(node: Node, section: _Section, rank: int, sent: Collection[str]) -> int:
    """Return the rank of a call in a run of several processes, whose messages need space too.

    The decode step is shortened, and later steps show only their messages. The handling of outputs and of incoming
    requests is drawn.
    """
    name = node.span.name
    if section == "head":
        made = next((one.span for one in walk([node]) if one.kind == "call" and one.span.name == STEP_SPAN), None)
        return 3 if made is not None and made.span_id in sent else rank
    if names.HTTP_METHOD in node.span.attributes:  # requests other than POST are health checks and the like
        failed = names.ERROR_TYPE in node.span.attributes
        return 0 if node.span.attributes[names.HTTP_METHOD] == "POST" else 1 if failed else 20
    if name == "OutputProcessor.process_outputs" and section in ("prefill", "decode"):
        return 0
    if rank == 2 and section in ("", "prefill") and name in TAKEN_IN:
        return 1
    short = raised_here(node) or name in SHORT_CHAIN or name.endswith("ForCausalLM.forward")
    return 3 if rank == 0 and section == "decode" and not short else rank


def _of_the_user(node: Node) -> bool:
    """Return whether the call is a function of the user's, or made by a line of the user's."""
    function = str(node.span.attributes.get(names.CODE_FUNCTION, "tracellm."))
    return names.CALLER_FILE in node.span.attributes or not function.startswith(("tracellm.", "vllm."))
