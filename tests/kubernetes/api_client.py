"""A small client of the Kubernetes API, for tests: of the stand-in, or of a real server by a kubeconfig."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from api_objects import KINDS, Object


class ApiError(Exception):
    """The server refused."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """Objects by their plural, in one namespace."""

    def __init__(self, url: str, namespace: str, headers: dict[str, str] | None = None, tls: Any = None) -> None:
        self.address = urllib.parse.urlsplit(url)
        self.namespace, self.headers, self.tls = namespace, headers or {}, tls

    @classmethod
    def of_kubeconfig(cls, path: str, namespace: str) -> Api:
        with open(path) as file:
            config = yaml.safe_load(file)
        named = {entry["name"]: entry["context"] for entry in config["contexts"]}[config["current-context"]]
        cluster = {entry["name"]: entry["cluster"] for entry in config["clusters"]}[named["cluster"]]
        user = {entry["name"]: entry["user"] for entry in config["users"]}[named["user"]]
        headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        tls = None
        if cluster["server"].startswith("https"):
            tls = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
            if "certificate-authority-data" in cluster:
                tls.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
            if "client-certificate-data" in user:
                with tempfile.NamedTemporaryFile() as pair:
                    pair.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
                    pair.write(base64.b64decode(user["client-key-data"]))
                    pair.flush()
                    tls.load_cert_chain(pair.name)
            elif "client-certificate" in user:
                tls.load_cert_chain(user["client-certificate"], user["client-key"])
        return cls(cluster["server"], namespace, headers, tls)

    def path(self, plural: str, name: str = "", part: str = "") -> str:
        kind = next(kind for kind in KINDS if kind.plural == plural)
        within = f"/namespaces/{self.namespace}" if kind.namespaced else ""
        root = f"/{'apis' if '/' in kind.version else 'api'}/{kind.version}{within}/{plural}"
        return "/".join(filter(None, [root, name, part]))

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self.address.hostname or "", self.address.port
        if self.tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=60, context=self.tls)
        return http.client.HTTPConnection(host, port, timeout=60)

    def request(self, method: str, path: str, body: Any = None, form: str = "application/json") -> Any:
        connection = self._connect()
        with contextlib.closing(connection):
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": form, **self.headers})
            response = connection.getresponse()
            answer = json.loads(response.read() or b"{}")
            if response.status >= 300:
                raise ApiError(response.status, answer.get("message", ""))
            return answer

    def get(self, plural: str, name: str) -> Object | None:
        try:
            return dict(self.request("GET", self.path(plural, name)))
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def list(self, plural: str, labels: str = "") -> list[Object]:
        query = "?" + urllib.parse.urlencode({"labelSelector": labels}) if labels else ""
        return list(self.request("GET", self.path(plural) + query)["items"])

    def create(self, plural: str, given: Object) -> Object:
        return dict(self.request("POST", self.path(plural), given))

    def merge(self, plural: str, name: str, patch: Object, part: str = "") -> Object:
        form = "application/merge-patch+json"
        return dict(self.request("PATCH", self.path(plural, name, part), patch, form))

    def patch(self, plural: str, name: str, operations: list[Object]) -> Object:
        return dict(self.request("PATCH", self.path(plural, name), operations, "application/json-patch+json"))

    def delete(self, plural: str, name: str, grace: int | None = None) -> None:
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        with contextlib.suppress(ApiError):
            self.request("DELETE", self.path(plural, name), body)

    def watch(self, plural: str, labels: str, is_over: Callable[[], bool]) -> Iterator[Object | None]:
        """Lists of objects, whenever something may have changed, and nothing once a second."""
        query = urllib.parse.urlencode({"labelSelector": labels, "watch": "1", "timeoutSeconds": "60"})
        while not is_over():
            try:
                connection = self._connect()
                with contextlib.closing(connection):
                    connection.timeout = 1.0
                    connection.request("GET", f"{self.path(plural)}?{query}", headers=self.headers)
                    response = connection.getresponse()
                    yield from self._read(response, is_over)
            except (OSError, http.client.HTTPException):
                yield None
                time.sleep(0.05)  # the server is away

    def _read(self, response: http.client.HTTPResponse, is_over: Callable[[], bool]) -> Iterator[Object | None]:
        while not is_over():
            line = response.readline()
            if not line:
                return
            yield dict(json.loads(line))
