"""Report pages of real runs in docs/gallery, and the generated parts of docs/gallery.md.

    python -m scripts.gallery              # records all runs, and writes pages, pictures and docs/gallery.md

Three runs are scripts in examples/ and docs/gallery. One is a server with twenty streams. The run of a real vLLM is a
recording in tests/fixtures/vllm (vllm_runs.py). Pictures need Chromium on the PATH. `tests/docs/test_gallery.py` fails
if a page is not that of a new run.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.vllm_runs import VERSIONS, unpack
from tests.server.process import Server
from tracellm.report.html import report_html
from tracellm.report.html.answer_view import answer_view
from tracellm.report.texts import Language
from tracellm.trace.run_folder import RunFolder

__all__ = ["GALLERY", "PAGES", "RUNS", "SCRIPTS", "blocks", "record_script"]

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"
PAGES: dict[Language, Path] = {"en": ROOT / "docs" / "gallery.md", "zh": ROOT / "docs" / "zh" / "gallery.md"}
SCRIPTS = {
    "tiny-batch": "examples/chat_batch.py",
    "preemption-storm": "docs/gallery/preemption_storm.py",
    "shared-prefixes": "docs/gallery/shared_prefixes.py",
}
"""Scripts whose runs are the same each time, apart from their durations."""
RUNS = (*SCRIPTS, "twenty-streams", "real-vllm")

_SHOWN_STEPS = {"tiny-batch": 20, "preemption-storm": 13, "shared-prefixes": 10, "twenty-streams": 12, "real-vllm": 2}
"""Steps that the pictures show."""
_MADE = re.compile(r"(<!-- made: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


# -- recording --------------------------------------------------------------------------------------------------------


def record(folder: Path) -> None:
    """Make the run folder of every run in `folder`."""
    for name in SCRIPTS:
        record_script(name, folder)
    _record_server(folder / "twenty-streams")
    unpack(VERSIONS[-1], folder / "vllm")
    (folder / "vllm" / "two-processes").rename(folder / "real-vllm")


def record_script(name: str, folder: Path) -> None:
    """Explain the script of a run into `folder`/`name`."""
    options = ["--explain", "--quiet", "--lang", "en", "--out", str(folder / name)]
    command = [sys.executable, "-m", "tracellm", "run", *options, SCRIPTS[name]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env=environment)


def _record_server(run: Path) -> None:
    """Explain a server that gets twenty streaming requests at once."""
    limits = ("--dtype", "float32", "--max-num-seqs", "8", "--max-num-batched-tokens", "256")
    with Server.start(*limits, "--max-model-len", "512", "--explain", "--out", str(run)) as server:
        load = ["--num-prompts", "20", "--input-len", "16-120", "--output-len", "8-40"]
        command = [sys.executable, "-m", "tracellm", "bench", "serve", "--base-url", server.url, *load]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        server.signal(signal.SIGTERM)
        server.end()


# -- pages ------------------------------------------------------------------------------------------------------------


def blocks(lang: Language, folder: Path) -> dict[str, str]:
    """Return the generated parts of the page in a language: for each run the first finding of each kind."""
    return {name: "".join(_lines(name, RunFolder.open(folder / name), lang)) for name in RUNS}


def _lines(name: str, run: RunFolder, lang: Language) -> Iterator[str]:
    docs = "" if lang == "en" else "../"
    page = f"{docs}gallery/{name}.html"
    yield f"[![{name}]({docs}images/gallery-{name}.png)]({page})\n\n"
    for group in answer_view(run.trace, None, None, [], lang)["answer"]["findings"]:
        finding = group["findings"][0]
        yield f"- {finding['sentence']} [{finding['step']}]({page}{finding['address']})\n"


def filled(page: str, made: dict[str, str]) -> str:
    """Return a page's text with new generated parts."""
    return _MADE.sub(lambda found: found[1] + made[found[2]] + found[3], page)


def _draw(name: str) -> None:
    """Draw a page's step-by-step view at an interesting step."""
    from tests.browser import Browser

    with Browser() as browser:
        browser.open(GALLERY / f"{name}.html", width=1280, height=860)
        assert browser.wait("document.documentElement.dataset.ready")
        browser.run(f"tracellm.goto({_SHOWN_STEPS[name]})")
        browser.run("document.getElementById('replay').scrollIntoView(); window.scrollBy(0, -60)")
        browser.screenshot(ROOT / "docs" / "images" / f"gallery-{name}.png", full_page=False)


def main() -> None:
    """Record all runs, and write pages, pictures and documentation."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        record(folder)
        for name in RUNS:
            page = report_html(RunFolder.open(folder / name))
            (GALLERY / f"{name}.html").write_text(page, encoding="utf-8")
            _draw(name)
            print(f"made docs/gallery/{name}.html, {len(page) / 1e6:.2f} MB")
        for lang, path in PAGES.items():
            path.write_text(filled(path.read_text(encoding="utf-8"), blocks(lang, folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
