"""A linker for the page's script: concatenates its ES modules, so that users need no Node and the page is one file.

Modules import by name from relative paths, `import { a, b } from "../run/x.js"`, and export functions, classes and
constants where they declare them. All share one scope, in which a name is declared once. Comments on lines of their
own are left out.
"""

import posixpath
import re
from collections.abc import Callable

__all__ = ["LinkError", "link"]

_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.\.?/[\w/.-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|class|const|let)", re.MULTILINE)
_DECLARED = re.compile(r"^(export )?(?:(?:async )?function|class|const|let) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)[ \t]*\n", re.MULTILINE | re.DOTALL)
"""A comment on lines of its own: pages do without."""
_UNSUPPORTED = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class LinkError(Exception):
    """The modules do not fit together; the message names the module and the reason."""


def link(entry: str, read: Callable[[str], str]) -> str:
    """Return one script made of the module `entry` and all that it imports, each after those that it needs.

    Args:
        entry: path of the module that runs.
        read: returns the source of a module by its path, which is relative to the same folder as that of `entry`.

    Raises:
        LinkError: two modules declare one name, a module imports what another does not export, modules import each
            other in a circle, or a module uses a form of import or export that is not supported.
    """
    bodies: list[str] = []
    exported: dict[str, set[str]] = {}
    declared: dict[str, str] = {}

    def add(name: str, importing: tuple[str, ...]) -> None:
        if name in importing:
            raise LinkError(f"modules import each other in a circle: {' -> '.join((*importing, name))}")
        if name in exported:
            return
        source = read(name)
        for names, path in _IMPORT.findall(source):
            other = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            add(other, (*importing, name))
            for wanted in filter(None, map(str.strip, names.split(","))):
                if wanted not in exported[other]:
                    raise LinkError(f"{name} imports {wanted}, which {other} does not export")
        body = _COMMENT.sub("", _EXPORT.sub("", _IMPORT.sub("", source)))
        if unsupported := _UNSUPPORTED.search(body):
            raise LinkError(f"{name}: unsupported form: {unsupported[0]}")
        own = _DECLARED.findall(source)
        for _, declaration in own:
            if declaration in declared:
                raise LinkError(f"{declaration} is declared by {declared[declaration]} and by {name}")
            declared[declaration] = name
        exported[name] = {declaration for export, declaration in own if export}
        bodies.append(f"// {name}\n{body.strip()}\n")

    add(entry, ())
    return '"use strict";\n(() => {\n' + "\n".join(bodies) + "})();\n"
