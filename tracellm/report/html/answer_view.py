"""The page's first part: what ran, where the time went, and what needs an explanation, with links to the steps."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any
from urllib.parse import urlencode

from tracellm.report.facts.engines import engines
from tracellm.report.facts.findings import Finding, findings
from tracellm.report.facts.http_requests import http_requests
from tracellm.report.facts.startup import ClientChoice, ModelLoad
from tracellm.report.requests_list import failed_text
from tracellm.report.texts import text, texts
from tracellm.report.wording.changes import held_reason
from tracellm.report.wording.quantities import clip, duration, percent
from tracellm.report.wording.request_names import RequestNames, request_names
from tracellm.report.wording.safe_text import visible
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.ranges import covered
from tracellm.trace.steps import STEP_SPAN, read_step

__all__ = ["answer_view"]

MOST_OF_A_KIND = 6
MOST_LISTED = 200
"""Findings of a kind that are listed once the list is opened."""
_STARTUP = ("AsyncLLM.from_vllm_config", "AsyncLLM.__init__")
"""Calls that are the start-up of a server, which has no script."""


def answer_view(
    trace: Trace,
    client: ClientChoice | None,
    load: ModelLoad | None,
    inputs: list[dict[str, str]],
    lang: str,
    variants: Mapping[str, Trace] | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Return the sentences about model and client, the parts of the run's time, the findings, and the variants.

    `seconds` is the time of the whole program, which may begin before the recording and end after it.
    """
    return {
        "answer": {
            "lines": _lines(client, load, inputs, lang),
            "times": _times(trace, load, seconds or 0.0, lang),
            "findings": _findings(trace, lang),
            "variants": _variants(trace, variants or {}, lang),
        }
    }


def _lines(
    client: ClientChoice | None, load: ModelLoad | None, inputs: list[dict[str, str]], lang: str
) -> list[tuple[str, str]]:
    """Return name and sentence: the model, the client, and the rule that chose it."""
    lines = []
    if load is not None:
        facts = (load.architecture, load.dtype, load.device, load.ops and text(lang, "answer.ops", ops=load.ops))
        lines.append(
            (text(lang, "answer.model"), text(lang, "diagram.comma").join(visible(fact) for fact in facts if fact))
        )
    if client is not None:
        lines.append((text(lang, "answer.client"), visible(client.choice)))
        origin = next((one["origin"] for one in inputs if one["name"] == "multiprocess_mode"), "")
        rule = text(lang, key) if (key := f"client.rule.{client.choice}") in texts(lang) else ""
        lines.append((text(lang, "answer.rule"), text(lang, "answer.because", rule=rule, origin=origin)))
    return lines


def _times(trace: Trace, load: ModelLoad | None, seconds: float, lang: str) -> list[dict[str, Any]]:
    """Return the parts of the run's time: start-up, steps with a prefill, decode steps, between steps, the rest."""
    if not trace.spans:
        return []
    start = trace.spans[0].start_ns
    whole = max(max(span.end_ns for span in trace.spans) - start, round(seconds * 1e9))
    steps = [span for span in trace.named(STEP_SPAN) if not span.open]
    startup = _covered(
        span for span in trace.spans if span.attributes.get(names.PHASE) == "startup" or span.name in _STARTUP
    )
    prefills = [span for span in steps if read_step(span).kind in ("prefill", "mixed")]
    decodes = [span for span in steps if read_step(span).kind not in ("prefill", "mixed", "empty")]
    prefill, every = _covered(prefills), _covered(steps)
    counted = {"prefill": prefills, "decode": decodes}
    generation = every and max(span.end_ns for span in steps) - steps[0].start_ns
    parts = {
        "startup": startup,
        "prefill": prefill,
        "decode": every - prefill,
        "between": max(0, generation - every),
    }
    parts["else"] = max(0, whole - sum(parts.values()))
    more = {part: _typical(steps, lang) for part, steps in counted.items()}
    if load is not None and load.compile_seconds is not None:
        more["startup"] = text(lang, "answer.time.compiled", time=duration(load.compile_seconds))
    return [
        {
            "name": text(lang, f"answer.time.{part}"),
            "time": duration(nanoseconds / 1e9),
            "share": percent(nanoseconds / whole) if whole else "",
            "width": max(1, round(20 * nanoseconds / whole)) if whole else 0,
            "more": more.get(part, ""),
        }
        for part, nanoseconds in parts.items()
        if nanoseconds
    ]


def _covered(spans: Iterable[Span]) -> int:
    return covered((span.start_ns, span.end_ns) for span in spans)


def _typical(steps: Sequence[Span], lang: str) -> str:
    """Return the number of steps and their median time."""
    if not steps:
        return ""
    middle = duration(median(step.duration_ns for step in steps) / 1e9)
    return text(lang, "answer.time.steps", n=len(steps), median=middle)


