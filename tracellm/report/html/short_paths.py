"""Short paths of files on the machine that recorded: a page that is passed on need not reveal whose folders those
were.

A file below the folder that the run was started in goes by its path from there; one of a library by its path in that
library; any other by its name and its folder's.
"""

import re

__all__ = ["short_path", "short_paths"]

_LIBRARY = re.compile(r".*[/\\](?:(?:site|dist)-packages|lib[/\\]python[\d.]+)[/\\]")
_IN_TRACEBACK = re.compile(r'(?<=File ")[^"\n]+(?=")')


def short_path(path: str, cwd: str) -> str:
    """One path without the part that is the machine's; `cwd` is the folder that the run was started in."""
    if found := _LIBRARY.match(path):
        return "…/" + path[found.end() :]
    for separator in "/\\":
        if cwd and path.startswith(cwd.rstrip(separator) + separator):
            return path[len(cwd.rstrip(separator)) + 1 :]
    if not re.match(r"[/\\~]|[A-Za-z]:", path):
        return path
    return "/".join(["…", *re.split(r"[/\\]", path.rstrip("/\\"))[1:][-2:]])


def short_paths(traceback: str, cwd: str) -> str:
    """A traceback with each file's path made short."""
    return _IN_TRACEBACK.sub(lambda found: short_path(found[0], cwd), traceback)
