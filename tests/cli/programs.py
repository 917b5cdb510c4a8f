"""Small programs, each with one thing that would differ if a script were not run as python runs it."""

from dataclasses import dataclass, field
from textwrap import dedent

__all__ = ["PROGRAMS", "Program"]


@dataclass(frozen=True)
class Program:
    """One program: its files and input. The first file is run, unless `command` is given."""

    name: str
    files: dict[str, str]
    args: tuple[str, ...] = ()
    stdin: str = ""
    command: tuple[str, ...] = ()
    killed: bool = False
    """Ended by a signal, so that no report can be written."""
    env: dict[str, str] = field(default_factory=dict)

    @property
    def run(self) -> tuple[str, ...]:
        """Arguments of `python`, and of `tracellm run`."""
        return (*(self.command or (next(iter(self.files)),)), *self.args)


def _program(name: str, source: str, *args: str, path: str = "script.py", **more: object) -> Program:
    others = more.pop("others", {})
    assert isinstance(others, dict)
    files = {path: dedent(source), **{file: dedent(text) for file, text in others.items()}}
    return Program(name, files, args, **more)  # type: ignore[arg-type]


_WHO_AM_I = """
import sys
print(sys.argv, __name__, __file__, __spec__, __package__, __doc__, type(__loader__), sorted(globals()))
print(sys.path, sys.modules["__main__"].__dict__ is globals(), __builtins__)
"""

_VLLM_THAT_FAILS = {
    **dict.fromkeys(("vllm/__init__.py", "vllm/v1/__init__.py", "vllm/v1/engine/__init__.py"), ""),
    "vllm/v1/engine/core.py": "def load(): raise ValueError('broken')\nload()",
}
_IMPORTS_VLLM = """
import importlib
try:
    importlib.import_module("vllm.v1.engine.core")
except ValueError:
    from vllm.v1.engine.core import EngineCore
"""

