"""The page's part about Triton kernels: a row for each, with CPU and GPU times apart, and its work."""

from tracellm.report.facts.kernels import KernelFacts, kernels
from tracellm.report.texts import text
from tracellm.report.wording.quantities import byte_size, number
from tracellm.report.wording.safe_text import visible
from tracellm.report.wording.titles import time
from tracellm.trace.model import Trace

__all__ = ["kernels_view"]


def kernels_view(trace: Trace, lang: str) -> list[dict[str, str]]:
    """Return the rows of the table; none for a run without kernels."""
    return [_row(one, lang) for one in kernels(trace)]


def _row(one: KernelFacts, lang: str) -> dict[str, str]:
    timed = text(lang, "html.kernels.timed", n=one.timed) if 0 < one.timed < one.launches else ""
    # bytes per nanosecond are gigabytes per second
    rate = text(lang, "html.kernels.rate", rate=number(one.timed_bytes / one.gpu_ns)) if one.gpu_ns else ""
    return {
        "name": visible(one.name),
        "launches": f"{one.launches:,}",
        "cpu": time(one.launch_ns),
        "gpu": time(one.gpu_ns) if one.timed else text(lang, "html.kernels.no_gpu"),
        "timed": timed,
        "bytes": byte_size(one.bytes),
        "rate": rate,
        "flops": f"{one.flops:,}",
        "intensity": number(one.flops / one.bytes) if one.bytes else "",
    }
