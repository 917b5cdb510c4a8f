"""A run's requests and steps for a notebook cell: a frame of its own, with the page's script for that part.

The frame is an HTML document without an address. Style, script and data are in it, packed, and its policy allows
nothing else. The cell around it shows the same as static HTML first: exports and some front ends do not run scripts.
"""

import json
from functools import cache, partial
from html import escape
from typing import Any

from tracellm.report.html.data import encode, page_texts, run_data
from tracellm.report.html.linker import link
from tracellm.report.html.page import asset, policy
from tracellm.report.texts import Language, text
from tracellm.trace.model import Trace

__all__ = ["MOST_CHARACTERS", "cell_document", "cell_frame"]

MOST_CHARACTERS = 300_000
"""Size of a cell's frame; of a longer run, only the first steps are in it."""
_HEIGHT = 720


def cell_frame(trace: Trace, lang: Language, position: tuple[int, int] = (0, 0)) -> str:
    """Return what opens to a frame with the requests and the steps of a run, and a sentence on what it leaves out.

    Args:
        trace: the run.
        lang: language of the frame.
        position: index of the engine, and index of the step in it, that the frame shows first.

    Returns:
        HTML of at most MOST_CHARACTERS; empty if the run has no steps, or if the step does not fit.
    """
    document, left_out = cell_document(trace, lang, position)
    if not document:
        return ""
    frame = (
        f'<iframe title="{escape(text(lang, "page.replay"))}" sandbox="allow-scripts" loading="lazy" '
        f'srcdoc="{escape(document)}" style="width:100%;height:{_HEIGHT}px;margin-top:8px;border-radius:8px;'
        'border:1px solid rgba(128,128,128,.4);resize:vertical"></iframe>'
    )
    notes = " ".join(filter(None, (left_out, text(lang, "cell.scripts"))))
    return (
        f'<details style="margin:8px 0"><summary style="cursor:pointer">{escape(text(lang, "cell.open"))}</summary>'
        f"{frame}<p><small>{escape(notes)}</small></p></details>"
    )


def cell_document(
    trace: Trace, lang: Language, position: tuple[int, int] = (0, 0), *, linked: bool = False
) -> tuple[str, str]:
    """Return the document of a frame, and a sentence on what it leaves out; both empty if nothing fits.

    Args:
        trace: the run.
        lang: language of the frame.
        position: index of the engine, and index of the step in it, that the frame shows first.
        linked: exchange the selection with the page around the frame, by messages (js/cell/main.js).
    """
    run = run_data(trace)
    for row in run["engines"]:
        row.pop("model", None)
    run.pop("kernels", None)
    most = max((len(row["steps"]) for row in run["engines"]), default=0)
    first_steps = most
    while first_steps > position[1]:
        engines = [{**row, "steps": row["steps"][:first_steps]} for row in run["engines"]]
        document = _document({**page_texts(lang), **run, "engines": engines, "first": position, "linked": linked}, lang)
        if len(escape(document)) + 1500 <= MOST_CHARACTERS:
            return document, "" if first_steps == most else text(lang, "cell.left_out", n=first_steps, all=most)
        first_steps //= 2
    return "", ""


def _document(data: dict[str, Any], lang: Language) -> str:
    data["texts"] = {lang: data["texts"][lang]}
    loader, style, script = _parts()
    allowed = policy([style], [loader, script], pictures="pictures" in data)
    packed = {"data": json.dumps(data, separators=(",", ":")), "packed-style": style, "packed-script": script}
    return (
        f'<!doctype html><html lang="{text(lang, "html.lang")}"><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
        '<meta name="color-scheme" content="light dark"><body>'
        f'<div id="replay"></div><h3>{escape(text(lang, "page.requests"))}</h3><div id="request-table"></div>'
        + "".join(
            f'<script type="application/octet-stream" id="{name}">{encode(content.encode())}</script>'
            for name, content in packed.items()
        )
        + f"<script>{loader}</script>"
    )


@cache
def _parts() -> tuple[str, str, str]:
    """Return loader, style and script."""
    read = partial(asset, "js")
    style = "".join(asset("styles", name) for name in ("page.css", "steps.css", "cell.css"))
    return link("cell/loader.js", read), style, link("cell/main.js", read)
