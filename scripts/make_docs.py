"""Write the output of real runs into the documentation: `python scripts/make_docs.py`, or `make docs`.

The generated parts of a page in docs/ (and the READMEs) are between `<!-- made: NAME -->` and `<!-- end -->`.
`examples/hello.py` runs once in each language, for the pages in `PAGES`. docs/clients.md, docs/server.md and
docs/vllm.md show their own runs (client_docs.py, server_docs.py, vllm_docs.py), as does docs/picture.md
(picture_docs.py). Each page of docs/understand has its own scripts (understand_docs.py), as has docs/compare.md. The
tables of docs/spans.md come from the catalog (span_docs.py), those of docs/reading.md from the files (reading_docs.py),
docs/cli.md and docs/settings.md from the commands and the engine's arguments (reference_docs.py), the pages of
docs/gallery from runs (gallery.py), those of docs/course from the labs (course_docs.py). Pictures need Chromium on the
PATH. `tests/docs` fails if a page differs from a run.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts import (  # noqa: E402  (found by the line above when this file is run as a script)
    as_vllm_docs,
    client_docs,
    course_docs,
    export_docs,
    gallery,
    picture_docs,
    reading_docs,
    reference_docs,
    server_docs,
    span_docs,
    understand_docs,
    vllm_docs,
)
from tracellm.report.texts import Language  # noqa: E402

PAGES: dict[Language, list[str]] = {
    "en": [
        "README.md",
        "docs/first-run.md",
        "docs/reading.md",
        "docs/architecture.md",
        "docs/clients.md",
        "docs/spans.md",
        "docs/export.md",
        "docs/as-vllm.md",
        "docs/cli.md",
        "docs/settings.md",
    ],
    "zh": [
        "README.zh.md",
        "docs/zh/first-run.md",
        "docs/zh/reading.md",
        "docs/zh/clients.md",
        "docs/zh/export.md",
        "docs/zh/as-vllm.md",
        "docs/zh/cli.md",
        "docs/zh/settings.md",
    ],
}
"""Pages with generated parts, by language."""

MADE = re.compile(r"(<!-- made: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

TWO_PROCESSES = re.compile(
    r"clients-(table|messages|diff|check-two-processes|diagram-(two-processes|asyncio))|server-diagram"
)
"""Parts generated from runs with two processes, whose order varies between runs."""


def explain(lang: Language, folder: Path) -> dict[str, str]:
    """Run the example explained, 80 columns wide, into `folder`; return its stdout and stderr."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tracellm",
            "run",
            "--explain",
            "--lang",
            lang,
            "--out",
            str(folder),
            "examples/hello.py",
        ],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": os.devnull},
    )
    return {"stdout": done.stdout, "stderr": done.stderr}


