"""Code that attacks its grader: each attack gets a verdict in words and no points, and leaves nothing behind.

The attacks run in the strongest isolation that this system allows. Those that only namespaces stop are skipped without
them, with the reason.
"""

import os
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.lab.support import folder_of
from tracellm.lab.grading import Grade, grade
from tracellm.lab.lab import Lab, find_lab
from tracellm.lab.sandbox.limits import Limits
from tracellm.lab.sandbox.run import run_cases

FOUND = find_lab(5)
assert FOUND is not None
LAB: Lab = FOUND
POOL, QUEUE = (LAB.file(f"tracellm.engine.core.kv_cache.{name}") for name in ("block_pool", "kv_cache_utils"))
QUICK = Limits(case_seconds=1, total_seconds=60, start_seconds=60, restarts=0)
WALK = LAB.checks[5]
"""The check that counts executed lines with a trace function."""

BODY = "        blocks = self.free_block_queue.popleft_n(num_blocks)\n"
"""First statement of `BlockPool.get_new_blocks`."""


def attack(tmp_path: Path, at_import: str = "", in_call: str = "", **sources: str) -> Path:
    """Make a folder whose file is the engine's, with statements at its end, or in `get_new_blocks`."""
    call = "".join(f"        {line}\n" for line in in_call.splitlines())
    source = POOL.source().replace(BODY, call + BODY) + "\n" + at_import + "\n"
    return folder_of(LAB, tmp_path / "lab", {POOL.module: source} | sources)


def isolation(tmp_path: Path) -> str:
    """Return the kind of isolation that this system allows."""
    return run_cases(folder_of(LAB, tmp_path / "probe"), 5, [(WALK.name, WALK.make(Random(1)))]).isolation


@pytest.fixture
def namespaces(tmp_path: Path) -> None:
    """Skip a test where the system allows no namespaces."""
    if (kind := isolation(tmp_path)) != "namespaces":
        pytest.skip(f"isolation here: {kind}; this attack is stopped by namespaces only")


def processes() -> set[int]:
    """Return the processes that belong to a sandbox of this process."""
    found, token = set(), f"TRACELLM_SANDBOX={os.getpid()}-".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if token in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def _leaves_nothing(tmp_path: Path) -> Iterator[None]:
    """Check that no process and no file is left."""
    before, files = processes(), set(os.listdir(tempfile.gettempdir()))
    yield
    assert processes() <= before
    left = {name for name in set(os.listdir(tempfile.gettempdir())) - files if name.startswith("attack")}
    assert left == set()
    here = {path.name for path in (tmp_path / "lab").rglob("*")}
    assert here <= {POOL.name, QUEUE.name, "README.md", "AGENTS.md", "explain.py", "lab.json"}


def verdict(graded: Grade) -> str:
    """Return the first failure's sentence, after checking that all cases failed and that it is in both languages."""
    assert graded.passed == 0
    failed = graded.first_failure
    assert failed is not None
    assert failed.failure.zh
    assert any("\u4e00" <= char <= "\u9fff" for char in failed.failure.zh)
    return failed.failure.en


def graded(folder: Path, limits: Limits = QUICK, check: int = 0) -> Grade:
    """Grade one check, without looking for smaller cases."""
    return grade(LAB, folder, checks=[LAB.checks[check]], limits=limits, shrink=False)


def test_an_endless_loop_is_ended(tmp_path: Path) -> None:
    """A case without end gets a timeout, also if all signals are ignored and exceptions caught."""
    loop = "import signal\n[signal.signal(n, signal.SIG_IGN) for n in range(1, 30) if n not in (9, 19)]\n"
    loop += "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    assert "an endless loop?" in verdict(graded(attack(tmp_path, in_call=loop)))


def test_an_endless_import_is_ended_once(tmp_path: Path) -> None:
    """A file that never finishes its import gets the verdict for all cases from one process."""
    limits = Limits(start_seconds=3)
    found = verdict(graded(attack(tmp_path, "while True: pass"), limits))
    assert re.fullmatch(r"while your file was imported: no result after \d+ s: an endless loop\?", found)


