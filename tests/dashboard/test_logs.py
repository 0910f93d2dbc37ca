"""What workers print, over HTTP, as Ray's paths name it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from dashboard_client import TOKEN, Dashboard
from watching import wait_until

PROGRAM = """
import sys
import ray

ray.init(address="auto", log_to_driver=False)

@ray.remote
def speak(count):
    for number in range(count):
        print("\\x1b[31mred\\x1b[0m line", number)
    print("to stderr", file=sys.stderr)
    return ray.get_runtime_context().get_task_id()

@ray.remote(num_cpus=0)
class Speaker:
    def say(self, text):
        print(text, flush=True)

speaker = Speaker.remote()
ray.get(speaker.say.remote("first"))
print(ray.get(speak.remote(3)), speaker._actor_id.hex(), flush=True)
for line in sys.stdin:
    ray.get(speaker.say.remote(line.strip()))
"""


class Speaking:
    """A program whose workers print."""

    def __init__(self, dashboard: Dashboard, program: subprocess.Popen[str]) -> None:
        assert program.stdin is not None and program.stdout is not None
        self.dashboard, self.program, self.to = dashboard, program, program.stdin
        self.task, self.actor = program.stdout.readline().split()
        [node] = json.loads(dashboard.ask("GET", "/api/v0/nodes").text)["data"]["result"]["result"]
        self.node, self.ip = node["node_id"], node["node_ip"]

    def ask(self, path: str = "", **query: object) -> tuple[int, str]:
        told = self.dashboard.ask("GET", f"/api/v0/logs{path}?{urllib.parse.urlencode(query)}")
        return told.status, told.text


@pytest.fixture(scope="module")
def speaking(dashboard: Dashboard) -> Iterator[Speaking]:
    line = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dashboard.home.environment
    ) as program:
        yield Speaking(dashboard, program)
        assert program.stdin is not None
        program.stdin.close()


def test_a_nodes_files_are_listed_by_what_they_are_of(speaking: Speaking) -> None:
    for where in ({"node_id": speaking.node}, {"node_ip": speaking.ip}):
        status, told = speaking.ask(**where)
        files = json.loads(told)["data"]["result"]
        assert status == 200 and "daemon.log" in files["raylet"] and files["worker_out"] and files["agent"] == []
    _, told = speaking.ask(node_id=speaking.node, glob="*.err")
    assert [kind for kind, names in json.loads(told)["data"]["result"].items() if names] == ["worker_err"]


def test_what_a_task_printed_is_sent(speaking: Speaking) -> None:
    red = "".join(f"\x1b[31mred\x1b[0m line {number}\n" for number in range(3))
    wait_until(lambda: speaking.ask("/file", task_id=speaking.task) == (200, red))
    assert speaking.ask("/file", task_id=speaking.task, lines=1)[1] == "\x1b[31mred\x1b[0m line 2\n"
    assert speaking.ask("/file", task_id=speaking.task, filter_ansi_code=True)[1].splitlines()[0] == "red line 0"
    wait_until(lambda: speaking.ask("/file", task_id=speaking.task, suffix="err")[1] == "to stderr\n")
    assert "\nfirst\n" in speaking.ask("/file", actor_id=speaking.actor, node_id=speaking.node)[1]


def test_a_file_is_sent_by_its_name_as_an_attachment(speaking: Speaking) -> None:
    query = urllib.parse.urlencode({"node_id": speaking.node, "filename": "daemon.log", "download_filename": 'a"b.txt'})
    told = speaking.dashboard.ask("GET", f"/api/v0/logs/file?{query}")
    assert told.status == 200 and told.fields["content-type"] == "text/plain; charset=utf-8" and told.body
    assert told.fields["content-disposition"] == 'attachment; filename="ab.txt"'


def test_a_stream_goes_on_while_more_is_printed(speaking: Speaking) -> None:
    heard = b""
    path = f"/api/v0/logs/stream?{urllib.parse.urlencode({'actor_id': speaking.actor, 'lines': 0})}"
    with speaking.dashboard.connect() as connection:
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{speaking.dashboard.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(request.encode())
        # What is printed from here on is not there yet when the file's end is looked at.
        while b"\r\n\r\n" not in heard:
            heard += connection.recv(1 << 16)
        for word in ("second", "third"):
            speaking.to.write(f"{word}\n")
            speaking.to.flush()
            while word.encode() not in heard:
                heard += connection.recv(1 << 16)
    assert heard.startswith(b"HTTP/1.1 200") and b"first" not in heard


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("", {}, 400, "Neither node_id nor node_ip is given"),
        ("", {"node_id": "ab" * 28}, 404, "there is no node"),
        ("/file", {}, 500, "name what is meant"),
        ("/file", {"filename": "daemon.log"}, 500, "without node_id or node_ip"),
        ("/file", {"task_id": "zz"}, 500, "task_id=zz is no identifier"),
        ("/file", {"pid": "1", "suffix": "log"}, 500, "suffix=log is neither out nor err"),
        ("/file", {"pid": "1", "lines": "few"}, 500, "lines=few is no whole number"),
        ("/file", {"pid": "1"}, 500, "no file of logs is known"),
        ("/other", {}, 404, "404: Not Found"),
    ],
)
def test_what_is_wrong_is_told(speaking: Speaking, path: str, query: dict[str, str], status: int, said: str) -> None:
    told_status, told = speaking.ask(path, **query)
    assert told_status == status and said in told


def test_no_file_outside_is_named(speaking: Speaking) -> None:
    for name in ("../session.json", "/etc/passwd", "..%2F..%2Fetc%2Fpasswd"):
        assert speaking.ask("/file", node_id=speaking.node, filename=name)[0] == 500


def asked_by_the_page(speaking: Speaking, **query: object) -> dict[str, Any]:
    told = speaking.dashboard.ask("GET", f"/ox/v1/logs?{urllib.parse.urlencode(query)}")
    assert told.status == 200, told.text
    return dict(json.loads(told.text))


def test_the_page_is_told_the_end_of_a_log_and_what_is_around_a_place(speaking: Speaking) -> None:
    of_task = {"task_id": speaking.task, "attempt_number": 0, "node_id": speaking.node}
    wait_until(lambda: "line 2" in (told := asked_by_the_page(speaking, **of_task))["text"] and told["ended"])
    told = asked_by_the_page(speaking, **of_task)
    assert told["text"].splitlines()[0].endswith("red\x1b[0m line 0") and told["ended"] and not told["more"]
    assert told["from"] == told["begin"] and told["next"] - told["from"] == len(told["text"])
    wait_until(lambda: asked_by_the_page(speaking, **of_task, suffix="err")["text"] == "to stderr\n")
    # An actor's file grows: what is asked for next begins where the last answer ended.
    of_actor = {"actor_id": speaking.actor, "node_id": speaking.node}
    before = asked_by_the_page(speaking, **of_actor)
    assert not before["ended"] and before["file"].endswith(".out")
    speaking.to.write("x" * 100 + "\n")
    speaking.to.flush()
    wait_until(lambda: asked_by_the_page(speaking, **of_actor, **{"from": before["next"]})["text"] == "x" * 100 + "\n")
    after = asked_by_the_page(speaking, **of_actor, **{"from": before["next"]})
    assert (after["from"], after["next"]) == (before["next"], before["next"] + 101)
    above = asked_by_the_page(speaking, **of_actor, before=before["next"])
    assert (above["text"], above["next"]) == (before["text"], before["next"])
    # The worker's own identifier stands in its file's name.
    worker = before["file"].split("-")[1]
    assert asked_by_the_page(speaking, worker_id=worker)["file"] == before["file"]


def test_the_page_is_told_what_is_wrong_with_its_question(speaking: Speaking) -> None:
    assert asked_by_the_page(speaking, pid=1) == {"file": None}
    for query, says in {"": "name what is meant", "pid=1&from=x": "from=x is no place", "worker_id=z": "is no identifier"}.items():
        told = speaking.dashboard.ask("GET", f"/ox/v1/logs?{query}")
        assert told.status == 400 and says in told.text, told.text
