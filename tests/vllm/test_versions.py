"""Functions that versions of vLLM are known to lack."""

import pytest

from tracellm.probes.catalog.coverage import CatalogCoverage, is_known_to_lack
from tracellm.probes.catalog.entries import ADDED, REMOVED
from tracellm.probes.catalog.vllm import CATALOG
from tracellm.probes.install.catalog_check import examine

ENTRIES = {entry.target: entry for entry in CATALOG}


def test_only_what_has_no_other_name_is_known_to_be_lacking() -> None:
    """Only entries without another name are listed as added or removed."""
    assert {*REMOVED, *ADDED} <= ENTRIES.keys()
    assert [target for target in (*REMOVED, *ADDED) if ENTRIES[target].other_targets] == []


def test_probes_for_other_versions_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports and `tracellm doctor` count only the probes that the version can have."""
    found = CatalogCoverage(CATALOG)
    found.found(CATALOG[0])
    counts = {}
    for version in ("0.11.1", "0.32.0"):
        for module in ("catalog.coverage", "install.catalog_check"):
            monkeypatch.setattr(f"tracellm.probes.{module}.vllm_version", lambda version=version: version)
        assert found.engine is not None
        counts[version] = found.engine["probes"]
        lacking = sum(is_known_to_lack(version, target) for target in ENTRIES)
        assert lacking > 0
        of_vllm = sum(target.startswith("vllm.") for target in ENTRIES)
        assert counts[version] == of_vllm - lacking == examine()["probes"]
