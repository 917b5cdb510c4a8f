"""Puts the catalog's probes on the engine and takes them off again.

Only what the recording's selection chooses is wrapped; everything else stays the object it was. A function is wrapped
once, in the class that defines it, whichever of the catalog's entries led there. What an entry names and the engine
does not have is listed as missing; an entry that cannot be installed is skipped and listed as a problem. A probe comes
off only where it still is: what has been put in its place meanwhile stays.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from types import FunctionType, ModuleType
from typing import Any

from tracellm.probes.catalog.coverage import CatalogCoverage
from tracellm.probes.catalog.report_needs import lacking
from tracellm.probes.catalog.vllm.torch_compile import is_compiled, is_inside
from tracellm.probes.context.exceptions import remember
from tracellm.probes.install.import_hook import ImportHook
from tracellm.probes.install.pattern_check import chosen_targets
from tracellm.probes.install.selection import Function, Selection, file_of
from tracellm.probes.wrapping.probe import Entry, Mistake, Probe, Receiver, code_constants, path_of
from tracellm.probes.wrapping.summary import arguments_and_result, receiver_of
from tracellm.probes.wrapping.wrapper import wrap
from tracellm.trace import names

__all__ = ["Installation"]

_COMPILED = (
    "the model is compiled (torch.compile), so its layers and operations are not recorded; with enforce_eager=True "
    "vLLM does not compile it"
)


class Installation:
    """The probes of one recording.

    Attributes:
        installed: how many functions are wrapped.
        findings: which of those that are chosen were found.
    """

    def __init__(self, entries: Iterable[Entry], selection: Selection, problems: list[Mistake]) -> None:
        self._selection = selection
        self._by_module: dict[str, list[Entry]] = {}
        entries = list(entries)
        chosen = chosen_targets(selection, entries)
        self._chosen = {path_of(target) for entry in entries if entry.target in chosen for target in entry.targets}
        self._chosen_targets = chosen
        self._unchosen = {entry.target for entry in entries} - chosen
        for entry in entries:
            if selection.reaches(entry.level):
                for module in dict.fromkeys(target.partition(":")[0] for target in entry.targets):
                    self._by_module.setdefault(module, []).append(entry)
        self._patterns = [pattern for pattern in self._by_module if "*" in pattern]
        self._homes = tuple(
            {pattern.partition("*")[0] for pattern in self._patterns}
        )  # for a first look at every import
        self._problems = problems
        self._installed: dict[tuple[Any, str], tuple[Any, Any]] = {}  # what is wrapped, and its wrapper
        self._wrappers: dict[int, tuple[Any, Any]] = {}  # the same by the wrapper's id
        self._left_out: dict[tuple[Any, str], Entry] = {}
        self._entries: dict[tuple[Any, str], Entry] = {}
        self._taken_off: list[Callable[[Entry], bool]] = []  # which probes; they stay off
        self._thinned: set[tuple[Any, str]] = set()
        self._hook = ImportHook(self._wanted, self._install_module)
        self.findings = CatalogCoverage(entry for entry in entries if entry.target in chosen)

    @property
    def installed(self) -> int:
        """Number of functions that are wrapped, or were until the recording was thinned."""
        return len(self._installed.keys() | self._thinned)

    @property
    def places(self) -> list[tuple[Any, str]]:
        """The class or module, and the name there, of each function that is wrapped."""
        return list(self._installed)

    @property
    def left_out(self) -> dict[str, list[str]]:
        """Subjects of reports (catalog/report_needs.py) that the selection leaves out, and the functions they lack."""
        used = self.findings.engine
        return lacking(self._chosen_targets, self._unchosen, None if used is None else used["name"])

    def start(self) -> None:
        """Wrap what is imported already, and the rest as it is imported."""
        if is_compiled():
            self.leave_compiled(is_inside)
        self._hook.start()

    def leave_compiled(self, is_meant: Callable[[Entry], bool]) -> None:
        """Take off, and keep off, the probes of these entries: what they are about is compiled (torch_compile.py)."""
        if (mistake := Mistake(_COMPILED, "")) not in self._problems:
            self._problems.append(mistake)
        self._take_off(is_meant, set())

    def thin(self) -> None:
        """Take off, and keep off, what is deeper than steps."""
        self._take_off(lambda entry: _is_deep(entry.level), self._thinned)

    def _take_off(self, is_meant: Callable[[Entry], bool], taken: set[tuple[Any, str]]) -> None:
        """Add each function that is no longer wrapped to `taken`. It may be interrupted, and then done again, and be
        done by two threads at once."""
        self._taken_off.append(is_meant)
        for place, entry in list(self._entries.items()):
            if is_meant(entry) and self._put_back(place):
                taken.add(place)
                self._installed.pop(place, None)

    def stop(self) -> None:
        """Put back every original whose wrapper is still in its place."""
        self._hook.stop()
        for place in reversed(list(self._installed)):  # a thread may just be adding to it
            self._put_back(place)

    def _put_back(self, place: tuple[Any, str]) -> bool:
        """Put the original back; False where the wrapper is not, or no longer, in its place."""
        owner, name = place
        original, wrapper = self._installed.get(place, (None, None))
        if wrapper is None or vars(owner).get(name) is not wrapper:
            return False
        setattr(owner, name, original)
        return True

    def _wanted(self, module_name: str) -> bool:
        if module_name in self._by_module:
            return True
        return module_name.startswith(self._homes) and any(fnmatchcase(module_name, one) for one in self._patterns)

    def _install_module(self, module: ModuleType) -> None:
        for name in (module.__name__, *self._patterns):
            if fnmatchcase(module.__name__, name):
                self.findings.saw(name)
                for entry in self._by_module.get(name, ()):
                    with self._skipping(entry):
                        self._install_entry(entry, name, module)
        for place, entry in list(self._left_out.items()):  # the module may have a class that inherits it, and is chosen
            with self._skipping(entry):
                self._install_at(place, entry)

    @contextlib.contextmanager
    def _skipping(self, entry: Entry) -> Iterator[None]:
        """List what goes wrong with an entry as a problem: the import of its module goes on without it."""
        try:
            yield
        except Exception as error:
            kind, message, _ = remember(error)
            mistake = Mistake(f"{entry.target} is not recorded: installing its probe raised {kind}", message)
            if mistake not in self._problems:
                self._problems.append(mistake)
            self.findings.found(entry)  # it is not missing

    def _install_entry(self, entry: Entry, name: str, module: ModuleType) -> None:
        """Wrap what the entry is about in a module that it calls `name`, under the first of its names that is there."""
        for target in (one for one in entry.targets if one.partition(":")[0] == name):
            here = False
            for place in _places(module, path_of(target)):
                here = self._install_at(place, entry)
            if here:
                self.findings.found(entry)
                break

    def _install_at(self, place: tuple[Any, str], entry: Entry) -> bool:
        """Wrap the function at this place if it is chosen and is not wrapped already; False for what is no function."""
        owner, name = place
        if place in self._installed or any(is_meant(entry) for is_meant in self._taken_off):
            return True
        if not self._chooses(entry, owner, name):
            self._left_out.setdefault(place, entry)
            return True
        original = vars(owner)[name]
        if id(original) in self._wrappers:  # imported from a module where it is wrapped: here it comes off, too
            self._installed[place] = self._wrappers[id(original)]
            self._entries[place] = entry
            return True
        wrapped = self._wrapped(entry, owner, name, original)
        if wrapped is None:
            return False
        self._left_out.pop(place, None)
        self._installed[place] = self._wrappers[id(wrapped)] = original, wrapped
        self._entries[place] = entry
        setattr(owner, name, wrapped)
        return True

    def _chooses(self, entry: Entry, owner: Any, name: str | None = None) -> bool:
        """Is what the entry found at `name` of a class or module chosen; without `name`, is what it did not find?"""
        class_name, _, method = path_of(entry.target).rpartition(".")
        heirs: tuple[str, ...] = ()
        if isinstance(owner, type):
            home, class_name, heirs = owner.__module__, owner.__name__, tuple(_heirs(owner))
        else:
            home = getattr(vars(owner).get(name), "__module__", owner.__name__)
        owners = [class_name or file_of(home), *([entry.lifeline] if entry.lifeline else [])]
        return self._selection.chooses(entry.level, Function(home, tuple(owners), name or method, heirs))

    def _wrapped(self, entry: Entry, owner: Any, name: str, original: Any) -> Any:
        """The wrapped function in the original's form; None for what cannot be wrapped."""
        if isinstance(original, staticmethod | classmethod):
            inner = self._wrapped(entry, owner, name, original.__func__)
            return None if inner is None else type(original)(inner)
        if not isinstance(original, FunctionType):
            return None
        if (manager := _manager(original)) is not None:  # its call is over when the `with` block is
            return manager(wrap(inspect.unwrap(original), self._probe(entry, owner, name, original)))
        return wrap(original, self._probe(entry, owner, name, original))

    def _probe(self, entry: Entry, owner: Any, name: str, function: FunctionType) -> Probe:
        in_class = isinstance(owner, type)
        receiver: Receiver = receiver_of(function) if in_class else ""  # type: ignore[assignment]
        capture, attributes = entry.capture, entry.attributes
        timed = capture is not None
        if capture is None:
            capture, attributes = arguments_and_result(function, receiver)
        constants = code_constants(function)
        if entry.phase is not None:
            constants[names.PHASE] = entry.phase
        if entry.loop:
            constants[names.CALL_KIND] = "loop"
        if entry.also is not None:
            constants[names.ALSO_CALLED] = entry.also
        home = owner.__name__ if in_class else file_of(function.__module__)
        gives_to = (entry.gives_to,) if isinstance(entry.gives_to, str) else entry.gives_to
        return Probe(
            method=name,
            level=entry.level,
            defined=function.__qualname__,
            receiver=receiver,
            span_name=entry.span_name or (None if receiver else f"{home}.{name}" if in_class else name),
            lifeline=entry.lifeline or (None if receiver else home),
            constants=constants,
            capture=capture,
            attributes=attributes,
            gives=entry.gives if self._chosen.intersection(gives_to) else None,  # else it would wait for ever
            gives_to=gives_to,
            observe=entry.observe,
            even_if_raises=entry.even_if_raises or entry.capture is None,
            before=entry.before,
            begins_trace=entry.begins_trace,
            loop=entry.loop,
            timed=timed,
            in_short=entry.in_short,
            is_step=entry.is_step,
            target=entry.target,
            problems=self._problems,
        )


