"""Twists: private variants of a lab, whose specification differs from the engine.

A twist is a folder of the teacher's:

    twist.toml          the lab, a title, and the files if they differ from the lab's
    README.md, README.zh.md    the changed specification, which students read above the lab's own page
    reference/NAME.py   the changed modules of the engine
    checks.py           optional: `CHECKS` beside those of the lab, or in place of those of the same name

Students get a folder made of it (`hand_out`): starters of the changed modules, the changed specification, and the
reference's outputs of the public cases, but not the reference. Grading runs the reference in a process of its own,
where its files have the engine's place, as a student's files have in theirs.
"""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tracellm.lab.checks import Check, make_cases
from tracellm.lab.folder import LabFolder, make_folder
from tracellm.lab.lab import Lab, LabFile, Translated, find_lab
from tracellm.lab.sandbox.limits import Limits
from tracellm.lab.sandbox.outcomes import Value
from tracellm.lab.sandbox.run import run_cases

__all__ = ["TWIST_FILE", "Twist", "TwistError", "hand_out", "make_twist", "open_twist", "read_handout", "templates"]

TWIST_FILE = "twist.json"
"""File of a student's folder with what its twist adds."""

_TEMPLATES = Path(__file__).parents[1] / "twists"
_REFERENCE_LIMITS = Limits(case_seconds=60, total_seconds=300, start_seconds=60)


class TwistError(Exception):
    """A folder that is no twist, or whose reference fails."""


class _Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of the engine's file in a template: one text replaced by another."""

    module: str
    find: str
    replace: str


class _Draw(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that is drawn when a twist is made; `$NAME` stands for it in the template's texts."""

    name: str
    low: int
    high: int


class _Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `twist.toml`; `draw` and `edit` occur in templates only."""

    lab: int
    title: Translated
    files: tuple[LabFile, ...] = ()
    without: tuple[str, ...] = ()
    """Names of the lab's checks that do not hold in the variant."""
    draw: tuple[_Draw, ...] = ()
    edit: tuple[_Edit, ...] = ()


class _TwistedFile(LabFile, frozen=True, forbid_unknown_fields=True):
    """A module as the twist's reference has it."""

    text: str = ""

    def source(self) -> str:
        """See `LabFile`."""
        return self.text


class _TwistedLab(Lab, frozen=True, forbid_unknown_fields=True):
    """A lab with the twist's files and checks."""

    added: str = ""
    without: tuple[str, ...] = ()

    @property
    def checks(self) -> tuple[Check, ...]:
        """See `Lab`."""
        from tracellm.lab.sandbox.worker import extra_checks

        base = find_lab(self.number)
        assert base is not None
        checks = {check.name: check for check in (*base.checks, *extra_checks(self.added))}
        return tuple(check for name, check in checks.items() if name not in self.without)


@dataclass(frozen=True)
class Twist:
    """A twist, of the teacher's folder (with its reference), or of a student's (with recorded outputs)."""

    title: Translated
    lab: Lab
    """The lab with the twist's files and checks."""
    checks: str
    """Source text of the twist's checks."""
    reference: Path | None = None
    """Folder of the reference."""
    recorded: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)
    """Public cases and outputs of the reference, by the name of the check."""
    _known: dict[bytes, list[Any]] = field(default_factory=dict)

    def expected(self, work: Sequence[tuple[Check, Any]]) -> list[Any]:
        """Return the reference's output of each case; None where the check needs none.

        Raises:
            TwistError: the reference fails, or the outputs are not recorded.
        """
        if self.reference is None:
            return [self._recorded(check, case) if check.uses_reference else None for check, case in work]
        cases = [(check.name, case) for check, case in work]
        key = msgspec.msgpack.encode(cases)
        if key in self._known:
            return self._known[key]
        ran = run_cases(
            self.reference,
            self.lab.number,
            cases,
            processes=self.lab.processes,
            limits=_REFERENCE_LIMITS,
            checks=self.checks,
            files=self.lab.files,
        )
        outputs = []
        for (check, case), outcome in zip(work, ran.outcomes, strict=True):
            if not isinstance(outcome, Value):
                raise TwistError(f"the reference fails on a case of {check.name}: {outcome}; the case: {case}")
            outputs.append(outcome.output if check.uses_reference else None)
        self._known[key] = outputs
        return outputs

    def _recorded(self, check: Check, case: Any) -> Any:
        for known, output in self.recorded.get(check.name, ()):
            if known == case:
                return output
        raise TwistError(f"no output is recorded for this case of {check.name}")


def templates() -> dict[str, tuple[int, Translated]]:
    """Return the lab and the title of each template by name."""
    found = {path.parent.name: _read(path.parent) for path in sorted(_TEMPLATES.glob("*/twist.toml"))}
    return {name: (one.lab, one.title) for name, one in found.items()}