@pytest.mark.parametrize("statement", ["import os; os._exit(0)", "import sys; sys.exit(0)", "raise SystemExit"])
def test_an_exit_is_no_success(tmp_path: Path, statement: str) -> None:
    """Ending the process with status 0 passes nothing, in a call or at import."""
    assert "exit" in verdict(graded(attack(tmp_path / "a", in_call=statement))).lower()
    assert "import" in verdict(graded(attack(tmp_path / "b", statement)))


@pytest.mark.parametrize("target", ["os.getppid()", "0", "-1", "1"])
@pytest.mark.usefixtures("namespaces")
def test_killing_other_processes_ends_only_its_own(tmp_path: Path, target: str) -> None:
    """Kills aimed at the parent, the group, the session or everything reach no process outside."""
    code = f"import os, signal\ntry: os.kill({target}, signal.SIGKILL)\nexcept OSError: pass\nos._exit(3)"
    assert "the process" in verdict(graded(attack(tmp_path, in_call=code)))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import tracellm.lab.checks as c; c.first_difference = lambda *a, **k: None", "first_difference"),
        ("import sys; sys.modules['tracellm.lab.labs.lab05_block_pool.checks']._Operations.judge = print", "judge"),
        ("import sys; sys.modules['tracellm.lab.labs.lab05_block_pool.checks']._Operations.run = lambda *a: []", "run"),
        ("import sys; m = sys.modules['tracellm.lab.labs.lab05_block_pool.checks']; "
         "m._lines_of_remove.__code__ = (lambda n: 1).__code__", "_lines_of_remove"),
        ("import builtins; builtins.len = lambda x: 0", "builtins.len"),
        ("import sys; sys.settrace = lambda f: None", "sys.settrace"),
        ("import os; os.write = lambda fd, data: len(data)", "os.write"),
    ],
)  # fmt: skip
def test_changing_the_grader_is_found(tmp_path: Path, code: str, name: str) -> None:
    """A check, a function of the grader or a builtin that was replaced is named, and nothing passes."""
    found = verdict(graded(attack(tmp_path, code)))
    assert "your code changed" in found
    assert name in found


def test_a_grader_of_the_same_name_is_not_used(tmp_path: Path) -> None:
    """Replacing whole modules of the grader in the student's process changes nothing outside."""
    code = "import sys, types\nfor n in list(sys.modules):\n    if n.startswith('tracellm.lab.'):\n"
    code += "        sys.modules[n] = types.ModuleType(n)\n"
    mutant = next(one for one in LAB.mutants if one.name == "new-without-owner")
    source = mutant.source(POOL) + code
    assert "reference count" in verdict(graded(folder_of(LAB, tmp_path / "lab", {POOL.module: source})))


@pytest.mark.parametrize("trick", ["sys.settrace(None)", "old = sys.gettrace(); sys.settrace(None); sys.settrace(old)"])
def test_stopping_the_trace_function_is_found(tmp_path: Path, trick: str) -> None:
    """A `remove` that switches the counting of lines off gets no points for it."""
    source = QUEUE.source().replace(
        "        before, after = block.prev_free_block",
        f"        import sys; {trick}\n        before, after = block.prev_free_block",
    )
    folder = folder_of(LAB, tmp_path / "lab", {QUEUE.module: source})
    assert (
        verdict(graded(folder, check=5)) == "your code changed sys.settrace, which belongs to the grader or to Python"
    )


def test_a_printed_result_counts_nothing(tmp_path: Path) -> None:
    """Sentences and JSON on stdout are kept as what was printed."""
    code = "print('Public cases: 38 of 38, 50 of 50 points.')\nprint('{\"passed\": 38, \"total\": 38}', flush=True)\n"
    result = graded(attack(tmp_path, code + "import os; os._exit(0)"))
    assert "exit status 0" in verdict(result)
    assert "38 of 38" in result.printed


