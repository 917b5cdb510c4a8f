"""Names of calls, steps and times in a call tree or a diagram: short, on one line, every character visible."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

from tracellm.report.texts import text, texts
from tracellm.report.wording.changes import changes
from tracellm.report.wording.quantities import byte_size, clip, duration
from tracellm.report.wording.request_names import RequestNames
from tracellm.report.wording.safe_text import beginning, visible
from tracellm.trace import names
from tracellm.trace.model import Message, Span
from tracellm.trace.ranges import format_ranges
from tracellm.trace.steps import Step

__all__ = [
    "arguments",
    "call_name",
    "call_title",
    "caller_line",
    "ended_from_outside",
    "error",
    "error_class",
    "http_answer",
    "message_title",
    "moved",
    "result",
    "script_of",
    "spans_text",
    "step_kind",
    "steps_name",
    "steps_title",
    "time",
    "times",
]

_MOST_RANGES = 3
_MOST_MESSAGES = 3
_LONGEST_LINE, _LONGEST_ANSWER = 300, 40  # characters


def time(nanoseconds: int) -> str:
    """Return a time as `duration` writes it, and in microseconds if that would have no digits: `4 µs`."""
    return f"{nanoseconds / 1e3:.0f} µs" if abs(nanoseconds) < 100_000 else duration(nanoseconds / 1e9)


def arguments(span: Span, most: int) -> str:
    """Return the arguments, `name=value, Class, name=value`, at most `most` characters."""
    passed = span.attributes.get(names.ARGUMENTS)
    return beginning(", ".join(map(_argument, passed)), most) if isinstance(passed, list) else ""


def call_title(span: Span, longest_name: int, longest_values: int) -> str:
    """Return `schedule(name=value)`, `POST /v1/completions → 200` for an HTTP request, or the name of a user's span.

    An HTTP request that failed has its error after the status: `→ 400 BadRequestError`.

    The limits are in characters, for each part.
    """
    if names.HTTP_METHOD in span.attributes:
        name, answer = beginning(span.name, longest_name), http_answer(span)
        return f"{name} → {answer}" if answer else name
    name = beginning(span.method, longest_name)
    return name if names.SCOPE in span.attributes else f"{name}({arguments(span, longest_values)})"


def http_answer(span: Span) -> str:
    """Return `200`, or `400 BadRequestError`, of an HTTP request; empty if it has not been answered."""
    status = str(span.attributes.get(names.HTTP_STATUS, ""))
    kind = str(span.attributes.get(names.ERROR_TYPE, "")).rpartition(".")[2]
    return beginning(f"{status} {kind}".strip() if kind != status else status, _LONGEST_ANSWER)


def _argument(passed: object) -> str:
    """Return `name=value`, but `SchedulerOutput` for `scheduler_output=SchedulerOutput`."""
    name, _, value = str(passed).partition("=")
    return value if value and name.replace("_", "") == value.lower() else str(passed)


def result(span: Span, most: int) -> str:
    """Return the result, at most `most` characters; empty if there was none, or None."""
    value = span.attributes.get(names.RESULT)
    return "" if value is None or value == "None" else beginning(str(value), most)


def error(span: Span, most: int) -> str:
    """Return the exception that left the call, its class without the module, at most `most` characters; or ""."""
    kind, colon, message = (span.error or "").partition(":")
    return beginning(kind.rpartition(".")[2] + colon + message, most)


def error_class(span: Span) -> str:
    """Return the exception's class alone."""
    return visible((span.error or "").partition(":")[0].rpartition(".")[2])


def ended_from_outside(span: Span) -> bool:
    """Return whether the call was ended from outside: a process by a signal, a task by cancellation."""
    return error_class(span) in ("SystemExit", "CancelledError", "GeneratorExit")


def message_title(sent: Sequence[tuple[Message, Step | None]], requests: RequestNames, lang: str) -> str:
    """Return a message's type and size: `ADD 0 (312 B)`, `ADD 0, 1, 2 (305-312 B)`, `OUTPUTS 3 requests (180 B)`.

    `sent` has messages of one type, each with the step whose outputs it carries, if any.
    """
    kind = visible(str(sent[0][0].send.attributes.get(names.MESSAGE_TYPE, "?")))
    what = ""
    if kind in ("ADD", "ABORT"):
        ids = [str(one.send.attributes.get(names.MESSAGE_ID)).partition(" ")[2] for one, _ in sent]
        every = dict.fromkeys(id for one in ids for id in one.split(","))
        shown, more = clip([visible(requests.shorten(id)) for id in every], _MOST_MESSAGES)
        what = text(lang, "step.comma").join([*shown, "…"] if more else shown)
    elif any(step for _, step in sent):
        numbers = [len(step.sampled) or len(step.requests) for _, step in sent if step]
        what = text(lang, "common.requests", n=max(numbers))
        if min(numbers) != max(numbers):
            what = text(lang, "diagram.requests_range", fewest=min(numbers), most=max(numbers))
    sizes = [size for one, _ in sent if isinstance(size := one.send.attributes.get(names.MESSAGE_BYTES), int)]
    title = f"{kind} {what}".rstrip()
    if not sizes:
        return title
    smallest, largest = byte_size(min(sizes)), byte_size(max(sizes))
    if smallest == largest:
        return f"{title} ({largest})"
    number, _, unit = smallest.partition(" ")
    return f"{title} ({number if largest.endswith(f' {unit}') else smallest}-{largest})"


