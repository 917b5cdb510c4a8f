"""The work of a spawned process of test_processes.py, without an import of tracellm: it opens its own span."""

from opentelemetry.sdk.trace import TracerProvider

__all__ = ["works"]


def works() -> None:
    """A function to record."""
    with TracerProvider().get_tracer("work").start_as_current_span("works"):
        pass
