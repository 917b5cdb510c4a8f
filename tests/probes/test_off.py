"""Zero cost without a recording: unrecorded functions are the original objects."""

import concurrent.futures.thread
import importlib
import multiprocessing.process
import pkgutil
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import tracellm.engine
from tracellm.engine.executor import ray_executor
from tracellm.probes.catalog import CATALOG
from tracellm.probes.install.installation import Installation
from tracellm.probes.install.selection import Selection
from tracellm.probes.recording import Recording
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace.names import LEVELS, Level

ThreadContext = tuple[Any, str]
"""A module or a class, a name in it, and the object of that name."""

LIBRARIES = [
    threading.Thread,
    concurrent.futures.thread.ThreadPoolExecutor,
    multiprocessing.process.BaseProcess,
    subprocess.Popen,
    ray_executor.RayDistributedExecutor,
    ray_executor.RayWorkerProc,
]
"""Classes in which a recording may replace functions that start threads and processes."""


@pytest.fixture(scope="module")
def originals() -> dict[ThreadContext, Any]:
    """Return all objects of the engine's modules and classes, and of libraries."""
    owners: list[Any] = [*LIBRARIES, importlib.import_module("fastapi.applications").FastAPI]
    for found in pkgutil.walk_packages(tracellm.engine.__path__, "tracellm.engine."):
        module = importlib.import_module(found.name)
        owners += [module, *(one for one in vars(module).values() if isinstance(one, type))]
    return {(owner, name): value for owner in owners for name, value in vars(owner).items()}


def changed(originals: dict[ThreadContext, Any]) -> set[ThreadContext]:
    """Return the places that hold another object now."""
    return {(owner, name) for (owner, name), value in originals.items() if vars(owner).get(name) is not value}


def places_of(entries: Iterable[Entry], originals: dict[ThreadContext, Any]) -> set[ThreadContext]:
    """Return the places that a recording of these entries would wrap."""
    installation = Installation(entries, Selection(), [])
    installation.start()
    places = changed(originals)
    installation.stop()
    return places


@pytest.mark.parametrize("detail", LEVELS)
def test_what_is_not_recorded_is_the_original(tmp_path: Path, originals: dict[ThreadContext, Any], detail: Level):
    """Functions deeper than the level stay the originals during a recording, and all are restored after it."""
    assert changed(originals) == set()
    shallow = [entry for entry in CATALOG if LEVELS.index(entry.level) <= LEVELS.index(detail)]
    deep = [entry for entry in CATALOG if entry not in shallow]
    wanted, unwanted = places_of(shallow, originals), places_of(deep, originals)
    with Recording(tmp_path, selection=Selection(detail)):
        during = changed(originals)
    assert wanted <= during
    assert during & (unwanted - wanted) == set()
    assert {owner for owner, _ in during - wanted} <= set(LIBRARIES)
    assert changed(originals) == set()


def test_every_entry_is_put_back(originals: dict[ThreadContext, Any]):
    """Each catalog entry alone wraps a function of the engine, and is removed without a trace."""
    for entry in CATALOG:
        assert places_of([entry], originals), entry.target
        assert changed(originals) == set(), entry.target
