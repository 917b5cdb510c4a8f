"""Media over http: allowed hosts only, no private address, and limits of size, time and redirections."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.config.multimodal import MultiModalConfig
from tracellm.engine.multimodal import media
from tracellm.engine.multimodal.media import MediaConnector


class Handler(BaseHTTPRequestHandler):
    """Answers of a media server, by the path."""

    def do_GET(self) -> None:
        """Answer."""
        if self.path in ("/again", "/elsewhere", "/file"):
            target = {"/again": "/again", "/elsewhere": "http://example.org/", "/file": "file:///etc/passwd"}[self.path]
            self.send_response(302)
            self.send_header("Location", target)
            self.end_headers()
        elif self.path == "/once":
            self.send_response(301)
            self.send_header("Location", "/data?x=1")
            self.end_headers()
        elif self.path == "/data?x=1":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"data")
        elif self.path == "/endless":
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"." * (1 << 20))
            except OSError:
                pass
        elif self.path == "/silent":
            threading.Event().wait(2)
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serve(authority: trustme.CA | None = None) -> Iterator[str]:
    """Run a media server on this machine, and yield its host and port; with `authority`, over TLS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a media server on this machine."""
    with serve() as host:
        yield f"http://{host}"


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> MediaConnector:
    """A connector that may fetch from this machine, as if it were public, within short limits."""
    monkeypatch.setattr(media, "_is_public", lambda address: True)
    monkeypatch.setattr(media, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(media, "_TIMEOUT_SECONDS", 0.5)
    return MediaConnector(MultiModalConfig(allowed_media_domains=["LOCALHOST"]))


def test_an_allowed_host_is_read_through_a_redirection(address: str, connector: MediaConnector) -> None:
    """The body of an allowed host is returned, also behind a redirection within it."""
    assert connector.load_from_url(f"{address}/data?x=1") == b"data"
    assert connector.load_from_url(f"{address}/once") == b"data"


def test_https_is_read_from_a_host_with_a_trusted_certificate(
    connector: MediaConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The body comes over TLS if an authority of this machine vouches for the host, and is refused otherwise."""
    authority = trustme.CA()
    with serve(authority) as host:
        with pytest.raises(InvalidRequestError, match="certificate verify failed"):
            connector.load_from_url(f"https://{host}/data?x=1")
        authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        assert connector.load_from_url(f"https://{host}/data?x=1") == b"data"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/again", "was redirected more than 3 times"),
        ("/elsewhere", "'example.org' is not one from which media are fetched"),
        ("/file", "a redirection to something other than http"),
        ("/endless", "more than 1 MiB"),
        ("/silent", "cannot be fetched: "),
        ("/missing", "answered with the status 404"),
    ],
)
def test_limits_end_a_fetch(path: str, message: str, address: str, connector: MediaConnector) -> None:
    """Redirections without end or to other hosts, too many bytes, silence and other statuses get one message."""
    with pytest.raises(InvalidRequestError, match=message):
        connector.load_from_url(address + path)


def test_private_addresses_are_refused_even_if_named(address: str) -> None:
    """A host that is allowed by name but has an address in a private network is refused."""
    connector = MediaConnector(MultiModalConfig(allowed_media_domains=["localhost", "127.0.0.1"]))
    for url in (address, address.replace("localhost", "127.0.0.1")):
        with pytest.raises(InvalidRequestError, match="has an address in a private network"):
            connector.load_from_url(f"{url}/data?x=1")


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1", "0.0.0.0"],
)
def test_addresses_of_private_networks_are_known(address: str) -> None:
    """Addresses of this machine, of private networks and of cloud metadata are not public; others are."""
    assert not media._is_public(address)
    assert media._is_public("1.1.1.1")
    assert media._is_public("2606:4700::1111")