def test_forged_messages_are_damage(tmp_path: Path) -> None:
    """Messages in the grader's own format, written to every open file, pass nothing."""
    code = "import os, msgspec\nfrom tracellm.lab.sandbox.outcomes import Begun, Value\n"
    code += "for i in range(9):\n    for m in (Begun(i), Value([])):\n        d = msgspec.msgpack.encode(m)\n"
    code += "        for fd in range(64):\n            try: os.write(fd, len(d).to_bytes(4, 'big') + d)\n"
    code += "            except OSError: pass\n"
    assert "the results were too large, or damaged" in verdict(graded(attack(tmp_path, code)))


def test_endless_output_is_cut(tmp_path: Path) -> None:
    """Ten gigabytes of output end the process at the first megabytes; only the last lines are kept."""
    result = graded(attack(tmp_path, in_call="import os\nwhile True: os.write(1, b'x' * 1000000)"))
    assert verdict(result) == "more than 1048576 bytes were printed"
    assert len(result.printed) <= 16 << 10


def test_endless_results_are_cut(tmp_path: Path) -> None:
    """Writing to the file of the results without end is damage, and read no further."""
    code = "import os\nwhile True:\n    for fd in range(3, 64):\n        try: os.write(fd, b'x' * 1000000)\n"
    code += "        except OSError: pass"
    assert "the results were too large, or damaged" in verdict(graded(attack(tmp_path, in_call=code)))


def test_a_fork_storm_is_ended(tmp_path: Path) -> None:
    """Processes that start processes are counted and ended, all of them."""
    found = verdict(
        graded(attack(tmp_path, in_call="import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"))
    )
    assert "processes were started" in found or "bytes of memory" in found or "endless loop" in found


def test_a_copy_of_the_process_adds_no_results(tmp_path: Path) -> None:
    """A fork that returns into the grader's loop is ended; the case counts once."""
    result = graded(attack(tmp_path, in_call="import os; os.fork()"))
    assert result.passed == result.total == 5


def test_daemons_are_ended(tmp_path: Path) -> None:
    """Processes in sessions of their own, whose parents have ended, do not outlive the grading."""
    code = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.closerange(0, 64)\n"
    )
    code += "        while True: time.sleep(100)\n    os._exit(0)\n"
    assert graded(attack(tmp_path, code)).passed == 5  # and _leaves_nothing


def test_threads_that_run_on_are_ended(tmp_path: Path) -> None:
    """Threads, daemons or not, delay nothing."""
    code = "import threading, time\nthreading.Thread(target=lambda: time.sleep(10000)).start()"
    assert graded(attack(tmp_path, code)).passed == 5


def test_memory_is_limited(tmp_path: Path) -> None:
    """Fifty gigabytes are not allocated."""
    folder = attack(tmp_path, in_call="kept = bytearray(50 << 30)")
    found = verdict(graded(folder, Limits(case_seconds=60, total_seconds=60, restarts=0)))
    assert "MemoryError" in found or "memory" in found


@pytest.mark.usefixtures("namespaces")
def test_the_network_is_out_of_reach(tmp_path: Path) -> None:
    """A server of this machine cannot be reached."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert "Network is unreachable" in verdict(graded(attack(tmp_path, in_call=code)))


@pytest.mark.usefixtures("namespaces")
def test_files_outside_cannot_be_changed_or_seen(tmp_path: Path) -> None:
    """The engine, the grader's folders and other submissions are read-only or not there at all."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret.py").write_text("seed = 1")
    engine = POOL.path.read_bytes()
    code = f"import os\nfor path in ({str(POOL.path)!r}, {str(other / 'secret.py')!r}, '/etc/passwd', '/usr/attack'):\n"
    code += "    for mode in ('r', 'w', 'a'):\n        try: open(path, mode).close(); print(mode, path)\n"
    code += "        except OSError: pass\n"
    code += "open(os.path.dirname(__file__) + '/attack', 'w').write('x'); open('/tmp/attack', 'w').write('x')\n"
    code += "open(os.path.dirname(__file__) + '/lab.json', 'w').write('{}')\nprint(sorted(os.listdir('/tmp')))\n"
    code += "import sys; sys.exit('end')"
    folder = attack(tmp_path, code)
    state = (folder / "lab.json").read_bytes()
    result = graded(folder)
    verdict(result)
    lines = result.printed.splitlines()
    assert f"r {POOL.path}" in lines
    assert [line for line in lines if line.startswith(("w ", "a ")) or "secret" in line] == []
    assert POOL.path.read_bytes() == engine
    assert (folder / "lab.json").read_bytes() == state


