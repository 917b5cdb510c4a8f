"""`@tracellm.probe`: names, attributes, and errors in both."""

import asyncio
import threading
from enum import IntEnum
from pathlib import Path

import pytest

from tests.probes.tracing import outline, record
from tracellm import probe
from tracellm.probes.decorator import own_problems
from tracellm.trace import names


class Level(IntEnum):
    """A number with a name."""

    HIGH = 2


def test_a_name_and_attributes(tmp_path: Path):
    """The span has the given name and the result of the attributes function."""

    @probe(name="retrieve", attributes=lambda args, kwargs, result: {"found": len(result), "first": result[0]})
    def find(question: str) -> list[str]:
        return ["a", "b"]

    trace = record(tmp_path, lambda: find("which?"))
    assert outline(trace, "found", "first", names.ARGUMENTS) == "script.py\n  retrieve found=2 first=a"


def test_constant_attributes(tmp_path: Path):
    """A mapping is added to the default attributes."""

    @probe(attributes={"stage": "search"})
    def find(limit: int) -> None: ...

    trace = record(tmp_path, lambda: find(3))
    name = "test_constant_attributes.find"
    assert outline(trace, "stage", names.ARGUMENTS) == f"script.py\n  {name} stage=search arguments=['limit=3']"


def test_values_are_copied_plain(tmp_path: Path):
    """Attributes keep their values at the end of the call; types unknown to OpenTelemetry become text."""
    items = [1, 2]

    @probe(attributes=lambda args, kwargs, result: {"items": items, "mixed": [1, "a"], "none": None, "dict": {"a": 1}})
    def find() -> None: ...

    def run() -> None:
        find()
        items.append(3)

    [span] = record(tmp_path, run).named("test_values_are_copied_plain.find")
    actual = {name: span.attributes[name] for name in ("items", "mixed", "none", "dict")}
    assert actual == {"items": [1, 2], "mixed": "[1, 'a']", "none": "None", "dict": "{'a': 1}"}


def test_arguments_and_results_in_short(tmp_path: Path):
    """By default a call records numbers as they are, and texts and collections by their size."""

    @probe
    def call(a: int, b: str, *more: float, key: object = None) -> dict[str, int]:
        return {"x": 1}

    [span] = record(tmp_path, lambda: call(1, "secret", 2.5, key=[1, 2])).named(
        "test_arguments_and_results_in_short.call"
    )
    assert span.attributes[names.ARGUMENTS] == ["a=1", "b=str of 6", "*0=2.5", "key=list of 2"]
    assert span.attributes[names.RESULT] == "dict of 1"


def test_equal_values_of_different_types(tmp_path: Path):
    """1, 1.0 and True are equal, but recorded with their types."""

    @probe
    def call(x: object) -> object:
        return x

    trace = record(tmp_path, lambda: [call(1), call(True), call((1, 0)), call((True, False)), call(1.5)])
    actual = [span.attributes[names.RESULT] for span in trace.named("test_equal_values_of_different_types.call")]
    assert actual == ["1", "True", "(1, 0)", "(True, False)", "1.5"]


