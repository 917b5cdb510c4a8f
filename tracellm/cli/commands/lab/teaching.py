"""A teacher's commands: grade, twist, hand-out, export-grader."""

import os
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracellm.cli.commands.lab.folders import lab_of
from tracellm.cli.errors import CommandError
from tracellm.cli.options import Command, language_option, option
from tracellm.cli.stdout import print_out
from tracellm.lab.checks import make_cases
from tracellm.lab.lab import Lab, find_lab
from tracellm.lab.teaching.exports import SERVICES
from tracellm.report.texts import Language, text

if TYPE_CHECKING:
    from tracellm.lab.teaching.submissions import Submission

__all__ = ["export_grader", "grade", "hand_out", "twist"]

SEED = "TRACELLM_LAB_SEED"
"""Environment variable with the teacher's seed; other users of a machine can see the arguments of a command."""


@click.command(cls=Command, usage=["DIR"], help="cli.help.lab.grade")
@click.argument("folder", type=Path, metavar="DIR")
@option("--seed", help="cli.help.lab.grade.seed")
@option("--seed-file", type=Path, metavar="FILE", help="cli.help.lab.grade.seed_file")
@option("--out", type=Path, metavar="FILE", default=Path("grades.csv"), help="cli.help.lab.grade.out")
@option("--lab", "number", type=int, metavar="N", help="cli.help.lab.grade.lab")
@option("--twist", "variant", type=Path, metavar="DIR", help="cli.help.lab.grade.twist")
@language_option
def grade(
    folder: Path,
    seed: str | None,
    seed_file: Path | None,
    out: Path,
    number: int | None,
    variant: Path | None,
    lang: Language,
) -> int:
    """Mark the submissions in a directory: a CSV file, a page for each student, and pairs that are alike.

    Raises:
        CommandError: there are no submissions, the lab is not clear, or a file cannot be read or written.
    """
    from tracellm.lab.teaching.marking import mark, write_csv
    from tracellm.lab.teaching.pages import write_pages
    from tracellm.lab.teaching.similarity import compare_submissions, write_similarity
    from tracellm.lab.teaching.submissions import find_submissions, read_state
    from tracellm.lab.teaching.twists import TwistError, open_twist

    try:
        submissions = find_submissions(folder)
    except OSError as error:
        raise CommandError("lab_case_unreadable", path=folder, reason=error.strerror or error) from None
    seed = _seed(seed, seed_file)
    if not submissions:
        raise CommandError("lab_no_submissions", path=folder)
    if not seed:
        raise CommandError("lab_no_seed", variable=SEED)
    with tempfile.TemporaryDirectory(prefix="tracellm-") as place:
        try:
            opened = None if variant is None else open_twist(variant, Path(place, "reference"))
            if opened is not None:
                opened.expected([(check, case) for check in opened.lab.checks for case in make_cases(check, seed)])
        except (TwistError, OSError) as error:
            raise CommandError("lab_twist", error=error) from None
        lab = opened.lab if opened else _lab_of_submissions(submissions, number)
        marks = []
        for submission in submissions:
            found = mark(submission, lab, seed, twist=opened)
            marks.append(found)
            print_out(f"{found.name}: {found.score.earned:g}  {' '.join(found.verdict[lang].split())[:100]}")
    seeds = {one.name: str(read_state(one).get("seed", "0")) for one in submissions}
    pairs = compare_submissions(lab, {one.name: one.sources for one in marks}, seeds)
    similar = out.parent / "similarity.csv"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(write_csv(marks, lang), encoding="utf-8")
        similar.write_text(write_similarity(pairs, text(lang, "lab.similarity.note")), encoding="utf-8")
        title = None if opened is None else opened.title
        index = write_pages(marks, pairs, lab, out.parent / "pages", lang, title)
    except OSError as error:
        raise CommandError("lab_unwritable", path=error.filename, reason=error.strerror or error) from None
    print_out(text(lang, "lab.graded", path=out, pages=index, similar=similar, count=len(pairs)))
    isolation = next((one.isolation for one in marks if one.isolation), "limits")
    print_out(text(lang, f"lab.isolation.{isolation}"))
    return 0


def _lab_of_submissions(submissions: "list[Submission]", number: int | None) -> Lab:
    from tracellm.lab.teaching.submissions import claimed_lab

    if number is not None:
        return lab_of(number)
    claimed = {claimed for one in submissions if (claimed := claimed_lab(one)) is not None}
    found = find_lab(min(claimed)) if len(claimed) == 1 else None
    if found is None:
        raise CommandError("lab_not_clear", claimed=", ".join(str(one) for one in sorted(claimed)) or "-")
    return found


