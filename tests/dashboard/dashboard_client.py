"""A head with a dashboard, and how it is asked as a stranger would."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path

from homes import Home, free_port
from watching import wait_until

#: The token of the environment; the heads of these tests go by it.
TOKEN = "a-token-of-the-tests-0123456789"


@dataclass
class Told:
    """An answer, as bytes have it."""

    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Dashboard:
    """A head whose dashboard runs."""

    home: Home
    port: int
    agent_port: int
    session: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, request: bytes) -> bytes:
        """All that is answered to these bytes until the connection ends."""
        with self.connect() as connection:
            connection.sendall(request)
            answer = b""
            while piece := connection.recv(1 << 16):
                answer += piece
            return answer

    def ask(self, method: str, path: str, *fields: str, body: bytes = b"", token: str | None = TOKEN) -> Told:
        """What one request is answered, on a connection of its own."""
        lines = [f"{method} {path} HTTP/1.1", *fields, "Connection: close"]
        if not any(field.lower().startswith("host:") for field in fields):
            lines.append(f"Host: 127.0.0.1:{self.port}")
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        return told(self.raw("\r\n".join([*lines, "", ""]).encode() + body))

    def pid(self) -> int:
        return int(json.loads((self.session / "dashboard.json").read_text())["pid"])


def told(answer: bytes) -> Told:
    """An answer in its parts."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if fields.get("transfer-encoding") == "chunked":
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
        body = whole
    return Told(int(first.split(" ")[1]), fields, body)


def session_of(home: Home) -> Path:
    """The directory of the one session of this home."""
    # Not in all folders below, some of which come and go while they are looked through.
    (found,) = home.folder.glob("oxiray-*/session_*/session.json")
    return found.parent


def started(folder: Path, *options: str, **variables: str) -> Dashboard:
    """Starts a head with a dashboard and waits until that answers."""
    home, port, agent_port = Home(folder), free_port(), free_port()
    home.environment |= {"RAY_AUTH_TOKEN": TOKEN, **variables}
    done = home.oxiray(
        "start", "--head", f"--port={home.port}", "--num-cpus=2", "--include-dashboard=true", f"--dashboard-port={port}",
        f"--dashboard-agent-listen-port={agent_port}", *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    session = session_of(home)
    wait_until(lambda: (session / "dashboard.json").exists())
    return Dashboard(home, port, agent_port, session)

