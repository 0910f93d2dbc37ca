"""Submitting programs to a cluster over HTTP, as `ray.job_submission` of Ray does: to Oxiray's dashboard or to Ray's.

Invariants:
1. Nothing is sent but to the address that was given; what it answers is read as data.
2. A package is named by its content, so that it is uploaded once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import json
import os
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

from oxiray import _core, _environment_packages as packages

#: How long an answer may take, in seconds.
_ANSWER_LIMIT_S = 60
#: What the server adds to a client's key (RFC 6455).
_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: The longest frame that is taken from a server, in bytes, and the longest head of its answer.
_FRAME_BYTES_MAX = 16 << 20
_HEAD_BYTES_MAX = 64 << 10
#: Kinds of frames.
_CONTINUED, _TEXT, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x8, 0x9, 0xA
#: What a connection that ended as it should was closed with.
_NORMAL = 1000


class Site:
    """One address that is asked: `http://HOST:PORT` or `https://...`."""

    def __init__(self, address: str, headers: Mapping[str, str], verify: str | bool) -> None:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"address is {address!r}; over HTTP it is http://HOST:PORT or https://HOST:PORT")
        self.address = address.rstrip("/")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._headers = dict(headers)
        self._tls = _tls(verify) if parts.scheme == "https" else None

    def ask(self, method: str, path: str, *, body: Any = None, content: Path | None = None) -> tuple[int, str]:
        """Status and text of the answer. `body` is sent as JSON, `content` as the file that it is."""
        connection = self._connection()
        headers = dict(self._headers)
        try:
            if content is not None:
                headers["Content-Length"] = str(content.stat().st_size)
                with open(content, "rb") as file:
                    connection.request(method, self._prefix + path, file, headers)
            elif body is not None:
                headers["Content-Type"] = "application/json"
                connection.request(method, self._prefix + path, json.dumps(body).encode(), headers)
            else:
                connection.request(method, self._prefix + path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(
                f"Failed to connect to Ray at address: {self.address}. {type(error).__name__}: {error}"
            ) from error
        finally:
            connection.close()

    def is_of_this_machine(self) -> bool:
        """Whether nobody but this machine can be meant."""
        return self._host in ("localhost", "127.0.0.1", "::1")

    def told(self, method: str, path: str, body: Any = None) -> Any:
        """The answer. Raises `RuntimeError` with its status and text where it is none."""
        status, text = self.ask(method, path, body=body)
        if status != http.client.OK:
            raise RuntimeError(f"Request failed with status code {status}: {text}.")
        return json.loads(text)

    async def tail(self, path: str) -> AsyncIterator[str]:
        """The messages of a WebSocket, until it is closed. Raises `RuntimeError` where it is closed otherwise than normally."""
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            await self._upgrade(reader, writer, path)
            message = b""
            while True:
                kind, is_last, body = await _frame(reader)
                if kind == _CLOSE:
                    code = int.from_bytes(body[:2], "big") if len(body) > 1 else _NORMAL
                    writer.write(_masked(_CLOSE, body[:2]))
                    if code != _NORMAL:
                        raise RuntimeError(f"WebSocket connection closed unexpectedly with close code {code}")
                    return
                if kind == _PING:
                    writer.write(_masked(_PONG, body))
                elif kind in (_TEXT, _CONTINUED):
                    message += body
                    if is_last:
                        yield message.decode(errors="replace")
                        message = b""
        except (asyncio.IncompleteReadError, OSError) as error:
            raise RuntimeError(f"WebSocket connection closed unexpectedly with close code 1006: {error}") from error
        finally:
            writer.close()

    async def _upgrade(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        host = f"[{self._host}]" if ":" in self._host else self._host
        fields = {
            "Host": f"{host}:{self._port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
            **self._headers,
        }
        lines = [f"GET {self._prefix}{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head[:_HEAD_BYTES_MAX].decode(errors="replace").split("\r\n")
        told = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if " 101 " not in f"{first} ":
            length = told.get("content-length", "")
            text = await reader.read(min(int(length), _FRAME_BYTES_MAX)) if length.isdigit() else b""
            status = first.split(" ")[1] if " " in first else "?"
            raise RuntimeError(f"Request failed with status code {status}: {text.decode(errors='replace')}.")
        wanted = base64.b64encode(hashlib.sha1((key + _MAGIC).encode(), usedforsecurity=False).digest()).decode()
        if told.get("sec-websocket-accept") != wanted:
            raise RuntimeError(f"{self.address} answers a WebSocket with another's key: something between changes what is sent")

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=_ANSWER_LIMIT_S, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_LIMIT_S)


def headers(address: str, given: Mapping[str, Any] | None, cookies: Mapping[str, Any] | None) -> dict[str, str]:
    """What is sent with each request: RAY_JOB_HEADERS, what the program gave, and a token: that of RAY_AUTH_TOKEN, or of this
    user's own cluster where its dashboard is asked."""
    said = os.environ.get("RAY_JOB_HEADERS")
    try:
        fields = {str(name): str(value) for name, value in (json.loads(said) if said else {}).items()}
    except (ValueError, AttributeError) as error:
        raise ValueError(f"RAY_JOB_HEADERS is {said!r}; it is a JSON object of texts: {error}") from None
    fields.update({str(name): str(value) for name, value in (given or {}).items()})
    if cookies:
        jar: SimpleCookie = SimpleCookie({str(name): str(value) for name, value in cookies.items()})
        fields["Cookie"] = "; ".join(f"{name}={morsel.coded_value}" for name, morsel in jar.items())
    if "authorization" not in {name.lower() for name in fields} and (token := _token() or _own_token(address)):
        fields["Authorization"] = f"Bearer {token}"
    for name, value in fields.items():
        if any(letter in name + value for letter in "\r\n\0"):
            raise ValueError(f"the header {name!r} has a line break or a zero byte, which no header can have")
    return fields


