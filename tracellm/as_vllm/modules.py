"""The modules that `import vllm` and `import vllm.x.y` give under `--engine tracellm`, and their import finder.

A module of vLLM corresponds to several of tracellm's, and the reverse. So a stand-in has no content: it looks each name
up in `table.py` and imports its module then. Setting a name sets it in tracellm's module, so a script can replace
`vllm.v1.engine.core_client.InprocClient`, for example.

A missing module or name raises an `EngineError` that is also Python's own error for it: it is printed without a
traceback, and `try: import vllm.lora` and `hasattr(vllm, "ModelRegistry")` still work.
"""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tracellm.as_vllm.table import HOMES, MISSING_AREAS, PACKAGES, VALUES
from tracellm.engine.config.errors import EngineError

__all__ = ["MissingModuleError", "MissingNameError", "StandIn", "install"]

_TRACELLM = Path(__file__).parents[1]
_RUNS = {
    "vllm.entrypoints.openai.api_server": "from tracellm.cli.commands.serve import api_server; api_server()",
    "vllm.entrypoints.cli.main": "from tracellm.cli.commands.serve import vllm; vllm()",
}
"""Code of the modules that `python -m` can run; both start `tracellm serve`."""

_replaced: dict[tuple[str, str], Any] = {}
"""Original values of names that were set through a stand-in, by module and name in tracellm."""


def install() -> None:
    """Make `import vllm` give the stand-ins. A second call changes nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class StandIn(ModuleType):
    """Stand-in for one module of vLLM."""

    __stand_in__ = True
    """Probes skip these modules and are installed in tracellm's (probes/install/patcher.py)."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"`{name}` of vLLM, which here is tracellm's own engine (`--engine tracellm`).")
        # With __path__, a missing name in `from vllm import x` reaches the finder, which has the better message.
        vars(self).update(__path__=[], __file__=_source_file(name), **VALUES.get(name, {}))
        vars(self)["__all__"] = sorted({*HOMES.get(name, ()), *VALUES.get(name, ())})

    def __getattr__(self, name: str) -> Any:
        """Return the current value of a name in the table, or a module below this one.

        Raises:
            MissingNameError: there is no such name.
        """
        home = HOMES.get(self.__name__, {}).get(name)
        if home is not None:
            return getattr(import_module(home[0]), home[1])
        if name in PACKAGES.get(self.__name__, ()):
            return import_module(f"{self.__name__}.{name}")
        if name.startswith("__"):  # looked up by Python and its tools in any module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise MissingNameError(_missing_name(self.__name__, name))

    def __setattr__(self, name: str, value: Any) -> None:
        home = HOMES.get(self.__name__, {}).get(name)
        if home is None:
            super().__setattr__(name, value)
        else:
            module = import_module(home[0])
            _replaced.setdefault(home, getattr(module, home[1]))
            setattr(module, home[1], value)

    def __delattr__(self, name: str) -> None:
        home = HOMES.get(self.__name__, {}).get(name)
        if home is None:
            super().__delattr__(name)
        elif home in _replaced:  # mock.patch deletes a name that it has set, and expects the original again
            setattr(import_module(home[0]), home[1], _replaced.pop(home))
        else:
            delattr(import_module(home[0]), home[1])

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *HOMES.get(self.__name__, ()), *PACKAGES.get(self.__name__, ())})


class _Finder(MetaPathFinder):
    """Finder of `vllm` and its modules, before all others in `sys.meta_path`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module of vLLM; None for any other module.

        Raises:
            MissingModuleError: tracellm has no such module of vLLM.
        """
        if name.partition(".")[0] != "vllm":
            return None
        if name not in HOMES and name not in PACKAGES:
            raise MissingModuleError(_missing_module(name))
        return ModuleSpec(name, _Loader(), origin=_source_file(name), is_package=name in PACKAGES)


class _Loader(Loader):
    """Loader that makes the stand-ins."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a stand-in."""
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a stand-in has no code."""

    def get_code(self, name: str) -> CodeType | None:
        """Return the code for `python -m name`, or None if there is none."""
        source = _RUNS.get(name)
        return None if source is None else compile(source, _source_file(name), "exec")


def _source_file(name: str) -> str:
    """Return the source of the first of tracellm's modules for a module of vLLM, or of this package."""
    home = next(iter(HOMES.get(name, {}).values()), None)
    module = home[0] if home and name != "vllm" else "tracellm.as_vllm"
    path = _TRACELLM.joinpath(*module.split(".")[1:])
    return str(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))


# -- errors ------------------------------------------------------------------------------------------------------------

_TO_DO = "Do without it, or run the script with a real vLLM, without --engine tracellm."
_CUTOFF = 0.87  # for difflib: matches typing errors, but not `PoolingParams` and `SamplingParams`


class MissingModuleError(EngineError, ModuleNotFoundError):
    """A module of vLLM that tracellm does not have.

    Its attribute `name` stays None: `from vllm import lora` would hide an error with the module's name.
    """


class MissingNameError(EngineError, AttributeError):
    """A name in a module of vLLM that tracellm does not have."""


def _missing_module(module: str) -> str:
    """Return the message for a module, or for a name that Python tried as one: `from vllm import ModelRegistry`."""
    package, _, name = module.rpartition(".")
    is_class = name != name.lower() or package not in PACKAGES
    if is_class and package in HOMES:
        return _missing_name(package, name)
    return f"There is no `{module}` here: {_context(module)}.{_suggestion(name, PACKAGES.get(package, []))} {_TO_DO}"


def _missing_name(module: str, name: str) -> str:
    names = list(HOMES.get(module, ()))
    elsewhere = [other for other, its_names in HOMES.items() if name in its_names]
    if elsewhere:
        hint = f" `{name}` is in `{elsewhere[0]}`."
    else:
        hint = _suggestion(name, [*names, *PACKAGES.get(module, ())])
    has = f" It has: {', '.join(names)}." if names else ""
    return f"`{module}` has no `{name}` here: {_context(f'{module}.{name}')}.{hint}{has} {_TO_DO}"


def _context(name: str) -> str:
    """Return that `vllm` is tracellm's engine, with what it has instead of this module or class, if that is known."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        area = ".".join(parts[:end])
        if area in MISSING_AREAS:
            return f"under --engine tracellm, `vllm` is tracellm's own engine, which has {MISSING_AREAS[area]}"
    return "under --engine tracellm, `vllm` is tracellm's own engine"


def _suggestion(name: str, names: list[str]) -> str:
    by_lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=_CUTOFF)
    return f" Did you mean `{by_lower[close[0]]}`?" if close else ""
