"""Generated parts of docs/compare.md and of the pages in docs/understand: the output of the scripts on each page.

A script is a Python block below the line `<!-- run: NAME -->`. Options of `tracellm.explain` may follow the name, as in
`<!-- run: NAME only="Scheduler KVCacheManager" -->`. Its outputs stand between the marks `made: NAME-steps`,
`NAME-stdout`, `NAME-sequence`, `NAME-parts` (what each worker holds), `NAME-diff`, a comparison with the page's first
run, and `NAME-vs-NAME-times`, the verdict and the times of such a comparison. The scripts of several pages run
in one process, and those with only a `stdout` mark run without a recording. The Chinese page has the same scripts and
shows the same runs.

`python -m scripts.understand_docs PAGE` writes one page in both languages; `make_docs.py` writes all of them.
"""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tracellm.cli.app import parse
from tracellm.engine.config.libraries import import_libraries
from tracellm.report.diff import diff_parts
from tracellm.report.facts.workers.groups import worker_groups
from tracellm.report.texts import LANGUAGES, Language
from tracellm.report.wording.blocks import plain
from tracellm.report.workers import parts_blocks
from tracellm.trace.compare import compare
from tracellm.trace.run_folder import RunFolder

ROOT = Path(__file__).parents[1]

__all__ = ["PAGES", "UNDERSTAND", "make", "page_of", "record", "scripts_of", "shown"]

_HOME = ROOT / "docs" / "understand"
UNDERSTAND = sorted(path.stem for path in _HOME.glob("*.md"))
"""Pages of docs/understand."""
PAGES = [*UNDERSTAND, "compare"]
"""All pages with scripts."""
_RUN = re.compile(
    r'<!-- run: (?P<name>[\w-]+)(?P<options>(?: \w+="[^"]*")*) -->\n```python\n(?P<code>.*?)```', re.DOTALL
)
_OPTION = re.compile(r'(\w+)="([^"]*)"')
_MADE = re.compile(
    r"(<!-- made: (?P<run>[\w-]+)-(?P<kind>steps|stdout|sequence|parts|diff|times) -->\n).*?(<!-- end -->)", re.DOTALL
)


def page_of(name: str, lang: Language) -> Path:
    """Return the path of a page in a language."""
    docs = ROOT / "docs" if lang == "en" else ROOT / "docs" / "zh"
    return docs / "understand" / f"{name}.md" if name in UNDERSTAND else docs / f"{name}.md"


def scripts_of(page: str) -> dict[str, tuple[dict[str, str], str]]:
    """Return the scripts in a page's text by name, each with its options and its source."""
    return {found["name"]: (dict(_OPTION.findall(found["options"])), found["code"]) for found in _RUN.finditer(page)}


def record(names: Sequence[str], folder: Path) -> None:
    """Run the scripts of pages in new processes, with run folders and outputs in `folder`.

    A page with a sequence diagram has its own process, as the diagram shows the import of torch.

    Raises:
        subprocess.CalledProcessError: a script failed.
    """
    alone = [name for name in names if "-sequence -->" in page_of(name, "en").read_text(encoding="utf-8")]
    groups = [[name for name in names if name not in alone], *([name] for name in alone)]
    command = [sys.executable, "-m", "scripts.understand_docs", "--record", str(folder)]
    processes = [subprocess.Popen([*command, *pages], cwd=ROOT) for pages in groups if pages]
    for process in processes:
        if process.wait() != 0:
            raise subprocess.CalledProcessError(process.returncode, process.args)


def shown(name: str, lang: Language, folder: Path) -> str:
    """Return the page's text with the output of the runs in `folder`."""

    page = page_of(name, lang).read_text(encoding="utf-8")
    first = next(iter(scripts_of(page)))

    def block(found: re.Match[str]) -> str:
        run = folder / found["run"]
        if found["kind"] == "stdout":
            text = run.with_suffix(".txt").read_text(encoding="utf-8")
        elif found["kind"] == "diff":
            with contextlib.chdir(folder):  # for short names of the runs
                text = _stdout_of(parse(["diff", first, run.name, "--lang", lang], lang))
        elif found["kind"] == "parts":
            trace = RunFolder.open(run).trace
            text = plain([block for group in worker_groups(trace) for block in parts_blocks(trace, group, lang)], 110)
        elif found["kind"] == "times":
            a, b = (RunFolder.open(folder / one) for one in run.name.split("-vs-"))
            parts = diff_parts(a, b, compare(a.trace, b.trace), lang)
            text = plain([*parts["verdict"], *parts["times"]], 100)
        else:
            text = _stdout_of(parse(["show", str(run), found["kind"], "--lang", lang], lang))
        return f"{found[1]}```{'mermaid' if found['kind'] == 'sequence' else 'text'}\n{text.rstrip()}\n```\n{found[4]}"

    return _MADE.sub(block, page)


def make(names: Sequence[str]) -> None:
    """Write pages in both languages."""
    with tempfile.TemporaryDirectory() as temporary:
        record(names, Path(temporary))
        for name in names:
            for lang in LANGUAGES:
                page_of(name, lang).write_text(shown(name, lang, Path(temporary)), encoding="utf-8")
            print(f"made {name}.md")


def _run_scripts(name: str, folder: Path) -> None:
    """Run the scripts of a page in this process."""
    import tracellm

    page = page_of(name, "en").read_text(encoding="utf-8")
    shown_runs = (found["run"] for found in _MADE.finditer(page) if found["kind"] != "stdout")
    recorded = {run for names in shown_runs for run in names.split("-vs-")}
    if "-diff -->" in page:
        recorded = set(scripts_of(page))
    if "-sequence -->" not in page:
        import_libraries()  # not in the start-up of the first run
    for run, (options, code) in scripts_of(page).items():
        sys.argv = [f"{run}.py"]
        script = compile(code, f"{run}.py", "exec")
        patterns: dict[str, Any] = {option: value.split() for option, value in options.items()}
        with tracellm.explain(folder / run, lang="en", **patterns) if run in recorded else contextlib.nullcontext():
            stdout = _stdout_of(partial(exec, script, {"__name__": "__main__"}))
        (folder / f"{run}.txt").write_text(stdout, encoding="utf-8")


def _stdout_of(job: Callable[[], object]) -> str:
    """Return what `job` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        job()
    return stdout.getvalue()


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        target, pages = Path(sys.argv[2]), sys.argv[3:]
        for page in pages:
            _run_scripts(page, target)
    else:
        make(sys.argv[1:])
