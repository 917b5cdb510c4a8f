"""The runs on the pages of docs/understand: each page has its own scripts, with the output of a recorded run.

A page marks a script with `<!-- run: NAME -->`, the line before its Python block; options of `tracellm.explain` may
follow the name, as in `<!-- run: NAME only="Scheduler KVCacheManager" -->`. All scripts of a page are run in one
process. Their outputs stand between the marks `made: NAME-steps`, `NAME-stdout` and `NAME-sequence`. The Chinese page
has the same scripts, which are not run again.

`python -m scripts.understand_docs PAGE` writes one page in both languages; `make_docs.py` writes all of them.
"""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

__all__ = ["PAGES", "make", "page_of", "record", "scripts_of", "shown"]

_HOME = ROOT / "docs" / "understand"
PAGES = sorted(path.stem for path in _HOME.glob("*.md"))
_RUN = re.compile(
    r'<!-- run: (?P<name>[\w-]+)(?P<options>(?: \w+="[^"]*")*) -->\n```python\n(?P<code>.*?)```', re.DOTALL
)
_OPTION = re.compile(r'(\w+)="([^"]*)"')
_MADE = re.compile(r"(<!-- made: (?P<run>[\w-]+)-(?P<kind>steps|stdout|sequence) -->\n).*?(<!-- end -->)", re.DOTALL)


def page_of(name: str, lang: str) -> Path:
    """Return the path of a page in a language."""
    return _HOME / f"{name}.md" if lang == "en" else ROOT / "docs" / "zh" / "understand" / f"{name}.md"


def scripts_of(page: str) -> dict[str, tuple[dict[str, str], str]]:
    """Return the scripts in a page's text by name, each with its options and its source."""
    return {found["name"]: (dict(_OPTION.findall(found["options"])), found["code"]) for found in _RUN.finditer(page)}


def record(name: str, folder: Path) -> None:
    """Run the scripts of a page, in a process of its own; their run folders and outputs go into `folder`.

    Raises:
        subprocess.CalledProcessError: a script failed.
    """
    subprocess.run(
        [sys.executable, "-m", "scripts.understand_docs", "--record", name, str(folder)], cwd=ROOT, check=True
    )


def shown(name: str, lang: str, folder: Path) -> str:
    """Return the page's text with what the runs in `folder` show."""

    def block(found: re.Match[str]) -> str:
        run = folder / found["run"]
        if found["kind"] == "stdout":
            text = f"```text\n{(folder / f'{run.name}.txt').read_text(encoding='utf-8').rstrip()}\n```\n"
        else:
            text = subprocess.run(
                [sys.executable, "-m", "tracellm", "show", str(run), found["kind"], "--lang", lang],
                cwd=ROOT,
                capture_output=True,
                encoding="utf-8",
                check=True,
            ).stdout
            text = f"```{'mermaid' if found['kind'] == 'sequence' else 'text'}\n{text.rstrip()}\n```\n"
        return found[1] + text + found[4]

    return _MADE.sub(block, page_of(name, lang).read_text(encoding="utf-8"))


def make(name: str) -> None:
    """Write a page in both languages."""
    with tempfile.TemporaryDirectory() as temporary:
        record(name, Path(temporary))
        for lang in ("en", "zh"):
            page_of(name, lang).write_text(shown(name, lang, Path(temporary)), encoding="utf-8")


def _run_scripts(name: str, folder: Path) -> None:
    """Run the scripts of a page in this process."""
    import tracellm

    for run, (options, code) in scripts_of(page_of(name, "en").read_text(encoding="utf-8")).items():
        sys.argv = [f"{run}.py"]
        more: dict[str, Any] = {name: value.split() for name, value in options.items()}
        said = io.StringIO()
        with (
            tracellm.explain(folder / run, lang="en", **more),
            contextlib.redirect_stdout(said),
        ):
            exec(compile(code, f"{run}.py", "exec"), {"__name__": "__main__"})
        (folder / f"{run}.txt").write_text(said.getvalue(), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        _run_scripts(sys.argv[2], Path(sys.argv[3]))
    else:
        make(sys.argv[1])