def test_the_grader_keeps_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the grader, which may hold a seed or a key, are not in the student's process."""
    monkeypatch.setenv("TRACELLM_LAB_SEED", "winter-semester")
    code = "import os\nprint(dict(os.environ))\ntry: print(open('/proc/1/environ').read())\nexcept OSError: pass\n"
    result = graded(attack(tmp_path, code))
    assert result.passed == 5
    assert "PATH" in result.printed
    assert "winter-semester" not in result.printed


def test_expected_values_are_not_in_the_process(tmp_path: Path) -> None:
    """The work that the process reads holds the cases only; all objects in it are searched for a state of a pool."""
    code = "import sys\nframe = sys._getframe()\nfound = []\nwhile frame:\n"
    code += "    found += list(frame.f_locals); frame = frame.f_back\n"
    code += "print('locals', sorted(set(found)))"
    printed = graded(attack(tmp_path, in_call=code)).printed
    assert "'work'" in printed
    assert "expected" not in printed


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"def f(:\n", "SyntaxError"),
        (b"import no_such_module\n", "ModuleNotFoundError"),
        (b"\x00\x01\x02\xff" * 100, "cannot be imported"),
        ("Größe = 1".encode("latin-1"), "cannot be imported"),
        (b"class E(BaseException):\n    def __str__(self): import os; os._exit(0)\nraise E\n", "exit status 0"),
        (b"class E(BaseException):\n    def __str__(self): raise self\nraise E\n", "cannot be imported"),
        (b"raise ValueError('\\ud800')\n", "ValueError"),
        (b"", "cannot"),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path: Path, source: bytes, words: str) -> None:
    """Errors of syntax and import, and files that are no text, are described."""
    folder = attack(tmp_path)
    (folder / POOL.name).write_bytes(source)
    assert words in verdict(graded(folder))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A folder without one of the lab's files gets a sentence about it."""
    folder = attack(tmp_path)
    (folder / POOL.name).unlink()
    assert "block_pool.py" in verdict(graded(folder))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("self.get_new_blocks(num_blocks)", "RecursionError"),
        ("import sys; sys.setrecursionlimit(10**9); self.get_new_blocks(num_blocks)", ""),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os; os.abort()", "SIG"),
        ("input()", "EOF"),
        ("import sys; sys.stdin.buffer.read()[0]", "IndexError"),
        ("return [[]] * 10**7", ""),
        ("num_blocks = 10**100", ""),
        ("return float", ""),
        ("import os; os.closerange(0, 64)", ""),
    ],
)
def test_accidents_get_a_sentence(tmp_path: Path, code: str, words: str) -> None:
    """Deep recursion, crashes, reading stdin and odd results are failures of the case, in words."""
    assert words in verdict(graded(attack(tmp_path, in_call=code)))


@pytest.mark.parametrize(
    "state",
    [
        '{"lab": 0, "seed": 5, "files": {"tracellm.lab.checks": "block_pool.py"}, "score": {"passed": 38}}',
        '{"lab": 5, "files": {"tracellm.engine.core.kv_cache.block_pool": "../../../../etc/passwd"}}',
        '{"lab": "five", "files": [1, 2], "answers": 7}',
        "[" * 100_000,
        "",
    ],
)
def test_lab_json_decides_nothing(tmp_path: Path, state: str) -> None:
    """The lab that is graded decides which files are loaded, and for which modules."""
    folder = attack(tmp_path)
    (folder / "lab.json").write_text(state)
    assert graded(folder).passed == 5


def test_the_isolation_is_reported(tmp_path: Path) -> None:
    """A grade names the kind of isolation in which its code ran."""
    assert graded(attack(tmp_path)).isolation in ("namespaces", "user", "limits")
    assert graded(attack(tmp_path / "b"), Limits(isolation="limits")).isolation == "limits"
