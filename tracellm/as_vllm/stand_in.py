"""The modules that `import vllm` and `import vllm.x.y` give under `--engine tracellm`.

A module of vLLM corresponds to several of tracellm's, and the other way round, so a stand-in has nothing of its own: it
looks a name up in the table when it is asked for it, and imports no more than that takes. Writing to one writes to
tracellm's own module, so that a script which replaces `vllm.v1.engine.core_client.InprocClient` does so in earnest.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tracellm.as_vllm.errors import missing_name
from tracellm.as_vllm.table import HOMES, PACKAGES, VALUES

__all__ = ["StandIn", "source_file"]

_TRACELLM = Path(__file__).parents[1]
_replaced: dict[tuple[str, str], Any] = {}
"""What somebody has replaced through a stand-in, by its module in tracellm and its name there."""


class StandIn(ModuleType):
    """One module of vLLM."""

    __stand_in__ = True
    """Probes are not put on such a module, but on those that it stands for (probes/install/patcher.py)."""

    def __init__(self, name: str) -> None:
        super().__init__(name, f"`{name}` of vLLM, which here is tracellm's own engine (`--engine tracellm`).")
        # Every one is a package, so that Python asks the finder, which can say more, for what `from` does not find.
        vars(self).update(__path__=[], __file__=source_file(name), **VALUES.get(name, {}))
        vars(self)["__all__"] = sorted({*HOMES.get(name, ()), *VALUES.get(name, ())})

    def __getattr__(self, name: str) -> Any:
        """A name of the table, or a module below this one, as it is now.

        Raises:
            MissingNameError: it is not here.
        """
        home = HOMES.get(self.__name__, {}).get(name)
        if home is not None:
            return getattr(import_module(home[0]), home[1])
        if name in PACKAGES.get(self.__name__, ()):
            return import_module(f"{self.__name__}.{name}")
        if name.startswith("__"):  # what Python and its tools ask of any module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise missing_name(self.__name__, name)

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
        elif home in _replaced:  # tools that replace a name for a while take theirs away, and expect to see the old one
            setattr(import_module(home[0]), home[1], _replaced.pop(home))
        else:
            delattr(import_module(home[0]), home[1])

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *HOMES.get(self.__name__, ()), *PACKAGES.get(self.__name__, ())})


def source_file(name: str) -> str:
    """The file to read about a module of vLLM here: of the module that most stands for it, or of this package."""
    home = next(iter(HOMES.get(name, {}).values()), None)
    module = home[0] if home and name != "vllm" else "tracellm.as_vllm"
    path = _TRACELLM.joinpath(*module.split(".")[1:])
    return str(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))
