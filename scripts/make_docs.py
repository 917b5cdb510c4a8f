"""Writes into the documentation what real runs show: `python scripts/make_docs.py`, or `make docs`.

Between `<!-- made: NAME -->` and `<!-- end -->` a page in docs/ (and the READMEs) holds what is made here; everything
else is written by hand. `examples/hello.py` is run once in each language, for the pages in `PAGES`. docs/clients.md,
docs/server.md and docs/vllm.md show runs of their own (client_docs.py, server_docs.py, vllm_docs.py); each page of
docs/understand holds its own scripts (understand_docs.py). The tables of docs/spans.md come from the catalog
(span_docs.py), those of docs/reading.md from the files (reading_docs.py). With Chromium on the PATH the pictures are
made too. `tests/docs` fails when a page and a run no longer agree.
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
    export_docs,
    reading_docs,
    server_docs,
    span_docs,
    understand_docs,
    vllm_docs,
)

PAGES = {
    "en": [
        "README.md",
        "docs/first-run.md",
        "docs/reading.md",
        "docs/architecture.md",
        "docs/clients.md",
        "docs/spans.md",
        "docs/export.md",
        "docs/as-vllm.md",
    ],
    "zh": [
        "README.zh.md",
        "docs/zh/first-run.md",
        "docs/zh/reading.md",
        "docs/zh/clients.md",
        "docs/zh/export.md",
        "docs/zh/as-vllm.md",
    ],
}
"""The pages that hold something made, by the language that they speak."""

MADE = re.compile(r"(<!-- made: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

TWO_PROCESSES = re.compile(
    r"clients-(table|messages|diff|check-two-processes|diagram-(two-processes|asyncio))|server-diagram"
)
"""What is made of runs with two processes: in which order these got to do something differs from run to run."""


def explain(lang: str, folder: Path) -> dict[str, str]:
    """Run the example explained, 80 columns wide, into `folder`; what it said on its two streams."""
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
        env={**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1"},
    )
    return {"stdout": done.stdout, "stderr": done.stderr}


def blocks(lang: str, folder: Path, said: dict[str, str]) -> dict[str, str]:
    """What pages may show of a run, by name, each as Markdown."""
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
    }


def source_map() -> str:
    """Every module of the package with the first sentence of its docstring, a table a floor."""
    parts = []
    for floor in ("engine", "trace", "probes", "report", "bench", "cli", "as_vllm"):
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
    """A box of the log, whose content is indented, and the lines after it."""
    found = re.search(r"\n(?=\S)", text)
    assert found, text
    return text[: found.end()], text[found.end() :]


def _subtree(tree: str, name: str, most: int) -> str:
    """The heading of the call tree, then the first call of `name` and what it called, moved to the left."""
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
    """A page's text with everything between its marks made anew.

    Raises:
        KeyError: it has a mark for something that is not made.
    """
    return MADE.sub(lambda found: found[1] + made[found[2]] + found[3], page)


def normal(page: str) -> str:
    """A page without what differs from run to run and machine to machine: times, memory, probabilities.

    Of what is made of two processes only the words count: not their order, and no number.
    """
    page = MADE.sub(_of_two_processes, page)
    page = re.sub(r"\s+", " ", page)  # the log is wrapped, and where depends on the length of what follows
    return re.sub(r"\d[\d,.]* ?(ms|µs|s|秒|kB|MB|GB)\b|\d[\d,.]* ?%|\b\d{1,3},\d{3}\b", "#", page)


def _of_two_processes(found: re.Match[str]) -> str:
    if found[2] == "clients-stdout-async":  # a reader who comes late gets two outputs as one
        return found[0].splitlines()[-3]
    if found[2] in ("server-stream", "server-python-stream"):  # the same
        return re.sub(r'data: .*?"content":"|","reasoning_content.*|\||\n', "", found[0])
    return _words(found[0]) if TWO_PROCESSES.fullmatch(found[2]) else found[0]


def _words(block: str) -> str:
    """The words of a text, each once, in the order of the alphabet; no numbers, and no marks of a call's beginning."""
    block = re.sub(r"(?<=[^\x00-\x7f])\n\s*(?=[^\x00-\x7f])", "", block)  # Chinese is wrapped anywhere
    block = re.sub(r"(?<=[>)])[+-](?=\w)|deactivate \w+|\d[\d,.]*(\s*(ms|µs|s|秒|B|kB)\b)?", " ", block)
    return " ".join(sorted(set(block.split())))


def pictures(folder: Path) -> None:
    """docs/images/report.png: the sequence diagram and the call tree of the report, as a browser shows them."""
    from tests.browser import Browser

    with Browser() as browser:
        browser.open(folder / "report.html", width=1440, height=1050)
        browser.run("document.getElementById('sequence').scrollIntoView()")
        browser.screenshot(ROOT / "docs" / "images" / "report.png")


def main() -> None:
    """Make all pages and pictures anew."""
    with tempfile.TemporaryDirectory() as temporary:
        make(Path(temporary))
    with tempfile.TemporaryDirectory() as temporary:
        make_server_pages(Path(temporary))
    for name in understand_docs.PAGES:
        understand_docs.make(name)
        print(f"made docs/understand/{name}.md")
    vllm_docs.main()


def make(clients: Path) -> None:
    """Make all; the runs of the three clients go into the folder `clients`."""
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


def make_server_pages(folder: Path) -> None:
    """Make docs/server.md in each language, from servers that run in `folder`."""
    said = server_docs.record(folder)
    for lang, name in server_docs.PAGES.items():
        made = server_docs.blocks(lang, folder, said)
        page = ROOT / name
        page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
        print(f"made {name}")


if __name__ == "__main__":
    main()