def test_tensors_are_shapes(tmp_path: Path):
    """A tensor is recorded as its dtype and shape, without a reference to it."""
    import weakref

    import torch

    @probe
    def norm(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x.sum()

    kept = []

    def run() -> None:
        x = torch.zeros(2, 3)
        kept.append(weakref.ref(x))
        norm(x)
        del x
        assert kept[0]() is None

    [span] = record(tmp_path, run).named("test_tensors_are_shapes.norm")
    assert span.attributes[names.ARGUMENTS] == ["x=float32[2, 3]"]
    assert span.attributes[names.RESULT] == "(float32[2, 3], float32[])"


def test_a_mistake_in_attributes(tmp_path: Path):
    """A failing attributes function is reported once and disabled; calls are still recorded."""

    @probe(attributes=lambda args, kwargs, result: {"x": args[7]})
    def find() -> int:
        return 5

    results = []
    trace = record(tmp_path, lambda: results.extend([find(), find()]))
    assert results == [5, 5]
    assert len(trace.named("test_a_mistake_in_attributes.find")) == 2
    [problem] = own_problems
    assert problem.what.endswith("test_a_mistake_in_attributes.<locals>.find stopped: its capture raised IndexError")
    assert problem.message == "tuple index out of range"


def test_constants_of_any_kind(tmp_path: Path):
    """Constant attributes of any type are copied as plain values, and the recording is whole."""

    class Silent:
        def __str__(self) -> str:
            raise RuntimeError

    @probe(attributes={"none": None, "dict": {"a": 1}, "silent": Silent(), 5: Level.HIGH})  # type: ignore[dict-item]
    def find() -> None: ...

    [span] = record(tmp_path, find).named("test_constants_of_any_kind.find")
    actual = {name: span.attributes[name] for name in ("none", "dict", "silent", "5")}
    assert actual == {"none": "None", "dict": "{'a': 1}", "silent": "Silent", "5": 2}


def test_names_that_are_taken(tmp_path: Path):
    """User attributes cannot use tracellm's names or replace standard ones."""
    with pytest.raises(ValueError, match=r"'tracellm\.level': choose a name of your own"):
        probe(attributes={"tracellm.level": "deep"})(print)

    @probe(attributes={names.CODE_LINE: -1})
    def find() -> None: ...

    @probe(attributes=lambda args, kwargs, result: {"tracellm.step.index": 1})
    def seek() -> None: ...

    trace = record(tmp_path, lambda: (find(), seek()))
    assert [span.attributes[names.CODE_LINE] > 0 for span in trace.spans[1:]] == [True, True]
    assert [problem.message for problem in own_problems] == [
        "an attribute of @tracellm.probe cannot be called 'tracellm.step.index': choose a name of your own"
    ]


def test_the_users_line(tmp_path: Path):
    """A call's source line is recorded, also through library code or in a thread."""

    @probe
    def find() -> None: ...

    @probe
    async def seek() -> None: ...

    def run() -> None:
        find()
        asyncio.run(seek())
        thread = threading.Thread(target=find)
        thread.start()
        thread.join()

    actual = [
        (span.attributes.get(names.CALLER_FILE, "none").rpartition("/")[2], span.attributes.get(names.CALLER_TEXT))
        for span in record(tmp_path, run).spans[1:]
    ]
    assert actual == [("test_decorator.py", "find()"), ("test_decorator.py", "asyncio.run(seek())"), ("none", None)]


def test_a_call_that_raised_tells_its_arguments(tmp_path: Path):
    """A call that raised has its arguments and constant attributes."""

    @probe(attributes={"stage": "search"})
    def find(limit: int) -> None:
        raise ValueError("none")

    [span] = record(tmp_path, lambda: find(3)).named("test_a_call_that_raised_tells_its_arguments.find")
    assert (span.error, span.attributes[names.ARGUMENTS]) == ("ValueError: none", ["limit=3"])
    assert span.attributes["stage"] == "search"
    assert names.RESULT not in span.attributes


def test_nothing_of_a_users_text_is_kept_without_text(tmp_path: Path):
    """Without text, user texts and error messages are dropped, and numbers stay."""

    @probe(attributes={"stage": "secret", "number": 3})
    def find() -> None: ...

    @probe(attributes=lambda args, kwargs, result: {"x": kwargs["secret"]})
    def seek() -> None: ...

    trace = record(tmp_path, lambda: (find(), seek()), text=False)
    assert [span.attributes["number"] for span in trace.spans if "number" in span.attributes] == [3]
    manifest = (tmp_path / "run.json").read_text()
    assert "its capture raised KeyError" in manifest
    assert not any("secret" in file.read_text() for file in tmp_path.rglob("*.json*"))


def test_what_cannot_be_probed():
    """Classes and non-functions are refused, with the remedy."""
    with pytest.raises(TypeError, match="not the class str; put it on the methods"):
        probe(str)
    with pytest.raises(TypeError, match="not 3"):
        probe(3)  # type: ignore[call-overload]