def _findings(trace: Trace, lang: str) -> list[dict[str, Any]]:
    """Return the findings by kind, a few of each, with the number of the others."""
    short = request_names(trace)
    kinds: dict[str, list[Finding]] = {}
    for finding in findings(trace):
        kinds.setdefault(finding.kind, []).append(finding)
    groups = _failed_http(trace, lang)
    for kind, own in kinds.items():
        listed, left_out = clip(own, MOST_LISTED)
        rows = [_finding(finding, short, lang) for finding in listed]
        groups.append(_group(text(lang, f"finding.{kind}.title", n=len(own)), rows, left_out))
    return groups


def _group(title: str, rows: list[dict[str, str]], left_out: int) -> dict[str, Any]:
    """Return a group of findings; `left_out` more are only counted."""
    shown, more = clip(rows, MOST_OF_A_KIND)
    return {
        "title": title,
        "findings": shown,
        "more": rows[len(shown) :],
        "num_more": more + left_out,
        "left_out": left_out,
    }


def _failed_http(trace: Trace, lang: str) -> list[dict[str, Any]]:
    """Return a group with the HTTP requests that got an error, equal ones together; empty if there are none."""
    failed = [http for http in http_requests(trace) if http.failed and not http.client_left]
    if not failed:
        return []
    equal = Counter(failed_text(http, lang) for http in failed)
    listed, left_out = clip(list(equal.items()), MOST_LISTED)
    rows = [
        {
            "sentence": sentence if n == 1 else text(lang, "requests.failed.times", sentence=sentence, n=n),
            "step": text(lang, "html.requests.short"),
            "address": "#requests",
        }
        for sentence, n in listed
    ]
    return [_group(text(lang, "requests.failed.title", n=len(failed)), rows, left_out)]


def _finding(finding: Finding, short: RequestNames, lang: str) -> dict[str, str]:
    values = {name: duration(value) if isinstance(value, float) else value for name, value in finding.values.items()}
    because, name = "", short.shorten(finding.request_id)
    if finding.held is not None:
        why = held_reason(finding.held.reason, short.in_details(finding.held.details), lang, name)
        mostly = finding.values.get("mostly", 0) != finding.values.get("steps", 0)
        because = text(lang, "finding.because.mostly" if mostly else "finding.because", why=why, **values)
    request = visible(name)
    if finding.kind == "slow_step":
        values |= {
            name: text(lang, f"{key}.{values[name]}") for name, key in (("kind", "step.kind"), ("part", "page.part"))
        }
    if finding.kind in ("aborted", "stopped"):
        because = _delivered(values, lang)
    elif finding.kind == "hit":
        because = _limit_of_hit(values, lang)
    sentence = text(lang, f"finding.{finding.kind}", request=request, because=because, **values)
    if finding.kind == "aborted":
        sentence += text(lang, f"finding.aborted.{'abort' if values['reason'] == 'abort' else 'unknown'}")
    elif finding.kind == "preempted":
        sentence += text(lang, "finding.resumed" if "resumed" in values else "finding.not_resumed", **values)
    address = {"step": str(finding.step)}
    if finding.request_id:
        address["request"] = finding.request_id
    if finding.engine:
        address = {"engine": str(finding.engine), **address}
    return {
        "sentence": sentence,
        "step": text(lang, "page.step", n=finding.step),
        "address": "#" + urlencode(address, errors="replace"),
    }


def _delivered(values: dict[str, Any], lang: str) -> str:
    """Return how many of an aborted request's tokens reached its caller, if that was recorded."""
    delivered = values["delivered"]
    if delivered is None:
        return ""
    key = "delivered" if delivered < values["tokens"] else "all_delivered"
    return text(lang, f"finding.aborted.{key}", delivered=delivered)


def _limit_of_hit(values: dict[str, Any], lang: str) -> str:
    """Return why no more tokens came from the prefix cache."""
    rest, size = values["rest"], values["size"]
    if not rest or not size:
        return text(lang, "finding.hit.full_blocks")
    key = "partial" if rest < size else "last" if rest == size else "other"
    return text(lang, f"finding.hit.{key}", rest=rest)


def _variants(trace: Trace, variants: Mapping[str, Trace], lang: str) -> list[dict[str, str]]:
    """Return a sentence about each variant that `tracellm whatif` scheduled, with the address of its first step."""
    number = len(engines(trace))
    rows = []
    for name, variant in variants.items():
        sentence = text(
            lang,
            "answer.whatif.variant",
            settings=visible(name),
            **{
                f"{fact}_{side}": value
                for side, one in (("then", variant), ("now", trace))
                for fact, value in _facts(one)
            },
        )
        rows.append({"sentence": sentence, "address": f"#engine={number}&step=1"})
        number += len(engines(variant))
    return rows


def _facts(trace: Trace) -> list[tuple[str, int]]:
    """Return the number of steps and of preemptions."""
    steps = [step for engine in engines(trace) for step in engine.steps]
    return [("steps", len(steps)), ("preempted", sum(len(step.preempted) for step in steps))]
