"""`tracellm check`: compares an earlier run with a diagram or table of the expected calls."""

import sys

import click

from tracellm.cli.errors import CommandError, print_error
from tracellm.cli.folders import open_run
from tracellm.cli.options import Command, language_option, option
from tracellm.cli.stdout import print_out
from tracellm.report.facts.coverage import notes
from tracellm.report.facts.engines import engines
from tracellm.report.facts.invariants import INVARIANTS, check_invariants
from tracellm.report.texts import Language, text
from tracellm.report.wording.quantities import duration
from tracellm.report.wording.safe_text import visible
from tracellm.trace.expect import Expectation, ExpectError, Result, read
from tracellm.trace.expect import check as hold_against
from tracellm.trace.expect.calls import Call
from tracellm.trace.expect.match import Miss
from tracellm.trace.expect.read import Arrow
from tracellm.trace.model import Trace

__all__ = ["check", "check_text"]

_MOST_MISSES = 20
"""Limit of the missing calls that are listed."""


@click.command(cls=Command, usage=["[RUN]", "--expect FILE | --invariants"], help="cli.help.check")
@click.argument("name", required=False)
@option("--expect", metavar="FILE", help="cli.help.check.expect")
@option("--phase", metavar="PHASE", help="cli.help.check.phase")
@option("--invariants", is_flag=True, help="cli.help.check.invariants")
@language_option
def check(name: str | None, expect: str | None, phase: str | None, invariants: bool, lang: Language) -> int:
    """Print how many calls of the file `expect` are in a run, and the reason for the first missing one.

    With `invariants`, print which invariants of the engine hold. Returns 0 if all is as expected, else 1.

    Raises:
        CommandError: no such run, or no expected calls in the file.
    """
    if invariants:
        if expect is not None:
            raise CommandError("expect_or_invariants")
        return _check_invariants(open_run(name, lang).trace, lang)
    if expect is None:
        raise CommandError("expect_option")
    expectation = _read(expect, phase)
    run = open_run(name, lang)
    path = expect.rpartition("#")[0] if expectation.number > 1 else expect
    if expectation.of > 1:
        lines = text(lang, "check.several", path=path, count=expectation.of, line=expectation.line)
        print(visible(lines), file=sys.stderr)
    result = hold_against(run.trace, expectation, phase or "")
    print_out(check_text(run.trace, result, path, lang))
    if result.misses:
        for note in notes(run.manifest, lang):
            print_error(lang, "note", note=note)
    return 1 if result.misses else 0


def _check_invariants(trace: Trace, lang: Language) -> int:
    checked = check_invariants(trace)
    known = engines(trace)
    steps = sum(len(engine.steps) for engine in known)
    broken = {violation.name for violation in checked.violations}
    held = len(checked.names - broken)
    print_out(text(lang, "check.invariants", held=held, total=len(checked.names), steps=steps))
    for name in INVARIANTS:
        mark = "✗" if name in broken else "✓" if name in checked.names else "–"
        print_out(f"  {mark} {text(lang, f'invariant.{name}')}")
    if checked.names < set(INVARIANTS):
        print_out(text(lang, "check.invariants.unchecked"))
    for violation in checked.violations[:_MOST_MISSES]:
        values = {key: visible(str(value)) for key, value in violation.values.items()}
        if "owners" in violation.values:
            values["owners"] = visible(text(lang, "check.and").join(violation.values["owners"]))
        what = text(lang, f"invariant.{violation.name}.broken", **values)
        if violation.step is not None:
            key = "check.invariant.engine" if len(known) > 1 else "check.invariant.step"
            what = text(lang, key, engine=violation.engine, step=violation.step, what=what)
        print_out(what)
    if len(checked.violations) > _MOST_MISSES:
        print_out(text(lang, "check.more", count=len(checked.violations) - _MOST_MISSES))
    return 1 if checked.violations else 0


