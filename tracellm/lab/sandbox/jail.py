"""The place in which a student's code runs: what it cannot see, reach or change.

`enter` divides the process in two. The child returns, and runs the student's code. The parent waits for it, then ends
whatever the child has left running. How much the child is cut off depends on the system:

- On Linux with namespaces, the child has no network, sees no other process, and sees only the files of Python, of its
  libraries, of this package and of the lab's folder. All are read-only or copies in memory, which vanish with it.
- As root without namespaces, as in most containers, the child has a user of its own: it can neither change files nor
  end other processes. It sees all files that anyone may read, and the network.
- Elsewhere only the limits of limits.py hold.

Namespaces are used as in bubblewrap: https://github.com/containers/bubblewrap.
"""

import ctypes
import os
import signal
import sys
import sysconfig
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["ISOLATIONS", "Isolation", "Usage", "descendants", "enter", "usage"]

Isolation = str
"""Kind of isolation: one of `ISOLATIONS`."""

ISOLATIONS: tuple[Isolation, ...] = ("namespaces", "user", "limits")
"""From the strongest to the weakest."""

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x1000, 0x4000, 1 << 18, 2
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
_CAPABILITY_VERSION, _NUM_CAPABILITIES = 0x20080522, 41

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix", "/sys/devices/system/cpu")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_MEMORY_FILES = 256 << 20
"""Bytes of files that the child can write."""

_PACKAGE = Path(__file__).parents[2]
_OLD = Path("/old")
"""Place of the system's root while the new one is built."""


def enter(
    folder: Path, files: Mapping[str, bytes], strongest: Isolation, copies: Mapping[Path, bytes] | None = None
) -> Isolation:
    """Move the rest of the program into a child process, as isolated as the system allows; return the kind.

    Args:
        folder: the lab's folder.
        files: the content of the folder as the child sees it, by name.
        strongest: kind of isolation to try first.
        copies: further files, by absolute path; the child can read them only.

    Raises:
        OSError: namespaces can be made, but not filled; a weaker kind must be tried in another process.
    """
    if not sys.platform.startswith("linux"):
        return "limits"
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # processes that outlive the child become this one's
    kind, own = strongest, _unused_user() if os.getuid() == 0 and strongest != "limits" else None
    if kind == "namespaces" and not _unshare(libc):
        kind = "user"
    if kind == "namespaces":
        _fork(libc)
        _build(libc, folder, files, copies or {})
    elif own is None or not _can_read(own, folder, files):
        kind, own = "limits", None
    _fork(libc)
    os.setsid()  # a signal to its group or session reaches the child only
    if own is not None:
        os.setgroups([])
        os.setresgid(own, own, own)
        os.setresuid(own, own, own)
    if kind != "limits":
        _drop_capabilities(libc)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of the user has cleared it
    return kind


def _unused_user() -> int:
    """Return a user id that no other process has."""
    used = {path.stat().st_uid for path in Path("/proc").glob("[0-9]*") if path.exists()}
    return next(uid for uid in range(61000 + os.getpid() % 3000, 65000) if uid not in used)


def _can_read(user: int, folder: Path, files: Mapping[str, bytes]) -> bool:
    """Return whether another user can read this package, Python's library, and the lab's files."""
    paths = [Path(__file__), Path(os.__file__), Path(sys.executable), *(folder / name for name in files)]
    os.seteuid(user)
    try:
        for path in paths:
            with path.open("rb"):
                pass
    except OSError:
        return False
    finally:
        os.seteuid(0)
    return True


def _unshare(libc: ctypes.CDLL) -> bool:
    """Move this process to new namespaces; its children are in the new process namespace."""
    uid, gid, namespaces = os.getuid(), os.getgid(), _NEWNS | _NEWIPC | _NEWPID | _NEWNET
    if uid == 0:
        return bool(libc.unshare(namespaces) == 0)
    if libc.unshare(namespaces | _NEWUSER) != 0:
        return False
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return True