_TERMINATES_ITS_FORK = """
import os, signal, time
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(1)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

PROGRAMS = [
    # the script's environment
    _program("who am I", '"""Docstring."""' + _WHO_AM_I),
    _program("below a folder", _WHO_AM_I, path="a folder/script.py"),
    _program("a path with dots", _WHO_AM_I, path="sub/script.py", command=("./sub/../sub/script.py",)),
    _program("its arguments are its own", _WHO_AM_I, "--help", "--", "-m", "--explain", "", "--out", "ünïcödé 中文"),
    _program("no suffix", _WHO_AM_I, path="script"),
    _program("a module", _WHO_AM_I, "--help", "x", path="module.py", command=("-m", "module")),
    _program("a module, dashes after it", _WHO_AM_I, "--", "-x", path="module.py", command=("-m", "module")),
    _program("a module in one word", _WHO_AM_I, path="module.py", command=("-mmodule",)),
    _program(
        "a package",
        _WHO_AM_I + "from . import other\nfrom package.other import value",
        path="package/__main__.py",
        command=("-m", "package"),
        others={"package/__init__.py": "", "package/other.py": "value = 3\nprint(__name__)"},
    ),
    _program("a folder with a __main__", _WHO_AM_I, path="app/__main__.py", command=("app",)),
    _program("a missing module", "", command=("-m", "no_such_module")),
    _program("a neighbour is imported", "import neighbour", others={"neighbour.py": "print(__name__, __file__)"}),
    _program("it changes directory", "import os\nos.chdir('/')\nprint(os.getcwd())"),
    _program("an encoding of its own", "# -*- coding: latin-1 -*-\nprint('x')"),
    _program(
        "annotations stay what they are",
        "def f(x: int): ...\nprint(f.__annotations__)\ny: int = 1\nprint(__annotations__)",
    ),
    _program("its source can be read", "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f))"),
    # stdin and stdout
    _program("stdin", "import sys\nprint(sys.stdin.read().upper())", stdin="some text\n"),
    _program("input", "print(input('> ') + input('> '))", stdin="a\nb\n"),
    _program("end of input", "input('> ')"),
    _program("stdout closed", "import sys\nprint(1)\nsys.stdout.close()"),
    _program("to both streams", "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out')"),
    # exit status
    *(
        _program(f"exit {what}", f"import sys\nprint(1)\nsys.exit({what})")
        for what in ("", "0", "3", "256 + 7", "-1", "None", "'a text'", "True", "[1]", "2.5")
    ),
    _program("quit", "quit(4)"),
    _program("raise SystemExit", "raise SystemExit('said')"),
    _program(
        "exit in a function",
        "def f():\n    try:\n        raise SystemExit(9)\n    finally:\n        print('finally')\nf()",
    ),
    _program("os._exit", "import os\nprint('now', flush=True)\nos._exit(5)"),
    _program("killed by a signal", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", killed=True),
    _program("terminated", "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\nfinally:\n    print(1)"),
    _program("terminates its fork", _TERMINATES_ITS_FORK),
    _program("interrupted", "import os, signal\ndef f():\n    os.kill(os.getpid(), signal.SIGINT)\nf()"),
    _program("raises KeyboardInterrupt", "print(1)\nraise KeyboardInterrupt"),
    _program("an interrupt of its own", "class Mine(KeyboardInterrupt): ...\nraise Mine('x')"),
    # tracebacks
    _program("an exception", "def f(x):\n    return 1 / x\n\nf(0)"),
    _program("an exception with a note", "e = ValueError('x')\ne.add_note('a note')\nraise e"),
    _program(
        "a chain of exceptions",
        """
        def f():
            try:
                {}["key"]
            except KeyError as error:
                raise ValueError("from") from error
        try:
            f()
        except ValueError:
            raise RuntimeError("while")
        """,
    ),
    _program("an exception group", "raise ExceptionGroup('group', [ValueError(1), TypeError('two')])"),
    _program("a class of its own", "class MyError(Exception): ...\nraise MyError('mine', 2)"),
    _program("a broken message", "class E(Exception):\n    def __str__(self): raise TypeError\nraise E"),
    _program("a syntax error", "x = 1\nif x\n    pass"),
    _program("an indentation error", "if 1:\npass"),
    _program("a syntax error in a module", "import wrong", others={"wrong.py": "(]"}),
    _program("an import that fails", "import no_such_module"),
    _program("a vLLM that cannot be imported", _IMPORTS_VLLM, others=_VLLM_THAT_FAILS),
    _program("an exception in a module", "import wrong", others={"wrong.py": "def f(): raise OSError(2, 'x')\nf()"}),
    _program("an exception under -m", "1 / 0", path="module.py", command=("-m", "module")),
    _program(
        "its own excepthook", "import sys\nsys.excepthook = lambda *a: print('mine', a[0], a[1], a[2].tb_lineno)\n1 / 0"
    ),
    _program("its own traceback", "import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()"),
    _program(
        "it compares tracebacks",
        "import traceback as t\ntry:\n    1/0\nexcept Exception as e:\n    print(len(t.extract_tb(e.__traceback__)))",
    ),
    # the end of the interpreter
    _program("atexit", "import atexit\nfor i in range(3): atexit.register(print, i)\nprint('main')"),
    _program("atexit after an exception", "import atexit\natexit.register(print, 'atexit')\nraise ValueError"),
    *(
        _program(
            f"what a frame held is let go of after {what}",
            f"import held\ndef main():\n    one = held.One()\n    raise {what}\nmain()",
            others={"held.py": "def goodbye(): print('gone')\nclass One:\n    def __del__(self): goodbye()"},
        )
        for what in ("ValueError", "KeyboardInterrupt", "SystemExit(3)")
    ),
    _program("an exception in atexit", "import atexit\ndef f(): raise ValueError('late')\natexit.register(f)"),
    _program("exit in atexit", "import atexit, sys\natexit.register(sys.exit, 3)"),
    _program(
        "a thread outlives main",
        """
        import threading
        ready = threading.Event()
        def work():
            ready.wait()
            print("thread")
        threading.Thread(target=work).start()
        print("main")
        ready.set()
        """,
    ),
    _program(
        "an exception in a thread",
        "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start()\nt.join()",
    ),
    _program(
        "the main thread", "import threading\nprint(threading.current_thread(), threading.main_thread().is_alive())"
    ),
    _program("objects of main are finalised", "class A:\n    def __del__(self): print('del')\na = A()\nprint('main')"),
    _program(
        "a warning", "import warnings\nwarnings.warn('careful')\ndef f(): warnings.warn('caller', stacklevel=2)\nf()"
    ),
    # processes
    _program(
        "multiprocessing with spawn",
        """
        import multiprocessing as mp, os
        class Job:
            def __init__(self, n): self.n = n
        def work(job):
            return type(job).__module__, job.n * 2, __name__
        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [Job(1), Job(2)]))
        """,
    ),
    _program(
        "multiprocessing with spawn under -m",
        """
        import multiprocessing as mp
        from .jobs import work
        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1]), pool.apply(work, ("x",)))
        """,
        path="package/tool.py",
        command=("-m", "package.tool"),
        others={"package/__init__.py": "", "package/jobs.py": "def work(x): return x * 2"},
    ),
    _program(
        "multiprocessing with fork",
        """
        import multiprocessing as mp, sys
        def work(n):
            print("child", n, flush=True)
            sys.exit(n)
        process = mp.get_context("fork").Process(target=work, args=(3,))
        process.start()
        process.join()
        print(process.exitcode)
        """,
    ),
    _program(
        "os.fork",
        """
        import os, sys
        child = os.fork()
        if child == 0:
            sys.exit(6)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    ),
    _program("pickle", "import pickle\nclass A: x = 1\nprint(type(pickle.loads(pickle.dumps(A()))) is A)"),
    _program(
        "asyncio",
        """
        import asyncio
        async def main():
            await asyncio.sleep(0)
            raise ValueError("in a coroutine")
        asyncio.run(main())
        """,
    ),
]
