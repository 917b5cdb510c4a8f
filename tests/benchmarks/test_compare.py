"""benchmarks/compare.py: engine processes, equal outputs, and the tables on the page."""

import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import compare
from benchmarks.compare import PAGES
from benchmarks.compared import process, protocol, rounds
from benchmarks.compared.agreement import compare_outputs
from benchmarks.compared.process import EngineFailed, EngineProcess, environment
from benchmarks.compared.protocol import Engine
from benchmarks.compared.rounds import PEERS, REFERENCE, WAYS, WAYS_ON, Plan, measure
from benchmarks.compared.shapes import SHAPES, Shape
from benchmarks.compared.tables import HEADS, NOT_MEASURED, TITLES, comparison
from benchmarks.compared.tracellm_engine import Tracellm
from benchmarks.compared.transformers_engine import Transformers
from tracellm.bench import machine
from tracellm.bench.workload import Lengths, Workload

ROOT = Path(__file__).parents[2]
TINY = Shape(("tiny", "tiny"), None, 3, Lengths(3, 9), Lengths(2, 4), decode_inputs=4, decode_outputs=4)
SILENT: Any = lambda message: None  # noqa: E731


class InProcessEngine:
    """Substitute for `EngineProcess` that runs the engine in this process, to save imports."""

    def __init__(self, module: str, python: str, settings: dict[str, Any], threads: int, log: Path) -> None:
        engines = {"tracellm_engine": Tracellm, "transformers_engine": Transformers}
        self._engine: Engine = engines[module](settings)
        self.about = self._engine.about()
        self.gaps = self._engine.gaps

    def turn(self, way: str, workload: Workload) -> dict[str, Any]:
        """See `EngineProcess.turn`."""
        return protocol._turn(self._engine, way, workload.prompts, workload.lengths)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A short comparison of this engine with transformers, on the bundled model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "_BYTES", 1 << 16)
        patch.setattr(machine, "_SIDES", (16,))
        patch.setattr(torch, "set_num_threads", lambda count: None)
        patch.setattr(rounds, "EngineProcess", InProcessEngine)
        ways = [way for way in WAYS_ON["cpu"] if way != "vllm"]
        pythons = dict.fromkeys(WAYS.values(), sys.executable)
        plan = Plan(ways, "float32", 1, 1, pythons, tmp_path_factory.mktemp("compare"), log=SILENT)
        return measure("toy", TINY, plan)


def test_all_ways_generate_the_same(figures: dict[str, Any]) -> None:
    """In float32 all variants of tracellm and transformers generate the same tokens."""
    for way in figures["ways"].values():
        assert way["float32"] == {"requests": 3, "same": 3, "first": None, "gap": None}
        assert len(way["seconds"]) == 1
        assert way["whole"]["median"] > 0
        assert way["of_limit"] > 0
    assert list(figures["about"]) == ["tracellm_engine", "transformers_engine"]


@pytest.mark.parametrize("lang", PAGES)
def test_the_page_has_the_rows_of_the_command(figures: dict[str, Any], lang: str) -> None:
    """The page has a table for each model, with the rows and columns that the command writes."""
    ways = dict.fromkeys(TITLES, figures["ways"]["tracellm"]) | figures["ways"]
    for way in ways.values():
        way["bfloat16"] = {"requests": 3, "same": 2, "first": 4, "gap": 0.02}
    page = PAGES[lang].read_text(encoding="utf-8")
    column = list(PAGES).index(lang)
    for name, shape in SHAPES.items():
        shown = re.search(rf"<!-- made: compare-{re.escape(name)} -->\n(.*?)<!-- end -->", page, re.DOTALL)
        assert shown is not None, name
        if shown[1] == NOT_MEASURED[lang]:
            continue
        (dtype,) = re.findall(r"\b(bfloat16|float32)[,，]", shown[1])
        rows = [row[0] for row in _cells(shown[1])]
        shown_ways = {way: ways[way] for way in WAYS_ON[shape.device] if TITLES[way][column] in rows}
        assert {REFERENCE, PEERS[shape.device]} <= shown_ways.keys()
        page_figures = {"ways": shown_ways, "shape": name, "dtype": dtype, "device": shape.device}
        table = comparison({**figures, **page_figures}, lang, "x", "y")
        assert _cells(table) == _cells(shown[1])
        assert shape.title[column] in shown[1]
    table = comparison({**figures, "ways": ways, "dtype": "bfloat16"}, lang, "COMMAND", "MACHINE")
    assert [row[0] for row in _cells(table)] == [HEADS[0][column], "---", *(title[column] for title in TITLES.values())]
    assert "2 / 3" in table
    assert "COMMAND" in table
    assert "0.02" in table


def _cells(table: str) -> list[list[str]]:
    """Return the first cell of every row, and all cells of the head."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return [rows[0], *([row[0]] for row in rows[1:])]


@pytest.mark.parametrize(
    ("name", "parameters"), [("0.5B", 494_032_768), ("1.5B", 1_543_714_304), ("0.6B", 596_049_920)]
)
def test_shapes_are_those_of_qwen(name: str, parameters: int) -> None:
    """The random models have the number of parameters of the Qwen model of that size."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        config = SHAPES[name].config
        assert config is not None
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@given(st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(0, 5)), min_size=1))
def test_where_outputs_part(cases: list[tuple[list[int], int]]) -> None:
    """Each difference has its request, its position and the two tokens."""
    outputs = [ids for ids, _ in cases]
    other_outputs = [[*ids[:position], *(token + 1 for token in ids[position:])] for ids, position in cases]
    agreement = compare_outputs(outputs, other_outputs)
    assert agreement.same == sum(position >= len(ids) for ids, position in cases)
    for difference in agreement.differences:
        ids, position = cases[difference.request]
        assert (difference.position, difference.first, difference.second) == (
            position,
            ids[position],
            ids[position] + 1,
        )
    assert agreement.first == min((difference.position for difference in agreement.differences), default=None)


