"""The documentation agrees with real runs, and its links are valid."""

import re
from pathlib import Path

import pytest

from scripts import client_docs
from scripts.make_docs import MADE, PAGES, blocks, explain, filled, normal
from scripts.span_docs import known_spans
from tests.mermaid import ParseMermaid
from tracellm.report.texts import Language
from tracellm.trace import names
from tracellm.trace.run_folder import MANIFEST, RunFolder

ROOT = Path(__file__).parents[2]
MARKDOWN = sorted(
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if not path.name.startswith(".")
)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The runs of the three clients, for all languages, with their output."""
    folder = tmp_path_factory.mktemp("clients")
    return folder, client_docs.record(folder)


@pytest.fixture(scope="module", params=list(PAGES))
def made(
    request: pytest.FixtureRequest, clients: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Language, dict[str, str]]:
    """A language, and the generated parts of its pages from a new run."""
    lang: Language = request.param
    folder = tmp_path_factory.mktemp("docs") / "run"
    return lang, blocks(lang, folder, explain(lang, folder)) | client_docs.blocks(lang, *clients)


def test_pages_say_what_a_run_says(made: tuple[Language, dict[str, str]]) -> None:
    """Every output on a page is that of a new run, apart from times, memory and probabilities."""
    lang, now = made
    for name in PAGES[lang]:
        page = (ROOT / name).read_text(encoding="utf-8")
        assert MADE.search(page), f"{name} shows nothing that is made"
        assert normal(page) == normal(filled(page, now)), f"{name} is stale: run `make docs`"


def test_spans_and_attributes_are_documented(clients: tuple[Path, dict[str, str]]) -> None:
    """docs/spans.md lists every recorded span, with all of its attributes."""
    known = known_spans()
    runs = [RunFolder.open(folder.parent).trace for folder in clients[0].rglob(MANIFEST)]
    seen: set[str] = set()
    for span in (span for trace in runs for span in trace.spans):
        engine_call = str(span.attributes.get(names.CODE_FUNCTION, "")).startswith("tracellm.")
        defined = ".".join(str(span.attributes.get(names.CODE_FUNCTION)).rsplit(".", 2)[1:])
        documented = span.name in known or defined in known or span.name.rpartition(".")[2] in known
        assert documented or not engine_call, f"docs/spans.md does not know {span.name}"
        carried = [(span.name, span.attributes), *((f"event {one.name}", one.attributes) for one in span.events)]
        for on, attributes in carried:
            for name, value in attributes.items():
                attribute = names.ATTRIBUTES[name]
                assert on in attribute.on or not attribute.on, f"docs/spans.md does not know {name} on {on}"
                assert _type(value) in (attribute.type, "[]"), f"{name} of {on} is {value!r}"
                seen.add(name)
    assert {names.STEP_KIND, names.CLIENT_RULE, names.MESSAGE_ID, names.GEN_AI_OUTPUT_TOKENS} <= seen


def _type(value: object) -> str:
    """Return a value's type as on the page; an empty list has no element type."""
    if isinstance(value, list):
        return f"{type(value[0]).__name__}[]" if value else "[]"
    return type(value).__name__


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link and picture within the repository has a target."""
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_diagrams_are_mermaid(page: Path, parse_mermaid: ParseMermaid) -> None:
    """Every diagram on a page is valid Mermaid."""
    for diagram in re.findall(r"(?s)```mermaid\n(.*?)```", page.read_text(encoding="utf-8")):
        assert parse_mermaid(diagram)["type"] in ("sequence", "flowchart-v2", "flowchart")


def test_the_readme_is_short() -> None:
    """README has less than 80 lines, and its first commands are the two that set everything up."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    commands = re.findall(r"(?m)^(make \w+)", text)
    assert commands == ["make demo", "make test"]
