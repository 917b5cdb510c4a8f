"""The engine's steps as a table, for `tracellm show RUN steps`, and its rows as data for other reports.

Steps in which nothing changed share a row. Several engines in processes of their own, each of which counts its steps
from 1, have tables one below the other.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from textwrap import wrap

from rich.cells import cell_len, set_cell_size

from tracellm.report.facts.recording_time import recording_by_step
from tracellm.report.texts import text
from tracellm.report.wording.changes import alike, changes
from tracellm.report.wording.quantities import clip
from tracellm.report.wording.safe_text import beginning, visible
from tracellm.report.wording.titles import step_kind, time
from tracellm.trace.model import Trace
from tracellm.trace.ranges import format_ranges
from tracellm.trace.steps import Sampled, ScheduledRequest, Step, engine_key, steps

__all__ = ["drawn_from", "step_rows", "step_text", "steps_table"]

_MOST_REQUESTS = 8
_LONGEST_TEXT = 60


@dataclass(frozen=True, slots=True)
class RequestInSteps:
    """One request's share of a row's steps, with its new and its cached blocks.

    `sampled` is its output text, None in a recording without text.
    """

    request_id: str
    num_tokens: int
    prefix_hit_tokens: int
    new_blocks: tuple[int, ...]
    cached_blocks: tuple[int, ...]
    sampled: str | None
    processors: tuple[str, ...]
    tokens_left: tuple[int, int] | None
    """The fewest and the most tokens that the processors of its logits left to choose from."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step, or several in a row in which nothing changed; `before` is the step before them.

    `engine` is the engine's number, from 1, in its first row if there are several engines; else it is 0.
    """

    steps: tuple[Step, ...]
    before: Step | None
    engine: int = 0
    recording_ns: int = 0
    """The recording's part of the time."""

    @property
    def indexes(self) -> str:
        """`3-17`."""
        return format_ranges(step.index for step in self.steps)

    @property
    def num_tokens(self) -> int:
        """Tokens computed, of all the steps and requests."""
        return sum(step.num_tokens for step in self.steps)

    @property
    def duration_ns(self) -> int:
        """Time of all the steps."""
        return sum(step.span.duration_ns for step in self.steps)

    @property
    def num_new_blocks(self) -> int:
        """KV cache blocks allocated."""
        return sum(len(request.new_blocks) for step in self.steps for request in step.requests)

    @property
    def blocks_free(self) -> int:
        """KV cache blocks free after the last of the steps was scheduled."""
        return self.steps[-1].blocks_free

    def requests(self) -> list[RequestInSteps]:
        """Return the scheduled requests, in the batch's order."""
        texts: dict[str, str] = {}
        drawn: dict[str, list[Sampled]] = {}
        for step in self.steps:
            for sampled in step.sampled:
                drawn.setdefault(sampled.request_id, []).append(sampled)
                if sampled.text is not None:
                    texts[sampled.request_id] = texts.get(sampled.request_id, "") + sampled.text
        parts: dict[str, list[ScheduledRequest]] = {}
        for step in self.steps:
            for request in step.requests:
                parts.setdefault(request.request_id, []).append(request)
        return [
            RequestInSteps(
                request_id=id,
                num_tokens=sum(request.num_tokens for request in got),
                prefix_hit_tokens=sum(request.prefix_hit_tokens for request in got),
                new_blocks=tuple(block for request in got for block in request.new_blocks),
                cached_blocks=tuple(block for request in got for block in request.cached_blocks),
                sampled=texts.get(id),
                processors=tuple(dict.fromkeys(name for sampled in drawn.get(id, ()) for name in sampled.processors)),
                tokens_left=_range(sampled.tokens_left for sampled in drawn.get(id, ())),
            )
            for id, got in parts.items()
        ]


def step_rows(trace: Trace) -> list[StepRow]:
    """Return the rows of the table, in order, engine by engine (one per process), the earliest first."""
    of_engines: dict[Hashable, list[Step]] = {}
    for step in steps(trace):
        of_engines.setdefault(engine_key(step.span), []).append(step)
    found: list[StepRow] = []
    recording = recording_by_step(trace)
    for number, of_engine in enumerate(of_engines.values(), 1):
        first, *others = _rows(of_engine, recording)
        found += [replace(first, engine=number) if len(of_engines) > 1 else first, *others]
    return found


def _rows(found: Sequence[Step], recording: Mapping[str, int]) -> list[StepRow]:
    """Return the rows of one engine."""
    groups: list[list[Step]] = [[found[0]]]
    befores: list[Step | None] = [None]
    for before, step in pairwise(found):
        if alike(step.span, before.span):
            groups[-1].append(step)
        else:
            groups.append([step])
            befores.append(before)
    return [
        StepRow(tuple(group), before, recording_ns=sum(recording.get(step.span.span_id, 0) for step in group))
        for group, before in zip(groups, befores, strict=True)
    ]