ENGINE = """
import sys
sys.path.insert(0, {root!r})
from benchmarks.compared.protocol import Engine, answer

class Counting(Engine):
    def __init__(self, settings):
        print("loading", settings["model"])
        if settings["model"] == "none":
            raise ValueError("no such model")
    def about(self):
        return {{"counting": "1"}}
    def generate(self, way, prompts, lengths):
        if way == "short":
            return [[] for _ in prompts]
        if way == "die":
            print("dying", file=sys.stderr)
            sys.stderr.flush()
            import os
            os._exit(3)
        return [[prompt[-1] + 1 + i for i in range(length)] for prompt, length in zip(prompts, lengths)]

answer(Counting)
"""


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small engine instead of the package's."""
    (tmp_path / "counting.py").write_text(ENGINE.format(root=str(ROOT)))
    monkeypatch.setattr(process, "_HERE", tmp_path)
    return tmp_path


def test_an_engine_is_asked(engines: Path) -> None:
    """An engine replies with versions, tokens and its own time, and its other output goes to the log."""
    with EngineProcess("counting", sys.executable, {"model": "some"}, 1, engines / "log") as engine:
        assert engine.about == {"counting": "1"}
        result = engine.turn("", Workload([[1, 2], [7]], [2, 3]))
        assert result["token_ids"] == [[3, 4], [8, 9, 10]]
        assert result["seconds"] >= 0
        with pytest.raises(EngineFailed, match=r"asked for \[1\] tokens, got \[0\]"):
            engine.turn("short", Workload([[1]], [1]))
        with pytest.raises(EngineFailed, match="dying"):
            engine.turn("die", Workload([[1]], [1]))
    assert (engines / "log").read_text().startswith("loading some")


def test_an_engine_that_cannot_be_made(engines: Path) -> None:
    """If no engine can be made, the error has the reason from its process."""
    with pytest.raises(EngineFailed, match="no such model"):
        EngineProcess("counting", sys.executable, {"model": "none"}, 1, engines / "log")


def test_all_engines_get_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All engines get the number of threads, and none of this process's settings."""
    monkeypatch.setenv("TRACELLM_OPS", "torch")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0")
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    variables = environment(tmp_path / "bin" / "python", 3)
    assert variables["OMP_NUM_THREADS"] == "3"
    assert variables["LD_PRELOAD"] == str(tmp_path / "lib" / "libiomp5.so")
    assert not {"TRACELLM_OPS", "VLLM_CPU_OMP_THREADS_BIND"} & set(variables)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--write", "--repeats", "2"], "the documentation needs 5 rounds of tracellm and vllm"),
        (["--write", "--ways", "tracellm", "transformers"], "the documentation needs 5 rounds of tracellm and vllm"),
        (["--write", "--requests", "2"], "the documentation needs 5 rounds of tracellm and vllm"),
        (["--only", "0.6B"], "0.6B is for a GPU: there is none here"),
        (["--ways", "tracellm-torch"], "tracellm-torch is not measured on a CPU"),
        (["--vllm", "nowhere"], "there is no vLLM at nowhere: scripts/install-vllm.sh makes one"),
    ],
)
def test_what_is_refused(
    wrong: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Too few rounds for the documentation, and variants or devices that are missing, are refused in one line."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["compare.py", "--vllm", sys.executable, *wrong])
    with pytest.raises(SystemExit):
        compare.main()
    assert message in capsys.readouterr().err


def test_pytorchs_operations_are_a_way_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, the engine with PyTorch's operations is a variant with its own process."""
    settings_by_log = {}

    class RecordingEngine(InProcessEngine):
        def __init__(self, module: str, python: str, settings: dict[str, Any], threads: int, log: Path) -> None:
            settings_by_log[log.stem] = settings
            super().__init__(module, python, settings, threads, log)

    monkeypatch.setattr(rounds, "EngineProcess", RecordingEngine)
    monkeypatch.setattr(rounds, "measure_ceilings", lambda dtype, device: machine.Ceilings(1e9, 1e9, "float32"))
    monkeypatch.delenv("TRACELLM_OPS", raising=False)
    monkeypatch.setenv("TRACELLM_OPS", "cpu")  # so that it is restored
    ways, threads = ["tracellm", "tracellm-torch"], torch.get_num_threads()
    plan = Plan(ways, "float32", threads, 1, {"tracellm_engine": ""}, tmp_path, log=SILENT)
    measured = measure("toy", replace(TINY, device="cuda", kv_tokens=100), plan)
    assert [settings_by_log[way].get("ops") for way in ("tracellm_engine", "tracellm-torch")] == [None, "torch"]
    assert {settings["kv_cache_tokens"] for settings in settings_by_log.values()} == {228}
    assert measured["ways"]["tracellm-torch"]["float32"]["same"] == 3
    assert os.environ["TRACELLM_OPS"] == "torch"
    table = comparison(measured, "en", "x", "y")
    assert "times PyTorch" in table
    assert "| 1.00 |" in table.splitlines()[3]


def test_figures_can_be_kept(figures: dict[str, Any]) -> None:
    """All figures are plain data, for --json."""
    assert json.loads(json.dumps(figures)) == figures
    assert rounds.REFERENCE in figures["ways"]
