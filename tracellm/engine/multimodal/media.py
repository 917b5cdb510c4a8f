"""Media of chat messages: images and sounds behind URLs, fetched and decoded within limits.

In a request's life: before the chat template. A URL is a data URL, a `file://` URL below the allowed directory, or an
http(s) URL of an allowed host. Every limit is a security boundary: a caller can name any URL and send any file.

vLLM: vllm/multimodal/utils.py::MediaConnector, which also fetches from all hosts if none are named.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import io
import ipaddress
import socket
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import numpy as np

from tracellm.engine.config.errors import InvalidRequestError, first_line
from tracellm.engine.config.libraries import require_extra
from tracellm.engine.config.multimodal import MultiModalConfig
from tracellm.engine.multimodal.parse import MOST_PIXELS

__all__ = ["MediaConnector", "decode_audio", "decode_image"]

_MOST_BYTES = 32 << 20
_MOST_REDIRECTS = 3
_TIMEOUT_SECONDS = 10.0
_CHUNK = 1 << 16
_IMAGE_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""Formats that are decoded; others, such as PostScript, start programs or are rarely tested."""


class MediaConnector:
    """Fetches and decodes media for one engine."""

    def __init__(self, config: MultiModalConfig) -> None:
        self.allowed_domains = frozenset(domain.lower() for domain in config.allowed_media_domains)
        path = config.allowed_local_media_path
        self.allowed_folder = Path(path).resolve() if path else None

    def fetch_image(self, url: str) -> Any:
        """Return the image behind a URL as a `PIL.Image.Image`.

        Raises:
            InvalidRequestError: the URL is not allowed, cannot be read, or has no image of an accepted format.
        """
        return decode_image(self.load_from_url(url))

    def fetch_audio(self, url: str) -> tuple[np.ndarray, int]:
        """Return the samples behind a URL, float32 [samples] or [samples, channels], and their rate in Hz.

        Raises:
            InvalidRequestError: the URL is not allowed, cannot be read, or has no sound of an accepted format.
        """
        return decode_audio(self.load_from_url(url))

    def load_from_url(self, url: str) -> bytes:
        """Return the bytes behind a URL.

        Raises:
            InvalidRequestError: the URL is not allowed, or cannot be read within the limits.
        """
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise InvalidRequestError(f"The URL {_short(url)} is malformed: {error}.") from None
        match parts.scheme.lower():
            case "data":
                return _load_data_url(url)
            case "file":
                return self._load_file(parts)
            case "http" | "https":
                return self._load_http(url)
        raise InvalidRequestError(f"The URL {_short(url)} must begin with data:, file: or http(s):.")

    def _load_file(self, parts: SplitResult) -> bytes:
        if self.allowed_folder is None:
            raise InvalidRequestError(
                "file:// URLs are not allowed: start the server with --allowed-local-media-path DIRECTORY."
            )
        path = Path(unquote(parts.path))
        try:
            resolved = path.resolve(strict=True)
        except (OSError, ValueError):
            resolved = None
        # The same message for a file that is not there, so that callers cannot look for files.
        if (
            parts.netloc not in ("", "localhost")
            or resolved is None
            or not resolved.is_relative_to(self.allowed_folder)
        ):
            raise InvalidRequestError(f"{path} is not a file below the allowed directory (--allowed-local-media-path).")
        if not resolved.is_file():
            raise InvalidRequestError(f"{path} is not a file.")
        with resolved.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        return _within_limit(data)

    # -- http ---------------------------------------------------------------------------------------------------------
    def _load_http(self, url: str) -> bytes:
        until = time.monotonic() + _TIMEOUT_SECONDS
        for _ in range(_MOST_REDIRECTS + 1):
            parts = urlsplit(url)
            host = (parts.hostname or "").lower()
            if host not in self.allowed_domains:
                named = ", ".join(sorted(self.allowed_domains)) or "none"
                raise InvalidRequestError(
                    f"The host {host!r} is not one from which media are fetched (--allowed-media-domains: {named})."
                )
            try:
                answer = _get(parts, host, until)
            except InvalidRequestError:
                raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise InvalidRequestError(f"{_short(url)} cannot be fetched: {first_line(error)}.") from None
            if isinstance(answer, bytes):
                return _within_limit(answer)
            url = urljoin(url, answer)
            if urlsplit(url).scheme not in ("http", "https"):
                raise InvalidRequestError(f"{_short(url)} is a redirection to something other than http(s).")
        raise InvalidRequestError(f"{_short(url)} was redirected more than {_MOST_REDIRECTS} times.")