def _fork(libc: ctypes.CDLL) -> None:
    """Return in a child process; the parent waits for it, ends what it has left, and ends with its status."""
    parent = os.getpid()
    child = os.fork()
    if not child:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() not in (parent, 0):  # the parent has ended meanwhile; 0: it is outside of the namespace
            os._exit(1)
        return
    os.closerange(0, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") > 0 else 1024)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    status = None
    while status is None:
        pid, ended = os.waitpid(-1, 0)
        status = ended if pid == child else None
    while left := descendants(os.getpid()):
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


class Usage(NamedTuple):
    """Memory in pages, and CPU time in clock ticks with that of ended children."""

    pages: int
    ticks: int


def descendants(pid: int) -> dict[int, Usage]:
    """Return the processes that descend from `pid`, without itself; none without /proc."""
    children: dict[int, list[int]] = {}
    usages = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _stat(int(name))):
                children.setdefault(int(fields[1]), []).append(int(name))
                usages[int(name)] = _usage(fields)
    found, pending = {}, [pid]
    while pending:
        for child in children.get(pending.pop(), []):
            found[child] = usages[child]
            pending.append(child)
    return found


def usage(pid: int) -> Usage:
    """Return the usage of one process; zeros if it has ended, or without /proc."""
    fields = _stat(pid)
    return _usage(fields) if fields else Usage(0, 0)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the process's state on; none if it has ended."""
    with suppress(OSError, ValueError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _usage(fields: list[str]) -> Usage:
    return Usage(pages=int(fields[21]), ticks=sum(map(int, fields[11:15])))


# -- the files that the child sees ------------------------------------------------------------------------------------


def _build(libc: ctypes.CDLL, folder: Path, files: Mapping[str, bytes], copies: Mapping[Path, bytes]) -> None:
    """Replace the root by a small one in memory.

    Raises:
        OSError: the system does not allow it.
    """
    libraries = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
    imported = [path for path in sys.path if path and not Path(path, _PACKAGE.name).exists()]
    paths = (sys.prefix, sys.base_prefix, *libraries, *imported, str(_PACKAGE))
    _mount(libc, "none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount(libc, "tmpfs", "/tmp", "tmpfs", 0, f"size={_MEMORY_FILES},mode=755")
    os.mkdir("/tmp/old")
    _call(libc.syscall, _SYS_PIVOT_ROOT[os.uname().machine], b"/tmp", b"/tmp/old")
    os.chdir("/")
    for path in (*_SYSTEM, *paths):
        _show(libc, Path(path))
    for name in _DEVICES:
        _show(libc, Path("/dev", name), read_only=False)
    os.mkdir("/proc")
    with suppress(OSError):  # not where parts of the system's own /proc are covered: then it stays empty
        _mount(libc, "proc", "/proc", "proc", _MS_NOSUID_NODEV_NOEXEC)
    for place in (Path("/tmp"), Path("/dev/shm"), folder):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o1777)
    for copy, content in [*copies.items(), *((folder / name, content) for name, content in files.items())]:
        if not copy.exists():  # else it is in a folder that is shown
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
            copy.chmod(0o755)
    _call(libc.umount2, b"/old", _MNT_DETACH)
    os.rmdir("/old")


def _show(libc: ctypes.CDLL, path: Path, read_only: bool = True) -> None:
    """Show a path of the old root in the new one, together with the links on the way to it."""
    for place in (*reversed(path.parents), path):
        old = _OLD / place.relative_to("/")
        if not os.path.lexists(old) or (place != Path("/") and os.path.ismount(place)):
            return
        if old.is_symlink():
            if not place.is_symlink():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(os.readlink(old))
            target = os.path.normpath(place.parent / os.readlink(old) / path.relative_to(place))
            _show(libc, Path(target), read_only)
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(exist_ok=True) if old.is_dir() else path.touch()
    _mount(libc, str(old), str(path), None, _MS_BIND | _MS_REC)
    if read_only:

        class MountAttr(ctypes.Structure):
            _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]

        attributes = MountAttr(attr_set=_MOUNT_ATTR_RDONLY)
        arguments = (_AT_FDCWD, str(path).encode(), _AT_RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes))
        _call(libc.syscall, _SYS_MOUNT_SETATTR, *arguments)


def _mount(libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    _call(libc.mount, source.encode(), target.encode(), kind and kind.encode(), flags, data.encode() or None)


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up all capabilities, for good: not even a program of root's gets them back."""
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for number in range(_NUM_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())
