"""The calls that differ: made by one run only, made more often by one, or made elsewhere."""

from collections import Counter
from collections.abc import Sequence, Set

from tracellm.report.diff.times import RUNS
from tracellm.report.texts import text
from tracellm.report.wording.blocks import Block, Column, Heading, Paragraph, Table
from tracellm.report.wording.quantities import clip
from tracellm.report.wording.safe_text import shorten, visible
from tracellm.trace.compare import CallPair, Comparison

__all__ = ["calls_part"]

_MOST_ROWS = 60
_MOST_NAMES = 60
_MOST_PLACES = 4
_LONGEST_NAME = 120


def calls_part(comparison: Comparison, lang: str) -> list[Block]:
    """Return the part about calls, with its heading."""
    blocks: list[Block] = [Heading(text(lang, "diff.calls"))]
    pairs = comparison.calls
    if not pairs:
        return [*blocks, Paragraph(text(lang, "diff.calls.none"))]
    if same := len(pairs) - len(comparison.different_calls):
        blocks.append(Paragraph(text(lang, "diff.calls.same", n=same)))
    counts = Counter(pair.name for pair in pairs)
    twice = {name for name, count in counts.items() if count > 1}
    blocks += _elsewhere([pair for pair in pairs if pair.moved], lang)
    blocks += _renamed([pair for pair in pairs if pair.a and pair.b and pair.lifeline_b and not pair.moved], lang)
    blocks += _only([pair for pair in pairs if not pair.b], 0, twice, lang)
    blocks += _only([pair for pair in pairs if not pair.a], 1, twice, lang)
    blocks += _more([pair for pair in pairs if pair.a > pair.b > 0], 0, twice, lang)
    blocks += _more([pair for pair in pairs if pair.b > pair.a > 0], 1, twice, lang)
    return blocks


def _elsewhere(pairs: Sequence[CallPair], lang: str) -> list[Block]:
    """Return the classes whose calls ran in other processes or threads."""
    moves: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, None]] = {}
    for pair in pairs:
        name = visible(pair.lifeline)
        if pair.lifeline_b:
            name = text(lang, "diff.calls.renamed", a=name, b=visible(pair.lifeline_b))
        moves.setdefault((pair.threads_a, pair.threads_b), {}).setdefault(name)
    if not moves:
        return []
    heads = ("elsewhere.a", "elsewhere.b", "elsewhere.what")
    columns = tuple(Column(text(lang, f"diff.calls.{head}")) for head in heads)
    rows = tuple(
        (_places(a), _places(b), [text(lang, "step.comma").join(classes)]) for (a, b), classes in moves.items()
    )
    return [Table(columns, rows, text(lang, "diff.calls.elsewhere"))]


def _renamed(pairs: Sequence[CallPair], lang: str) -> list[Block]:
    """Return the classes that have the same code under another name, in the same process and thread."""
    classes = dict.fromkeys((visible(pair.lifeline), visible(pair.lifeline_b)) for pair in pairs)
    columns = tuple(Column(text(lang, f"diff.calls.elsewhere.{run}")) for run in ("a", "b"))
    rows = tuple(([a], [b]) for a, b in classes)
    return [Table(columns, rows, text(lang, "diff.calls.other_class"))] if rows else []


def _only(pairs: Sequence[CallPair], run: int, twice: Set[str], lang: str) -> list[Block]:
    rows = [([_name(pair, twice)], [f"{(pair.a, pair.b)[run]:,}"], _places((pair.threads_a, pair.threads_b)[run]))
            for pair in pairs]  # fmt: skip
    heads = (text(lang, "diff.calls.count"), text(lang, "diff.calls.where"))
    columns = (Column(text(lang, "diff.calls.name"), code=True), Column(heads[0], number=True), Column(heads[1]))
    return _table(text(lang, "diff.calls.only", run=RUNS[run]), columns, rows, lang)


def _more(pairs: Sequence[CallPair], run: int, twice: Set[str], lang: str) -> list[Block]:
    """Return the calls of both runs, grouped by their two counts: once a request, once a step, and so on."""
    counts: dict[tuple[int, int], list[str]] = {}
    for pair in pairs:
        counts.setdefault((pair.a, pair.b), []).append(_name(pair, twice))
    rows = [([f"{a:,}"], [f"{b:,}"], _listed(calls, lang)) for (a, b), calls in counts.items()]
    columns = (Column("A", number=True), Column("B", number=True), Column(text(lang, "diff.calls.names")))
    return _table(text(lang, "diff.calls.more", run=RUNS[run]), columns, rows, lang)


def _listed(calls: Sequence[str], lang: str) -> list[str]:
    shown, more = clip(calls, _MOST_NAMES)
    names = text(lang, "step.comma").join(shown)
    return [names, text(lang, "diff.calls.left_out", n=more)] if more else [names]


def _table(title: str, columns: tuple[Column, ...], rows: Sequence[tuple[list[str], ...]], lang: str) -> list[Block]:
    if not rows:
        return []
    shown, more = clip(rows, _MOST_ROWS)
    blocks: list[Block] = [Table(columns, tuple(shown), title)]
    return [*blocks, Paragraph(text(lang, "diff.calls.left_out", n=more))] if more else blocks


def _name(pair: CallPair, twice: Set[str]) -> str:
    """Return `Scheduler.schedule`, or for a function without a class `check_stop (sched/utils.py)`.

    Two methods of one name in one object (`twice`) are named after the classes that define them: `MPClient.__init__`
    and `SyncMPClient.__init__`.
    """
    name = pair.name
    if pair.lifeline.endswith(".py"):
        name = f"{pair.method} ({pair.lifeline})"
    elif name in twice and pair.owner:
        name = f"{pair.owner}.{pair.method}"
    return shorten(visible(name), _LONGEST_NAME)


def _places(places: tuple[str, ...]) -> list[str]:
    shown, more = clip([visible(name) for name in places], _MOST_PLACES)
    return [*shown, "…"] if more else shown
