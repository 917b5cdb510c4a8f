"""Pages of marks: one for each student, and one that lists them. Each is one file, without scripts."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from tracellm.lab.lab import Lab, Translated
from tracellm.lab.teaching.marking import Mark
from tracellm.lab.teaching.similarity import Pair
from tracellm.report.texts import Language, text
from tracellm.report.wording.safe_text import visible

__all__ = ["student_page", "write_pages"]

_LONGEST_CASE = 4000


@cache
def _environment() -> Environment:
    loader = PackageLoader("tracellm.lab.teaching")
    return Environment(autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def student_page(mark: Mark, lab: Lab, lang: Language, twist: Translated | None = None) -> str:
    """Return the page of a student."""
    score = mark.score
    names = ("public", "hidden", "exposed", "predicted")
    parts = list(zip(names, (score.public, score.hidden, score.exposed, score.predicted), strict=True))
    failed = score.grades[0].first_failure if score.grades else None
    case = "" if failed is None else json.dumps(failed.case, ensure_ascii=False)[:_LONGEST_CASE]
    return _render("student.html", lang, mark=mark, lab=lab, parts=parts, case=case, twist=twist and twist[lang])


def write_pages(
    marks: Sequence[Mark], pairs: Sequence[Pair], lab: Lab, out: Path, lang: Language, twist: Translated | None = None
) -> Path:
    """Write all pages into `out`; return the path of the list."""
    out.mkdir(parents=True, exist_ok=True)
    for mark in marks:
        (out / f"{mark.name}.html").write_text(student_page(mark, lab, lang, twist), encoding="utf-8")
    index = out / "index.html"
    page = _render("index.html", lang, marks=marks, pairs=pairs, lab=lab, twist=twist and twist[lang])
    index.write_text(page, encoding="utf-8")
    return index


def _render(template: str, lang: Language, **values: object) -> str:
    def say(key: str, **inner: object) -> str:
        return text(lang, key, **inner)

    return _environment().get_template(template).render(lang=lang, say=say, visible=visible, **values)
