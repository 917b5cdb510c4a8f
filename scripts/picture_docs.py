"""Generated parts of docs/picture.md: examples/picture.py, explained, and its picture on an explained server.

`record` runs both, `blocks` returns the parts, and `draw` draws docs/images/picture.png. `make_docs.py` writes the
parts to the pages, and `tests/docs/test_picture_page.py` compares them.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from scripts.server_docs import EXPECTATION
from scripts.server_questions import ADDRESS
from tests.server.process import Server
from tracellm.report.texts import Language

__all__ = ["PAGES", "PROGRAM", "blocks", "draw", "record"]

ROOT = Path(__file__).parents[1]
PAGES: dict[Language, Path] = {"en": ROOT / "docs" / "picture.md", "zh": ROOT / "docs" / "zh" / "picture.md"}
_EXAMPLE = ROOT / "examples" / "picture.py"
_DRAWING, _, _ = _EXAMPLE.read_text(encoding="utf-8").partition("\nquestions = ")
PROGRAM = f"""\
import base64
import io

from openai import OpenAI

buffer = io.BytesIO()
picture.save(buffer, format="PNG")
url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()

client = OpenAI(base_url="{ADDRESS}/v1", api_key="none")
content = [
    {{"type": "image_url", "image_url": {{"url": url}}}},
    {{"type": "text", "text": "How many red circles are there?"}},
]
question = [{{"role": "user", "content": content}}]
answer = client.chat.completions.create(model="tiny-vl", messages=question, temperature=0)
print(answer.choices[0].message.content)
print(answer.usage.prompt_tokens, "tokens in,", answer.usage.completion_tokens, "out")
"""
"""Program of the page: it sends the example's `picture`."""


def record(folder: Path) -> dict[str, str]:
    """Run the example and the server, both explained, into `folder`; return what they print."""
    said = {"stdout": _run("run", "--explain", "--quiet", "--out", str(folder / "picture"), str(_EXAMPLE))}
    explain = ("--explain", "--lang", "en", "--out", str(folder / "served"))
    with Server.start("tiny-vl", "--dtype", "float32", *explain) as server:
        drawing = _DRAWING.partition("from PIL")
        program = f"{drawing[1]}{drawing[2]}\n{PROGRAM}".replace(ADDRESS, server.url)
        said["program"] = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=True
        ).stdout
        server.signal(signal.SIGTERM)
        server.end()
    return said


def blocks(lang: Language, folder: Path, said: dict[str, str]) -> dict[str, str]:
    """Return the generated parts by name, in Markdown."""
    source = _EXAMPLE.read_text(encoding="utf-8")
    check = _run("check", str(folder / "served"), "--expect", EXPECTATION, "--lang", lang)
    return {
        "picture-script": _code("python", source[source.index("from PIL") :]),
        "picture-stdout": _code("text", said["stdout"]),
        "picture-steps": _code("text", _run("show", str(folder / "picture"), "steps", "--lang", lang)),
        "picture-program": f"{_code('python', PROGRAM)}\n{_code('text', said['program'])}",
        "picture-check": _code("console", f"$ tracellm check served --expect {EXPECTATION}\n{check}"),
    }


def _run(*command: str) -> str:
    """Return what a command of tracellm prints."""
    environment = {**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": os.devnull}
    done = subprocess.run(
        [sys.executable, "-m", "tracellm", *command], cwd=ROOT, capture_output=True, encoding="utf-8", env=environment
    )
    if done.returncode:
        raise RuntimeError(f"tracellm {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _code(language: str, content: str) -> str:
    return f"```{language}\n{content.rstrip()}\n```\n"


def draw(run: Path) -> None:
    """Draw docs/images/picture.png: what the report shows of the picture."""
    from tests.browser import Browser

    with Browser() as browser:
        browser.open(run / "report.html", width=1200, height=860)
        browser.run("location.hash = '#step=1&request=0'")
        assert browser.wait("document.querySelector('[data-shows=items] figure')")
        browser.run(
            "document.querySelector('[data-shows=encoder]').scrollIntoView(); scrollBy(0, -105)"
        )  # below the bar
        browser.screenshot(ROOT / "docs" / "images" / "picture.png")
