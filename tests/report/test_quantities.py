"""Formats of numbers and of text from outside."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracellm.report.wording.quantities import byte_size, clip, duration, percent
from tracellm.report.wording.safe_text import shorten, visible


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0.00 ms"), (0.00042, "0.42 ms"), (0.0099951, "10.0 ms"), (0.0413, "41.3 ms"), (0.4134, "413 ms"),
     (0.9996, "1.00 s"), (2.146, "2.15 s"), (59.96, "1 min 0 s"), (200, "3 min 20 s")],
)  # fmt: skip
def test_a_duration_has_three_digits(seconds: float, said: str):
    """A duration has three digits and its unit; rounding never gives 1000 ms or 60 s."""
    assert duration(seconds) == said


def test_bytes_and_shares():
    """Bytes have decimal units, and a tiny share is not shown as zero."""
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 268_435_456: "268 MB", 999_999: "1.0 MB", 3 * 10**9: "3.0 GB"}
    assert {count: byte_size(count) for count in sizes} == sizes
    assert [percent(p) for p in (0, 0.0004, 0.973, 1)] == ["0.0%", "<0.1%", "97.3%", "100.0%"]


@given(st.lists(st.integers(), max_size=30), st.integers(1, 10))
def test_clipping_leaves_nothing_uncounted(parts: list[int], most: int):
    """Shown and counted items add up, and never is a single item left out."""
    shown, more = clip(parts, most)
    assert len(shown) + more == len(parts)
    assert shown == parts[: len(shown)]
    assert more != 1


@given(st.text(st.characters()))
def test_visible_text_has_nothing_that_acts(text: str):
    """Control characters, surrogates and direction marks are escaped; printable text is unchanged."""
    shown = visible(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert not any("\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" for char in shown)
    if text.isprintable() and text.isascii():
        assert shown == text
    shown.encode()


def test_shortened_text_keeps_its_length():
    """A shortened text has the allowed length, ellipsis included."""
    assert [shorten("abcdef", n) for n in (6, 5, 1)] == ["abcdef", "abcd…", "…"]