def _get(parts: SplitResult, host: str, until: float) -> bytes | str:
    """Return the body, or the address of a redirection; the connection goes to the address that was checked."""
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    addresses = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
    if not all(map(_is_public, addresses)):
        raise InvalidRequestError(f"The host {host!r} has an address in a private network.")
    connection = http.client.HTTPConnection(host, port, timeout=_left(until))
    sock = connection.sock = socket.create_connection((addresses[0], port), timeout=_left(until))
    try:
        if is_tls:
            sock = connection.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"User-Agent": "tracellm", "Accept-Encoding": "identity"})
        response = connection.getresponse()
        if response.status in (301, 302, 303, 307, 308):
            return response.getheader("Location") or ""
        if response.status != 200:
            raise InvalidRequestError(f"{host} answered with the status {response.status}.")
        body = bytearray()
        while len(body) <= _MOST_BYTES:
            sock.settimeout(_left(until))
            chunk = response.read1(_CHUNK)
            if not chunk:
                break
            body += chunk
        return bytes(body)
    finally:
        connection.close()


def _is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(ip, "ipv4_mapped", None) or ip).is_global


def _left(until: float) -> float:
    """Return the seconds left.

    Raises:
        TimeoutError: there are none.
    """
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"no complete answer within {_TIMEOUT_SECONDS:.0f} s")
    return left


# -- data URLs and files ----------------------------------------------------------------------------------------------
def _load_data_url(url: str) -> bytes:
    """Return the bytes of `data:image/png;base64,...`."""
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise InvalidRequestError("A data URL must be base64: data:image/png;base64,...")
    if len(data) > _MOST_BYTES * 4 // 3 + 4:
        raise InvalidRequestError(f"A data URL has more than {_MOST_BYTES >> 20} MiB.")
    return decode_base64(data)


def decode_base64(data: str) -> bytes:
    """Return the bytes of base64 text.

    Raises:
        InvalidRequestError: it is not base64.
    """
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequestError(f"The data are not base64: {error}.") from None


def _within_limit(data: bytes) -> bytes:
    if len(data) > _MOST_BYTES:
        raise InvalidRequestError(f"A file has more than {_MOST_BYTES >> 20} MiB.")
    return data


def _short(url: str) -> str:
    return repr(url if len(url) <= 80 else url[:77] + "...")


# -- decoding ---------------------------------------------------------------------------------------------------------
def decode_image(data: bytes) -> Any:
    """Return the image in a file's bytes, as a `PIL.Image.Image` that is not decoded yet.

    Raises:
        InvalidRequestError: it is none of an accepted format, or too large.
        EngineError: Pillow is not installed.
    """
    require_extra("PIL", "multimodal")
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data), formats=_IMAGE_FORMATS)
    except Image.DecompressionBombError:
        raise InvalidRequestError(f"The image has more than {MOST_PIXELS} pixels.") from None
    except Exception as error:  # a damaged file can raise anything in Pillow
        reason = "" if isinstance(error, UnidentifiedImageError) else f": {first_line(error)}"
        accepted = ", ".join(_IMAGE_FORMATS)
        raise InvalidRequestError(f"The data are no image of an accepted format ({accepted}){reason}.") from None
    if image.width * image.height > MOST_PIXELS:
        raise InvalidRequestError(f"The image is {image.width} x {image.height}, more than {MOST_PIXELS} pixels.")
    return image


def decode_audio(data: bytes) -> tuple[np.ndarray, int]:
    """Return the samples in a file's bytes, float32 [samples] or [samples, channels], and their rate in Hz.

    Raises:
        InvalidRequestError: it is no sound of an accepted format.
        EngineError: soundfile is not installed.
    """
    require_extra("soundfile", "multimodal")
    import soundfile

    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    except Exception as error:  # a damaged file can raise anything in libsndfile
        raise InvalidRequestError(f"The data are no sound of an accepted format: {first_line(error)}.") from None
    return samples, rate