@click.command(cls=Command, usage=["[NAME]"], help="cli.help.lab.twist")
@click.argument("name", required=False)
@option("--out", type=Path, metavar="DIR", help="cli.help.lab.twist.out")
@option("--seed", help="cli.help.lab.twist.seed")
@language_option
def twist(name: str | None, out: Path | None, seed: str | None, lang: Language) -> int:
    """Make a teacher's folder of a twist; without a name, list the templates.

    Raises:
        CommandError: there is no such template, or the folder exists or cannot be written.
    """
    from tracellm.lab.teaching.twists import TwistError, make_twist, templates

    if name is None:
        for known, (number, title) in templates().items():
            print_out(f"  {known}: {text(lang, 'lab.heading', number=number, title=title[lang])}")
        print_out(text(lang, "lab.twist.next"))
        return 0
    target = out or Path(f"twist-{name}")
    try:
        make_twist(name, target, seed or secrets.token_hex(8))
    except TwistError as error:
        raise CommandError("lab_twist", error=error) from None
    except FileExistsError:
        raise CommandError("lab_exists", path=target) from None
    except OSError as error:
        raise CommandError("lab_unwritable", path=target, reason=error.strerror or error) from None
    print_out(text(lang, "lab.twist.made", path=target))
    return 0


@click.command("hand-out", cls=Command, usage=["DIR"], help="cli.help.lab.hand_out")
@click.argument("folder", type=Path, metavar="DIR")
@option("--out", type=Path, metavar="DIR", help="cli.help.lab.hand_out.out")
@language_option
def hand_out(folder: Path, out: Path | None, lang: Language) -> int:
    """Make the students' folder of a twist.

    Raises:
        CommandError: the folder is no twist, its reference fails, or the new folder exists.
    """
    from tracellm.lab.teaching.twists import TwistError, open_twist
    from tracellm.lab.teaching.twists import hand_out as make

    with tempfile.TemporaryDirectory(prefix="tracellm-") as place:
        try:
            opened = open_twist(folder, Path(place, "reference"))
            target = out or Path(f"lab-{opened.lab.number:02}-{opened.lab.slug}-twist")
            make(folder, opened, target, lang)
        except TwistError as error:
            raise CommandError("lab_twist", error=error) from None
        except FileExistsError:
            raise CommandError("lab_exists", path=target) from None
        except OSError as error:
            raise CommandError("lab_unwritable", path=error.filename, reason=error.strerror or error) from None
    print_out(text(lang, "lab.hand_out.made", path=target, number=opened.lab.number))
    return 0


@click.command("export-grader", cls=Command, usage=["N"], help="cli.help.lab.export_grader")
@click.argument("number", type=int)
@option("--to", "service", type=click.Choice(SERVICES), required=True, help="cli.help.lab.export_grader.to")
@option("--out", type=Path, metavar="DIR", default=Path("grader"), help="cli.help.lab.export_grader.out")
@option("--seed", help="cli.help.lab.grade.seed")
@option("--seed-file", type=Path, metavar="FILE", help="cli.help.lab.grade.seed_file")
@option("--twist", "variant", type=Path, metavar="DIR", help="cli.help.lab.grade.twist")
@language_option
def export_grader(
    number: int,
    service: str,
    out: Path,
    seed: str | None,
    seed_file: Path | None,
    variant: Path | None,
    lang: Language,
) -> int:
    """Write the grader of a lab for a service.

    Raises:
        CommandError: there is no such lab, no seed, or a file cannot be read or written.
    """
    from tracellm.lab.teaching.exports import export
    from tracellm.lab.teaching.twists import TwistError, open_twist

    lab = lab_of(number)
    seed = _seed(seed, seed_file)
    if not seed and service != "github":
        raise CommandError("lab_no_seed", variable=SEED)
    with tempfile.TemporaryDirectory(prefix="tracellm-") as place:
        try:
            lab = lab if variant is None else open_twist(variant, Path(place, "reference")).lab
            written = export(service, lab, out, seed or "", lang, variant)
        except TwistError as error:
            raise CommandError("lab_twist", error=error) from None
        except OSError as error:
            raise CommandError("lab_unwritable", path=error.filename, reason=error.strerror or error) from None
    for path in written:
        print_out(str(path))
    print_out(text(lang, f"lab.exported.{service}", variable=SEED))
    return 0


def _seed(seed: str | None, file: Path | None) -> str | None:
    try:
        return seed or (file.read_text(encoding="utf-8").strip() if file else None) or os.environ.get(SEED)
    except OSError as error:
        raise CommandError("lab_case_unreadable", path=file, reason=error.strerror or error) from None