def spans_text(number: int, first: str, last: str, inside: int, lang: str) -> str:
    """Return the spans of an item as text: their number, the first and the last id, and the number inside."""
    spans = text(lang, "spans.one" if number == 1 else "spans.many", n=number, first=first, last=last)
    return f"{spans}\n{text(lang, 'spans.inside', n=inside)}" if inside else spans


def script_of(span: Span) -> bool:
    """Return whether this is the span of a whole program, named after its script."""
    return span.attributes.get(names.LIFELINE) == span.name


def call_name(span: Span, lang: str) -> str:
    """Return the name of a call, with a mark if it did not end."""
    name = visible(span.name)
    return text(lang, "calltree.open", name=name) if span.open else name


def moved(span: Span, caller: Span | None, lang: str) -> str:
    """Return the location of a call whose caller ran elsewhere: `[process EngineCore_0]`, `[thread ...]`, `[task]`."""
    here = (span.process.pid, span.process.name) if span.process else (0, "?")
    there = (caller.process.pid, caller.process.name) if caller and caller.process else None
    if there is not None and here != there:
        return text(lang, "calltree.process", name=visible(here[1]))
    thread = span.thread[2]
    if caller is None:
        return text(lang, "calltree.thread", name=visible(thread)) if thread else ""
    if thread and thread == span.method != caller.thread[2]:
        return text(lang, "calltree.thread_unnamed")
    if thread != caller.thread[2]:
        return text(lang, "calltree.thread", name=visible(thread) or "MainThread")
    if names.CALL_KIND in span.attributes and span.end_ns > caller.end_ns:
        return text(lang, "calltree.task")
    return ""


def caller_line(span: Span) -> str:
    """Return the user's line that made a call: `hello.py:12 outputs = llm.generate(prompts)`."""
    attributes = span.attributes
    location = f"{PurePath(str(attributes.get(names.CALLER_FILE))).name}:{attributes.get(names.CALLER_LINE)}"
    return beginning(f"{location}  {str(attributes.get(names.CALLER_TEXT, '')).strip()}".rstrip(), _LONGEST_LINE)


def times(count: int, of: int, lang: str) -> str:
    """Return how often a call was made when its caller ran `of` times.

    Empty for once each, else `×3`, `in 4 of 15`, `×5 in all`.
    """
    if count == of:
        return ""
    if count % of == 0:
        return f"×{count // of}"
    return text(lang, "diagram.some", count=count, of=of) if count < of else text(lang, "diagram.in_all", count=count)


def steps_title(steps: Sequence[Step], names_of: RequestNames, lang: str) -> str:
    """Return `steps 3-17: decode, 2 requests`; for one step also its changes:

    `step 1: prefill, ..., request 0 joined`.
    """
    kinds = Counter(step.kind for step in steps)
    if len(kinds) == 1:
        kind = step_kind(steps[0].kind, lang)
    else:
        comma = text(lang, "step.comma")
        kind = comma.join(f"{count} {step_kind(name, lang)}" for name, count in kinds.most_common())
    if kinds.keys() == {"unknown"}:
        return text(lang, "diagram.steps_unknown", name=steps_name(steps, lang), kind=kind)
    fewest, most = min(len(step.requests) for step in steps), max(len(step.requests) for step in steps)
    requests = text(lang, "common.requests", n=most)
    if fewest != most:
        requests = text(lang, "diagram.requests_range", fewest=fewest, most=most)
    if len(steps) > 1:
        return text(lang, "diagram.steps", indexes=_indexes(steps), kind=kind, requests=requests)
    step = names_of.in_step(steps[0])
    tokens = text(lang, "common.tokens", n=step.num_tokens)
    title = text(lang, "diagram.step", index=step.index, kind=kind, requests=requests, tokens=tokens)
    # requests not scheduled are named if one joined or left the queue; until then nothing changed for them
    before = None if step.new or step.resumed or step.preempted else step
    return text(lang, "diagram.comma").join([title, *changes(step, lang, before)])


def step_kind(kind: str, lang: str) -> str:
    """Return a step's kind in words: prefill, decode."""
    key = f"step.kind.{kind}"
    return text(lang, key) if key in texts(lang) else visible(kind)


def steps_name(steps: Sequence[Step], lang: str) -> str:
    """Return `step 1`, `steps 3-17`."""
    return text(lang, "diagram.step_name" if len(steps) == 1 else "diagram.steps_name", indexes=_indexes(steps))


def _indexes(steps: Sequence[Step]) -> str:
    indexes = [step.index for step in steps]
    if any(after <= before for before, after in pairwise(indexes)):
        return f"{min(indexes)}-{max(indexes)}"
    shown, more = clip(format_ranges(indexes).split(","), _MOST_RANGES)
    return ", ".join([*shown, "…"] if more else shown)
