"""The documentation says what a run says, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

from scripts import client_docs
from scripts.make_docs import MADE, PAGES, blocks, explain, filled, normal
from tests.mermaid import ParseMermaid

ROOT = Path(__file__).parents[2]
MARKDOWN = sorted(
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if not path.name.startswith(".")
)


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The runs of the three clients, for all languages, and what they printed."""
    folder = tmp_path_factory.mktemp("clients")
    return folder, client_docs.record(folder)


@pytest.fixture(scope="module", params=list(PAGES))
def made(
    request: pytest.FixtureRequest, clients: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, str]]:
    """A language, and what a run now says in it."""
    lang = request.param
    folder = tmp_path_factory.mktemp("docs") / "run"
    return lang, blocks(lang, folder, explain(lang, folder)) | client_docs.blocks(lang, *clients)


def test_pages_say_what_a_run_says(made: tuple[str, dict[str, str]]) -> None:
    """Every output that a page shows is what the example says now, but for times, memory and probabilities."""
    lang, now = made
    for name in PAGES[lang]:
        page = (ROOT / name).read_text(encoding="utf-8")
        assert MADE.search(page), f"{name} shows nothing that is made"
        assert normal(page) == normal(filled(page, now)), f"{name} is stale: run `make docs`"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link and picture that points into the repository points at something that is there."""
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_diagrams_are_mermaid(page: Path, parse_mermaid: ParseMermaid) -> None:
    """Every diagram on a page is one that Mermaid reads, as GitHub will."""
    for diagram in re.findall(r"(?s)```mermaid\n(.*?)```", page.read_text(encoding="utf-8")):
        assert parse_mermaid(diagram)["type"] in ("sequence", "flowchart-v2", "flowchart")


def test_the_readme_is_short() -> None:
    """README is below two screens, and its first commands are the two that set everything up."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    commands = re.findall(r"(?m)^(make \w+)", text)
    assert commands == ["make demo", "make test"]
