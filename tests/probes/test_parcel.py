"""What is recorded in one process and told in another is told the same."""

import enum
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probes.test_scribe import made
from tracellm import LLM, SamplingParams, probe
from tracellm.probes.brief import OfNames
from tracellm.probes.catalog import CATALOG
from tracellm.probes.desk import Desk, Pause
from tracellm.probes.listeners import Listeners
from tracellm.probes.parcel import Packer, Unpacker
from tracellm.probes.scribe import Scribe, Written
from tracellm.probes.session import Recording
from tracellm.probes.spec import Probe
from tracellm.probes.state import Made, Note, Place, Told, state
from tracellm.trace.names import ARGUMENTS, RESULT
from tracellm.trace.run_folder import RunFolder


def told(problem: str) -> None:
    """There should be none."""
    raise AssertionError(problem)


def through(records: list[Any], packer: Packer | None = None) -> list[Any]:
    """The records as they arrive."""
    kind, content = Unpacker([]).unpack((packer or Packer(made(), told)).pack_records(records))
    assert kind == "take"
    return list(content)


def texts(records: list[Any]) -> list[str]:
    """What is written of records."""
    written = Written()
    Scribe(made(), Listeners([], told), told).write(records, written)
    return written.texts


def test_a_real_run_is_told_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of every record of a run of the engine, the text is what it would have been in its own process."""
    records: list[Any] = []
    take = Desk.take

    def keep(desk: Desk, some: Sequence[Any], pause: Pause) -> None:
        records.extend(some)
        take(desk, some, pause)

    monkeypatch.setattr(Desk, "take", keep)
    with Recording(tmp_path, apart=False):
        LLM(num_gpu_blocks_override=64).generate(["Hello", "Once upon"], SamplingParams(max_tokens=3, seed=1, top_k=9))
    assert len(records) > 200
    assert texts(through(records)) == texts(records)


def test_every_entry_of_the_catalog_can_be_sent():
    """What entries make of facts are functions by a name that the other process knows too, for any engine."""
    packer = Packer(made(), told)
    for entry in CATALOG:
        sent = Probe(entry.target, entry.level, attributes=entry.attributes, gives=entry.gives, observe=entry.observe)
        assert packer._can_send(sent), entry.target


class Colour(enum.StrEnum):
    """A text that is more than one."""

    RED = "red"


def test_plain_data_of_other_classes_arrives_as_plain_data():
    """Texts, numbers and tuples of classes that the other process lacks are sent as what they are."""
    kind = Probe("some", "step", capture=None)
    facts = (Colour.RED, True, Number.ONE, np.int64(7), {"k": [1.5, None]}, b"x")
    [(_, *_, arrived, _)] = through([(kind, 8, 7, None, None, 1, 2, 2, facts, None)])
    assert arrived == ("red", True, 1, 7, {"k": [1.5, None]}, b"x")
    assert [type(one) for one in arrived[:4]] == [str, bool, int, int]


def test_a_place_and_a_class_keep_what_matters():
    """Calls in one thread arrive in one place, those of a class with one that has its name."""
    kind = Probe("call", "layer", receiver="self")
    place = Place(5, "worker")
    calls = [(kind, n, 7, place, Colour, n, n + 1, n + 1, None, None) for n in (8, 9)]
    one, other = through(calls)
    assert one[0] is other[0]
    assert one[3] is other[3]
    assert (one[3].thread, one[3].thread_name) == (5, "worker")
    assert one[4] is other[4]
    assert one[4].__name__ == "Colour"


class Number(enum.IntEnum):
    """A number that is more than one."""

    ONE = 1


class Odd:
    """Of no use elsewhere."""

    def __str__(self) -> str:
        return "odd"


def test_what_users_functions_say_is_told_here():
    """An attributes function of a user's, which no other process has, is asked before the record is sent."""
    calls: list[Any] = []

    def say(facts: Any) -> dict[str, Any]:
        calls.append(facts)
        return {"said": str(facts)}

    kind = Probe("own", "step", span_name="own", users_attributes=say)
    record = (kind, 8, 7, None, None, 1, 2, 2, Odd(), None)
    [arrived] = through([record])
    assert len(calls) == 1
    assert texts([arrived]) == texts([record])
    assert '"odd"' in texts([arrived])[0]


def test_facts_that_cannot_be_sent_are_told_here():
    """Of a call whose facts hold an object, what its probe makes of them is sent; the others go as they are."""
    kind = Probe("odd", "step", span_name="odd", attributes=OfNames(("first",)))
    good = (kind, 8, 7, None, None, 1, 2, 2, (1, 2), None)
    bad = (kind, 9, 7, None, None, 1, 2, 2, (Odd(), 3), None)
    arrived = through([good, bad])
    assert (arrived[0][8], arrived[1][8]) == ((1, 2), ({ARGUMENTS: ["first=odd"], RESULT: "3"}, {}))
    assert texts(arrived) == texts([good, bad])


