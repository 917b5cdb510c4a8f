"""The page about a real vLLM, compared with the recordings, and these with the installed vLLM."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from scripts import vllm_docs
from scripts.make_docs import filled
from scripts.vllm_runs import RUNS, VERSIONS, printed, unpack
from scripts.vllm_tables import changes_table, clients_table, home_of, path_table, way_table
from tests.real_vllm import InOneProcess
from tracellm.probes.catalog.vllm import CATALOG
from tracellm.probes.wrapping.probe import path_of
from tracellm.report.texts import Language
from tracellm.trace import names
from tracellm.trace.expect import check, read
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
SAY = vllm_docs._SAY["en"]
PAGE = ROOT / vllm_docs.PAGES["en"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recordings of both versions, and one of the same script on this engine."""
    folder = tmp_path_factory.mktemp("vllm")
    vllm_docs.record(folder)
    return folder


@pytest.mark.parametrize("lang", list(vllm_docs.PAGES))
def test_pages_say_what_the_recordings_say(lang: Language, recordings: Path) -> None:
    """The page's generated parts are those of the recordings."""
    page = (ROOT / vllm_docs.PAGES[lang]).read_text(encoding="utf-8")
    made = vllm_docs.blocks(lang, recordings)
    assert all(f"<!-- made: {name} -->" in page for name in made)
    assert filled(page, made) == page, f"{vllm_docs.PAGES[lang]} is stale: run `python -m scripts.vllm_docs`"


def _calls(*traces: Trace) -> Iterator[Span]:
    for trace in traces:
        yield from (span for span in trace.spans if _function(span).startswith("vllm."))


def _function(span: Span) -> str:
    return str(span.attributes.get(names.CODE_FUNCTION, ""))


@pytest.mark.parametrize("version", VERSIONS)
def test_recordings_have_what_the_catalog_has(version: str, recordings: Path) -> None:
    """The catalog names every vLLM call in the recordings; otherwise they are outdated."""
    targets = [target for entry in CATALOG for target in entry.targets]
    known = [target.replace(":", ".") for target in targets]
    alone = {path_of(target) for target in targets}  # functions: matched by name, whatever module imports them
    traces = [RunFolder.open(recordings / version / run).trace for run in RUNS]
    found = {_function(span) for span in _calls(*traces)}
    assert len(found) > 100
    unknown = {
        function
        for function in found
        if "<locals>" not in function  # replaced by a decorator
        and function.rpartition(".")[2] not in alone
        and not any(fnmatchcase(function, target) for target in known)
    }
    assert not unknown, "record them anew: python -m scripts.vllm_runs"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_calls_what_its_versions_table_says(version: str, recordings: Path) -> None:
    """The recording of each version's server has all calls of its table, in order."""
    expected = read(str(ROOT / "docs" / "expectations" / f"vllm-{version}-serve.tsv"))
    result = check(RunFolder.open(recordings / version / "serve").trace, expected)
    assert result.misses == ()
    assert result.matched == len(expected.arrows) >= 59


def test_the_documents_answers_are_on_the_page(recordings: Path) -> None:
    """The page's sentences about clients and renamed classes are true for both versions."""
    runs = {version: {run: RunFolder.open(recordings / version / run) for run in RUNS} for version in VERSIONS}
    for of in runs.values():
        rows = clients_table([("", run, of[run]) for run in RUNS], SAY, PAGE).splitlines()[2:]
        clients = ["InprocClient", "SyncMPClient", "AsyncMPClient"]
        assert [client in row for client, row in zip(clients, rows, strict=True)] == [True, True, True]
    changed = changes_table({version: [one.trace for one in of.values()] for version, of in runs.items()}, SAY, PAGE)
    assert "| another class | `Processor` | [`InputProcessor`]" in changed
    for trace in (one.trace for of in runs.values() for one in of.values()):
        assert any(_function(span).endswith(".sample_tokens") for span in trace.spans)
    assert home_of("InputProcessor") == ROOT / "tracellm/engine/frontend/processor.py"
    assert home_of("NoSuchClass") is None


@pytest.fixture(params=["in-process", "two-processes"])
def at_hand(request: pytest.FixtureRequest) -> tuple[str, RunFolder, str]:
    """The example with the installed vLLM: name of the run, its folder, and its output."""
    if request.param == "in-process":
        one: InOneProcess = request.getfixturevalue("in_one_process")
        return request.param, RunFolder.open(one.folder / request.param), one.results["printed"]
    folder: Path = request.getfixturevalue("two_processes")
    return request.param, RunFolder.open(folder), printed(folder)


def test_the_vllm_at_hand_does_what_its_recording_says(at_hand: tuple[str, RunFolder, str], tmp_path: Path) -> None:
    """A new run has the recording's output, client, rule, and path to `step_fn`."""
    run, now, said = at_hand
    installed = str(now.manifest["versions"]["vllm"])
    unpack(next(version for version in VERSIONS if installed.startswith(version)), tmp_path)
    assert said == printed(tmp_path / run)
    kept = RunFolder.open(tmp_path / run)
    assert clients_table([("", "", now)], SAY, PAGE) == clients_table([("", "", kept)], SAY, PAGE)
    if run == "in-process":
        assert path_table({"": now.trace}, SAY, PAGE) == path_table({"": kept.trace}, SAY, PAGE)
        assert {_function(span) for span in _calls(now.trace)} == {_function(span) for span in _calls(kept.trace)}
    else:
        for found in (("SyncMPClient.get_output",), vllm_docs._EXECUTORS):
            assert way_table({"": now.trace}, found, SAY, PAGE) == way_table({"": kept.trace}, found, SAY, PAGE)