def _token() -> str:
    token, path = os.environ.get("RAY_AUTH_TOKEN"), os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        token = Path(path).expanduser().read_text()
    return (token or "").strip()


def _own_token(address: str) -> str:
    """The token of the cluster of this user, on this machine, whose dashboard has the address; empty where it is another's."""
    asked = urllib.parse.urlsplit(address)
    for file in _core.sessions_root().glob("session_*/dashboard.json"):
        try:
            told = json.loads(file.read_text())
            known = urllib.parse.urlsplit(told["url"])
            is_it = (known.scheme, known.port) == (asked.scheme, asked.port) and asked.hostname in (known.hostname, "localhost")
            # The process that has the port lives and is this user's: nobody else can listen there.
            if is_it and os.stat(f"/proc/{int(told['pid'])}").st_uid == os.geteuid():
                return (file.parent / "http-token").read_text().strip()
        except (OSError, ValueError, KeyError):
            continue
    return ""


def _tls(verify: str | bool) -> ssl.SSLContext:
    if verify is False:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if isinstance(verify, str):
        place = Path(verify)
        return ssl.create_default_context(cafile=None if place.is_dir() else verify, capath=verify if place.is_dir() else None)
    return ssl.create_default_context()


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bool, bytes]:
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    if length > 125:
        length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
    if second & 0x80 or length > _FRAME_BYTES_MAX:
        raise RuntimeError("WebSocket connection closed unexpectedly with close code 1002: the server sends what none may send")
    return first & 0x0F, bool(first & 0x80), await reader.readexactly(length)


def _masked(kind: int, body: bytes) -> bytes:
    key = os.urandom(4)
    return bytes([0x80 | kind, 0x80 | len(body)]) + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(body))


def uploaded(site: Site, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The environment with packages that the site has in the place of folders and files of this machine."""
    result = {name: value for name, value in environment.items() if name != "excludes"}
    excludes = list(environment.get("excludes") or [])
    if folder := result.get("working_dir"):
        result["working_dir"] = _shipped(site, str(folder), [*packages.default_excludes(), *excludes], within="")
    if modules := result.get("py_modules"):
        result["py_modules"] = [
            _shipped(site, str(one), ["__pycache__", *excludes], within=Path(str(one)).resolve().name) for one in modules
        ]
    return result


def _shipped(site: Site, text: str, excludes: list[str], within: str) -> str:
    if "://" in text:
        return text
    path = Path(text)
    if path.is_dir():
        name = packages.ship_folder(path, excludes, within=within)
        file, ending = packages.zip_of(name), ".zip"
    elif path.is_file() and path.suffix in (".zip", ".whl", ".jar"):
        # Others are to see what its name says, as of a wheel.
        name, file, ending = hashlib.sha256(path.read_bytes()).hexdigest(), path, path.suffix
    elif path.is_file() and path.suffix == ".py":
        name = packages.ship_file(path)
        file, ending = packages.zip_of(name), ".zip"
    else:
        raise ValueError(f"the runtime_env names {text!r}, which is no folder, .py file, .zip or .whl: correct the path")
    package = f"_ray_pkg_{name[:16]}{ending}" if ending != ".whl" else path.name
    place = f"/api/packages/gcs/{urllib.parse.quote(package)}"
    status, told = site.ask("GET", place)
    if status == http.client.NOT_FOUND:
        status, told = site.ask("PUT", place, content=file)
    if status != http.client.OK:
        raise RuntimeError(f"Request failed with status code {status}: {told}.")
    return f"gcs://{package}"
