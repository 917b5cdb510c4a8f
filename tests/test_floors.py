"""The floors of the package: each imports only those below it, and heavy libraries are imported at their use."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ["engine", "trace", "probes", "report", "cli", "notebook"]
"""Floors from the ground up."""

ROOMS = {
    "probes": [
        "context", "wrapping", "record", "catalog", "spans", "install", "propagation", "otel", "export", "decorator",
        "overhead", "recording", "join",
    ],
    "report": [
        "texts", "wording", "facts", "tree", "diagram", "calltree", "requests_list", "steps_table", "step_text",
        "workers", "console", "html", "diff", "export",
    ],
}  # fmt: skip
"""The rooms of a floor, from the ground up."""

BESIDE = {
    "as_vllm": {"engine"},
    "bench": {"engine", "trace", "probes", "report"},
    "lab": {"engine", "trace", "probes", "report"},
    "plan": {"engine", "report"},
    "whatif": {"engine", "trace", "probes", "report"},
}
"""Packages beside the floors, each with the floors that it may use; only the command uses these packages."""

HEAVY = {"torch", "transformers", "tokenizers", "safetensors", "numpy", "opentelemetry"}


OPENTELEMETRY = {
    "opentelemetry.exporter.otlp.proto.grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.proto": "opentelemetry-proto",
    "opentelemetry.sdk": "opentelemetry-sdk",
}
"""Distributions of OpenTelemetry's modules; all others belong to the API's."""


def imports(file: Path) -> Iterator[tuple[str, int]]:
    """Return every module that a file imports, anywhere in it, with the line."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import hides which floor it reaches"
            assert node.module is not None
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def files_of(floor: str) -> list[Path]:
    """Return the modules of a floor."""
    files = sorted((ROOT / "tracellm" / floor).rglob("*.py"))
    files = [file for file in files if file.name != "explain.py" or "labs" not in file.parts]  # students' scripts
    assert files, f"there is no {floor}"
    return files


@pytest.mark.parametrize("floor", [*FLOORS, *BESIDE])
def test_imports_never_run_upward(floor: str) -> None:
    """A floor imports itself, the floors below it, and only the version from the top-level package."""
    allowed = {floor, *BESIDE[floor]} if floor in BESIDE else set(FLOORS[: FLOORS.index(floor) + 1])
    if floor in ("cli", "notebook"):
        allowed |= set(BESIDE)
    if floor == "trace":
        allowed.discard("engine")  # a recording can be read without the engine
    unexpected = []
    for file in files_of(floor):
        for name, line in imports(file):
            package, _, module = name.partition(".")
            if package == "tracellm" and module != "__version__" and module.partition(".")[0] not in allowed:
                unexpected.append(f"{file.relative_to(ROOT)}:{line} imports {name}")
    assert unexpected == []


@pytest.mark.parametrize("floor", ROOMS)
def test_rooms_use_only_rooms_below_them(floor: str) -> None:
    """Within a floor, a room imports itself and those below it, so there are no import cycles."""
    home, rooms = ROOT / "tracellm" / floor, ROOMS[floor]
    assert {path.stem for path in home.iterdir() if path.name not in ("__init__.py", "__pycache__")} == set(rooms)
    unexpected = []
    for file in files_of(floor):
        room = file.relative_to(home).parts[0].removesuffix(".py")
        allowed = rooms[: rooms.index(room) + 1] if room in rooms else rooms
        for name, line in imports(file):
            if name.startswith(f"tracellm.{floor}.") and name.split(".")[2] not in allowed:
                unexpected.append(f"{file.relative_to(ROOT)}:{line} imports {name}")
    assert unexpected == []


def run(code: str, *options: str) -> str:
    """Return the output of `code` in a fresh interpreter."""
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_engine_runs_without_the_other_floors(tmp_path: Path) -> None:
    """The engine generates from a package of only the engine and the bundled model."""
    package = tmp_path / "tracellm"
    package.mkdir()
    for name in ("engine", "tiny"):
        (package / name).symlink_to(ROOT / "tracellm" / name)
    (package / "__init__.py").write_text("")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from tracellm.engine.entrypoints.llm import LLM
