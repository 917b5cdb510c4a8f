"""Tests of the server's logs: how often and how long."""

import logging

from tracellm.engine.entrypoints.logger import RepeatFilter, ShortFormatter


def record(message: str, name: str = "a") -> logging.LogRecord:
    """Return a record of this message."""
    return logging.LogRecord(name, logging.ERROR, "", 0, message, None, None)


def test_a_message_passes_a_few_times_in_a_minute() -> None:
    """Only the first messages of a kind pass in a window; the next window begins with the number left out."""
    now = 0.0
    limited = RepeatFilter(limit=2, window=60, prefix=5, clock=lambda: now)
    assert [limited.filter(record(f"Fault {number}")) for number in range(5)] == [True, True, False, False, False]
    now = 60.0
    first, second = record("Fault 5"), record("Fault 6")
    assert limited.filter(first)
    assert limited.filter(second)
    assert first.getMessage() == "Fault 5 (3 more like this were left out.)"
    assert second.getMessage() == "Fault 6"


def test_kinds_do_not_limit_each_other() -> None:
    """Messages of another logger or with another beginning pass."""
    limited = RepeatFilter(limit=1, prefix=5, clock=lambda: 0.0)
    assert all(limited.filter(one) for one in (record("Fault"), record("Other"), record("Fault", "b")))
    assert not limited.filter(record("Fault"))


def test_kinds_do_not_grow_without_end() -> None:
    """The filter forgets the oldest kinds."""
    limited = RepeatFilter(limit=1, clock=lambda: 0.0)
    for number in range(5000):
        assert limited.filter(record(f"{number:5} of many"))
    assert len(limited._kinds) == 1000


def test_a_long_message_is_cut() -> None:
    """A message and a traceback have a maximum length."""
    formatter = ShortFormatter("%(message)s")
    assert formatter.format(record("a" * 5000)) == "a" * 2000 + "... (5000 characters)"
    try:
        raise ValueError("x" * 100_000)
    except ValueError as error:
        failed = record("It failed.")
        failed.exc_info = (ValueError, error, error.__traceback__)
    assert len(formatter.format(failed)) < 9000
