"""What a script is told that asks `vllm` for something that tracellm does not have.

Both are an `EngineError`, so they are printed in a line and not as a traceback, and what Python's own import would
raise, so `try: import vllm.lora` and `hasattr(vllm, "PoolingParams")` go on as they should. vLLM: none.
"""

from difflib import get_close_matches

from tracellm.as_vllm.table import HOMES, MISSING_AREAS, PACKAGES
from tracellm.engine.config.errors import EngineError

__all__ = ["MissingModuleError", "MissingNameError", "missing_module", "missing_name"]

_TO_DO = "Do without it, or run the script with a real vLLM, without --engine tracellm."
_ALIKE = 0.87  # of two names: what difflib thinks of a typing mistake, but not of `PoolingParams` and `SamplingParams`


class MissingModuleError(EngineError, ModuleNotFoundError):
    """A module of vLLM that is not here.

    Its `name` stays None: `from vllm import lora` asks for the module after the name, and Python passes over an error
    that names just this module, to say less.
    """


class MissingNameError(EngineError, AttributeError):
    """A name in a module of vLLM, which is here without it."""


def missing_module(module: str) -> MissingModuleError:
    """The error for a module, or for a name that might have been one: `from vllm import PoolingParams`."""
    package, _, name = module.rpartition(".")
    is_class = name != name.lower() or package not in PACKAGES
    if is_class and package in HOMES:
        return MissingModuleError(_no_name(package, name))
    return MissingModuleError(
        f"There is no `{module}` here: {_where(module)}.{_meant(name, PACKAGES.get(package, []))} {_TO_DO}"
    )


def missing_name(module: str, name: str) -> MissingNameError:
    """The error for `module.name`."""
    return MissingNameError(_no_name(module, name))


def _no_name(module: str, name: str) -> str:
    known = list(HOMES.get(module, ()))
    elsewhere = [other for other, names in HOMES.items() if name in names]
    hint = f" `{name}` is in `{elsewhere[0]}`." if elsewhere else _meant(name, [*known, *PACKAGES.get(module, ())])
    has = f" It has: {', '.join(known)}." if known else ""
    return f"`{module}` has no `{name}` here: {_where(f'{module}.{name}')}.{hint}{has} {_TO_DO}"


def _where(asked: str) -> str:
    """Whose `vllm` this is, and what it has in place of that which was asked for, where something can be said."""
    parts = asked.split(".")
    for end in range(len(parts), 0, -1):
        area = ".".join(parts[:end])
        if area in MISSING_AREAS:
            return f"under --engine tracellm, `vllm` is tracellm's own engine, which has {MISSING_AREAS[area]}"
    return "under --engine tracellm, `vllm` is tracellm's own engine"


def _meant(name: str, known: list[str]) -> str:
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=_ALIKE)
    return f" Did you mean `{by_lower[close[0]]}`?" if close else ""
