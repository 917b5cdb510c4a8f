"""A student's work on a lab: list, start, check, hint, explain, submit, reveal, report."""

import json
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from tracellm.cli.commands.lab.folders import default_folder, folder_of, lab_of
from tracellm.cli.errors import CommandError
from tracellm.cli.options import Command, language_option, option
from tracellm.cli.stdout import print_out, width_of_terminal
from tracellm.lab.checks import Check, make_cases
from tracellm.lab.exposing import EXPOSED_FILE, CaseError, given_mutants, read_exposed
from tracellm.lab.folder import LabFolder, make_folder, open_folder
from tracellm.lab.grading import PUBLIC_SEED, FailedCase, Grade, grade
from tracellm.lab.lab import Lab, load_labs
from tracellm.lab.loader import LAB_FILE, LoadError
from tracellm.lab.scoring import Part, public_points, score
from tracellm.lab.source import take_bodies
from tracellm.lab.teaching.twists import TwistError, read_handout
from tracellm.report.texts import Language, text
from tracellm.report.wording.safe_text import visible

__all__ = ["check", "explain", "folder_option", "hint", "report", "reveal", "show_list", "start", "submit"]

_POLL_SECONDS = 0.5
_LISTED_FAILURES = 3
_NOTEBOOK = {"cells": [], "metadata": {"kernelspec": {"name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}
"""An empty notebook: otter-grader wants one in each submission."""

folder_option = option("--dir", "chosen", type=Path, metavar="DIR", help="cli.help.lab.dir")


@click.command("list", cls=Command, usage=[], help="cli.help.lab.list")
@language_option
def show_list(lang: Language) -> int:
    """Print the labs."""
    rows = [(str(lab.number), lab.title[lang], f"{lab.hours:g}", _state(lab, lang)) for lab in load_labs()]
    _print_table(lang, ("number", "title", "hours", "state"), rows)
    print_out(text(lang, "lab.list.next"))
    return 0


def _state(lab: Lab, lang: Language) -> str:
    folder = default_folder(lab)
    try:
        opened = open_folder(folder)
    except LoadError:
        return text(lang, "lab.state.none")
    if not opened.score:
        return text(lang, "lab.state.started", folder=folder)
    return text(lang, "lab.state.checked", folder=folder, **opened.score)


def _print_table(lang: Language, keys: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for key in keys:
        table.add_column(text(lang, f"lab.column.{key}"), justify="right" if key in ("number", "hours") else "left")
    for row in rows:
        table.add_row(*row)
    console = Console(width=width_of_terminal(), highlight=False)
    with console.capture() as captured:
        console.print(table)
    print_out(captured.get())


@click.command(cls=Command, usage=["N"], help="cli.help.lab.start")
@click.argument("number", type=int)
@folder_option
@language_option
def start(number: int, chosen: Path | None, lang: Language) -> int:
    """Make the folder of a lab.

    Raises:
        CommandError: there is no such lab, or the folder exists.
    """
    lab = lab_of(number)
    path = chosen or default_folder(lab)
    try:
        folder = make_folder(lab, path, lang)
    except FileExistsError:
        raise CommandError("lab_started", path=path, number=number) from None
    except OSError as error:
        raise CommandError("lab_unwritable", path=path, reason=error.strerror or error) from None
    print_out(text(lang, "lab.started", number=number, title=lab.title[lang], path=path, invariant=lab.invariant[lang]))
    if lab.files:
        print_out(text(lang, "lab.started.functions"))
    for file in lab.files:
        print_out(f"  {path / file.name}: {', '.join(file.functions)}")
    if lab.sheets:
        print_out(text(lang, "lab.started.sheets", names=", ".join(str(path / name) for name in lab.sheets)))
    print_out(text(lang, "lab.started.next", number=number, path=path, where=f" --dir {chosen}" if chosen else ""))
    if folder.lab.predictions:
        print_out(text(lang, "lab.started.predict", number=number))
    return 0


@click.command(cls=Command, usage=["N"], help="cli.help.lab.check")
@click.argument("number", type=int)
@folder_option
@option("--case", "case", metavar="CHECK[:NUMBER]", help="cli.help.lab.check.case")
@option("--json", "as_json", is_flag=True, help="cli.help.lab.check.json")
@option("--watch", is_flag=True, help="cli.help.lab.check.watch")
@option("--verbose", is_flag=True, help="cli.help.lab.verbose")
@language_option
def check(
    number: int, chosen: Path | None, case: str | None, as_json: bool, watch: bool, verbose: bool, lang: Language
) -> int:
    """Check a student's files; return 0 if all public cases pass, else 1.

    Raises:
        CommandError: the lab is not started, or there is no such case.
    """
    lab = lab_of(number)
    folder = folder_of(lab, chosen)
    if as_json:
        if case is None:
            raise CommandError("lab_json_case")
        one, index = _case_of(lab, case)
        print_out(json.dumps({"check": one.name, "case": make_cases(one, PUBLIC_SEED)[index or 0]}, ensure_ascii=False))
        return 0
    while True:
        before = _modified(folder)
        passed = _check_once(folder, case, verbose, lang)
        if not watch:
            return 0 if passed else 1
        print_out(text(lang, "lab.watching"))
        try:
            while _modified(folder) == before:
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            return 0 if passed else 1


def _modified(folder: LabFolder) -> list[float]:
    paths = [folder.path / name for name in _written(folder.lab)]
    return [path.stat().st_mtime if path.exists() else 0.0 for path in paths]


def _written(lab: Lab) -> list[str]:
    """Return the names of the files that a student of a lab writes in."""
    return [*(file.name for file in lab.files), *lab.sheets]


def _case_of(lab: Lab, case: str) -> tuple[Check, int | None]:
    """Return the check and the case's number, from 0, of `CHECK:NUMBER`."""
    name, _, number = case.partition(":")
    found = next((one for one in lab.checks if one.name == name), None)
    if found is None:
        raise CommandError("lab_case", case=case, known=", ".join(one.name for one in lab.checks))
    if number and not (number.isdigit() and 1 <= int(number) <= found.cases):
        raise CommandError("lab_case_number", case=case, most=found.cases)
    return found, int(number) - 1 if number else None


def _check_once(folder: LabFolder, case: str | None, verbose: bool, lang: Language) -> bool:
    lab = folder.lab
    chosen, index = _case_of(lab, case) if case else (None, None)
    try:
        twist = read_handout(folder)
    except TwistError as error:
        raise CommandError("lab_twist", error=error) from None
    checks = None if chosen is None else [chosen]
    graded = grade(twist.lab if twist else lab, folder.path, checks=checks, shrink=twist is None, twist=twist)
    if index is not None:
        for result in graded.results:
            result.failed = [failed for failed in result.failed if failed.index == index]
            result.total = 1
    print_out(text(lang, "lab.heading", number=lab.number, title=lab.title[lang]))
    _print_results(graded, lang)
    failed = graded.first_failure
    if failed is not None:
        _print_failure(folder, failed, verbose or case is not None, lang)
    if case is None and lab.summarize is not None:
        print_out(lab.summarize(graded, folder.path, lang))
    if graded.printed and (verbose or case):
        print_out(text(lang, "lab.printed"))
        print_out("\n".join(f"  | {visible(line)}" for line in graded.printed.splitlines()[-20:]))
    if case is None:
        _print_score(folder, graded, lang)
    return failed is None


def _print_results(graded: Grade, lang: Language) -> None:
    for result in graded.results:
        mark = "✓" if not result.failed else "–" if result.not_run == len(result.failed) else "✗"
        note = " " + text(lang, "lab.result.not_run", count=result.not_run) if result.not_run else ""
        name = f" [{result.check.name}]" if result.failed else ""
        print_out(f"  {mark} {result.passed:>2}/{result.total}  {result.check.says(lang)}{name}{note}")


def _print_failure(folder: LabFolder, failed: FailedCase, details: bool, lang: Language) -> None:
    name = f"{failed.check.name}:{failed.index + 1}"
    key = "lab.failure.smaller" if failed.smaller else "lab.failure"
    print_out("")
    print_out(text(lang, key, name=name))
    print_out(f"  {visible(failed.failure[lang])}")
    if details:
        print_out(text(lang, "lab.failure.case"))
        print_out(f"  {visible(json.dumps(failed.case, ensure_ascii=False))[:4000]}")
        if failed.traceback:
            print_out("\n".join(f"  {visible(line)}" for line in failed.traceback.splitlines()))
    number = folder.lab.number
    print_out(text(lang, "lab.failure.next", number=number, name=name))
    if failed.failure.step is not None:
        print_out(text(lang, "lab.failure.see", number=number, name=name, step=failed.failure.step))


def _print_score(folder: LabFolder, graded: Grade, lang: Language) -> None:
    given, questions = given_mutants(folder.lab), folder.lab.predictions
    try:
        exposed = len(read_exposed(folder.path))
    except CaseError:
        exposed = 0
    folder.score = {"passed": graded.passed, "total": graded.total}
    folder.save()
    print_out("")
    number = folder.lab.number
    print_out(text(lang, "lab.public", passed=graded.passed, total=graded.total, **_points(folder.lab, graded)))
    print_out(text(lang, "lab.unchecked.hidden"))
    if given:
        print_out(text(lang, "lab.unchecked.exposed", done=exposed, total=len(given), number=number))
    if questions:
        answered = sum(one.name in folder.answers for one in questions)
        print_out(text(lang, "lab.unchecked.predicted", done=answered, total=len(questions), number=number))


def _points(lab: Lab, graded: Grade) -> dict[str, Any]:
    part = Part(graded.passed, graded.total, public_points(lab))
    return {"points": f"{part.earned:g}", "most": part.points}


@click.command(cls=Command, usage=["N"], help="cli.help.lab.hint")
@click.argument("number", type=int)
@folder_option
@option("--level", type=click.IntRange(1, 3), help="cli.help.lab.hint.level")
@language_option
def hint(number: int, chosen: Path | None, level: int | None, lang: Language) -> int:
    """Print the next hint, or the one of a level.

    Raises:
        CommandError: the lab is not started.
    """
    folder = folder_of(lab_of(number), chosen)
    hints = folder.lab.hints(lang)
    shown = level or min(folder.hints + 1, len(hints))
    folder.hints = max(folder.hints, shown)
    folder.save()
    print_out(text(lang, "lab.hint", level=shown, total=len(hints)))
    print_out(hints[shown - 1])
    return 0


@click.command(cls=Command, usage=["N"], help="cli.help.lab.explain")
@click.argument("number", type=int)
@folder_option
@option("--case", "case", metavar="CHECK:NUMBER", help="cli.help.lab.explain.case")
@language_option
def explain(number: int, chosen: Path | None, case: str | None, lang: Language) -> int:
    """Record the lab's script with the student's files and with the engine's, and compare the two.

    Raises:
        CommandError: the lab is not started, there is no such case, or the script records none.
    """
    from tracellm.lab.recording import compare, record
    from tracellm.report.diff import diff_text
    from tracellm.trace.run_folder import RunFolder

    folder = folder_of(lab_of(number), chosen)
    script = folder.path / "explain.py"
    if not script.is_file():
        raise CommandError("lab_no_script", path=script)
    chosen_case, step = None, None
    if case is not None:
        one, index = _case_of(folder.lab, case)
        if "sys.argv" not in script.read_text(encoding="utf-8"):
            raise CommandError("lab_no_replay")
        chosen_case = make_cases(one, PUBLIC_SEED)[index or 0]
        graded = grade(folder.lab, folder.path, checks=[one], shrink=False)
        failed = [failed for failed in graded.results[0].failed if failed.index == (index or 0)]
        if failed:
            print_out(visible(failed[0].failure[lang]))
            step = failed[0].failure.step
    folder.explained = True
    folder.save()
    runs = folder.path / "runs" / (case or "script").replace(":", "-")
    print_out(text(lang, "lab.explain.recording"))
    yours = record(script, runs / "yours", lang, folder=folder.path, case=chosen_case)
    if not folder.lab.files:  # the student's run is the engine's
        print_out(text(lang, "lab.explain.yours", link=yours.link(step)))
        return 0 if yours.status == 0 else 1
    reference = record(script, runs / "reference", lang, case=chosen_case)
    if yours.error:
        lines = (yours.traceback or yours.error).splitlines()
        print_out(text(lang, "lab.explain.failed", error="\n".join(f"  {visible(line)}" for line in lines)))
    print_out(text(lang, "lab.explain.yours", link=yours.link(step)))
    print_out(text(lang, "lab.explain.reference", link=reference.link(step)))
    page = compare(yours, reference, lang)
    if page is not None:
        address = page.resolve().as_uri() + (f"#step={step}" if step is not None else "")
        print_out(text(lang, "lab.explain.diff", link=address))
        print_out(diff_text(*(RunFolder.open(one.path) for one in (yours, reference)), lang=lang).partition("\n")[0])
    return 0 if yours.status == 0 else 1


@click.command(cls=Command, usage=["N"], help="cli.help.lab.submit")
@click.argument("number", type=int)
@folder_option
@option("--out", type=Path, metavar="FILE", help="cli.help.lab.submit.out")
@option("--notebook", is_flag=True, help="cli.help.lab.submit.notebook")
@language_option
def submit(number: int, chosen: Path | None, out: Path | None, notebook: bool, lang: Language) -> int:
    """Write the student's files into a zip file.

    Raises:
        CommandError: the lab is not started, or the file cannot be written.
    """
    folder = folder_of(lab_of(number), chosen)
    target = out or Path(f"{default_folder(folder.lab).name}.zip")
    extra = [name for name in (LAB_FILE, EXPOSED_FILE) if (folder.path / name).is_file()]
    names = [*_written(folder.lab), *extra]
    try:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.write(folder.path / name, name)
            if notebook:
                archive.writestr("submission.ipynb", json.dumps(_NOTEBOOK))
    except OSError as error:
        raise CommandError("lab_unwritable", path=target, reason=error.strerror or error) from None
    print_out(text(lang, "lab.submitted", path=target, names=", ".join(names)))
    return 0


@click.command(cls=Command, usage=["N"], help="cli.help.lab.reveal")
@click.argument("number", type=int)
@folder_option
@option("--now", is_flag=True, help="cli.help.lab.reveal.now")
@language_option
def reveal(number: int, chosen: Path | None, now: bool, lang: Language) -> int:
    """Print the engine's own functions, after all public cases pass or with `now`.

    Raises:
        CommandError: the lab is not started, or not passed yet.
    """
    folder = folder_of(lab_of(number), chosen)
    if not now:
        graded = grade(folder.lab, folder.path, shrink=False)
        if graded.passed < graded.total:
            raise CommandError("lab_not_passed", number=number, passed=graded.passed, total=graded.total)
    for file in folder.lab.files:
        for name, body in take_bodies(file.source(), file.functions, file.removed).items():
            print_out(f"# {file.module}: {name}\n{body}")
    return 0


@click.command(cls=Command, usage=[], help="cli.help.lab.report")
@option("--dir", "chosen", type=Path, metavar="DIR", help="cli.help.lab.report.dir")
@language_option
def report(chosen: Path | None, lang: Language) -> int:
    """Print the score of each lab in a directory, without hidden cases."""
    rows = []
    for path in sorted((chosen or Path.cwd()).glob(f"*/{LAB_FILE}")):
        try:
            folder = open_folder(path.parent)
        except LoadError as error:
            print_out(visible(str(error)))
            continue
        result = score(folder)
        parts = (result.public, result.exposed, result.predicted)
        rows.append(
            (
                str(folder.lab.number),
                path.parent.name,
                *(f"{part.done}/{part.total}" for part in parts),
                f"{result.earned:g}",
                str(folder.hints),
            )
        )
    if not rows:
        raise CommandError("lab_none_here", path=chosen or Path.cwd())
    _print_table(lang, ("number", "folder", "public", "exposed", "predicted", "points", "hints"), rows)
    print_out(text(lang, "lab.report.note"))
    return 0