def test_what_cannot_be_sent_is_found_out_once(monkeypatch: pytest.MonkeyPatch):
    """Calls of a probe that was seen not to be of use elsewhere are told here from the start; others go as they are."""
    packer = Packer(made(), told)
    local = Probe("local", "step", span_name="local", attributes=lambda facts: {"n": facts})
    good = Probe("good", "step", span_name="good")

    def calls(first: int) -> list[Any]:
        return [(kind, first + n, 7, None, None, 1, 2, 2, n, None) for n, kind in enumerate((good, local, good, local))]

    unpacker = Unpacker([])
    arrived = [*unpacker.unpack(packer.pack_records(calls(10)))[1]]
    monkeypatch.setattr(Packer, "_sendable", None)
    monkeypatch.setattr(Packer, "_try", None)
    arrived += unpacker.unpack(packer.pack_records(calls(20)))[1]
    assert texts(arrived) == texts([*calls(10), *calls(20)])


def test_what_cannot_be_told_at_all_takes_no_others_with_it():
    """A record that holds what no other process knows, and of which nobody can tell here, is missing: that is told."""
    problems: list[str] = []
    kind = Probe("odd", "step", span_name="odd", attributes=lambda facts: {"of": facts})
    calls = [(kind, 8 + n, 7, None, None, 1, 2, 2, Odd() if n == 5 else n, None) for n in range(9)]
    arrived = through([*calls, Note(lambda ledger, facts: None, None)], Packer(made(), problems.append))
    assert [record[1] for record in arrived] == [8, 9, 10, 11, 12, 14, 15, 16]
    assert [problem.partition(", which")[0] for problem in problems] == [
        "a call cannot be recorded: it holds an object of Odd",
        "a call cannot be recorded: it holds an object of function",
    ]


def test_what_a_call_would_have_told_of_others_is_missed():
    """Of a call that is told here it is said that what it tells of others is not recorded."""
    problems: list[str] = []
    kind = Probe("odd", "step", span_name="odd", gives=OfNames(("n",)), gives_to=("Taker.take",))
    through([(kind, 8, 7, None, None, 1, 2, 2, Odd(), None)], Packer(made(), problems.append))
    assert problems == ["what a call of odd tells of other calls is not recorded"]


def test_a_span_under_way_that_cannot_be_told_now():
    """Others are; a user's span may be changing just when it is looked at."""

    def make(builder: Any) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    kind = Probe("call", "step")
    calls: dict[int, Any] = {8: Made(make, 8), 9: (kind, 7, None, None, 1)}
    assert list(Packer(made(), told).sendable_calls(calls)) == [9]


def test_what_users_told_of_a_call_is_told_in_plain_data():
    """Values of any class that users gave the current span arrive as OpenTelemetry would hold them."""
    [arrived] = through([Told(8, {"a": Odd(), "n": 1}, ("event", {"b": Odd()}, 5, False), (1, 2, {"c": Odd()}))])
    assert arrived == Told(8, {"a": "odd", "n": 1}, ("event", {"b": "odd"}, 5, False), (1, 2, {"c": "odd"}))


def test_a_message_that_is_lost_takes_only_its_own_records_with_it():
    """What a message that could not be written said of probes is said again in the next."""
    packer, unpacker = Packer(made(), told), Unpacker([])
    first, second = Probe("first", "step"), Probe("second", "step")
    for lost, probes in ((False, [first]), (True, [second]), (False, [second, first])):
        message = packer.pack_records([(one, 8, 7, None, None, 1, 2, 2, None, None) for one in probes])
        if lost:
            packer.forget_probes()
        else:
            _, records = unpacker.unpack(message)
            assert [record[0].method for record in records] == [one.method for one in probes]


def test_a_message_names_only_what_is_known():
    """A message that names anything but what belongs in one is refused, and nothing of it is called."""
    for bad in (pickle.dumps(("take", Path("x"))), b"cos\nsystem\n(S'true'\ntR.", pickle.dumps(exec)):
        with pytest.raises(pickle.UnpicklingError, match="not expected"):
            Unpacker([]).unpack(bad)


@probe(attributes={"kind": "bare"})
def bare(number: int) -> int:
    """Another one."""
    return number


def test_users_functions_are_sent_as_they_are(monkeypatch: pytest.MonkeyPatch):
    """What is recorded of them is plain data already, so nothing is told of it where the program wants to go on."""
    records: list[Any] = []
    monkeypatch.setattr(state, "append", records.append)
    assert own(1) + bare(2) == 3
    monkeypatch.setattr(Packer, "_sendable", None)
    assert texts(through(records)) == texts(records)
    assert '"bare"' in texts(records)[1]


@probe(attributes=lambda args, kwargs, result: {"number": args[0]})
def own(number: int) -> int:
    """A user's function."""
    return number


def test_users_functions_are_recorded_beside_the_engine(tmp_path: Path):
    """With a process that writes, too, a user's calls have their attributes, and the line that made them."""
    with Recording(tmp_path):
        for number in range(3):
            own(number)
    spans = RunFolder.open(tmp_path).trace.named("own")
    assert [span.attributes["number"] for span in spans] == [0, 1, 2]
    assert {Path(span.attributes["tracellm.caller.file"]).name for span in spans} == {Path(__file__).name}
