"""The reading path: its files stay short, and a run executes its functions."""

import json
import subprocess
import sys
from pathlib import Path

from scripts.reading_docs import MAX_LINES, STOPS, blocks

ROOT = Path(__file__).parents[2]

_PROFILED = """
import json, runpy, sys
called = set()
def note(frame, event, argument):
    if event == "call" and "/tracellm/engine/" in frame.f_code.co_filename:
        called.add((frame.f_code.co_filename.partition("/tracellm/engine/")[2], frame.f_code.co_qualname))
sys.setprofile(note)
runpy.run_path("examples/hello.py", run_name="__main__")
sys.setprofile(None)
print(json.dumps(sorted(called)))
"""


def test_the_stops_can_be_read_in_an_afternoon() -> None:
    """All files of the twelve stops have at most 3,500 lines together."""
    assert len(STOPS) == 12
    assert sum(stop.num_lines for stop in STOPS) <= MAX_LINES


def test_a_run_executes_each_stop(monkeypatch) -> None:
    """examples/hello.py executes every function that the page points to, in the file named there."""
    monkeypatch.setenv("TRACELLM_OPS", "torch")  # the modules of the layers, not the fused call
    done = subprocess.run(
        [sys.executable, "-c", _PROFILED], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    )
    called = {tuple(one) for one in json.loads(done.stdout.splitlines()[-1])}
    missing = [
        (stop.files, function)
        for stop in STOPS
        for function in stop.functions
        if not any((file, function) in called for file in stop.files)
    ]
    assert missing == []


def test_the_table_is_that_of_the_files() -> None:
    """The table on each page has the files and their current number of lines."""
    for lang, page in (("en", "docs/reading.md"), ("zh", "docs/zh/reading.md")):
        for table in blocks(lang).values():
            assert table in (ROOT / page).read_text(encoding="utf-8"), f"{page} is stale: run `make docs`"
