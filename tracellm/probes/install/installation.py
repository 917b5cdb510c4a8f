"""Installation of a catalog's probes on an engine, and their removal.

Only functions that the selection chooses are wrapped; all others stay the objects they were. A function is wrapped
once, in the class that defines it, even if several entries name it. Targets that the engine lacks are listed as
missing; an entry that cannot be installed is skipped and listed as a problem. A wrapper is removed only if nothing has
replaced it.
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
from tracellm.probes.context.call_context import DEPTH_LIMITED, state
from tracellm.probes.install.patcher import ImportHook
from tracellm.probes.install.selection import Function, Selection, chosen_targets, file_of
from tracellm.probes.record.recorder import Recorder
from tracellm.probes.wrapping.probe import Entry, Mistake, Probe, Receiver, code_constants, path_of, site_numbered
from tracellm.probes.wrapping.summary import arguments_and_result, receiver_of
from tracellm.probes.wrapping.wrapper import wrap
from tracellm.trace import names

__all__ = ["DepthLimit", "Installation"]

_COMPILED = (
    "the model is compiled (torch.compile), so its layers and operations are not recorded; with enforce_eager=True "
    "vLLM does not compile it"
)

Location = tuple[Any, str]
"""Location of a function: a class or module, and the name in it."""


class Installation:
    """The probes of one recording.

    Attributes:
        findings: which of the chosen targets were found.
    """

    def __init__(self, entries: Iterable[Entry], selection: Selection, problems: list[Mistake]) -> None:
        self._selection = selection
        self._by_module: dict[str, list[Entry]] = {}
        entries = list(entries)
        self._chosen_targets = chosen_targets(selection, entries)
        chosen = [entry for entry in entries if entry.target in self._chosen_targets]
        self._chosen_paths = {path_of(target) for entry in chosen for target in entry.targets}
        self._unchosen = {entry.target for entry in entries} - self._chosen_targets
        for entry in entries:
            if selection.reaches(entry.level):
                for module in dict.fromkeys(target.partition(":")[0] for target in entry.targets):
                    self._by_module.setdefault(module, []).append(entry)
        self._patterns = [pattern for pattern in self._by_module if "*" in pattern]
        self._prefixes = tuple({pattern.partition("*")[0] for pattern in self._patterns})  # a fast check of imports
        self._problems = problems
        self._installed: dict[Location, tuple[Any, Any]] = {}  # the original and its wrapper
        self._wrappers: dict[int, tuple[Any, Any]] = {}  # the same by the wrapper's id
        self._left_out: dict[Location, Entry] = {}
        self._entries: dict[Location, Entry] = {}
        self._removed: list[Callable[[Entry], bool]] = []  # probes that stay off
        self._depth_limited: set[Location] = set()
        self._hook = ImportHook(self._is_chosen, self._install_module)
        self.findings = CatalogCoverage(chosen)

    @property
    def installed(self) -> int:
        """Number of functions wrapped, including those unwrapped at the depth limit."""
        return len(self._installed.keys() | self._depth_limited)

    @property
    def left_out(self) -> dict[str, list[str]]:
        """Subjects of reports (catalog/report_needs.py) that the selection leaves out, and the functions they lack."""
        used = self.findings.engine
        return lacking(self._chosen_targets, self._unchosen, None if used is None else used["name"])

    def start(self) -> None:
        """Wrap functions of modules imported already, and of others as they are imported."""
        if is_compiled():
            self.leave_compiled(is_inside)
        self._hook.start()

    def leave_compiled(self, matches: Callable[[Entry], bool]) -> None:
        """Remove the probes of these entries, whose functions are compiled, for good (torch_compile.py)."""
        if (mistake := Mistake(_COMPILED, "")) not in self._problems:
            self._problems.append(mistake)
        self._remove(matches, set())

    def limit_depth(self) -> None:
        """Remove all probes deeper than steps, for good."""
        deepest = names.LEVELS.index("step")
        self._remove(lambda entry: names.LEVELS.index(entry.level) > deepest, self._depth_limited)

    def _remove(self, matches: Callable[[Entry], bool], removed: set[Location]) -> None:
        """Remove probes, and add their locations to `removed`; safe to interrupt, to repeat, and in two threads."""
        self._removed.append(matches)
        for location, entry in list(self._entries.items()):
            if matches(entry) and self._restore(location):
                removed.add(location)
                self._installed.pop(location, None)

    def stop(self) -> None:
        """Restore every original whose wrapper is still in its place."""
        self._hook.stop()
        for location in reversed(list(self._installed)):  # another thread may be adding to it
            self._restore(location)

    def _restore(self, location: Location) -> bool:
        """Restore the original; return False if the wrapper is not in its place."""
        owner, name = location
        original, wrapper = self._installed.get(location, (None, None))
        if wrapper is None or vars(owner).get(name) is not wrapper:
            return False
        setattr(owner, name, original)
        return True

    def _is_chosen(self, module_name: str) -> bool:
        if module_name in self._by_module:
            return True
        return module_name.startswith(self._prefixes) and any(fnmatchcase(module_name, p) for p in self._patterns)

    def _install_module(self, module: ModuleType) -> None:
        for name in (module.__name__, *self._patterns):
            if fnmatchcase(module.__name__, name):
                self.findings.add_module(name)
                for entry in self._by_module.get(name, ()):
                    with self._skipping(entry):
                        self._install_entry(entry, name, module)
        for location, entry in list(self._left_out.items()):  # the module may have a chosen class that inherits it
            with self._skipping(entry):
                self._install_at(location, entry)

    @contextlib.contextmanager
    def _skipping(self, entry: Entry) -> Iterator[None]:
        """List an entry's failure as a problem, so the import continues."""
        try:
            yield
        except Exception as error:
            mistake = Mistake.of(f"{entry.target} is not recorded: installing its probe", error)
            if mistake not in self._problems:
                self._problems.append(mistake)
            self.findings.found(entry)  # it is not missing

    def _install_entry(self, entry: Entry, name: str, module: ModuleType) -> None:
        """Wrap the entry's functions in the module, which it names `name`, by the first target found there."""
        for target in entry.targets:
            if target.partition(":")[0] == name:
                done = [self._install_at(location, entry) for location in _locations(module, path_of(target))]
                if done and done[-1]:
                    self.findings.found(entry)
                    break

    def _install_at(self, location: Location, entry: Entry) -> bool:
        """Wrap the function at this location if it is chosen and not wrapped yet; return False if it is no function."""
        owner, name = location
        if location in self._installed or any(matches(entry) for matches in self._removed):
            return True
        if not self._chooses(entry, owner, name):
            self._left_out.setdefault(location, entry)
            return True
        original = vars(owner)[name]
        if id(original) in self._wrappers:  # imported from a module where it is wrapped: restored here, too
            self._installed[location] = self._wrappers[id(original)]
            self._entries[location] = entry
            return True
        wrapped = self._wrapped(entry, owner, name, original)
        if wrapped is None:
            return False
        self._left_out.pop(location, None)
        self._installed[location] = self._wrappers[id(wrapped)] = original, wrapped
        self._entries[location] = entry
        setattr(owner, name, wrapped)
        return True

    def _chooses(self, entry: Entry, owner: Any, name: str) -> bool:
        """Return whether the selection chooses the function `name` of a class or module."""
        class_name = path_of(entry.target).rpartition(".")[0]
        subclasses: tuple[str, ...] = ()
        if isinstance(owner, type):
            home, class_name, subclasses = owner.__module__, owner.__name__, tuple(_subclass_names(owner))
        else:
            home = getattr(vars(owner).get(name), "__module__", owner.__name__)
        owners = (class_name or file_of(home), *([entry.lifeline] if entry.lifeline else []))
        return self._selection.chooses(entry.level, Function(home, owners, name, subclasses))

    def _wrapped(self, entry: Entry, owner: Any, name: str, original: Any) -> Any:
        """Return the wrapped function in the original's form; None for what cannot be wrapped."""
        if isinstance(original, staticmethod | classmethod):
            inner = self._wrapped(entry, owner, name, original.__func__)
            return None if inner is None else type(original)(inner)
        if not isinstance(original, FunctionType):
            return None
        if (manager := _manager(original)) is not None:  # its call lasts until the `with` block ends
            return manager(wrap(inspect.unwrap(original), self._probe(entry, owner, name, original)))
        return wrap(original, self._probe(entry, owner, name, original))

    def _probe(self, entry: Entry, owner: Any, name: str, function: FunctionType) -> Probe:
        in_class = isinstance(owner, type)
        receiver: Receiver = receiver_of(function) if in_class else ""  # type: ignore[assignment]
        capture, attributes = entry.capture, entry.attributes
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
            gives=entry.gives if self._chosen_paths.intersection(gives_to) else None,  # else it would wait forever
            observe=entry.observe,
            even_if_raises=entry.even_if_raises or entry.capture is None,
            before=entry.before,
            begins_trace=entry.begins_trace,
            loop=entry.loop,
            timed=entry.capture is not None,
            in_short=entry.in_short,
            is_step=entry.is_step,
            target=entry.target,
            problems=self._problems,
        )


