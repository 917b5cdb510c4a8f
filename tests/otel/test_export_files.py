"""A recording's files are read as they grow, are renamed, and are made one."""

from pathlib import Path

from tests.otel.sending import spans, write
from tracellm.probes.otel.follow import Files
from tracellm.trace import otlp
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


def test_what_is_left_is_counted_without_being_read(tmp_path: Path):
    """The count of what is left is that of the spans that would have been given, whatever their texts say."""
    tricky = {"tracellm.request.prompt": '"startTimeUnixNano":"1" {"key":"tracellm.open","value":{"boolValue":true}}'}
    lines = [spans(4, attributes=tricky), spans(9), spans(2, attributes={"tracellm.open": True})]
    assert write(tmp_path, *lines).count_rest() == len(Files(tmp_path).new(100)) == 13


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
