"""Pages of docs/course that are made from the labs: a page for each lab, the list of labs, the list of mutants.

    python -m scripts.course_docs            # all pages in both languages (25 minutes)
    python -m scripts.course_docs 5 7        # the pages and mutants of these labs

A lab's page has its README without the hints, a recorded run of its `explain.py`, and its common mistakes: the lab's
exhibits, with what the first failed case says and how the recorded run differs. Pictures need Chromium on the PATH.
`tests/docs/test_course_pages.py` fails if a page is stale.
"""

import difflib
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

from tracellm.lab.exposing import mutant_folder
from tracellm.lab.folder import make_folder
from tracellm.lab.grading import FailedCase, grade
from tracellm.lab.lab import Lab, Mutant, load_labs
from tracellm.lab.recording import Recorded, record
from tracellm.report.diff import diff_text
from tracellm.report.step_text import step_text
from tracellm.report.steps_table import steps_table
from tracellm.report.texts import LANGUAGES, Language, text
from tracellm.trace.compare import compare
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps

__all__ = ["MUTANTS_PAGE", "filled", "lab_page", "name_of", "page_of", "readme_part", "record_runs", "table_of_labs"]

ROOT = Path(__file__).parents[1]

MUTANTS_PAGE = "mutants"
"""Page that lists all mutants."""

