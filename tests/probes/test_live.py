"""The live log of a run with several processes: everything once, in the order in which it ended."""

from pathlib import Path

from tracellm.probes.live import HOLD_NS, Follower, Live
from tracellm.probes.session import Recording
from tracellm.trace import names, otlp
from tracellm.trace.model import Process, Span

SECOND = 1_000_000_000


def span(name: str, end: float, *, is_open: bool = False) -> Span:
    """A span that ended at this second."""
    made = Span(name, "1" * 32, f"{hash(name) & (1 << 63) - 1 | 1:016x}", None, 0, int(end * SECOND))
    if is_open:
        made.attributes[names.OPEN] = True
    return made


def line(*spans: Span) -> bytes:
    """What another process writes."""
    return otlp.encode(Process(2, "EngineCore_0", {}), spans)


def test_the_follower_reads_what_is_added(tmp_path: Path):
    """Only ended spans of whole lines, each once; not its own file, and nothing damaged."""
    own, other = tmp_path / "main-1.jsonl", tmp_path / "EngineCore_0-2.jsonl"
    follower = Follower(tmp_path, own)
    assert list(follower.new()) == []
    own.write_bytes(line(span("own", 1)))
    torn = line(span("d", 4))
    other.write_bytes(line(span("a", 1), span("b", 2, is_open=True)) + b"no json\n" + line(span("c", 3)) + torn[:20])
    assert [one.name for one in follower.new()] == ["a", "c"]
    assert list(follower.new()) == []
    with other.open("ab") as stream:
        stream.write(torn[20:])
    assert [one.name for one in follower.new()] == ["d"]
    assert follower.count == 3
    follower.close()


def test_the_follower_leaves_out_what_nobody_wants(tmp_path: Path):
    """Of calls with other names only those are read that tell more than any call; all of them are counted."""
    follower = Follower(tmp_path, tmp_path / "main-1.jsonl", names=["wanted"])
    plain, wanted, sends, fails = (span(name, 1) for name in ("plain", "wanted", "sends", "fails"))
    for one in (plain, wanted, sends, fails):
        one.attributes = {names.LIFELINE: "A", names.ARGUMENTS: ["x=1"]}
    sends.attributes[names.MESSAGE_OPERATION] = "send"
    fails.error = "ValueError"
    lasts = span("plain", 1, is_open=True)
    (tmp_path / "EngineCore_0-2.jsonl").write_bytes(line(plain, wanted, lasts, sends, fails) + line(plain))
    assert [one.name for one in follower.new()] == ["wanted", "sends", "fails"]
    assert follower.count == 5
    follower.close()


def test_the_follower_of_a_ring(tmp_path: Path):
    """A file that is set aside is read on, what is in the next one again comes once; of its own process it reads
    neither file."""
    other = tmp_path / "EngineCore_0-2.jsonl"
    (tmp_path / "main-1.before.jsonl").write_bytes(line(span("own", 1)))
    follower = Follower(tmp_path, tmp_path / "main-1.jsonl", ring=2)
    other.write_bytes(line(span("a", 1)))
    assert [one.name for one in follower.new()] == ["a"]
    with other.open("ab") as stream:
        stream.write(line(span("b", 2)))
    other.rename(tmp_path / "EngineCore_0-2.before.jsonl")
    other.write_bytes(line(span("b", 2), span("c", 3)))
    assert [one.name for one in follower.new()] == ["b", "c"]
    assert follower.count == 3
    follower.close()


def test_alone_nothing_is_held_back(tmp_path: Path):
    """In a run of one process each span is told at once."""
    heard: list[Span] = []
    live = Live(heard.append, None, Follower(tmp_path, tmp_path / "main-1.jsonl"), lambda: False, lambda: 0)
    live(span("a", 1))
    assert [one.name for one in heard] == ["a"]
    live.look()
    live.end()
    assert len(heard) == 1


def test_others_are_told_in_their_place(tmp_path: Path):
    """Spans are held until those that ended before them in other processes must have come."""
    now = [2.0]
    heard: list[str] = []
    other = tmp_path / "EngineCore_0-2.jsonl"
    live = Live(
        lambda one: heard.append(one.name),
        None,
        Follower(tmp_path, tmp_path / "main-1.jsonl"),
        other.exists,
        lambda: int(now[0] * SECOND),
    )
    live(span("before", 1))
    other.write_bytes(line(span("first", 1.5)))
    live.look()
    live(span("third", 2.0))
    assert heard == ["before"]
    other.write_bytes(other.read_bytes() + line(span("second", 1.9), span("fourth", 2.1)))
    now[0] = 2.0 + HOLD_NS / SECOND
    live.look()
    assert heard == ["before", "first", "second", "third"]
    live.end()
    assert heard == ["before", "first", "second", "third", "fourth"]


def test_others_that_came_and_went_at_the_end(tmp_path: Path):
    """Those too are told in their place, which is before the script's own end."""
    heard: list[str] = []
    recording = Recording(tmp_path, catalog=(), listener=lambda one: heard.append(one.name), script="script.py")
    recording.start()
    (tmp_path / "trace" / "Worker_0-2.jsonl").write_bytes(line(span("work", 1)))
    recording.stop()
    assert heard == ["work", "script.py"]
