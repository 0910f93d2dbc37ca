"""The record of who did what over HTTP."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from dashboard_client import TOKEN, Dashboard
from watching import wait_until

pytestmark = pytest.mark.timeout(300)
#: What no line may have.
SECRET = "a-password-of-a-program"


def record(dashboard: Dashboard) -> Path:
    return dashboard.session / "logs" / "audit.jsonl"


def lines(dashboard: Dashboard) -> list[dict[str, Any]]:
    path = record(dashboard)
    # What is being written has no end of a line yet.
    text = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def submit(name: str) -> bytes:
    asked = {
        "entrypoint": f"PASSWORD={SECRET} sleep 600",
        "submission_id": name,
        "runtime_env": {"env_vars": {"OTHER": SECRET}},
        "metadata": {"note": SECRET},
    }
    return json.dumps(asked).encode()


def test_what_is_done_has_a_line_each(dashboard: Dashboard) -> None:
    before = len(lines(dashboard))
    link = dashboard.home.oxiray("dashboard").stdout.strip()
    key = link.partition("/#key=")[2]
    page = (f"Origin: {dashboard.url}", "Content-Type: application/json")
    shown = json.loads(dashboard.ask("POST", "/ox/v1/session", *page, body=b"{}", token=key).text)["key"]
    package = "/api/packages/gcs/_ray_pkg_00000000000000ab.zip"
    acts = [
        ("POST", "/api/jobs/", submit("audited"), TOKEN),
        ("POST", "/api/jobs/", submit("audited"), TOKEN),
        ("PUT", package, b"no archive", TOKEN),
        ("POST", "/ox/v1/jobs/audited/stop", b"{}", shown),
        ("POST", "/api/jobs/nobody/stop?token=" + SECRET, b"", TOKEN),
        ("DELETE", "/api/jobs/nobody", b"", TOKEN),
        ("GET", "/worker/traceback?pid=1&ip=127.0.0.1&token=" + SECRET, b"", TOKEN),
    ]
    # Ray's paths are changed by no browser.
    statuses = [
        dashboard.ask(method, path, *(page if path.startswith("/ox/") else ()), body=body, token=token).status
        for method, path, body, token in acts
    ]
    told = lines(dashboard)[before:]
    entrypoint = hashlib.sha256(f"PASSWORD={SECRET} sleep 600".encode()).hexdigest()
    expected = [
        ("make_key", None, "token", 200, "done", None),
        ("begin_session", None, "one_time_key", 200, "done", None),
        ("submit_job", "audited", "token", 200, "done", entrypoint),
        ("submit_job", "audited", "token", 500, "failed", entrypoint),
        ("upload_package", "gcs/_ray_pkg_00000000000000ab.zip", "token", 200, "done", None),
        ("stop_job", "audited", "session_key", 200, "done", None),
        ("stop_job", "nobody", "token", 404, "refused", None),
        ("delete_job", "nobody", "token", 404, "refused", None),
        ("stacks", "pid=1", "token", 404, "refused", None),
    ]
    names = ("act", "subject", "key", "status", "result", "entrypoint_sha256")
    assert [tuple(line.get(name) for name in names) for line in told] == expected
    assert statuses == [line["status"] for line in told[2:]]
    for line in told:
        assert line["uid"] == os.getuid()
        assert line["peer"].startswith("127.0.0.1:")
        assert set(line) <= {"time", "peer", "uid", *names}
    assert [line["time"] for line in told] == sorted(line["time"] for line in told)


def test_what_reads_only_has_none(dashboard: Dashboard) -> None:
    before = record(dashboard).read_bytes()
    for path in ("/api/version", "/api/jobs/", "/api/v0/nodes", "/ox/v1/overview"):
        assert dashboard.ask("GET", path).status == 200
    assert dashboard.ask("GET", "/api/jobs/", token=None).status == 401
    assert record(dashboard).read_bytes() == before


def test_what_is_refused_at_the_door_has_a_line_with_the_reason(dashboard: Dashboard) -> None:
    reading = dashboard.home.oxiray("dashboard", "token", "--read").stdout.strip()
    wrong = "w" * 32
    for method, path, fields, token, expected in [
        ("DELETE", "/api/jobs/one", (), reading, ("delete_job", "read_token", 403, "Forbidden: this token only reads")),
        ("POST", "/api/jobs/", (), None, ("submit_job", None, 401, "Unauthorized: Missing authentication token")),
        ("POST", "/api/jobs/", (), wrong, ("submit_job", None, 403, "Forbidden: Invalid authentication token")),
        ("GET", "/api/version", (), wrong, ("read", None, 403, "Forbidden: Invalid authentication token")),
        ("POST", f"/{wrong}", (), TOKEN, None),
        ("POST", "/api/jobs/", ("Host: evil.com",), TOKEN, ("submit_job", "token", 421, "Misdirected Request")),
        (
            "POST", "/api/jobs/", ("User-Agent: Mozilla/5.0",), TOKEN,
            ("submit_job", "token", 405, "'POST' method not allowed for browser traffic."),
        ),
    ]:  # fmt: skip
        before = len(lines(dashboard))
        answer = dashboard.ask(method, path, *fields, token=token)
        if expected is None:
            assert answer.status == 404
            continue
        # The porch tells of it while it answers.
        wait_until(lambda before=before: len(lines(dashboard)) == before + 1)
        line = lines(dashboard)[-1]
        assert (line["act"], line.get("key"), line["status"], line["why"]) == expected
        assert (line["result"], answer.status) == ("refused", line["status"])
        # Whoever is refused may be gone before it is looked whose process that was.
        assert line.get("uid") in (None, os.getuid())


def test_guesses_are_counted_and_few_have_a_line(dashboard: Dashboard) -> None:
    before = len(lines(dashboard))
    guess = f"DELETE /api/jobs/one HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'w' * 32}\r\n\r\n".encode()
    count = 60
    for _ in range(count):
        with dashboard.connect() as connection:
            connection.sendall(guess)
            connection.shutdown(socket.SHUT_WR)

    def counted() -> int:
        told = lines(dashboard)[before:]
        return sum(line.get("left_out", 0) for line in told) + sum(1 for line in told if "peer" in line)

    wait_until(lambda: counted() == count)
    # Each second has ten lines, and one more tells of the others.
    assert len(lines(dashboard)) - before < count


def test_who_goes_before_the_answer_has_a_line(dashboard: Dashboard) -> None:
    before = len(lines(dashboard))
    names = [f"gone-{number}" for number in range(10)]
    for name in names:
        body = submit(name)
        with dashboard.connect() as connection:
            connection.sendall(
                f"POST /api/jobs/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
    wait_until(lambda: len(lines(dashboard)) == before + len(names))
    told = {line.get("subject"): line["result"] for line in lines(dashboard)[before:]}
    assert set(told.values()) <= {"done", "unknown"}
    # Whatever was begun is named.
    jobs = {job["submission_id"] for job in json.loads(dashboard.ask("GET", "/api/jobs/").text)}
    assert jobs & set(names) <= set(told)


def test_the_record_is_its_owners_is_listed_and_has_no_secret(dashboard: Dashboard) -> None:
    assert record(dashboard).stat().st_mode & 0o777 == 0o600
    assert "audit.jsonl" in dashboard.home.oxiray("logs").stdout
    read = dashboard.home.oxiray("logs", "audit.jsonl", "--tail", "-1").stdout
    assert read == record(dashboard).read_text()
    tokens = [TOKEN, *((dashboard.session / name).read_text() for name in ("http-token-read",))]
    assert not [secret for secret in (SECRET, *tokens, "w" * 32, "evil.com") if secret in read]


def test_an_act_is_done_also_where_it_cannot_be_recorded(dashboard: Dashboard) -> None:
    """It is said once in the dashboard's log, and once more when acts have lines again."""
    before = record(dashboard)
    kept = before.rename(before.with_name("audit.jsonl.kept"))
    said = lambda text: (dashboard.session / "logs" / "dashboard.log").read_text().count(text)  # noqa: E731
    pid = dashboard.pid()
    # It has the file open: another process finds the folder that stands in its place.
    before.mkdir()
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: dashboard.pid() != pid)
    for _ in range(3):
        assert dashboard.ask("POST", "/ox/v1/keys").status == 200
    assert said("acts over HTTP cannot be recorded in ") == 1
    before.rmdir()
    kept.rename(before)
    assert dashboard.ask("POST", "/ox/v1/keys").status == 200
    assert said("acts are recorded again; 3 have no line") == 1
    assert lines(dashboard)[-1]["act"] == "make_key"