_MADE = re.compile(r"(<!-- made: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_STEPS_SHOWN = 24
"""Limit of the lines of a run's steps."""
_DIFFERENCES_SHOWN = 16
"""Limit of the lines of a step that differ."""

_WORDS: dict[Language, dict[str, str]] = {
    "en": {
        "other": "*[中文]({path})*",
        "hints": "Three hints are in the lab's folder: `tracellm lab hint {number}`.",
        "run": "## A run\n\nThe lab's script, recorded with the engine's own code (`tracellm lab explain {number}` "
        "records it with yours):",
        "picture": "The report's step {step}:",
        "mistakes": "## Common mistakes",
        "check": "`tracellm lab check {number}` prints:",
        "trace": "The recorded run differs first in step {step}; `-` is the engine's, `+` the run with this mistake:",
        "verdict": "`tracellm diff` of the engine's run and the one with this mistake prints:",
        "error": "The recorded run ends with an error:",
        "labs": "| lab | title | hours | you write |\n| ---: | --- | ---: | --- |",
        "mutants": "| mutant | fault | check that fails | its first failed case |\n| --- | --- | --- | --- |",
        "answers": "answers and a diagram",
    },
    "zh": {
        "other": "*[English]({path})*",
        "hints": "实验目录中有三级提示：`tracellm lab hint {number}`。",
        "run": "## 一次运行\n\n用引擎自己的代码录制的实验脚本（`tracellm lab explain {number}` 用你的代码录制）：",
        "picture": "报告中的第 {step} 步：",
        "mistakes": "## 常见错误",
        "check": "`tracellm lab check {number}` 输出：",
        "trace": "录制的运行从第 {step} 步开始不同；`-` 为引擎的运行，`+` 为带有此错误的运行：",
        "verdict": "用 `tracellm diff` 比较引擎的运行和带有此错误的运行，输出：",
        "error": "录制的运行以错误结束：",
        "labs": "| 实验 | 标题 | 小时 | 编写的内容 |\n| ---: | --- | ---: | --- |",
        "mutants": "| 变异体 | 错误 | 失败的检查 | 第一个失败的用例 |\n| --- | --- | --- | --- |",
        "answers": "答案和一张时序图",
    },
}


class Runs:
    """Recorded runs of a lab's script: the engine's, and one for each exhibit; with the exhibits' first failures."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        script = make_folder(lab, folder / "lab", "en", seed="0").path / "explain.py"
        self.engine = record(script, folder / "engine", "en")
        self.broken: dict[str, Recorded] = {}
        self.failures: dict[str, FailedCase] = {}
        for mutant in exhibits(lab):
            path = mutant_folder(lab, mutant, folder / "files" / mutant.name)
            self.broken[mutant.name] = record(script, folder / mutant.name, "en", folder=path)
            self.failures[mutant.name] = first_failure(lab, path)


def exhibits(lab: Lab) -> list[Mutant]:
    """Return the lab's mutants whose fault shows in a recorded run."""
    return [mutant for mutant in lab.mutants if mutant.exhibit]


def first_failure(lab: Lab, folder: Path) -> FailedCase:
    """Return the first failed case of the files in `folder`."""
    failed = grade(lab, folder, shrink=False).first_failure
    assert failed is not None, f"lab {lab.number}: {folder.name} is not detected"
    return failed


def page_of(name: str, lang: Language) -> Path:
    """Return the path of a page of the course."""
    return ROOT / ("docs/course" if lang == "en" else "docs/zh/course") / f"{name}.md"


def name_of(lab: Lab) -> str:
    """Return the name of a lab's page."""
    return f"lab{lab.number:02}-{lab.slug}"


def record_runs(lab: Lab, folder: Path) -> Runs:
    """Record what a lab's page shows."""
    return Runs(lab, folder)


def lab_page(lab: Lab, lang: Language, runs: Runs) -> str:
    """Return the text of a lab's page."""
    return "\n".join(_page(lab, lang, runs)).rstrip() + "\n"


def _page(lab: Lab, lang: Language, runs: Runs) -> Iterator[str]:
    words, title = _WORDS[lang], lab.readme(lang).partition("\n")[0]
    other = f"../zh/course/{name_of(lab)}.md" if lang == "en" else f"../../course/{name_of(lab)}.md"
    yield title + "\n"
    yield words["other"].format(path=other) + "\n"
    yield readme_part(lab, lang) + "\n"
    yield words["hints"].format(number=lab.number) + "\n"
    yield words["run"].format(number=lab.number) + "\n"
    engine = RunFolder.open(runs.engine.path)
    trace = engine.trace
    lines = steps_table(trace, lang=lang).rstrip().splitlines()
    rest = ["…"] if len(lines) > _STEPS_SHOWN else []
    yield _code("text", "\n".join([*lines[:_STEPS_SHOWN], *rest]))
    picture = ROOT / "docs" / "images" / f"{name_of(lab)}.png"
    if picture.is_file():
        up = ".." if lang == "en" else "../.."
        yield words["picture"].format(step=step_to_show(trace)) + "\n"
        yield f"![{lab.title[lang]}]({up}/images/{picture.name})\n"
    if not runs.broken:
        return
    yield words["mistakes"] + "\n"
    for mutant in exhibits(lab):
        yield f"### {mutant.says[lang].rstrip('.。')}\n"
        yield words["check"].format(number=lab.number) + "\n"
        yield _code("text", runs.failures[mutant.name].failure[lang])
        yield from _in_the_trace(runs.broken[mutant.name], engine, lang)


def readme_part(lab: Lab, lang: Language) -> str:
    """Return a lab's README without its title and its hints."""
    readme = lab.readme(lang).partition("\n")[2]
    return re.split(r"(?m)^## (?:Hints|提示)$", readme)[0].strip()


def _in_the_trace(broken: Recorded, engine: RunFolder, lang: Language) -> Iterator[str]:
    """Return how a broken run differs from the engine's: the first step that differs, or the verdict, or its error."""
    words = _WORDS[lang]
    if (broken.path / "run.json").is_file():
        run = RunFolder.open(broken.path)
        trace = run.trace
        for pair in compare(engine.trace, trace).different_steps:
            if pair.a is None or pair.b is None:
                continue
            lines = list(_differences(engine.trace, trace, pair.a.index, pair.b.index, lang))
            if lines:
                yield words["trace"].format(step=pair.a.index) + "\n"
                yield _code("diff", "\n".join(lines[:_DIFFERENCES_SHOWN]))
                return
        if not broken.error:
            yield words["verdict"] + "\n"
            yield _code("text", diff_text(engine, run, lang=lang).partition("\n\n")[0])
    if broken.error:
        yield words["error"] + "\n"
        yield _code("text", broken.error)


def _differences(a: Trace, b: Trace, step_a: int, step_b: int, lang: Language) -> Iterator[str]:
    """Return the lines of two steps that differ, without their times."""
    before, after = (
        _without_times(step_text(trace, step, lang=lang), lang) for trace, step in ((a, step_a), (b, step_b))
    )
    for line in difflib.unified_diff(before, after, n=0, lineterm=""):
        if line[:1] in "+-" and line[:3] not in ("+++", "---") and line[1:].strip():
            yield line


def _without_times(shown: str, lang: Language) -> list[str]:
    """Return the lines of a step above its times."""
    return list(takewhile(lambda line: not line.startswith(text(lang, "page.time")), shown.splitlines()))


def step_to_show(trace: Trace) -> int:
    """Return the step with most changes: requests that join, blocks that are shared, preemptions; the first of them."""
    best = max(
        steps(trace),
        key=lambda step: (
            len(step.preempted),
            sum(bool(request.cached_blocks) for request in step.requests),
            len(step.requests),
        ),
    )
    return best.index


def _draw(lab: Lab, runs: Runs) -> None:
    """Draw the report's step view of a lab's run."""
    from tests.browser import Browser

    step = step_to_show(RunFolder.open(runs.engine.path).trace)
    with Browser() as browser:
        browser.open(runs.engine.path / "report.html", width=1280, height=720)
        assert browser.wait("document.documentElement.dataset.ready")
        browser.run(f"tracellm.goto({step})")
        browser.run("document.querySelector('#replay h3').scrollIntoView(); window.scrollBy(0, -60)")
        browser.screenshot(ROOT / "docs" / "images" / f"{name_of(lab)}.png")


def _code(language: str, content: str) -> str:
    return f"```{language}\n{content.rstrip()}\n```\n"


def table_of_labs(lang: Language) -> str:
    """Return the table of all labs."""
    rows = [_WORDS[lang]["labs"]]
    for lab in load_labs():
        functions = ", ".join(f"`{function.rpartition('.')[2]}`" for file in lab.files for function in file.functions)
        title = f"[{lab.title[lang]}]({name_of(lab)}.md)"
        rows.append(f"| {lab.number} | {title} | {lab.hours:g} | {functions or _WORDS[lang]['answers']} |")
    return "\n".join(rows) + "\n"


def mutant_row(mutant: Mutant, failed: FailedCase, lang: Language) -> str:
    """Return a mutant's row: its fault, the first check that fails, and what its first failed case says."""
    cells = (f"`{mutant.name}`", mutant.says[lang], f"`{failed.check.name}`", failed.failure[lang])
    return "| " + " | ".join(re.sub(r"\s+", " ", cell.replace("|", "\\|")) for cell in cells) + " |"


def table_of_mutants(lab: Lab, lang: Language) -> str:
    """Return the table of a lab's mutants, each graded with the public cases."""
    return "\n".join([_WORDS[lang]["mutants"], *(mutant_row(*graded, lang) for graded in _grade_mutants(lab))]) + "\n"


@cache
def _grade_mutants(lab: Lab) -> list[tuple[Mutant, FailedCase]]:
    """Return the lab's mutants, each with its first failed case."""
    graded = []
    for mutant in lab.mutants:
        with tempfile.TemporaryDirectory() as folder:
            graded.append((mutant, first_failure(lab, mutant_folder(lab, mutant, Path(folder, "files")))))
    return graded


def filled(page: Path, made: dict[str, str]) -> str:
    """Return a page's text with new generated parts; parts that are not in `made` stay."""
    return _MADE.sub(
        lambda found: found[1] + made[found[2]] + found[4] if found[2] in made else found[0],
        page.read_text(encoding="utf-8"),
    )


def main(numbers: list[int]) -> None:
    """Write the pages and the mutants of these labs, by default of all, and the list of labs."""
    for lab in load_labs():
        if numbers and lab.number not in numbers:
            continue
        with tempfile.TemporaryDirectory() as folder:
            runs = record_runs(lab, Path(folder))
            _draw(lab, runs)
            for lang in LANGUAGES:
                page_of(name_of(lab), lang).write_text(lab_page(lab, lang, runs), encoding="utf-8")
                _fill(MUTANTS_PAGE, lang, {f"mutants-{lab.number}": table_of_mutants(lab, lang)})
        print(f"made docs/course/{name_of(lab)}.md", flush=True)
    count = sum(len(lab.mutants) for lab in load_labs())
    for lang in LANGUAGES:
        _fill("index", lang, {"labs": table_of_labs(lang)})
        _fill(MUTANTS_PAGE, lang, {"count": f"{count}\n"})


def _fill(name: str, lang: Language, made: dict[str, str]) -> None:
    page = page_of(name, lang)
    page.write_text(filled(page, made), encoding="utf-8")


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:]])
