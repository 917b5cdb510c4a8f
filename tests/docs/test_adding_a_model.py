"""The model of docs/adding-a-model.md, added with the page's code and compared with transformers."""

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import tests.checkpoints as checkpoints
import tests.engine.models.test_against_transformers as held
import tests.engine.models.variants as variants
from tracellm.engine.model_executor.models import registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "adding-a-model.md", ROOT / "docs" / "zh" / "adding-a-model.md"]
MODULE = "tracellm.engine.model_executor.models.olmo2"


def blocks(page: Path) -> dict[str, str]:
    """Return a page's code blocks by the comments before them."""
    return dict(re.findall(r"(?ms)^<!-- ([\w-]+).*? -->\n```python\n(.*?)^```", page.read_text(encoding="utf-8")))


def as_dict(lines: str, names: dict[str, Any]) -> dict[str, Any]:
    """Return entries of a dictionary from their source on the page."""
    found: dict[str, Any] = eval(compile(ast.parse(f"{{{lines}}}", mode="eval"), "page", "eval"), names)
    return found


def test_both_languages_show_the_same_code() -> None:
    """Both pages show the code that this module runs."""
    english, chinese = map(blocks, PAGES)
    assert set(english) == {"file", "registry", "family", "variant"}
    assert chinese == english


def test_the_model_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the page's code, the new model has the logits and tokens of transformers."""
    shown = blocks(PAGES[0])
    file = tmp_path / "olmo2.py"
    file.write_text(shown["file"], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, MODULE, module)
    spec.loader.exec_module(module)
    for table, entries in (
        (registry._MODELS, as_dict(shown["registry"], {})),
        (checkpoints.FAMILIES, family := as_dict(shown["family"], vars(checkpoints))),
        (variants.VARIANTS, {name: variants.Variant(name) for name in family}),
        (variants.VARIANTS, variant := as_dict(shown["variant"], vars(variants))),
    ):
        for name, entry in entries.items():
            monkeypatch.setitem(table, name, entry)
    for name in (*family, *variant):
        held.test_logits_equal_transformers(name, tmp_path / name)
    held.test_greedy_tokens_equal_transformers("olmo2", lambda family: tmp_path / family)