def make_twist(name: str, out: Path, seed: str) -> None:
    """Make a teacher's folder of a template; numbers in it follow from the seed.

    Raises:
        TwistError: there is no such template, or the engine has changed.
        FileExistsError: the folder exists and is not empty.
    """
    template = _TEMPLATES / name
    if name not in templates():
        raise TwistError(f"no template {name}; the templates are {', '.join(templates())}")
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(out)
    description = _read(template)
    drawn = {one.name: Random(f"{seed}:{one.name}").randint(one.low, one.high) for one in description.draw}
    base, sources = _lab(description.lab), dict[str, str]()
    files = {file.module: file for file in (*base.files, *description.files)}
    for edit in description.edit:
        text = sources.get(edit.module) or files[edit.module].source()
        if text.count(edit.find) != 1:
            raise TwistError(f"{name}: a text to replace occurs {text.count(edit.find)} times in {edit.module}")
        sources[edit.module] = text.replace(edit.find, _fill(edit.replace, drawn))
    (out / "reference").mkdir(parents=True)
    for module, text in sources.items():
        (out / "reference" / files[module].name).write_text(text, encoding="utf-8")
    for path in template.iterdir():
        if path.suffix in (".md", ".py"):
            (out / path.name).write_text(_fill(path.read_text(encoding="utf-8"), drawn), encoding="utf-8")
    text = (template / "twist.toml").read_text(encoding="utf-8")
    (out / "twist.toml").write_text(text.partition("[[draw]]")[0].partition("[[edit]]")[0].rstrip() + "\n", "utf-8")


def _fill(text: str, drawn: dict[str, int]) -> str:
    for name, number in drawn.items():
        text = text.replace(f"${name}", str(number))
    return text


def open_twist(folder: Path, work: Path) -> Twist:
    """Open a teacher's folder.

    Args:
        folder: the folder.
        work: new folder for the complete reference, the twist's files beside the engine's.

    Raises:
        TwistError: it is no twist.
    """
    description = _read(folder)
    base = _lab(description.lab)
    files = {file.module: file for file in (*base.files, *description.files)}
    twisted, work = [], work.resolve()
    work.mkdir(parents=True)
    for file in files.values():
        changed = folder / "reference" / file.name
        text = changed.read_text(encoding="utf-8") if changed.is_file() else file.source()
        (work / file.name).write_text(text, encoding="utf-8")
        twisted.append(_TwistedFile(file.module, file.functions, file.removed, text=text))
    checks = (folder / "checks.py").read_text(encoding="utf-8") if (folder / "checks.py").is_file() else ""
    lab = _twisted(base, twisted, checks, description.without)
    LabFolder(work, lab, "0").save()
    return Twist(description.title, lab, checks, work)


def _twisted(base: Lab, files: Sequence[LabFile], checks: str, without: Sequence[str]) -> Lab:
    values = {name: getattr(base, name) for name in Lab.__struct_fields__}
    return _TwistedLab(**values | {"files": tuple(files)}, added=checks, without=tuple(without))


def _lab(number: int) -> Lab:
    found = find_lab(number)
    if found is None:
        raise TwistError(f"there is no lab {number}")
    return found


def _read(folder: Path) -> _Description:
    try:
        return msgspec.convert(tomllib.loads((folder / "twist.toml").read_text(encoding="utf-8")), _Description)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise TwistError(f"{folder} is no twist: {error}") from None


# -- the student's folder ---------------------------------------------------------------------------------------------


def hand_out(folder: Path, twist: Twist, out: Path, lang: str) -> None:
    """Make the folder that students begin with: starters, texts, and the outputs of the public cases.

    Raises:
        FileExistsError: the folder exists and is not empty.
        TwistError: the reference fails.
    """
    make_folder(twist.lab, out, lang)
    page = folder / ("README.zh.md" if lang == "zh" else "README.md")
    if page.is_file():
        readme = out / "README.md"
        readme.write_text(
            f"{page.read_text(encoding='utf-8').rstrip()}\n\n{readme.read_text(encoding='utf-8')}", "utf-8"
        )
    work = [(check, case) for check in twist.lab.checks for case in make_cases(check, "public")]
    outputs = twist.expected(work)
    recorded: dict[str, list[Any]] = {}
    for (check, case), output in zip(work, outputs, strict=True):
        recorded.setdefault(check.name, []).append([case, output])
    files = [msgspec.to_builtins(LabFile(one.module, one.functions, one.removed)) for one in twist.lab.files]
    state = {"title": msgspec.to_builtins(twist.title), "checks": twist.checks, "files": files, "recorded": recorded}
    state["without"] = getattr(twist.lab, "without", ())
    (out / TWIST_FILE).write_text(json.dumps(state, ensure_ascii=False) + "\n", encoding="utf-8")


def read_handout(folder: LabFolder) -> Twist | None:
    """Return the twist of a student's folder, or None.

    Raises:
        TwistError: the file is damaged.
    """
    path = folder.path / TWIST_FILE
    if not path.is_file():
        return None
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        files = msgspec.convert(state["files"], tuple[LabFile, ...])
        recorded = {name: [(case, output) for case, output in pairs] for name, pairs in state["recorded"].items()}
        title = msgspec.convert(state["title"], Translated)
        lab = _twisted(folder.lab, files, state["checks"], state["without"])
        return Twist(title, lab, state["checks"], recorded=recorded)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TwistError(f"{path} is damaged: {error}") from None