def _manager(function: FunctionType) -> Callable[[Any], Any] | None:
    """Return the decorator of contextlib that made this of a generator function; None for other functions."""
    if function.__code__.co_filename != contextlib.__file__:
        return None
    generator = inspect.unwrap(function)
    if inspect.isasyncgenfunction(generator):
        return contextlib.asynccontextmanager
    return contextlib.contextmanager if inspect.isgeneratorfunction(generator) else None


def _subclass_names(owner: type) -> Iterator[str]:
    """Yield the names of all existing subclasses."""
    subclass: type
    for subclass in type.__subclasses__(owner):
        yield subclass.__name__
        yield from _subclass_names(subclass)


def _locations(module: ModuleType, path: str) -> Iterator[Location]:
    """Yield the class or module that defines the function `path` of a module, and its name there."""
    class_name, _, name = path.rpartition(".")
    if not class_name:
        if isinstance(vars(module).get(name), FunctionType):
            yield module, name
    elif "*" in class_name:
        for value in list(vars(module).values()):
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and fnmatchcase(value.__name__, class_name) and name in vars(value):
                yield value, name
    elif isinstance(found := vars(module).get(class_name), type):
        package = module.__name__.partition(".")[0]
        for base in found.__mro__:
            if name in vars(base):
                if base.__module__.partition(".")[0] == package:
                    yield base, name
                return


