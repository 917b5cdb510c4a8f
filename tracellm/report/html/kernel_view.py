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
    return [_row(kernel, lang) for kernel in kernels(trace)]


def _row(kernel: KernelFacts, lang: str) -> dict[str, str]:
    timed = text(lang, "html.kernels.timed", n=kernel.timed) if 0 < kernel.timed < kernel.launches else ""
    # bytes per nanosecond are gigabytes per second
    rate = text(lang, "html.kernels.rate", rate=number(kernel.timed_bytes / kernel.gpu_ns)) if kernel.gpu_ns else ""
    return {
        "name": visible(kernel.name),
        "launches": f"{kernel.launches:,}",
        "cpu": time(kernel.launch_ns),
        "gpu": time(kernel.gpu_ns) if kernel.timed else text(lang, "html.kernels.no_gpu"),
        "timed": timed,
        "bytes": byte_size(kernel.bytes),
        "rate": rate,
        "flops": f"{kernel.flops:,}",
        "intensity": number(kernel.flops / kernel.bytes) if kernel.bytes else "",
    }
