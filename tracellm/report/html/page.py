"""The page itself: templates, style and script in one file, under a content security policy."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.sequence import sequence
from tracellm.report.facts.coverage import notes, why_missing
from tracellm.report.facts.startup import client_choice, engine_config, kv_cache, model_load, startup_spans
from tracellm.report.facts.workers.groups import worker_groups
from tracellm.report.html.answer_view import answer_view
from tracellm.report.html.boundary_view import boundary_view
from tracellm.report.html.calls_data import calls_data
from tracellm.report.html.data import encode, page_texts, run_data
from tracellm.report.html.items_data import has_pictures
from tracellm.report.html.linker import link
from tracellm.report.html.request_view import requests_view
from tracellm.report.html.run_view import (
    about_view,
    cache_view,
    client_view,
    config_view,
    load_view,
    probes_sentence,
    problems_view,
    run_view,
)
from tracellm.report.html.sequence_data import sequence_data
from tracellm.report.html.source_data import source_data
from tracellm.report.html.workers_view import workers_view
from tracellm.report.texts import LANGUAGES, Language, text
from tracellm.report.texts.glossary import TERMS
from tracellm.report.wording.safe_text import visible
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import STEP_SPAN

__all__ = ["asset", "document", "environment", "policy", "report_html", "version"]

_TEXTS = ("calls.", "html.calls", "model.", "sequence.", "source.", "timeline.")
"""Beginnings of the keys of the texts that only this page's script shows."""

_SECTIONS = {
    "client": ("client",),
    "startup": ("load", "cache"),
    "requests": ("requests",),
    "steps": ("steps", "schedules", "endings", "samples"),
}
"""Sections of the page, and the subjects of a recording that they show."""


def report_html(run_folder: RunFolder, lang: Language = "en") -> str:
    """Return the report of a run as an HTML document.

    Args:
        run_folder: the run; its problems are listed on the page.
        lang: language to show first; a switch in the page changes it. The run's own names and texts stay as they are.

    Raises:
        ValueError: there is no such language.
    """
    trace = run_folder.trace
    return document(
        partial(_body, run_folder),
        lang,
        script="main.js",
        styles=("page.css", "steps.css", "calls.css", "model.css", *(["workers.css"] if worker_groups(trace) else [])),
        data={
            **page_texts(lang, *_TEXTS),
            **run_data(trace, run_folder.variants),
            "sequence": sequence_data(trace),
            "source": source_data(trace, run_folder.manifest),
        },
        calls=calls_data(trace),
        title=run_view(run_folder, lang)["title"],
        version=version(run_folder),
        pictures=has_pictures(trace),
    )


def document(
    body: Callable[[Language], str],
    lang: Language,
    *,
    script: str,
    styles: Sequence[str],
    data: Mapping[str, Any],
    title: str,
    version: str,
    calls: bytes = b"",
    pictures: bool = False,
) -> str:
    """Return an HTML document that loads nothing.

    Args:
        body: returns the document's body in a language.
        lang: language to show first.
        script: the module in js/ to run.
        styles: style sheets in styles/.
        data: what the script reads, as JSON.
        title: title of the window, without invisible characters.
        version: version of tracellm that recorded what is shown.
        calls: all calls, as `calls_data` returns them; empty for a page that shows none.
        pictures: whether the page has pictures, all within it.
    """
    style = "".join(asset("styles", name) for name in styles)
    code = link(script, partial(asset, "js"))
    (other,) = (language for language in LANGUAGES if language != lang)
    return (
        environment()
        .get_template("page.html")
        .render(
            html_lang=text(lang, "html.lang"),
            body=Markup(body(lang)),
            other_lang=other,
            other_body=encode(body(other).encode()),
            policy=policy([style], [code], pictures=pictures),
            style=Markup(style),
            script=Markup(code),
            data=encode(json.dumps(data, separators=(",", ":")).encode()),
            calls=encode(calls) if calls else "",
            title=title,
            version=version,
        )
    )


def _body(run_folder: RunFolder, lang: Language) -> str:
    """Return all sections in one language."""
    trace, manifest = run_folder.trace, run_folder.manifest
    startup = startup_spans(trace)
    options = manifest.get("options")
    without_text = isinstance(options, dict) and options.get("text") is False
    choice, load = client_choice(startup), model_load(startup)
    client = client_view(choice, lang)
    context: dict[str, Any] = {
        "t": partial(text, lang),
        "version": version(run_folder),
        "problems": problems_view(run_folder, lang),
        "notes": notes(manifest, lang),
        "missing_because": {section: why_missing(manifest, lang, *subjects) for section, subjects in _SECTIONS.items()},
        "run": run_view(run_folder, lang),
        "client": client,
        "boundary": boundary_view(trace, lang),
        "workers": workers_view(trace, lang),
        "without_text": without_text,
        "mermaid": to_mermaid(sequence(trace, lang=lang)),
        "load": load_view(load, manifest, lang),
        "cache": cache_view(kv_cache(startup), lang),
        "config": config_view(engine_config(startup), lang),
        "words": [(term, text(lang, f"glossary.{term}.name"), text(lang, f"glossary.{term}")) for term in TERMS],
        "probes": probes_sentence(manifest, trace, lang),
        **answer_view(
            trace,
            choice,
            load,
            client["inputs"] if client else [],
            lang,
            run_folder.variants,
            manifest.get("duration_s"),
        ),
        "can_replay": any(
            str(span.attributes.get(names.CODE_FUNCTION)).startswith("tracellm.") for span in trace.named(STEP_SPAN)[:1]
        )
        and not any(names.REQUEST_ITEMS in span.attributes for span in trace.named(names.REQUEST_SPAN)),
        **requests_view(trace, lang),
        "has_calls": bool(trace.spans),
        "has_steps": bool(trace.named(STEP_SPAN)),
        "has_source": any(names.CODE_FUNCTION in span.attributes for span in trace.spans),
        **about_view(manifest, lang),
    }
    return environment().get_template("body.html").render(context)


def version(run_folder: RunFolder) -> str:
    """Return the version of tracellm that recorded a run."""
    return visible(str(run_folder.manifest.get("tracellm", "?")))


@cache
def environment() -> Environment:
    """Return the templates of the pages."""
    found = Environment(
        loader=PackageLoader("tracellm.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["with_code"] = _with_code
    return found


def _with_code(sentence: str) -> Markup:
    """Return a sentence with its commands in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(sentence))))


@cache
def asset(folder: str, name: str) -> str:
    """Return the content of a file beside this one."""
    return resources.files("tracellm.report.html").joinpath(folder, name).read_text(encoding="utf-8")


def policy(styles: Sequence[str], scripts: Sequence[str], *, pictures: bool = False) -> str:
    """Return a policy that allows these style sheets and scripts, and nothing else to be loaded, sent or run.

    With `pictures`, pictures within the page are shown.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src {' '.join(map(_hash, styles))}",
            f"script-src {' '.join(map(_hash, scripts))}",
            *(["img-src data:"] if pictures else []),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