def _is_deep(level: names.Level) -> bool:
    return names.LEVELS.index(level) > names.LEVELS.index("step")


def _manager(function: FunctionType) -> Callable[[Any], Any] | None:
    """The decorator of contextlib that made this of a generator function; None for neither."""
    if function.__code__.co_filename != contextlib.__file__:
        return None
    generator = inspect.unwrap(function)
    if inspect.isasyncgenfunction(generator):
        return contextlib.asynccontextmanager
    return contextlib.contextmanager if inspect.isgeneratorfunction(generator) else None


def _heirs(owner: type) -> Iterator[str]:
    """The names of the classes that derive from this one, as far as they are there."""
    one: type
    for one in type.__subclasses__(owner):
        yield one.__name__
        yield from _heirs(one)


def _places(module: ModuleType, path: str) -> Iterator[tuple[Any, str]]:
    """The class or module that defines the function `path` of a module, and its name there."""
    class_name, _, name = path.rpartition(".")
    if not class_name:
        if isinstance(vars(module).get(name), FunctionType):
            yield module, name
    elif "*" in class_name:
        for one in list(vars(module).values()):
            own = isinstance(one, type) and one.__module__ == module.__name__
            if own and fnmatchcase(one.__name__, class_name) and name in vars(one):
                yield one, name
    elif isinstance(one := vars(module).get(class_name), type):
        package = module.__name__.partition(".")[0]
        for base in one.__mro__:
            if name in vars(base):
                if base.__module__.partition(".")[0] == package:
                    yield base, name
                return
