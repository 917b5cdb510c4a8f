"""The table of names under `--engine tracellm`, compared with tracellm and a real vLLM."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.real_vllm import require_vllm
from tracellm.as_vllm.table import HOMES

DOCUMENTS_ONLY = {("vllm", "AsyncLLM")}
"""Names that the documents import, but no vLLM has in that module."""

_SERVING = ("chat", "completion", "embedding", "engine", "models", "pooling", "responses", "score")
MOVED_SINCE = {
    ("vllm.inputs", "TokenInputs"),
    ("vllm.sampling_params", "GuidedDecodingParams"),
    ("vllm.v1.attention.backends.utils", "AttentionMetadataBuilder"),
    ("vllm.beam_search", None),
    *(("vllm.model_executor.layers.pooler", name) for name in ("AllPool", "CLSPool", "LastPool", "MeanPool")),
    *(("vllm.model_executor.layers.pooler", name) for name in ("DispatchPooler", "EmbeddingPoolerHead", "Pooler")),
    *(
        (module, None)
        for module in (
            *("vllm.inputs.data", "vllm.inputs.preprocess", "vllm.attention.layer", "vllm.v1.engine.processor"),
            "vllm.attention.backends.abstract",
            *(f"vllm.entrypoints.openai.serving_{one}" for one in _SERVING),
            *("vllm.entrypoints.openai.serving_tokenization", "vllm.entrypoints.openai.protocol"),
        )
    ),
}
"""Names and modules of 0.11.1 that 0.32.0 moved or removed."""


@pytest.mark.parametrize("module", HOMES)
def test_every_name_is_one_of_tracellm(module: str) -> None:
    """Every name in the table exists in tracellm."""
    for name, (home, ours) in HOMES[module].items():
        assert hasattr(import_module(home), ours), f"{module}.{name} should be {home}.{ours}"


def test_every_name_is_one_of_vllm() -> None:
    """A real vLLM has each name in that module, except those that moved after 0.11.1."""
    (packages,) = (require_vllm().parents[1] / "lib").glob("python3*/site-packages")
    lacking: set[tuple[str, str | None]] = set()
    for module, names in HOMES.items():
        path = packages.joinpath(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.exists():
            lacking |= {(module, name) for name in names.keys() - _names_in(file)}
        else:
            lacking.add((module, None))
    assert lacking >= DOCUMENTS_ONLY
    assert lacking <= DOCUMENTS_ONLY | MOVED_SINCE


def _names_in(file: Path) -> set[str]:
    """Return the names that a module defines or imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
