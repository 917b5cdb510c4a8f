"""One engine step as text, for `tracellm show RUN step N`, in the words of the page's step view.

The state is that after the step's scheduling: requests that finish in the step are in the running queue and have their
blocks. The page makes the same in html/js/steps/queues.js, blocks.js, batch.js and sampling.js.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from tracellm.report.facts.engines import EngineFacts, engines
from tracellm.report.facts.items.uses import item_uses
from tracellm.report.facts.items.wording import item_facts, item_source, item_title
from tracellm.report.facts.recording_time import recording_by_step
from tracellm.report.facts.steps.parts import output_times, parts_by_step
from tracellm.report.facts.steps.states import StepStates
from tracellm.report.texts import text
from tracellm.report.wording.changes import aborted, encoder_cache, encoder_evicted, finish_reason, held_reason
from tracellm.report.wording.quantities import clip, percent
from tracellm.report.wording.safe_text import beginning, visible
from tracellm.report.wording.titles import step_kind, time
from tracellm.trace.model import Trace
from tracellm.trace.ranges import format_ranges
from tracellm.trace.steps import GrammarMask, Sampled, ScheduledRequest, Step, sampled_in_order

__all__ = ["step_numbers", "step_text"]

_MOST_QUEUED = 64
_MOST_SAMPLES = 16
_MOST_TOKENS = 16  # of a request in the batch
_MOST_TABLES = 12  # of the batch, below each other
_MOST_MAP_LINES = 64
_LONGEST_LABEL = 3
_LONGEST_ERROR = 160
_LEAST_BLOCKS = 16
_BLANKS = str.maketrans({"\n": "↵", "\t": "⇥", " ": "␣"})


def step_numbers(trace: Trace) -> list[int]:
    """Return the numbers of all recorded steps, of all engines."""
    return sorted({step.index for engine in engines(trace) for step in engine.steps})


def step_text(trace: Trace, number: int, *, lang: str = "en", width: int = 100) -> str:
    """Return the state of this step in each engine that has it, lines of at most `width` columns, ending in a newline.

    The text is empty if no engine has the step.
    """
    parts = []
    known = engines(trace)
    for n, engine in enumerate(known, 1):
        for position, step in enumerate(engine.steps):
            if step.index == number:
                process = step.span.process
                view = _StepView(trace, engine, position, lang, width)
                name = text(lang, "page.engine.name", n=n, process=visible(process.name if process else "?"))
                parts.append("\n".join([*([name] if len(known) > 1 else []), *view.lines()]) + "\n")
    return "\n".join(parts)


class _StepView:
    """The lines of one step of an engine; `position` is its place in the engine's steps, from 0."""

    def __init__(self, trace: Trace, engine: EngineFacts, position: int, lang: str, width: int) -> None:
        self._trace, self._engine, self._lang, self._width = trace, engine, lang, width
        self._step = engine.steps[position]
        self._state = StepStates(trace, engine).at(position)
        self._uses = item_uses(trace)
        self._changes = self._state.changes
        holders = [*self._state.tables, *(block.request_id for block in self._state.cached.values())]
        self._labels = _labels(dict.fromkeys(holders))

    def lines(self) -> Iterator[str]:
        """Yield the view's lines."""
        step = self._step
        yield f"{self._text('page.step', n=step.index)} · {step_kind(step.kind, self._lang)}"
        changes = self._change_sentences() or [self._text("page.change.none")]
        yield from self._wrapped(("" if self._lang == "zh" else " ").join(changes))
        encoder = () if step.encoder is None else (self._encoder,)
        for section in (
            self._budget,
            *encoder,
            self._running,
            self._waiting,
            self._blocks,
            self._batch,
            self._sampling,
        ):
            yield ""
            yield from section()
        yield ""
        yield from self._time()

    def _change_sentences(self) -> list[str]:
        step = self._step
        found = [
            self._text(f"page.change.{key}", names=self._names(ids))
            for key, ids in (
                *aborted(step),
                *((key, getattr(step, key)) for key in ("new", "resumed", "preempted", "finished")),
            )
            if ids
        ]
        left = [id for id in self._changes.released if id not in step.aborted and id not in step.preempted]
        if left:
            key = "dropped" if step.kind == "empty" else "released"
            found.append(self._text(f"page.change.{key}", names=self._names(left)))
        if self._changes.evicted:
            found.append(self._text("page.change.evicted", n=len(self._changes.evicted)))
        if step.span.error:
            found.append(self._text("step.failed", error=beginning(step.span.error, _LONGEST_ERROR)))
        return found

    def _budget(self) -> Iterator[str]:
        decode = sum(request.num_tokens for request in self._step.requests if request.phase == "decode")
        used = self._step.num_tokens
        budget = self._step.token_budget
        yield self._heading("page.budget", self._text("page.budget.setting"))
        yield f"  {self._text('page.budget.sum', used=used, budget=budget, prefill=used - decode, decode=decode)}"

    def _encoder(self) -> Iterator[str]:
        """Yield budget and cache of the encoder, and the items that the step encodes, or finds."""
        encoder = self._step.encoder
        assert encoder is not None
        yield self._heading("page.encoder", self._text("page.encoder.setting"))
        budget = self._text("page.encoder.sum", used=encoder.num_tokens, budget=encoder.budget)
        yield f"  {budget}"
        yield from self._wrapped(encoder_cache(encoder, self._lang, "page.encoder.cache"), 2)
        reached = [
            (scheduled.request_id, index, item, source)
            for scheduled in self._step.requests
            if (request := self._state.requests.get(scheduled.request_id)) is not None and request.items
            for index, (item, use) in enumerate(zip(request.items, self._uses.get(request.span_id, ()), strict=False))
            for source in use.sources
            if source[0] == self._step.index
        ]
        shown, more = clip(reached, _MOST_QUEUED)
        for request_id, index, item, source in shown:
            name = visible(request_id)
            facts = [
                item_title(item, index, self._lang),
                *item_facts(item, self._lang),
                item_source(*source, self._lang),
            ]
            yield from self._wrapped(f"{name}  {' · '.join(facts)}", 2, cell_len(name) + 4)
        if more:
            yield f"  {self._text('page.more', n=more)}"
        if encoder.evicted:
            yield from self._wrapped(encoder_evicted(encoder, self._lang, "page.encoder.evicted"), 2)

    # -- queues --------------------------------------------------------------------------------------------------------

    def _running(self) -> Iterator[str]:
        running = self._step.running
        title = self._text("page.running", n=len(running))
        if (limit := self._engine.settings.get("max_num_seqs", "")).isdigit():
            title += self._text("page.running.limit", n=limit)
        yield title
        scheduled = {request.request_id: request for request in self._step.requests}
        entries = [(request_id, self._share(request_id, scheduled.get(request_id))) for request_id in running]
        yield from self._queue(entries, 0)

    def _share(self, request_id: str, scheduled: ScheduledRequest | None) -> list[str]:
        """Return what a running request does in the step."""
        if scheduled is None:
            notes = [self._text("page.idle")]
        else:
            first = scheduled.num_computed
            last = first + scheduled.num_tokens - 1
            at = self._text(
                "page.token.at" if first == last else "page.tokens.at",
                n=scheduled.num_tokens,
                **{"from": first, "to": last},
            )
            notes = [f"{self._text('page.decode' if scheduled.phase == 'decode' else 'page.prefill')} {at}"]
            if hit := scheduled.prefix_hit_tokens:
                notes.append(self._text("page.hit", n=hit, blocks=hit // (self._engine.block_size or hit)))
        notes += [self._text(f"page.{key}") for key in ("new", "resumed") if request_id in getattr(self._step, key)]
        if (reason := self._step.finished.get(request_id)) is not None:
            notes.append(self._text("page.finished", why=finish_reason(reason, self._lang)))
        return notes

    def _waiting(self) -> Iterator[str]:
        step = self._step
        yield self._text("page.waiting", n=step.num_waiting)
        preempted = [self._text("page.preempted")]
        entries = [(request_id, preempted if request_id in step.preempted else []) for request_id in step.waiting]
        yield from self._queue(entries, step.num_waiting - len(step.waiting))

    def _queue(self, entries: Sequence[tuple[str, list[str]]], unlisted: int) -> Iterator[str]:
        """Yield a line for each request, then the reason why it was not scheduled or got too few tokens."""
        held = {held.request_id: held for held in self._step.held}
        shown, more = clip(entries, _MOST_QUEUED)
        if not entries and not unlisted:
            yield f"  {self._text('page.nobody')}"
        for request_id, notes in shown:
            name = visible(request_id)
            why = held.get(request_id)
            if why is not None:
                notes = [*notes, held_reason(why.reason, why.details, self._lang, request_id)]
            yield from self._wrapped(f"{name}  {' · '.join(notes)}", 2, cell_len(name) + 4)
        if more + unlisted:
            yield f"  {self._text('page.more', n=more + unlisted)}"

    # -- the KV cache --------------------------------------------------------------------------------------------------

    def _blocks(self) -> Iterator[str]:
        step, tables = self._step, self._state.tables
        used = {block for table in tables.values() for block in table}
        yield self._heading("page.blocks", self._text("page.blocks.lead", size=self._engine.block_size))
        counts = {"used": step.blocks_total - step.blocks_free, "total": step.blocks_total, "free": step.blocks_free}
        cached = sum(block not in used for block in self._state.cached)
        yield from self._wrapped(self._text("page.blocks.sum", **counts, cached=cached), 2)
        if not self._changes.consistent:
            yield from self._wrapped(self._text("page.blocks.inconsistent"), 2)
        shown, more = clip(list(tables.items()), _MOST_QUEUED)
        for request_id, table in shown:
            label, name = self._labels[request_id], visible(request_id)
            title = name if label == name else f"{label}: {name}"
            yield from self._wrapped(f"{title}  block_table = [{_listed(table)}]", 2, cell_len(title) + 4)
        if more:
            yield f"  {self._text('page.more', n=more)}"
        last = max((block for each in self._engine.steps for block in _got(each)), default=0)
        end = min(step.blocks_total, max(last, _LEAST_BLOCKS))
        yield from self._map(end)
        if end < step.blocks_total:
            never = {"first": f"{end + 1:,}", "last": f"{step.blocks_total:,}", "n": step.blocks_total - end}
            yield f"  {self._text('page.blocks.unused', **never)}"
        yield from self._wrapped(" · ".join(self._legend()), 2)

    def _map(self, end: int) -> Iterator[str]:
        """Yield a cell for each block up to `end`, in lines that begin with the number of their first block.

        Lines in which all blocks are free are left out.
        """
        cells = self._cells(end)
        size = max(map(cell_len, cells)) + 1
        head = len(f"{end:,}")
        per_line = max(5, (self._width - head - 3) // size // 5 * 5)
        lines = [cells[first : first + per_line] for first in range(0, len(cells), per_line)]
        kept = [(i, line) for i, line in enumerate(lines) if set(line) != {"."}]
        shown, more = clip(kept, _MOST_MAP_LINES)
        before = -1
        for i, line in shown:
            if i > before + 1:
                yield f"  {'…':>{head}}"
            before = i
            yield f"  {i * per_line:>{head},} {''.join(f' {set_cell_size(cell, size - 1)}' for cell in line)}".rstrip()
        if more:
            yield f"  {self._text('page.more', n=sum(len(line) for _, line in kept[-more:]))}"

    def _cells(self, end: int) -> list[str]:
        """Return the cells of the blocks from 0 to `end`."""
        owners: dict[int, list[str]] = {}
        for request_id, table in self._state.tables.items():
            for block in table:
                owners.setdefault(block, []).append(request_id)
        fresh = {block for request in self._step.requests for block in request.new_blocks}
        cells = ["∅"]
        for block in range(1, end + 1):
            own = owners.get(block, [])
            content = self._state.cached.get(block)
            if own:
                label = self._labels[own[0]] if len(own) == 1 else f"×{len(own)}"
                mark = "!" if block in self._changes.evicted else "+" if block in fresh else ""
                cells.append(label + mark)
            else:
                cells.append(f"({self._labels[content.request_id]})" if content else ".")
        return cells

    def _legend(self) -> list[str]:
        label = next(iter(self._labels.values()), "0")
        marks = {"owner": label, "fresh": f"{label}+", "shared": "×2", "cached": f"({label})", "evicted": f"{label}!",
                 "free": ".", "null": "∅"}  # fmt: skip
        return [f"{mark} {self._text(f'page.legend.{name}')}" for name, mark in marks.items()]

    # -- the batch -----------------------------------------------------------------------------------------------------

    def _batch(self) -> Iterator[str]:
        scheduled = self._step.requests
        yield self._heading("page.batch", self._text("page.batch.lead"))
        if not scheduled:
            yield f"  {self._text('step.kind.empty')}"
            return
        starts = [0]
        for request in scheduled:
            starts.append(starts[-1] + request.num_tokens)
        columns = max(len(self._state.tables.get(request.request_id, ())) for request in scheduled)
        facts = [
            f"input_ids, positions, slot_mapping [{starts[-1]:,}]",
            f"query_start_loc [{len(starts)}] = {_short_list(starts)}",
            f"seq_lens [{len(scheduled)}] = "
            + _short_list([request.num_computed + request.num_tokens for request in scheduled]),
            f"block_table [{len(scheduled)}, {columns}]",
        ]
        for fact in facts:
            yield from self._wrapped(fact, 2, 4)
        heads = [self._text("page.legend.owner"), self._text("page.token"), "input_ids", "positions", "slot_mapping"]
        tables = list(_side_by_side(heads, [cell for request in scheduled for cell in self._inputs(request)],
                                    self._width - 2))  # fmt: skip
        shown, more = clip(tables, _MOST_TABLES)
        for table, _ in shown:
            yield ""
            yield from (f"  {line}" for line in table)
        if more:
            yield f"  {self._text('page.more', n=sum(n for _, n in tables[-more:]))}"

    def _inputs(self, request: ScheduledRequest) -> Iterator[list[str]]:
        """Yield a column for each of a request's first tokens: request, text, input id, position, slot."""
        label = self._labels.get(request.request_id, visible(request.request_id))
        for i in range(min(request.num_tokens, _MOST_TOKENS)):
            position = request.num_computed + i
            token_id, piece = self._state.token(request.request_id, position)
            slot = self._state.slot(request.request_id, position)
            yield [label, _token_text(piece), _or_unknown(token_id), str(position), _or_unknown(slot)]
        if request.num_tokens > _MOST_TOKENS:
            yield [label, "…", "…", "…", "…"]

    # -- the tokens ----------------------------------------------------------------------------------------------------

    def _sampling(self) -> Iterator[str]:
        step = self._step
        shape = f"logits [{', '.join(f'{size:,}' for size in step.logits_shape)}]" if step.logits_shape else ""
        yield self._heading("page.sampling", shape)
        if not step.sampled:
            yield f"  {self._text('page.sampling.none')}"
            return
        yield f"  {self._text('steps.chosen')}"
        shown, more = clip(sampled_in_order(step), _MOST_SAMPLES)
        for sampled in shown:
            name = visible(sampled.request_id)
            indent = min(cell_len(name) + 4, self._width // 2)
            yield from self._wrapped(
                f"{name}  {_candidates(sampled, sampled.candidates, sampled.probability)}", 2, indent
            )
            if sampled.processors:
                names = ", ".join(map(visible, sampled.processors))
                request = self._state.requests.get(sampled.request_id)
                greedy = request is not None and dict(request.params).get("temperature") in ("0", "0.0")
                key = "page.processors.greedy" if greedy else "page.processors"
                p = percent(sampled.drawn_probability or 0)
                drawn = self._text(key, names=names, n=sampled.tokens_left or 0, p=p)
                yield from self._wrapped(drawn, indent, indent)
                if sampled.drawn_listed != sampled.listed:
                    line = _candidates(sampled, sampled.drawn_candidates, sampled.drawn_probability)
                    yield from self._wrapped(line, indent, indent)
            if sampled.grammar is not None:
                for line in self._grammar(sampled.grammar):
                    yield from self._wrapped(line, indent, indent)
            if so_far := self._state.output(sampled.request_id):
                yield self._cut_left(so_far, indent)
        if more:
            yield f"  {self._text('page.more', n=more)}"

    def _grammar(self, mask: GrammarMask) -> Iterator[str]:
        """Yield the tokens that the grammar allowed, and the likeliest one if it forbade that."""
        allowed = [_token_text(piece) for _, piece, _ in mask.allowed]
        more = ["…"] if allowed and mask.num_allowed > len(allowed) else []
        yield "  ".join([self._text("step.grammar", n=mask.num_allowed, p=percent(mask.share)), *allowed, *more])
        if (forbidden := mask.forbidden) is not None:
            _, piece, share = forbidden
            yield f"{self._text('step.grammar.forbade')} {_token_text(piece)} {percent(share)}"

    def _cut_left(self, output: str, indent: int) -> str:
        """Return a request's text so far in one line: its end, if it is long."""
        shown = visible(output)
        room = self._width - indent - 4
        start = 0
        while cell_len(shown[start:]) > room:
            start += max(1, (cell_len(shown[start:]) - room) // 2)
        return f'{" " * indent}→ {"…" if start else ""}"{shown[start:]}"'

    # -- the time ------------------------------------------------------------------------------------------------------

    def _time(self) -> Iterator[str]:
        span = self._step.span
        parts = dict(parts_by_step(self._trace).get(span.span_id, {}))
        recording = recording_by_step(self._trace).get(span.span_id, 0)
        parts |= {"other": span.duration_ns - sum(parts.values()) - recording, "recording": recording}
        yield self._heading("page.time", self._text("page.time.lead", time=time(span.duration_ns)))
        shares = [
            f"{self._text(f'page.part.{part}')} {time(took)} ({percent(took / span.duration_ns)})"
            for part, took in parts.items()
            if took > 0
        ]
        yield from self._wrapped(" · ".join(shares), 2)
        if (outputs := output_times(self._trace).get(span.span_id)) is not None:
            yield from self._wrapped(self._text("page.time.outputs", time=time(outputs)), 2)

    # -- wording -------------------------------------------------------------------------------------------------------

    def _text(self, key: str, **values: object) -> str:
        return text(self._lang, key, **values)

    def _heading(self, key: str, detail: str) -> str:
        return f"{self._text(key)}  {detail}".rstrip()

    def _names(self, ids: Iterable[str]) -> str:
        return self._text("step.comma").join(map(visible, ids))

    def _wrapped(self, line: str, indent: int = 0, hanging: int | None = None) -> list[str]:
        """Return a line wrapped at the width; `hanging` is the indent of all lines but the first."""
        hanging = indent if hanging is None else min(hanging, self._width // 2)
        lines = Text(" " * indent + line).wrap(_console(), self._width, overflow="fold", no_wrap=False)
        if len(lines) == 1 or hanging == indent == 0:
            return [part.plain.rstrip() for part in lines]
        first = lines[0].plain.rstrip()
        rest = (" " * indent + line)[len(lines[0].plain) :].lstrip()
        others = Text(rest).wrap(_console(), self._width - hanging, overflow="fold")
        return [first, *(" " * hanging + part.plain.rstrip() for part in others)]


def _labels(ids: Iterable[str]) -> dict[str, str]:
    """Return a label of at most three columns for each request: its id, or letters if an id is longer."""
    names = [*ids]
    if all(cell_len(visible(name)) <= _LONGEST_LABEL for name in names):
        return {name: visible(name) for name in names}
    return {name: _letters(number) for number, name in enumerate(names)}


def _letters(number: int) -> str:
    """Return A, B, ..., Z, AA, AB, ... for 0, 1, ..., 25, 26, 27, ..."""
    above, letter = divmod(number, 26)
    return (_letters(above - 1) if above else "") + chr(ord("A") + letter)


def _listed(blocks: Sequence[int]) -> str:
    return format_ranges(blocks).replace(",", ", ")


def _got(step: Step) -> Iterator[int]:
    """Yield the blocks that requests got in a step."""
    for request in step.requests:
        yield from request.cached_blocks
        yield from request.new_blocks


def _short_list(values: Sequence[int]) -> str:
    return f"[{', '.join(map(str, values[:12]))}{', …' if len(values) > 12 else ''}]"


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


def _token_text(piece: str | None) -> str:
    """Return a token's text with blanks that can be seen."""
    return "•" if piece is None else visible(piece.translate(_BLANKS)) or "∅"


def _candidates(sampled: Sampled, candidates: Sequence[tuple[int, str, float]], probability: float | None) -> str:
    """Return the likeliest tokens, the chosen one in brackets; it comes first if it is not among them."""
    listed = [(token_id, _token_text(piece), share) for token_id, piece, share in candidates]
    parts = [f"[{piece}] {percent(share)}" if token_id == sampled.token_id else f"{piece} {percent(share)}"
             for token_id, piece, share in listed]  # fmt: skip
    if sampled.token_id not in [token_id for token_id, *_ in listed]:
        chosen = f"[{_token_text(sampled.text)}]"
        parts.insert(0, chosen if probability is None else f"{chosen} {percent(probability)}")
    return "  ".join(parts)


def _side_by_side(heads: Sequence[str], columns: Sequence[list[str]], width: int) -> Iterator[tuple[list[str], int]]:
    """Yield tables of at most `width` columns, below each other, with the number of tokens in each.

    Equal cells of the first row, the requests, are merged.
    """
    first = max(map(cell_len, heads)) + 2
    widths = [min(max(map(cell_len, column)), width - first - 1) + 1 for column in columns]
    bounds, used = [0], first
    for i, size in enumerate(widths):
        if used + size > width and i > bounds[-1]:
            bounds.append(i)
            used = first
        used += size
    for begin, end in pairwise([*bounds, len(columns)]):
        lines = []
        for row, head in enumerate(heads):
            cells = [
                set_cell_size("" if row == 0 and i > begin and columns[i][0] == columns[i - 1][0] else columns[i][row],
                              widths[i])
                for i in range(begin, end)
            ]  # fmt: skip
            lines.append((set_cell_size(head, first) + "".join(cells)).rstrip())
        yield lines, end - begin


@cache
def _console() -> Console:
    return Console(file=io.StringIO(), markup=False, emoji=False)