def engine_of(row: StepRow, lang: str) -> str:
    """Return the heading above the first row of one of several engines, or ""."""
    process = row.steps[0].span.process
    if not row.engine or process is None:
        return ""
    key = "steps.engine.core" if process.name.startswith("EngineCore_DP") else "steps.engine"
    return text(lang, key, number=row.engine, name=visible(process.name), pid=process.pid)


def steps_table(trace: Trace, *, lang: str = "en", width: int = 100) -> str:
    """Return the steps as plain text, lines of at most `width` columns, ending in a newline."""
    rows = step_rows(trace)
    if not rows:
        return text(lang, "steps.nothing") + "\n"
    heads = ("step", "kind", "requests", "tokens", "new", "free", "time", "recording")
    # A variant of a run has no times at all.
    columns = len(heads) if any(row.recording_ns for row in rows) else len(heads) - 1
    columns -= not any(row.duration_ns for row in rows)
    table = [[text(lang, f"steps.{name}") for name in heads[:columns]]]
    table += [_cells(row, lang)[:columns] for row in rows]
    widths = [max(cell_len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = [_aligned(table[0], widths)]
    for row, cells in zip(rows, table[1:], strict=True):
        if heading := engine_of(row, lang):
            lines += [*([""] if row.engine > 1 else []), _cut(heading, width)]
        lines.append(_aligned(cells, widths))
        lines += [_cut(f"    {line}", width) for line in _below(row, lang)]
    if any(len(row.steps) > 1 for row in rows):
        lines += ["", *wrap(text(lang, "steps.several"), width if lang == "en" else width // 2)]
    return "\n".join(lines) + "\n"


def step_text(step: Step, before: Step | None, lang: str, width: int = 100) -> list[str]:
    """Return the lines of one step, without its time; `before` is the step before it."""
    row = StepRow((step,), before)
    heads = [text(lang, f"steps.{name}") for name in ("step", "kind", "requests", "tokens", "new", "free")]
    cells = _cells(row, lang)[: len(heads)]
    widths = [max(cell_len(head), cell_len(cell)) for head, cell in zip(heads, cells, strict=True)]
    below = (_cut(f"    {line}", width) for line in _below(row, lang))
    return [_aligned(heads, widths), _aligned(cells, widths), *below]


def _cells(row: StepRow, lang: str) -> list[str]:
    step = row.steps[-1]
    numbers = [len(step.requests), row.num_tokens, row.num_new_blocks, row.blocks_free]
    counts = [f"{number:,}" if step.kind != "unknown" else "?" for number in numbers]
    return [row.indexes, step_kind(step.kind, lang), *counts, time(row.duration_ns), time(row.recording_ns)]


def _aligned(cells: list[str], widths: list[int]) -> str:
    """Align the step and its kind to the left, numbers to the right."""
    left = [set_cell_size(cell, width) for cell, width in zip(cells[:2], widths[:2], strict=True)]
    right = [" " * (width - cell_len(cell)) + cell for cell, width in zip(cells[2:], widths[2:], strict=True)]
    return "  ".join([*left, *right])


def _below(row: StepRow, lang: str) -> Iterable[str]:
    """Yield the lines under a row: the share of each request, then the changes."""
    shown, more = clip([_request(request, lang) for request in row.requests()], _MOST_REQUESTS)
    yield from shown
    if more:
        yield text(lang, "steps.more", n=more)
    yield from changes(row.steps[0], lang, row.before)


def blocks_of(request: RequestInSteps, lang: str) -> list[str]:
    """Return the KV cache blocks of a request, by their ids: those from the prefix cache, and new ones."""
    parts = []
    if request.prefix_hit_tokens:
        cached = format_ranges(request.cached_blocks)
        parts.append(text(lang, "steps.prefix_hit", n=request.prefix_hit_tokens, blocks=cached))
    if request.new_blocks:
        parts.append(text(lang, "steps.new_blocks", blocks=format_ranges(request.new_blocks)))
    return parts


def _request(request: RequestInSteps, lang: str) -> str:
    parts = [text(lang, "common.tokens", n=request.num_tokens), *blocks_of(request, lang)]
    if how := drawn_from(request.processors, request.tokens_left, lang):
        parts.append(how)
    line = f"{visible(request.request_id)}: {text(lang, 'diagram.comma').join(parts)}"
    return line if request.sampled is None else f'{line} → "{beginning(request.sampled, _LONGEST_TEXT)}"'


def _range(numbers: Iterable[int | None]) -> tuple[int, int] | None:
    known = [number for number in numbers if number is not None]
    return (min(known), max(known)) if known else None


def drawn_from(processors: Iterable[str], tokens_left: tuple[int, int] | None, lang: str) -> str:
    """Return the processors of the logits and the tokens they left: `chosen from 5 tokens after top_k`; or ""."""
    names = text(lang, "step.comma").join(map(visible, processors))
    if not names:
        return ""
    if tokens_left is None:
        return text(lang, "steps.after", names=names)
    fewest, most = tokens_left
    if fewest == most:
        return text(lang, "steps.drawn", names=names, n=most)
    return text(lang, "steps.drawn_range", names=names, fewest=fewest, most=most)


def _cut(line: str, width: int) -> str:
    return line if cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + "…"
