"""The first sentence: whether both runs did the same, and the cost of the difference."""

from tracellm.report.diff.runs import process_names, refusals
from tracellm.report.diff.steps import lacks_sampled_tokens
from tracellm.report.diff.times import RUNS, cost_of_a_step
from tracellm.report.texts import text
from tracellm.report.wording.quantities import byte_size
from tracellm.report.wording.safe_text import shorten, visible
from tracellm.trace.compare import Comparison, RequestPair
from tracellm.trace.run_folder import RunFolder

__all__ = ["verdict"]

_LONGEST_ERROR = 100


def verdict(a: RunFolder, b: RunFolder, comparison: Comparison, alike: bool, lang: str) -> str:
    """Return one sentence. `alike` is whether both runs had the same input."""
    clauses = [*_ends((a, b), lang), _work(comparison, alike, lang), *_refusals((a, b), lang)]
    clauses += _boundaries((a, b), comparison, lang)
    return text(lang, "diff.end", sentence=text(lang, "diff.semicolon").join(clauses))


def _ends(runs: tuple[RunFolder, RunFolder], lang: str) -> list[str]:
    """Return a clause for each run that did not end well."""
    clauses = []
    for name, run in zip(RUNS, runs, strict=True):
        status, error = run.manifest.get("status"), run.manifest.get("error")
        if status in ("running", "interrupted", "terminated"):
            clauses.append(text(lang, f"diff.verdict.{status}", run=name))
        elif status == "failed":
            kind = str(error.get("type", "")) if isinstance(error, dict) else "?"
            clauses.append(text(lang, "diff.verdict.failed", run=name, error=shorten(visible(kind), _LONGEST_ERROR)))
    return clauses


def _work(comparison: Comparison, alike: bool, lang: str) -> str:
    a, b = comparison.num_steps
    if not (comparison.calls and any(pair.a and pair.b for pair in comparison.calls)):
        return text(lang, "diff.verdict.no_calls")
    if not (a or b):
        return text(lang, "diff.verdict.no_steps")
    if not (a and b):
        run, other = RUNS if not a else reversed(RUNS)
        return text(lang, "diff.verdict.no_steps_in", run=run, other=other, n=a or b)
    differing = comparison.different_steps
    tokens = _tokens(comparison, lang)
    if not differing and tokens is None:
        if lacks_sampled_tokens(comparison):
            return text(lang, "diff.verdict.same_without_tokens", n=a)
        same = alike and not comparison.different_calls
        return text(lang, "diff.verdict.identical" if same else "diff.verdict.same", n=a)
    if tokens is None:
        key = "same_token_count" if lacks_sampled_tokens(comparison) else "same_tokens"
        tokens = text(lang, f"diff.verdict.{key}")
    if not differing:
        steps = text(lang, "diff.verdict.same_steps", n=a)
    elif a != b:
        steps = text(lang, "diff.verdict.step_counts", a=a, b=b, first=differing[0].position)
    else:
        steps = text(lang, "diff.verdict.steps", k=len(differing), n=a, first=differing[0].position)
    return tokens + text(lang, "diff.semicolon") + steps


def _tokens(comparison: Comparison, lang: str) -> str | None:
    """Return a clause on missing requests, and on other prompts or tokens; None without any."""
    pairs = comparison.requests
    both = [pair for pair in pairs if pair.a and pair.b]
    clauses = []
    if prompts := sum(pair.same_prompt is False for pair in both):
        clauses.append(text(lang, "diff.verdict.other_prompts", k=prompts, n=len(both)))
    if outputs := [pair for pair in both if pair.same_output is False]:
        shorter = {_shorter(pair) for pair in outputs}
        run = shorter.pop() if len(shorter) == 1 else ""
        key = "diff.verdict.fewer_tokens" if run else "diff.verdict.other_tokens"
        clauses.append(text(lang, key, k=len(outputs), n=len(both), run=run))
    for name, count in zip(RUNS, (sum(not pair.b for pair in pairs), sum(not pair.a for pair in pairs)), strict=True):
        if count:
            clauses.append(text(lang, "diff.verdict.only", n=count, run=name))
    return text(lang, "diff.semicolon").join(clauses) or None


def _shorter(pair: RequestPair) -> str:
    """Return the run whose tokens are only the beginning of the other's; empty for neither."""
    a, b = (request.token_ids if request else None for request in (pair.a, pair.b))
    if a is None or b is None or len(a) == len(b) or a[: len(b)] != b[: len(a)]:
        return ""
    return RUNS[len(b) < len(a)]


def _refusals(runs: tuple[RunFolder, RunFolder], lang: str) -> list[str]:
    """Return a clause for each server that refused requests, if the other refused another number."""
    counts = [len(refusals(run)) for run in runs]
    if counts[0] == counts[1]:
        return []
    return [
        text(lang, "diff.verdict.refused", run=name, n=count) for name, count in zip(RUNS, counts, strict=True) if count
    ]


def _boundaries(runs: tuple[RunFolder, RunFolder], comparison: Comparison, lang: str) -> list[str]:
    """Return the processes and messages of each run with several processes."""
    clauses = []
    for name, run, boundary, times, steps in zip(
        RUNS, runs, comparison.boundaries, comparison.times, comparison.num_steps, strict=True
    ):
        processes, count = len(process_names(run)), boundary.all.count
        if not count:
            if processes > 1:
                clauses.append(text(lang, "diff.verdict.processes", run=name, processes=processes))
            continue
        size = byte_size(boundary.all.bytes)
        clause = text(lang, "diff.verdict.boundary", run=name, processes=processes, n=count, bytes=size)
        if cost := cost_of_a_step(boundary, times, steps):
            clause += text(lang, "diff.comma") + text(lang, "diff.verdict.cost", time=cost[0], share=cost[1])
        clauses.append(clause)
    return clauses