def blocks(lang: Language, folder: Path, said: dict[str, str]) -> dict[str, str]:
    """Return the generated parts for a run, by name, in Markdown."""
    log = said["stderr"].replace(str(folder), "tracellm-runs/hello-20260101-120000").replace(f"{ROOT}/", "")
    boxes = re.split(r"(?m)^(?=== )", log)
    last_box, rest = _cut_after_box(boxes[-1])
    tree = (folder / "calltree.txt").read_text(encoding="utf-8")
    steps = subprocess.run(
        [sys.executable, "-m", "tracellm", "show", str(folder), "steps", "--lang", lang],
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout
    source = (ROOT / "examples" / "hello.py").read_text(encoding="utf-8")
    return {
        "script": _code("python", source[source.index("from tracellm") :]),
        "stdout": _code("text", said["stdout"]),
        "log-client": _code("text", boxes[1]),
        "log-load": _code("text", boxes[2]),
        "log-cache": _code("text", boxes[3]),
        "log-prefill": _code("text", boxes[4]),
        "log-decode": _code("text", last_box),
        "log-rest": _code("text", rest),
        "tree-startup": _code("text", _subtree(tree, "LLM.__init__", 33)),
        "tree-step": _code("text", _subtree(tree, "EngineCore.step_fn", 60)),
        "sequence": _code("mermaid", (folder / "sequence.mmd").read_text(encoding="utf-8")),
        "steps": _code("text", steps),
        "map": source_map(),
        **span_docs.blocks(),
        **export_docs.blocks(lang, folder),
        **as_vllm_docs.blocks(lang),
        **reading_docs.blocks(lang),
        **reference_docs.blocks(lang),
    }


def source_map() -> str:
    """Return every module of the package with the first sentence of its docstring, one table per subpackage."""
    parts = []
    for floor in (
        "engine",
        "trace",
        "probes",
        "report",
        "bench",
        "whatif",
        "plan",
        "lab",
        "cli",
        "notebook",
        "as_vllm",
    ):
        parts.append(f"### {floor}\n\n| module | what it is |\n|---|---|\n")
        for file in sorted((ROOT / "tracellm" / floor).rglob("*.py"), key=lambda file: (len(file.parts), file)):
            docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
            if docstring:
                first = re.split(r"(?<=\.)\s", f"{docstring} ".replace("\n", " "), maxsplit=1)[0].rstrip(". ")
                name = file.relative_to(ROOT / "tracellm" / floor)
                parts.append(f"| [`{name}`](../{file.relative_to(ROOT)}) | {first.replace('|', '/')} |\n")
        parts.append("\n")
    return "".join(parts)


def _cut_after_box(text: str) -> tuple[str, str]:
    """Return a box of the log, whose content is indented, and the lines after it."""
    found = re.search(r"\n(?=\S)", text)
    assert found, text
    return text[: found.end()], text[found.end() :]


def _subtree(tree: str, name: str, most: int) -> str:
    """Return the heading of the call tree and the first call of `name` with its callees, without indentation."""
    heading, *lines = tree.splitlines()
    first = next(index for index, line in enumerate(lines) if re.search(rf"[├└] {re.escape(name)}\b", line))
    start = lines[first].index(name)
    kept = [lines[first]]
    for line in lines[first + 1 :]:
        if line[:start].strip("│ ") or len(kept) == most:
            break
        kept.append(line)
    width = start - 2
    return "\n".join([heading[:4] + heading[4 + width :], *(line[width:] for line in kept)]) + "\n"


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def filled(page: str, made: dict[str, str]) -> str:
    """Return a page's text with new generated parts.

    Raises:
        KeyError: the page has a mark without a generated part.
    """
    return MADE.sub(lambda found: found[1] + made[found[2]] + found[3], page)


def normal(page: str) -> str:
    """Return a page without details that vary: times, memory, probabilities, process ids.

    From parts generated by two processes only the words are kept, without order and numbers.
    """
    page = MADE.sub(_of_two_processes, page)
    page = re.sub(r"\s+(?=（)", "", page)
    page = re.sub(r"\s+", " ", page)  # the log is wrapped, and line breaks depend on the lengths of values
    return re.sub(
        r"(\d+ min )?\d[\d,.]* ?(ms|µs|s|秒|kB|MB|GB)\b|(process id |进程号 )\d+|\d[\d,.]* ?%|\b\d{1,3},\d{3}\b",
        "#",
        page,
    )


def _of_two_processes(found: re.Match[str]) -> str:
    if found[2] == "clients-stdout-async":  # a late reader gets two outputs as one
        return found[0].splitlines()[-3]
    if found[2] in ("server-stream", "server-python-stream"):  # the same
        return re.sub(r'data: .*?"content":"|","reasoning_content.*|\||\n', "", found[0])
    return _words(found[0]) if TWO_PROCESSES.fullmatch(found[2]) else found[0]


def _words(block: str) -> str:
    """Return the distinct words of a text in alphabetical order, without numbers and marks of open calls."""
    block = re.sub(r"(?<=[^\x00-\x7f])\n\s*(?=[^\x00-\x7f])", "", block)  # Chinese is wrapped anywhere
    block = re.sub(r"(?<=[>)])[+-](?=\w)|deactivate \w+|(\d+ min )?\d[\d,.]*(\s*(ms|µs|s|秒|B|kB)\b)?", " ", block)
    return " ".join(sorted(set(block.split()) - {"-", "×"}))  # of ranges and counts


def pictures(folder: Path) -> None:
    """Draw docs/images/report.png: the report's sequence diagram and call tree in a browser."""
    from tests.browser import Browser

    with Browser() as browser:
        browser.open(folder / "report.html", width=1440, height=1050)
        browser.run("document.getElementById('sequence').scrollIntoView()")
        browser.screenshot(ROOT / "docs" / "images" / "report.png")


def main() -> None:
    """Regenerate all pages and pictures."""
    with tempfile.TemporaryDirectory() as temporary:
        make(Path(temporary))
    with tempfile.TemporaryDirectory() as temporary:
        make_server_pages(Path(temporary))
    with tempfile.TemporaryDirectory() as temporary:
        make_picture_pages(Path(temporary))
    understand_docs.make(understand_docs.PAGES)
    vllm_docs.main()
    gallery.main()
    course_docs.main([])


def make(clients: Path) -> None:
    """Regenerate everything; the runs of the three clients go into the folder `clients`."""
    said = client_docs.record(clients)
    for lang, pages in PAGES.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run"
            made = blocks(lang, folder, explain(lang, folder)) | client_docs.blocks(lang, clients, said)
            for name in pages:
                page = ROOT / name
                page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
                print(f"made {name}")
            if lang == "en":
                pictures(folder)
                export_docs.pictures(folder, clients / "two-processes")
                print("made docs/images")


def make_picture_pages(folder: Path) -> None:
    """Write docs/picture.md in both languages, with new runs in `folder`, and its picture."""
    said = picture_docs.record(folder)
    for lang, page in picture_docs.PAGES.items():
        made = picture_docs.blocks(lang, folder, said)
        page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
        print(f"made {page.relative_to(ROOT)}")
    picture_docs.draw(folder / "picture")


def make_server_pages(folder: Path) -> None:
    """Regenerate docs/server.md in each language, from servers that run in `folder`."""
    said = server_docs.record(folder)
    for lang, name in server_docs.PAGES.items():
        made = server_docs.blocks(lang, folder, said)
        page = ROOT / name
        page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
        print(f"made {name}")


if __name__ == "__main__":
    main()