class DepthLimit:
    """Removes the probes of layers and operations once a process has recorded `max_bytes`; None for no limit.

    Each step has hundreds of such calls, and the first steps show all kinds of them. After the limit, only requests
    and steps are recorded, without token probabilities. Probes are removed between two steps; a step may be recorded in
    part if another engine is within one in another thread, or in a process with a worker and no engine.

    `on_limit` is called with the number of steps before the limit, in the recorder's thread.
    """

    def __init__(
        self, max_bytes: int | None, recorder: Recorder, installation: Installation, on_limit: Callable[[int], None]
    ) -> None:
        self._max_bytes = max_bytes
        self._recorder = recorder
        self._installation = installation
        self._on_limit = on_limit
        self._is_new = False

    def step_ended(self, parent: int) -> None:
        """Write the step's records, and apply the limit if it is reached."""
        self._recorder.step_ended(parent)
        self._apply()

    def check(self) -> None:
        """Apply the limit if it is reached and no step is under way, as in a server's first process; report it."""
        calls = (call for call in state.open.copy().values() if isinstance(call, tuple))
        if not any(site_numbered(site).probe.is_step for site, *_ in calls):
            self._apply()
        if self._is_new:
            self._is_new = False
            self._on_limit(self._recorder.steps)

    def _apply(self) -> None:
        if self._max_bytes is None or self._recorder.bytes < self._max_bytes:
            return
        state.depth_limited = True
        self._installation.limit_depth()
        if state.append is not None:
            state.append((DEPTH_LIMITED, 0, 0, 0, 0, 0, None, None))
        self._max_bytes = None  # last: after an interrupt, the next step does all of this again
        self._is_new = True