from tracellm.engine.sample.sampling_params import SamplingParams
import tracellm
assert tracellm.__file__.startswith({str(tmp_path)!r})
llm = LLM(num_gpu_blocks_override=16, max_model_len=64)
print(len(llm.generate("Hello", SamplingParams(max_tokens=3, ignore_eos=True))[0].outputs[0].token_ids))
floors = {{name.split(".")[1] for name in sys.modules if name.startswith("tracellm.")}}
print(sorted(floors))
"""
    assert run(code).splitlines() == ["3", "['engine']"]


@pytest.mark.parametrize(
    "module", ["tracellm", "tracellm.cli.app", "tracellm.cli.commands.show", "tracellm.cli.explanation"]
)
def test_what_is_heavy_is_not_imported_early(module: str) -> None:
    """Importing the package, the command or the recorder imports neither torch nor transformers nor OpenTelemetry."""
    assert run(f"import sys, {module}\nprint(sorted({HEAVY!r} & set(sys.modules)))") == "[]"


def test_the_engine_is_not_touched_unless_asked() -> None:
    """Importing the recorder wraps nothing: the engine's functions are those of its source."""
    code = """
import tracellm.probes.recording, tracellm.probes.catalog
from tracellm.engine.core.core import EngineCore
print(EngineCore.step_fn.__code__.co_filename.endswith("core/core.py"), hasattr(EngineCore.step_fn, "__wrapped__"))
"""
    assert run(code) == "True False"


def test_a_report_needs_no_engine() -> None:
    """Reading and rendering a run imports no engine module, so it works without torch."""
    code = """
import sys
import tracellm.trace.run_folder, tracellm.cli.commands.show
import tracellm.report.calltree, tracellm.report.diagram.sequence, tracellm.report.steps_table, tracellm.report.html
print([name for name in sys.modules if name.startswith("tracellm.engine")])
"""
    assert run(code) == "[]"


def test_public_names_are_found_and_listed() -> None:
    """Every name in `tracellm.__all__` can be imported, and is listed by dir()."""
    import tracellm

    for name in tracellm.__all__:
        assert getattr(tracellm, name) is not None
    assert set(tracellm.__all__) <= set(dir(tracellm))


def test_every_library_that_is_imported_is_declared() -> None:
    """pyproject.toml names exactly the distributions that the package, or uvicorn for it, imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    extras = [line for name, lines in optional.items() if name != "dev" for line in lines]
    declared = {_normal(re.split(r"[><=\[ ]", line)[0]) for line in [*project["dependencies"], *extras]} - {"tracellm"}
    distributions_of = packages_distributions()
    used = set()
    for file in (ROOT / "tracellm").rglob("*.py"):
        for name, _ in imports(file):
            top = name.partition(".")[0]
            if top == "opentelemetry":  # a name shared by many distributions
                used.add(next((one for path, one in OPENTELEMETRY.items() if name.startswith(path)), f"{top}-api"))
            elif top not in sys.stdlib_module_names and top != "tracellm":
                used |= {_normal(distribution) for distribution in distributions_of.get(top, [top])}
    assert used == declared - {"httptools"}  # uvicorn imports it if it is there


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_constraints_pin_every_dependency() -> None:
    """constraints.txt pins every dependency of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in lines)
    pinned = {line.partition("==")[0] for line in lines}
    assert {_normal(re.split(r"[><=\[ ]", line)[0]) for line in requirements} - {"tracellm"} <= pinned


def test_every_module_says_what_it_is_and_is_short() -> None:
    """Each module opens with a docstring and stays below 800 lines."""
    for file in (file for floor in [*FLOORS, *BESIDE] for file in files_of(floor)):
        source = file.read_text(encoding="utf-8")
        assert not source.strip() or ast.get_docstring(ast.parse(source)), f"{file} has no docstring"
        assert len(source.splitlines()) <= 800, f"{file} is long; has it one subject?"
