"""A headless Chromium for tests, driven over the WebDriver protocol by the standard library alone.

Needs `chromium` (or Chrome) and `chromedriver` on the PATH; Debian's packages are `chromium` and `chromium-driver`.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

__all__ = ["Browser", "require_browser"]

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",  # a page that uses the network fails
]


def _programs() -> tuple[str, str] | None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def require_browser() -> None:
    """Skip the test if Chromium or its driver is missing; fail it where CI is set."""
    if _programs() is None:
        lacks = "lacks chromium and chromedriver on the PATH (Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(lacks)
        pytest.skip(lacks)


class Browser:
    """A browser window, as a context manager. A page's dialog stays open, and `dialog` returns its text."""

    def __init__(self) -> None:
        programs = _programs()
        assert programs is not None, "call require_browser first"
        self._browser, self._driver = programs

    def __enter__(self) -> "Browser":
        self._profile = tempfile.TemporaryDirectory(prefix="tracellm-browser-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [self._driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := re.search(r"started successfully on port (\d+)", line):
                self._url = f"http://127.0.0.1:{match[1]}/session"
                break
        options = {"binary": self._browser, "args": [*_FLAGS, f"--user-data-dir={self._profile.name}"]}
        capabilities = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
            "timeouts": {"script": 120_000},
        }
        answer = self._call("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
        self._url += "/" + answer["sessionId"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._process.terminate()
            self._process.communicate()
            self._profile.cleanup()

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(json.load(error)["value"]["message"]) from None

    def _devtools(self, command: str, **params: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def open(
        self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True
    ) -> None:
        """Load a page from disk into a window of this size, with a dark or light preference."""
        self.visit(page.resolve().as_uri(), width=width, height=height, dark=dark, scripts=scripts)

    def visit(
        self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True
    ) -> None:
        """Load a page served by this machine, as `open` does."""
        self._devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self.theme(dark=dark)
        self._devtools("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._call("POST", "/url", {"url": url})

    def theme(self, *, dark: bool) -> None:
        """Set the preference for a dark or a light page."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> Any:
        """Return the result of `script`, the body of a function, in the page, despite its security policy."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def wait(self, condition: str, seconds: int = 10) -> bool:
        """Return whether an expression becomes true within some seconds, by default ten."""
        poll = f"""return new Promise(done => {{
            const began = Date.now();
            (function look() {{
                if ({condition}) done(true);
                else if (Date.now() - began > {1000 * seconds}) done(false);
                else setTimeout(look, 10);
            }})();
        }})"""
        return bool(self.run(poll))

    def _find(self, selector: str) -> list[str]:
        elements = self._call("POST", "/elements", {"using": "css selector", "value": selector})
        return [id for element in elements for id in element.values()]

    def click(self, selector: str) -> None:
        """Click the first element that matches a CSS selector, in the middle of the window: bars cover its edges."""
        self.run(f"document.querySelector({json.dumps(selector)})?.scrollIntoView({{block: 'center'}})")
        self._call("POST", f"/element/{self._find(selector)[0]}/click", {})

    def count(self, selector: str) -> int:
        """Return the number of elements that match a CSS selector, also in a page with disabled scripts."""
        return len(self._find(selector))

    def displayed(self, selector: str) -> bool:
        """Return whether the first element that matches a CSS selector is visible."""
        return bool(self._call("GET", f"/element/{self._find(selector)[0]}/displayed"))

    def enter(self, selector: str) -> None:
        """Make the other methods act on the document of a frame, which may have another origin."""
        (element,) = self._call("POST", "/elements", {"using": "css selector", "value": selector})
        self._call("POST", "/frame", {"id": element})

    def leave(self) -> None:
        """Make the other methods act on the whole page again."""
        self._call("POST", "/frame", {"id": None})

    def allow(self, *permissions: str) -> None:
        """Grant permissions that need a user's consent, such as clipboardReadWrite."""
        self._devtools("Browser.grantPermissions", permissions=list(permissions))

    def dialog(self) -> str | None:
        """Return the text of the page's open dialog, if any."""
        try:
            return str(self._call("GET", "/alert/text"))
        except RuntimeError:
            return None

    def log(self) -> list[str]:
        """Return the browser console's messages since the last call, including refusals by the page's policy."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path: Path, *, full_page: bool = False) -> None:
        """Save a PNG of the window, or of the whole page."""
        picture = self._devtools("Page.captureScreenshot", format="png", captureBeyondViewport=full_page)
        if full_page:
            size = self._devtools("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            picture = self._devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self, path: Path) -> None:
        """Print the page to a PDF."""
        path.write_bytes(base64.b64decode(self._call("POST", "/print", {"background": True})))
