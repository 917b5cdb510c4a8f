"""A recording's files are read as they grow, are renamed, and are made one."""

from pathlib import Path

from tracellm.probes.otel.follow import Files

from tests.otel.sending import spans, write
from tracellm.trace import names, otlp
from tracellm.trace.model import Process


def test_lines_are_read_when_they_are_whole(tmp_path: Path):
    """A line that is being written is read when it is whole, a damaged one is left out, and so is another recording."""
    line = otlp.encode(Process(1, "main"), spans(3))
    (tmp_path / "old-1.jsonl").write_bytes(line)
    files = Files(tmp_path, ["old-1.jsonl"])
    file = tmp_path / "main-1.jsonl"
    file.write_bytes(b'{"resourceSpans": 1}\n' + line[:50])
    assert files.new(10) == []
    file.write_bytes(b'{"resourceSpans": 1}\n' + line)
    assert [span.name for span in files.new(10)] == ["0", "1", "2"]
    assert files.new(10) == []


def test_what_is_left_is_counted_as_it_would_be_sent(tmp_path: Path):
    """Of what was told of twice one counts, also of what never ended, and nothing that the program sends itself."""
    ended, more, under_way, own = spans(20)[:9], spans(20)[9:13], spans(20)[8:15], spans(20)[15:]
    for span in under_way:
        span.attributes = {names.OPEN: True}
    for span in own:
        span.attributes = {names.SENT: True}
    own[0].attributes[names.OPEN] = True
    files = write(tmp_path, under_way, ended, own, more)
    assert [span.name for span in files.new(1)] == [str(n) for n in (*range(9), *range(16, 20), *range(9, 13))]
    assert [span.name for span in files.never_ended()] == ["13", "14", "15"]
    assert Files(tmp_path).count_rest() == 9 + 4 + 2


def test_what_a_ring_holds_twice_is_left_once(tmp_path: Path):
    """With a ring the same spans may be in two files, and are counted as left once."""
    process = Process(1, "main")
    (tmp_path / "main-1.before.jsonl").write_bytes(otlp.encode(process, spans(6)[:4]))
    (tmp_path / "main-1.jsonl").write_bytes(otlp.encode(process, spans(6)[2:]))
    assert Files(tmp_path, ring=4).count_rest() == 6


def test_what_a_ring_lets_go_unread_is_counted(tmp_path: Path):
    """A file that is set aside is read on under its new name; what is lost when it goes is counted, once."""
    files = Files(tmp_path, ring=3)
    file, aside = tmp_path / "main-1.jsonl", tmp_path / "main-1.before.jsonl"
    lines = [otlp.encode(Process(1, "main"), [span]) for span in spans(9)]
    file.write_bytes(lines[0] + lines[1])
    assert [span.name for span in files.new(9)] == ["0", "1"]
    with file.open("ab") as stream:
        stream.write(lines[2])
    file.replace(aside)
    file.write_bytes(b"".join(lines[3:6]))
    assert [span.name for span in files.new(9)] == ["2", "3", "4", "5"]
    with file.open("ab") as stream:
        stream.write(lines[6] + lines[7])
    file.unlink()
    aside.unlink()
    (tmp_path / "settled").write_bytes(b"".join(lines[5:6] + lines[7:]))
    (tmp_path / "settled").replace(file)
    assert [span.name for span in files.new(9)] == ["7", "8"]
    assert files.let_go == 1


def test_what_came_and_went_between_two_looks_is_known_to_be_missing(tmp_path: Path):
    """Of files that a ring removed before anybody saw them, what was in them is counted by what was written in all."""
    files = Files(tmp_path, ring=2)
    file, aside = tmp_path / "main-1.jsonl", tmp_path / "main-1.before.jsonl"
    lines = [otlp.encode(Process(1, "main"), [span]) for span in spans(9)]
    file.write_bytes(lines[0])
    assert len(files.new(9)) == 1
    with file.open("ab") as stream:
        stream.write(lines[1])
    file.unlink()  # so have the files with 2 to 5 by then
    aside.write_bytes(lines[6] + lines[7])
    file.write_bytes(lines[8])
    assert [span.name for span in files.new(9)] == ["6", "7", "8"]
    assert (files.let_go, files.never_met(9)) == (1, 4)
    file.write_bytes(lines[7] + lines[8])
    aside.unlink()
    assert files.new(9) == []
    assert files.never_met(9) == 4
    assert Files(tmp_path).never_met(9) == 0, "without a ring nothing goes"


def test_what_the_program_sends_itself_is_not_let_go(tmp_path: Path):
    """A ring that removes unread spans lets go of those that were to be sent, and of no other."""
    files = Files(tmp_path, ring=1)
    file = tmp_path / "main-1.jsonl"
    first, own, other = spans(3)
    own.attributes = {names.SENT: True}
    file.write_bytes(otlp.encode(Process(1, "main"), [first]))
    assert len(files.new(9)) == 1
    with file.open("ab") as stream:
        stream.write(otlp.encode(Process(1, "main"), [own, other]))
    file.unlink()
    assert files.new(9) == []
    assert files.let_go == 1
