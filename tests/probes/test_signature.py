"""Generated wrappers: they accept, pass on and record the arguments of their function."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.probes.tracing import record
from tracellm import probe
from tracellm.probes.context.call_context import state
from tracellm.probes.wrapping.codegen import signature_of
from tracellm.probes.wrapping.probe import Probe
from tracellm.probes.wrapping.summary import arguments_and_result
from tracellm.probes.wrapping.wrapper import wrap
from tracellm.trace import names

PARTS = [
    ["", "p, /", "p, q=-1, /"],
    ["", "a", "a, b", "a=-1", "a=-1, b=-2", "a=-1, b=-2, c=-3, d=-4, e=-5"],
    ["", "*args", "*, k", "*, k=-6", "*, k, m=-7", "*args, k=-6", "*, k=-6, m=-7"],
    ["", "**kwargs"],
]
"""Possible parts of a signature."""


def function_of(parameters: str) -> Any:
    """Return a function with these parameters that returns its arguments."""
    scope: dict[str, Any] = {}
    exec(f"def function({parameters}):\n    return dict(locals())", scope)
    return scope["function"]


signatures = st.tuples(*(st.sampled_from(part) for part in PARTS)).map(lambda parts: ", ".join(filter(None, parts)))
calls = st.tuples(
    st.lists(st.integers(0), max_size=5),
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d", "e", "k", "m", "p", "q", "other"]), st.integers(0), max_size=4
    ),
)


def is_valid(parameters: str) -> bool:
    """Return whether Python allows this signature."""
    try:
        compile(f"def function({parameters}): pass", "", "exec")
    except SyntaxError:
        return False
    return True


def outcome(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of a call, or its error."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        return str(error)


@settings(deadline=None, max_examples=200)
@given(signatures.filter(is_valid), st.lists(calls, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_a_wrapped_function_is_called_as_it_would_be(
    parameters: str, several: list[tuple[list[Any], dict[str, Any]]], recorded: bool, captured: bool
):
    """A wrapped function receives or refuses the same arguments as the bare one, for every signature and call."""
    bare = function_of(parameters)
    capture = arguments_and_result(bare, "")[0] if captured else None
    wrapped = wrap(bare, Probe("function", "kernel", capture=capture))
    records: list[Any] = []
    before = state.append
    state.append = records.append if recorded else None
    try:
        for args, kwargs in several:
            assert outcome(wrapped, args, kwargs) == outcome(bare, args, kwargs)
    finally:
        state.append = before
    assert inspect.signature(wrapped) == inspect.signature(bare)


@settings(deadline=None, max_examples=100)
@given(signatures.filter(is_valid), calls)
def test_what_was_given_is_what_is_told(parameters: str, call: tuple[list[Any], dict[str, Any]]):
    """The recorded arguments are those of the call by name, without defaults."""
    bare = function_of(parameters)
    capture, attributes = arguments_and_result(bare, "")
    records: list[Any] = []
    before = state.append
    state.append = records.append
    try:
        got = outcome(wrap(bare, Probe("function", "kernel", capture=capture)), *call)
    finally:
        state.append = before
    if isinstance(got, str):
        return
    expected = {f"*{place}={value}" for place, value in enumerate(got.pop("args", ()))}
    expected |= {f"{name}={value}" for name, value in got.pop("kwargs", {}).items()}
    expected |= {f"{name}={value}" for name, value in got.items() if value >= 0}  # the others are defaults
    assert set(attributes(records[0][6]).get(names.ARGUMENTS, [])) == expected


@pytest.mark.parametrize("parameters", ["_x", "x, *args", "x, **kwargs", "x=1, /"])
def test_what_cannot_be_written_out(parameters: str):
    """Names used by the wrapper and unlimited arguments need the generic wrapper."""
    assert signature_of(function_of(parameters)) is None


def test_a_decorator_may_hide_other_parameters():
    """A function beneath a decorator needs the generic wrapper, as the decorator may have other parameters."""
    import functools

    def inner(x: int, y: int) -> int:
        return x

    @functools.wraps(inner)
    def outer(y: int) -> int:
        return inner(1, y)

    assert signature_of(inner) is not None
    assert signature_of(outer) is None


def test_a_capture_that_fails_is_given_up(tmp_path: Path):
    """A failing capture of an argument is reported once and disabled; calls go on."""

    class Odd(list[int]):
        def __len__(self) -> int:
            raise RuntimeError("no length")

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return list

    @probe
    def work(x: object) -> int:
        return 5

    results: list[int] = []
    trace = record(tmp_path, lambda: results.extend([work(Odd()), work(3)]))
    assert results == [5, 5]
    spans = trace.named("test_a_capture_that_fails_is_given_up.work")
    assert [names.ARGUMENTS in span.attributes for span in spans] == [False, False]