def _read(expect: str, phase: str | None) -> Expectation:
    try:
        expectation = read(expect)
    except ExpectError as error:
        raise CommandError(f"expect_{error.code}", **error.values) from None
    arrows = [arrow for arrow in expectation.arrows if phase is None or arrow.phase == phase]
    known = ", ".join(dict.fromkeys(arrow.phase for arrow in expectation.arrows if arrow.phase))
    if not arrows:
        raise CommandError("expect_phase" if known else "expect_phase_none", path=expect, phase=phase, known=known)
    if all(arrow.needs for arrow in arrows):
        needs = ", ".join(dict.fromkeys(arrow.needs for arrow in arrows))
        raise CommandError("expect_only_needs", path=expect, needs=needs)
    return expectation


def check_text(trace: Trace, result: Result, path: str, lang: Language) -> str:
    """Return the lines that describe the result of a check; `path` stands for the expectation."""
    return "\n".join(map(visible, _Report(trace, path, lang).lines(result)))


class _Report:
    """The lines that describe a result."""

    def __init__(self, trace: Trace, path: str, lang: Language) -> None:
        self._begin = trace.spans[0].start_ns if trace.spans else 0
        self._path = path
        self._lang = lang

    def lines(self, result: Result) -> list[str]:
        """Return the lines to print."""
        lines = [self._say("all" if not result.misses else "some", matched=result.matched, total=result.total)]
        if result.misses:
            lines.append(self._say("score", score=f"{result.score:g}", total=result.total))
        lines += [self._say("needs", count=count, needs=needs) for needs, count in result.needs.items()]
        for name, near in result.unknown.items():
            lines.append(self._say("unknown.near" if near else "unknown", name=name, near=self._or(near)))
        if result.misses:
            lines += ["", *self._first(result.misses[0])]
        if more := result.misses[1:]:
            lines += ["", self._say("others_missing")]
            lines += [f"  {self._line(miss)}" for miss in more[:_MOST_MISSES]]
            if len(more) > _MOST_MISSES:
                lines.append(f"  {self._say('more', count=len(more) - _MOST_MISSES)}")
        return lines

    def _first(self, miss: Miss) -> list[str]:
        lines = [
            self._say("first", line=miss.arrow.line, path=self._path),
            f"  {miss.arrow.text}",
            f"  {self._why(miss)}",
        ]
        lines += [f"  {self._say('others', call=self._call(call))}" for call in miss.others]
        lines.append(f"  {self._found('before', miss.before)}" if miss.before else f"  {self._say('before.none')}")
        if miss.after:
            lines.append(f"  {self._found('after', miss.after)}")
        return lines

    def _why(self, miss: Miss) -> str:
        if miss.elsewhere:
            return self._say("order", where=self._or([self._where(call) for call in miss.elsewhere]))
        if miss.near:
            return self._say("never.near", near=self._or(miss.near))
        return self._say("never")

    def _line(self, miss: Miss) -> str:
        why = self._say("others", call=self._call(miss.others[0])) if miss.others else self._why(miss)
        return self._say("line.why", line=miss.arrow.line, call=miss.arrow.text, why=why)

    def _found(self, key: str, found: tuple[Arrow, Call]) -> str:
        arrow, call = found
        return self._say(key, where=self._where(call), line=arrow.line, call=arrow.text)

    def _call(self, call: Call) -> str:
        process = call.span.process.name if call.span.process else ""  # the outermost call's caller is its process
        callers = "/".join(sorted(call.callers - {process})) or process
        targets = "/".join(sorted(call.targets))
        name = f"{call.owner}.{call.names[0]}" if call.owner and call.owner not in call.targets else call.names[0]
        return self._say("call", caller=callers, callee=targets, method=name, where=self._where(call))

    def _where(self, call: Call) -> str:
        process = call.span.process.name if call.span.process else "?"
        return self._say("where", time=duration((call.time_ns - self._begin) / 1e9), process=process)

    def _or(self, names: tuple[str, ...] | list[str]) -> str:
        return text(self._lang, "check.or").join(names)

    def _say(self, key: str, **values: object) -> str:
        return text(self._lang, f"check.{key}", **values)
