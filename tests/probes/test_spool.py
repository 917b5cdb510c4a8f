"""Messages through files come whole and in order, whoever is faster, and leave nothing behind."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracellm.probes import spool
from tracellm.probes.spool import SpoolReader, SpoolWriter


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.binary(min_size=1, max_size=50), max_size=5), max_size=8), st.integers(0, 120))
def test_messages_come_whole_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[bytes]], size: int
):
    """Whenever one looks, all is there that was written until then, of however many files; no file is left."""
    folder = tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_LARGEST", size)
        writer = SpoolWriter(folder, "main-1")
        reader = SpoolReader(folder, "main-1")
        for messages in rounds:
            for message in messages:
                writer.write(message)
            assert [reader.read() for _ in messages] == messages
            assert reader.read() is None
    writer.close()
    reader.close()
    assert list(folder.iterdir()) == []


def test_half_a_message_is_none(tmp_path: Path):
    """A message that is being written is read when it is whole."""
    writer = SpoolWriter(tmp_path, "one")
    [file] = tmp_path.iterdir()
    reader = SpoolReader(tmp_path, "one")
    writer._add(b"\x05\x00")
    assert reader.read() is None
    writer._add(b"\x00\x00hal")
    assert reader.read() is None
    writer._add(b"ve")
    assert (reader.read(), reader.read()) == (b"halve", None)
    reader.close()
    writer.close()
    assert not file.exists()
