"""Predictions, and broken engines: predict, expose, museum."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import click

from tracellm.cli.commands.lab.folders import folder_of, lab_of
from tracellm.cli.errors import CommandError
from tracellm.cli.options import Command, language_option, option
from tracellm.cli.stdout import print_out
from tracellm.lab.exposing import CaseError, given_mutants, read_exposed, write_exposed
from tracellm.lab.exposing import expose as run_mutant
from tracellm.lab.scoring import asked, is_right
from tracellm.report.texts import Language, text
from tracellm.report.wording.safe_text import visible

__all__ = ["expose", "museum", "predict"]


@click.command(cls=Command, usage=["N", "[NAME=ANSWER ...]"], help="cli.help.lab.predict")
@click.argument("number", type=int)
@click.argument("answers", nargs=-1)
@option("--dir", "chosen", type=Path, metavar="DIR", help="cli.help.lab.dir")
@language_option
def predict(number: int, answers: tuple[str, ...], chosen: Path | None, lang: Language) -> int:
    """Ask the lab's questions, and keep the first answer to each; say which are right once all are answered.

    Raises:
        CommandError: the lab is not started, or an answer is malformed, late or a second one.
    """
    folder = folder_of(lab_of(number), chosen)
    questions = {one.name: (one, case) for one, case in asked(folder)}
    given = dict(_answer(answer, list(questions)) for answer in answers)
    if folder.explained and given.keys() - folder.answers.keys():
        raise CommandError("lab_predict_late", number=number)
    for name, answer in given.items():
        one, case = questions[name]
        if isinstance(one.answer(case), int) and not re.fullmatch(r"\s*-?\d+\s*", answer):
            raise CommandError("lab_predict_number", name=name, value=answer)
    if twice := given.keys() & folder.answers.keys():
        raise CommandError("lab_predict_twice", name=sorted(twice)[0])
    if not given and sys.stdin.isatty() and not folder.explained:
        for name, (one, case) in questions.items():
            if name not in folder.answers:
                given[name] = click.prompt(one.question(case, lang))
    folder.answers |= given
    folder.save()
    for name, (one, case) in questions.items():
        print_out(f"{name}: {one.question(case, lang)}")
        if name in folder.answers:
            print_out(f"  {text(lang, 'lab.predict.yours', answer=visible(str(folder.answers[name])))}")
        if len(folder.answers) == len(questions) or folder.explained:
            right = name in folder.answers and is_right(one, case, folder.answers[name])
            print_out(f"  {'✓' if right else '✗'} {one.answer(case)}: {one.reason(case, lang)}")
    if len(folder.answers) < len(questions) and not folder.explained:
        print_out(text(lang, "lab.predict.next", number=number))
    return 0


def _answer(value: str, known: list[str]) -> tuple[str, str]:
    name, separator, answer = value.partition("=")
    if not separator or name not in known:
        raise CommandError("lab_predict_form", value=value, known=", ".join(known))
    return name, answer


@click.command(cls=Command, usage=["N", "[[BROKEN] CASE.json]"], help="cli.help.lab.expose")
@click.argument("number", type=int)
@click.argument("arguments", nargs=-1)
@option("--dir", "chosen", type=Path, metavar="DIR", help="cli.help.lab.dir")
@language_option
def expose(number: int, arguments: tuple[str, ...], chosen: Path | None, lang: Language) -> int:
    """Run one or all broken engines on a student's case, and keep it for those it exposes. Returns 1 if for none.

    Raises:
        CommandError: the lab is not started, there is no such broken engine, or the case is malformed.
    """
    folder = folder_of(lab_of(number), chosen)
    mutants = given_mutants(folder.lab)
    try:
        cases = read_exposed(folder.path)
        if not arguments:
            for index in range(1, len(mutants) + 1):
                key = "lab.expose.done" if index in cases else "lab.expose.open"
                print_out(text(lang, key, index=index))
            print_out(text(lang, "lab.expose.next", number=number, check=folder.lab.checks[-1].name))
            return 0
        *broken, file = arguments
        if len(broken) > 1 or file.isdigit():
            raise CommandError("lab_broken_case")
        chosen_ones = [_index(value, len(mutants)) for value in broken] or range(1, len(mutants) + 1)
        name, case = _read_case(Path(file))
        found = False
        for index in chosen_ones:
            failure = run_mutant(folder.lab, mutants[index - 1], name, case)
            if failure is None:
                print_out(text(lang, "lab.expose.same", index=index))
                continue
            found = True
            if broken or index not in cases:
                cases[index] = (name, case)
                write_exposed(folder.path, cases)
            print_out(text(lang, "lab.expose.found", index=index))
            print_out(f"  {visible(failure[lang])}")
    except CaseError as error:
        raise CommandError(f"lab_case_{error.key}", **error.values) from None
    return 0 if found else 1


def _index(value: str, most: int) -> int:
    """Return the number of a broken engine."""
    if not value.isdigit() or not 1 <= int(value) <= most:
        raise CommandError("lab_broken", number=value, most=most)
    return int(value)


def _read_case(file: Path) -> tuple[str, Any]:
    try:
        entry = json.loads(file.read_text(encoding="utf-8"))
        return str(entry["check"]), entry["case"]
    except OSError as error:
        raise CommandError("lab_case_unreadable", path=file, reason=error.strerror or error) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CommandError("lab_case_file", path=file, error=error) from None


@click.command(cls=Command, usage=["[NUMBER]"], help="cli.help.lab.museum")
@click.argument("number", type=int, required=False)
@option("--out", type=Path, metavar="DIR", help="cli.help.lab.museum.out")
@option("--case", "file", type=Path, metavar="FILE", help="cli.help.lab.museum.case")
@option("--answer", is_flag=True, help="cli.help.lab.museum.answer")
@language_option
def museum(number: int | None, out: Path | None, file: Path | None, answer: bool, lang: Language) -> int:
    """List the broken engines of the museum, record a run of one, or run it on a case. Returns 1 if that shows nothing.

    Raises:
        CommandError: there is no such exhibit, or the case is malformed.
    """
    from tracellm.lab.museum import exhibits, record_exhibit

    known = exhibits()
    if number is None:
        for index, exhibit in enumerate(known, start=1):
            print_out(
                text(lang, "lab.museum.line", index=index, number=exhibit.lab.number, title=exhibit.lab.title[lang])
            )
        print_out(text(lang, "lab.museum.next"))
        return 0
    if not 1 <= number <= len(known):
        raise CommandError("lab_exhibit", number=number, most=len(known))
    exhibit = known[number - 1]
    if answer:
        print_out(exhibit.mutant.says[lang])
        return 0
    if file is not None:
        name, case = _read_case(file)
        try:
            failure = run_mutant(exhibit.lab, exhibit.mutant, name, case)
        except CaseError as error:
            raise CommandError(f"lab_case_{error.key}", **error.values) from None
        print_out(text(lang, "lab.expose.same" if failure is None else "lab.expose.found", index=number))
        if failure is not None:
            print_out(f"  {visible(failure[lang])}")
        return 0 if failure is not None else 1
    recorded, page = record_exhibit(exhibit, out or Path(f"museum-{number:02}"), lang)
    if recorded.error:
        print_out(text(lang, "lab.explain.failed", error=f"  {visible(recorded.error)}"))
    print_out(text(lang, "lab.museum.report", link=recorded.link()))
    if page is not None:
        print_out(text(lang, "lab.explain.diff", link=page.resolve().as_uri()))
    print_out(text(lang, "lab.museum.prove", index=number, check=exhibit.lab.checks[-1].name))
    return 0
