"""Limits that a process sets for itself before it runs a student's code.

On Linux it moves to new namespaces where that is allowed: no network, a read-only file system, and a process tree that
ends with its first process. Elsewhere only the limits of `setrlimit` hold.
"""

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["isolate", "limit"]

_NEW_NAMESPACES = 0x00020000 | 0x10000000 | 0x20000000 | 0x40000000  # mount, user, pid, network
_PR_SET_PDEATHSIG = 1
_MS_REC_PRIVATE = 0x4000 | (1 << 18)
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_MOUNT_ATTR_RDONLY = 1

_LARGEST_FILE = 64 << 20
_MOST_PROCESSES = 64
"""Processes of this user beyond those that run already; root is exempt."""


def isolate(read_only: bool) -> bool:
    """Move this process and its children to new namespaces; return False where the system does not allow it.

    Returns in a child process. The calling process waits for it and ends as it ended.
    """
    if not sys.platform.startswith("linux"):
        return False
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NAMESPACES) != 0:
        return False
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    if read_only:
        _mount_read_only(libc)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.waitstatus_to_exitcode(status))
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return True


def _mount_read_only(libc: ctypes.CDLL) -> None:
    """Make all mounts read-only for this namespace, where the kernel has `mount_setattr` (Linux 5.12)."""

    class MountAttr(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]

    libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None)
    attributes = MountAttr(attr_set=_MOUNT_ATTR_RDONLY)
    libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes))


def limit(memory: int, seconds: int) -> None:
    """Limit address space (bytes), CPU time, files and processes."""
    for name, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, _num_processes() + _MOST_PROCESSES),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(name, (most, most))


def _num_processes() -> int:
    """Return the number of threads of this user, which RLIMIT_NPROC counts; 0 where /proc is missing."""
    uid, count = os.getuid(), 0
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if path.stat().st_uid == uid:
                count += sum(1 for _ in (path / "task").iterdir())
    return count
