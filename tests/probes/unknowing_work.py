"""What a spawned process of test_processes.py does that imports nothing of tracellm: it opens a span of its own."""

from opentelemetry.sdk.trace import TracerProvider

__all__ = ["works"]


def works() -> None:
    """Something to record."""
    with TracerProvider().get_tracer("work").start_as_current_span("works"):
        pass
