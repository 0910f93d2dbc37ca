"""A stand-in for a Kubernetes API server: HTTP in front of `api_store`, with faults on request.

`python tests/kubernetes/api_server.py PORT` runs one by itself.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import socket
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

from api_objects import KINDS, Kind, Object, Refused, selector
from api_store import Store

PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<version>[\w.]+/\w+))(?:/namespaces/(?P<namespace>[\w.-]+))?"
    r"/(?P<plural>\w+)(?:/(?P<name>[\w.-]+))?(?:/(?P<part>\w+))?"
)
#: What a request may ask for beside its path. `fieldValidation` and the like change nothing here.
OPTIONS = {"labelSelector", "limit", "continue", "watch", "resourceVersion", "resourceVersionMatch", "timeoutSeconds"}
OPTIONS |= {"allowWatchBookmarks", "fieldManager", "force", "fieldValidation"}


#: The token of the operator: faults are its alone.
OPERATOR = "operator"


@dataclass
class Fault:
    """What happens to the operator's next requests of a kind."""

    verb: str
    plural: str
    code: int
    times: int
    #: Whether the request is carried out all the same, and only its answer lost.
    after: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    #: The one object that it is about; all where it is empty.
    name: str = ""


class ApiServer:
    """Serves until it is closed; can be gone for a while, and forget, refuse and lose."""

    def __init__(self, port: int = 0) -> None:
        self.store = Store()
        self.faults: list[Fault] = []
        #: The operator's requests, by verb and kind.
        self.counted: dict[str, int] = {}
        #: The rules that a token is bound to; who shows none of these tokens may do anything.
        self.rules: dict[str, list[Object]] = {}
        self.denied: list[str] = []
        #: Plurals of kinds that this API is too old for.
        self.missing: set[str] = set()
        self.connections: set[socket.socket] = set()
        #: Watches begun before this are over.
        self.watch_epoch = 0
        self.port = port
        self._listen()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _listen(self) -> None:
        api = self

        class Handler(_Handler):
            server_api = api

        self.server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Refuses connections and cuts those that there are."""
        self.server.shutdown()
        self.server.server_close()
        self.drop_watches()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def come_back(self) -> None:
        """Serves again, at the same port and with all there was."""
        self._listen()

    def drop_watches(self) -> None:
        """Every watch ends without a word."""
        with self.store.changed:
            self.watch_epoch += 1
            self.store.changed.notify_all()

    def forget_history(self) -> None:
        """Every watch ends, and cannot be gone on with."""
        with self.store.changed:
            self.store.forget_history()
        self.drop_watches()

    def fail(
        self, verb: str, plural: str, code: int, times: int = 1, *, after: bool = False, name: str = "", **headers: str
    ) -> None:
        """The next `times` requests of this kind are answered with `code`; 0 cuts the connection instead."""
        self.faults.append(Fault(verb, plural, code, times, after, headers, name))

    def fault_for(self, verb: str, plural: str, name: str) -> Fault | None:
        for fault in self.faults:
            is_meant = fault.verb in (verb, "*") and fault.plural in (plural, "*") and fault.name in (name, "")
            if fault.times > 0 and is_meant:
                fault.times -= 1
                return fault
        return None

    def may(self, token: str, verb: str, kind: Kind, part: str, namespace: str) -> bool:
        """A rule with a `namespace` is a role's of that namespace; without one it holds in all."""
        resource = f"{kind.plural}/{part}" if part else kind.plural
        return token not in self.rules or any(
            kind.group in rule["apiGroups"]
            and resource in rule["resources"]
            and verb in rule["verbs"]
            and rule.get("namespace", namespace) == namespace
            for rule in self.rules[token]
        )


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go are nothing to write about; anything else is a fault of the stand-in."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_api: ApiServer
    # Without it, an answer in two parts waits for the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self.server_api.connections.add(self.connection)

    def finish(self) -> None:
        self.server_api.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._answer(body)
        except Refused as refused:
            self._send(refused.code, _status(refused))

    def _answer(self, body: bytes) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/version":
            return self._send(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.0-stand-in"})
        match = PATH.fullmatch(url.path)
        version = match and (match["core"] or match["version"])
        kind = next((one for one in KINDS if match and (one.version, one.plural) == (version, match["plural"])), None)
        if match is None or kind is None or kind.plural in self.server_api.missing:
            raise Refused(404, "NotFound", f"the server could not find the requested resource {url.path}")
        if unknown := set(query) - OPTIONS:
            raise Refused(501, "NotImplemented", f"options {sorted(unknown)} are not implemented here")
        namespace, name, part = match["namespace"] or "", match["name"] or "", match["part"] or ""
        watches = query.get("watch") in ("1", "true")
        verb = {"GET": "get" if name else "list", "POST": "create", "PUT": "update"}.get(self.command)
        verb = "watch" if watches else verb or self.command.lower()
        api = self.server_api
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token == OPERATOR:
            with api.store.changed:
                asked = " ".join(filter(None, [verb, kind.plural, part]))
                api.counted[asked] = api.counted.get(asked, 0) + 1
        if not api.may(token, verb, kind, part, namespace):
            api.denied.append(f"{verb} {kind.plural} {part}")
            raise Refused(403, "Forbidden", f"the token may not {verb} {kind.plural} {part}")
        fault = api.fault_for(verb, kind.plural, name) if token == OPERATOR else None
        if fault and not fault.after:
            return self._fail(fault)
        if watches:
            return self._watch(kind, namespace, query)
        if body and "yaml" not in self.headers.get("Content-Type", "") and "json" not in self.headers["Content-Type"]:
            raise Refused(415, "UnsupportedMediaType", "only JSON is understood here")
        given = json.loads(body) if body else {}
        with api.store.changed:
            answer, code = self._do(verb, kind, namespace, name, part, given, query)
            text = json.dumps(answer).encode()
        if fault:
            return self._fail(fault)
        self._send(code, text)

    def _do(
        self, verb: str, kind: Kind, namespace: str, name: str, part: str, given: Any, query: Object
    ) -> tuple[Object, int]:
        store, manager = self.server_api.store, query.get("fieldManager", "unknown")
        if verb == "list":
            items = store.list(kind, namespace, query.get("labelSelector", ""))
            metadata = {"resourceVersion": str(store.revision)}
            return {"apiVersion": kind.version, "kind": f"{kind.kind}List", "metadata": metadata, "items": items}, 200
        if verb == "get":
            return store.get(kind, namespace, name), 200
        if verb == "create" and part == "binding":
            store.bind(namespace, name, given["target"]["name"])
            return {"apiVersion": "v1", "kind": "Status", "status": "Success"}, 201
        if verb == "create" and not name:
            return store.create(kind, namespace, given, manager), 201
        if verb == "update":
            return store.replace(kind, namespace, name, given, part, manager), 200
        if verb == "patch":
            form = self.headers["Content-Type"].split(";")[0]
            return store.patch(kind, namespace, name, form, given, part, query), 200
        if verb == "delete" and name:
            return store.delete(kind, namespace, name, given), 200
        raise Refused(405, "MethodNotAllowed", f"{verb} of {kind.plural} is not implemented here")

    def _watch(self, kind: Kind, namespace: str, query: Object) -> None:
        api, store = self.server_api, self.server_api.store
        matches = selector(query.get("labelSelector", ""))
        until = time.monotonic() + float(query.get("timeoutSeconds", 300))
        with store.changed:
            epoch, seen = api.watch_epoch, int(query.get("resourceVersion") or 0)
            first = store.list(kind, namespace, query.get("labelSelector", "")) if seen == 0 else []
            is_gone = seen != 0 and seen < store.oldest
            seen = seen or store.revision
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if is_gone:
            refused = Refused(410, "Expired", f"too old resource version: {seen} ({store.oldest})")
            self._chunk([{"type": "ERROR", "object": _status(refused)}])
        else:
            self._chunk([{"type": "ADDED", "object": found} for found in first])
            while api.watch_epoch == epoch and time.monotonic() < until:
                with store.changed:
                    news = self._news(kind, namespace, seen, matches)
                    if not news and seen == store.revision:
                        store.changed.wait(min(1.0, max(0.0, until - time.monotonic())))
                        news = self._news(kind, namespace, seen, matches) if api.watch_epoch == epoch else []
                    seen = store.revision
                self._chunk(news)
        if api.watch_epoch != epoch:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _news(self, kind: Kind, namespace: str, seen: int, matches: Any) -> list[Object]:
        news = []
        for revision, plural, what, before, after in reversed(self.server_api.store.history):
            if revision <= seen:
                break
            if plural != kind.plural or namespace not in ("", after["metadata"].get("namespace", "")):
                continue
            was, fits = before is not None and matches(before), matches(after)
            if what == "MODIFIED" and was != fits:
                what = "ADDED" if fits else "DELETED"
            if fits or was:
                news.append({"type": what, "object": after})
        return news[::-1]

    def _chunk(self, events: list[Object]) -> None:
        if events:
            text = b"".join(json.dumps(event).encode() + b"\n" for event in events)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.flush()

    def _fail(self, fault: Fault) -> None:
        if fault.code == 0:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        reasons = {403: "Forbidden", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
        refused = Refused(fault.code, reasons.get(fault.code, "Unknown"), "a fault that the test asked for")
        self._send(fault.code, _status(refused), fault.headers)

    def _send(self, code: int, answer: Object | bytes, headers: dict[str, str] | None = None) -> None:
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        for key, value in (headers or {}).items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()


def _status(refused: Refused) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": refused.message,
        "reason": refused.reason,
        "details": {"name": refused.name} if refused.name else {},
        "code": refused.code,
    }


if __name__ == "__main__":
    running = ApiServer(int(sys.argv[1]))
    print(running.url, flush=True)
    threading.Event().wait()
