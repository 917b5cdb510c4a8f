"""Generated parts of docs/server.md: commands with their responses, refusals, and one explained request.

`record` starts five servers and sends the requests for all languages; `blocks` returns the parts that the pages show.
The first server responds to all commands, and its engine process is killed at the end. The second is explained, gets
one chat request and SIGTERM. The third pools, the fourth calls tools, and the fifth needs a key. `make_docs.py` writes
the parts to the pages, and `tests/docs/test_server_page.py` compares them.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scripts.server_diagram import one_request
from scripts.server_questions import (
    ADDRESS,
    COMMANDS,
    ERRORS,
    EXPLAINED,
    IGNORED,
    KILLED,
    POOLING,
    POOLING_PYTHON,
    PYTHON,
    QUESTION,
    REFUSED,
    RUN,
    SNIPPET,
    TOO_LONG,
    TOOLS_PYTHON,
    TOOLS_SERVER,
)
from scripts.server_tables import HEADS, metrics_table, options_table, table
from tests.server.process import Server
from tracellm.report.diagram.sequence import sequence_diagram
from tracellm.report.texts import Language, text
from tracellm.trace.run_folder import RunFolder

__all__ = ["EXPECTATION", "PAGES", "blocks", "record"]

ROOT = Path(__file__).parents[1]
PAGES: dict[Language, str] = {"en": "docs/server.md", "zh": "docs/zh/server.md"}
EXPECTATION = "docs/expectations/vllm-v1-serve.tsv"


# -- requests ----------------------------------------------------------------------------------------------------------


def record(folder: Path) -> dict[str, Any]:
    """Run the servers and send the requests; return the outputs by name. The explained run is `folder`/my-run."""
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    explain = ("--explain", "--lang", "en", "--out", str(folder / RUN))
    starts: tuple[tuple[str, ...], ...] = ((), explain)
    with ThreadPoolExecutor() as pool:
        plain, explained = pool.map(lambda options: Server.start("--dtype", "float32", *options), starts)
    with plain, explained:
        said: dict[str, Any] = {"explained": _shell(EXPLAINED, folder, explained)}
        explained.signal(signal.SIGTERM)
        said |= {name: _shell(command, folder, plain) for name, command in COMMANDS.items()}
        said |= _python(folder, plain)
        said |= {"errors": [_ask(plain, *error) for error in ERRORS], "metrics-all": _ask(plain, "GET", "/metrics")[1]}
        said["refused"] = [_ask(plain, "POST", "/v1/chat/completions", _with(fragment)) for fragment in REFUSED]
        for name, value in IGNORED.items():
            status, answer = _ask(plain, "POST", "/v1/chat/completions", _with(json.dumps({name: value})[1:-1]))
            assert status == 200, f"{name} is not ignored: {answer}"
        said["killed"] = _shell(KILLED, folder, plain)
        said["killed-end"] = plain.end()
        said["end"] = explained.end()
    with Server.start("--dtype", "float32", "--runner", "pooling") as pooling:
        said |= {name: _shell(command, folder, pooling) for name, command in POOLING.items()}
        said["python-embeddings"] = _program(POOLING_PYTHON, folder, pooling)
    with Server.start(*TOOLS_SERVER.split()[2:]) as tools:
        said["tools"] = _program(TOOLS_PYTHON, folder, tools)
    with Server.fake("--api-key", "secret") as guarded:  # its engine starts at once
        said["errors"].append(_ask(guarded, "GET", "/v1/models", None, {"Authorization": "Bearer guess"}))
    said["snippet"] = _run([sys.executable, "snippet.py"], folder)
    return said


def _with(fragment: str) -> bytes:
    return f'{{{QUESTION}, "max_tokens": 1, {fragment}}}'.encode()


def _shell(command: str, folder: Path, server: Server) -> str:
    """Return the stdout of a command that sends a request."""
    command = command.replace(ADDRESS, server.url).replace("4711", str(server.process.pid))
    return _run(["bash", "-ec", command], folder).replace(server.url, ADDRESS)


def _python(folder: Path, server: Server) -> dict[str, str]:
    """Return the output of each part of the program."""
    printed = _program("\nprint('<next>')\n".join(PYTHON.values()), folder, server).split("<next>\n")
    return dict(zip(PYTHON, printed, strict=True))


def _program(program: str, folder: Path, server: Server) -> str:
    """Return the output of a program that sends requests."""
    return _run([sys.executable, "-c", program.replace(ADDRESS, server.url)], folder)


def _run(command: list[str], folder: Path, *, may_fail: bool = False) -> str:
    environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", env=environment)
    if done.returncode and not may_fail:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _ask(
    server: Server, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """Return status and body of a response."""
    headers = {"Content-Type": "application/json"} | (headers or {})
    request = urllib.request.Request(server.url + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


# -- the generated parts -----------------------------------------------------------------------------------------------


def blocks(lang: Language, folder: Path, said: dict[str, Any]) -> dict[str, str]:
    """Return the generated parts by name, in Markdown."""
    run = RunFolder.open(folder / RUN)
    ready = text(lang, "cli.error", message=text(lang, "serve.ready", model="tiny", address=ADDRESS))
    check = [sys.executable, "-m", "tracellm", "check", RUN, "--expect", EXPECTATION, "--lang", lang]
    show = [sys.executable, "-m", "tracellm", "show", RUN, "requests", "--lang", lang]
    made = {
        "server-ready": _console("tracellm serve --dtype float32", ready),
        "server-options": options_table(lang),
        "server-metrics": metrics_table(lang, said["metrics-all"]),
        "server-errors": _errors(lang, said["errors"]),
        "server-refused": _refused(lang, said["refused"]),
        "server-ignored": ", ".join(f"`{name}`" for name in IGNORED) + "\n",
        "server-killed": _console(KILLED, said["killed"]),
        "server-explained": _console(EXPLAINED, said["explained"]),
        "server-diagram": _code("mermaid", sequence_diagram(one_request(run.trace), lang=lang)),
        "server-snippet": _with_output(SNIPPET, said["snippet"]),
        "server-requests": _console(shlex.join(["tracellm", *show[3:6]]), _run(show, folder)),
        "server-check": _console(shlex.join(["tracellm", *check[3:7]]), _run(check, folder)),
    }
    made["server-ready-pooling"] = _console(
        "tracellm serve --runner pooling --dtype float32", ready.partition(" Try:")[0]
    )
    made["server-tools-serve"] = _code("bash", TOOLS_SERVER)
    made["server-tools"] = _with_output(TOOLS_PYTHON, said["tools"])
    made["server-python-embeddings"] = _with_output(POOLING_PYTHON, said["python-embeddings"])
    made |= {f"server-{name}": _console(command, said[name]) for name, command in (COMMANDS | POOLING).items()}
    made |= {f"server-{name}": _with_output(part, said[name]) for name, part in PYTHON.items()}
    return made


def _with_output(program: str, output: str) -> str:
    return f"{_code('python', program)}\n{_code('text', output)}"


def _code(language: str, content: str) -> str:
    return f"```{language}\n{content.rstrip()}\n```\n"


def _console(command: str, output: str) -> str:
    """Return a command as typed, with its output."""
    typed = re.sub(r"(?m)^(?=curl|kill|tracellm)", "$ ", command)
    return _code("console", f"{typed}\n{_readable(output)}")


def _readable(output: str) -> str:
    """Return a response over several lines, without what differs each time."""
    output = re.sub(r"\b(chatcmpl|cmpl|modelperm)-[0-9a-f]{32}", r"\1-…", output)
    output = re.sub(r'"created":\d+', '"created":1764000000', output)
    return "\n".join(_set_out(json.loads(line)) if line.startswith("{") else line for line in output.splitlines())


def _set_out(value: Any, indent: str = "", before: int = 0) -> str:
    """Return JSON in as few lines as the width allows."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + before + len(line) <= 110 or not isinstance(value, (dict, list)) or not value:
        return line
    inner = f"{indent}  "
    parts = (
        [f"{json.dumps(name)}: {_set_out(part, inner, len(name) + 4)}" for name, part in value.items()]
        if isinstance(value, dict)
        else [_set_out(part, inner) for part in value]
    )
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closing}"


def _errors(lang: str, answers: list[tuple[int, str]]) -> str:
    requests = []
    for method, path, body, headers in ERRORS:
        content = "33 MB" if body is TOO_LONG else (body or b"").decode()
        kind = headers.get("Content-Type", "")
        requests.append(f"`{' '.join(filter(None, (method, path, kind, content)))}`")
    requests.append("`GET /v1/models Authorization: Bearer guess`")
    rows = [
        [request, str(status), f"`{error['type']}`", error["message"]]
        for request, (status, answer) in zip(requests, answers, strict=True)
        for error in (json.loads(answer)["error"],)
    ]
    return table(HEADS[lang]["errors"], rows)


def _refused(lang: str, answers: list[tuple[int, str]]) -> str:
    assert all(status == 400 for status, _ in answers), answers
    rows = [
        [f"`{fragment}`", json.loads(answer)["error"]["message"]]
        for fragment, (_, answer) in zip(REFUSED, answers, strict=True)
    ]
    return table(HEADS[lang]["refused"], rows)
