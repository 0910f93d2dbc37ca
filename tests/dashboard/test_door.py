"""The door of the dashboard: what a stranger, a page of another site and a program with a token hear."""

from __future__ import annotations

import io
import json
import re
import socket
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from dashboard_client import TOKEN, Dashboard, told
from watching import wait_until

pytestmark = pytest.mark.timeout(300)
VERSION = "/api/version"
SOURCES = Path(__file__).resolve().parent.parent.parent / "crates/dashboard/src"
#: Every route whose path names something, as the program's tables have them.
NAMING = sorted(
    {
        found
        for source in SOURCES.rglob("*.rs")
        for found in re.findall(r'route!\("([A-Z]+)", "([^"]*\{\}[^"]*)"', source.read_text())
    }
)


def memory(pid: int) -> int:
    """The process's memory, in KiB."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0])


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ([], 401, "Unauthorized: Missing authentication token"),
        (["Authorization: Bearer wrong-token-wrong-token"], 403, "Forbidden: Invalid authentication token"),
        ([f"Authorization: {TOKEN}"], 403, "Forbidden: Invalid authentication token"),
        ([f"Authorization: Basic {TOKEN}"], 403, "Forbidden: Invalid authentication token"),
        ([f"Authorization: Bearer {TOKEN}"], 200, "2.60.0"),
        ([f"X-Ray-Authorization: Bearer {TOKEN}"], 200, "2.60.0"),
        (["X-Ray-Authorization: Bearer wrong-token-wrong-token"], 403, "Invalid"),
        ([f"X-Ray-Authorization: {TOKEN}"], 403, "Invalid"),
        ([f"X-Ray-Authorization: Bearer {TOKEN}x"], 403, "Invalid"),
        ([f"Authorization: bearer {TOKEN}"], 403, "Invalid"),
        (["Authorization: Bearer "], 403, "Invalid"),
        (["Authorization:"], 403, "Invalid"),
        (["Authorization: Bearer wrong-token-wrong", f"X-Ray-Authorization: Bearer {TOKEN}"], 403, "Invalid"),
        ([f"Authorization: Bearer {TOKEN}"] * 2, 403, "Invalid"),
        ([f"Cookie: ray-authentication-token={TOKEN}"], 401, "Missing"),
        (["Cookie: ray-authentication-token=wrong-token-wrong-token"], 401, "Missing"),
        (["Cookie: ray-authentication-token=wrong", f"Authorization: Bearer {TOKEN}"], 200, "2.60.0"),
    ],
)
def test_a_token_lets_in_and_nothing_else(dashboard: Dashboard, fields: list[str], status: int, text: str) -> None:
    answer = dashboard.ask("GET", VERSION, *fields, token=None)
    assert (answer.status, text in answer.text) == (status, True), answer


def test_a_token_in_the_query_is_none(dashboard: Dashboard) -> None:
    assert dashboard.ask("GET", f"{VERSION}?token={TOKEN}", token=None).status == 401
    assert dashboard.ask("GET", f"{VERSION}?token={TOKEN}", token="wrong-token-wrong-token").status == 403
    assert dashboard.ask("GET", f"{VERSION}?token=wrong", token=TOKEN).status == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (["Host: evil.com"], 421),
        (["Host: 127.0.0.1.evil.com"], 421),
        (["Host: localhost.evil.com"], 421),
        (["Host: evil.com:8265"], 421),
        (["Host: 127.0.0.1@evil.com"], 421),
        (["Host: "], 421),
        (["Host: 127.0.0.1", "Host: evil.com"], 421),
        (["Host: localhost:9999"], 200),
        (["Host: [::1]:9999"], 200),
        (["Host: 10.1.2.3"], 200),
        (["Host: LOCALHOST"], 200),
    ],
)
def test_a_host_is_this_one(dashboard: Dashboard, fields: list[str], status: int) -> None:
    answer = dashboard.ask("GET", VERSION, *fields)
    assert answer.status == status
    assert status == 200 or answer.body == b""


def test_a_request_without_a_host_is_nobodys(dashboard: Dashboard) -> None:
    answer = dashboard.raw(f"GET {VERSION} HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 421")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (["Origin: http://evil.com"], 403),
        (["Origin: null"], 403),
        (["Origin: http://localhost:1", "Host: localhost:8265"], 403),
        (["Origin: http://localhost:8265", "Host: localhost:8265"], 200),
        (["Sec-Fetch-Site: cross-site"], 403),
        (["Sec-Fetch-Site: same-site"], 403),
        (["Sec-Fetch-Site: same-origin"], 200),
        (["Sec-Fetch-Site: none"], 200),
    ],
)
def test_pages_of_other_sites_hear_nothing(dashboard: Dashboard, fields: list[str], status: int) -> None:
    answer = dashboard.ask("GET", VERSION, *fields)
    assert answer.status == status
    assert not any(name.startswith("access-control-") for name in answer.fields)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("field", ["User-Agent: Mozilla/5.0", "Referer: http://127.0.0.1/", "Sec-Fetch-Mode: cors"])
def test_browsers_change_nothing_by_rays_paths(dashboard: Dashboard, method: str, field: str) -> None:
    answer = dashboard.ask(method, "/api/jobs/one", field)
    assert (answer.status, answer.text) == (405, f"'{method}' method not allowed for browser traffic.")


def test_what_is_open_says_nothing_of_the_cluster(dashboard: Dashboard) -> None:
    for path in ("/api/gcs_healthz", "/api/healthz", "/api/local_raylet_healthz"):
        answer = dashboard.ask("GET", path, token=None)
        assert (answer.status, answer.body) == (200, b"success")
        assert dashboard.ask("GET", path, "Host: evil.com", token=None).status == 421
        assert dashboard.ask("POST", path, token=None).status == 401
    assert dashboard.ask("GET", "/api/authentication_mode", token=None).text == '{"authentication_mode": "token"}'
    page = dashboard.ask("GET", "/", token=None)
    assert page.status == 200 and page.fields["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.fields["content-security-policy"]
    head = dashboard.ask("HEAD", "/", token=None)
    assert (head.status, head.body) == (200, b"")
    assert int(head.fields["content-length"]) == len(page.body)


def test_several_open_paths_are_asked_on_one_connection_and_proof_is_asked_for_each(dashboard: Dashboard) -> None:
    host = f"Host: 127.0.0.1:{dashboard.port}\r\n"
    ask = f"GET /api/healthz HTTP/1.1\r\n{host}\r\n".encode()
    last = f"GET {VERSION} HTTP/1.1\r\n{host}\r\n".encode()
    answer = dashboard.raw(ask * 3 + last)
    assert answer.count(b"success") == 3 and b"401 Unauthorized" in answer
    # A proof holds for one request.
    proven = f"GET {VERSION} HTTP/1.1\r\n{host}Authorization: Bearer {TOKEN}\r\n\r\n".encode()
    answer = dashboard.raw(proven + last)
    assert answer.startswith(b"HTTP/1.1 200") and b"401 Unauthorized" in answer


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/version HTTP/1.1\nHost: localhost\n\n",
        b"GET /api/version HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
        b"POST /api/jobs/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /api/jobs/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
        b"POST /api/jobs/ HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
        b"POST /api/jobs/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: +4\r\n\r\n",
        b"GET http://localhost/api/version HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/version HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
    ],
)
def test_what_has_two_meanings_has_none(dashboard: Dashboard, head: bytes) -> None:
    assert dashboard.raw(head).startswith(b"HTTP/1.1 400 ")


def test_a_head_has_an_end(dashboard: Dashboard) -> None:
    long = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
    assert dashboard.raw(long + b"x" * (16 << 10)).startswith(b"HTTP/1.1 431 ")
    assert dashboard.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 80 + b"\r\n").startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("part", ["%2e%2e", "..", "%00", "a%2fb", "%ff", "%", ".", "a%0ab"])
@pytest.mark.parametrize(("method", "path"), [*NAMING, ("GET", "/static/{}"), ("GET", "/{}/etc/passwd")])
def test_no_path_leads_elsewhere(dashboard: Dashboard, method: str, path: str, part: str) -> None:
    for at in range(path.count("{}")):
        names = ["gcs" if at != here else part for here in range(path.count("{}"))]
        answer = dashboard.ask(method, path.format(*names))
        assert answer.status in (400, 404), (names, answer)
        assert b"root:" not in answer.body


def test_every_route_that_names_something_is_known_here() -> None:
    assert {("GET", "/api/jobs/{}"), ("PUT", "/api/packages/{}/{}"), ("POST", "/ox/v1/jobs/{}/stop")} <= set(NAMING)


def test_a_silent_peer_gives_its_place_to_who_comes(dashboard: Dashboard) -> None:
    with ExitStack() as open_ones:
        silent = [open_ones.enter_context(dashboard.connect()) for _ in range(80)]
        assert dashboard.ask("GET", VERSION).status == 200
        # The first have lost their places.
        silent[0].settimeout(30)
        assert silent[0].recv(1) == b""


def test_a_slow_peer_is_closed(dashboard: Dashboard) -> None:
    began = time.monotonic()
    with dashboard.connect() as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        slow.settimeout(60)
        try:
            assert slow.recv(1) == b""
        except ConnectionResetError:
            pass
        assert 8 < time.monotonic() - began < 60


def test_a_peer_that_says_one_letter_after_the_other_is_closed(dashboard: Dashboard) -> None:
    """What comes late all the time gains no time by it."""
    began = time.monotonic()
    with dashboard.connect() as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        slow.settimeout(0.25)
        try:
            while time.monotonic() - began < 60:
                slow.sendall(b"x")
                try:
                    assert slow.recv(1) == b""
                    break
                except TimeoutError:
                    pass
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert 8 < time.monotonic() - began < 60


def test_a_right_token_is_served_while_a_thousand_wrong_ones_are_tried(dashboard: Dashboard) -> None:
    wrong = f"GET {VERSION} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'w' * 32}\r\n\r\n".encode()
    tried, over = [], threading.Event()

    def guess() -> None:
        while not over.is_set():
            try:
                with dashboard.connect() as connection:
                    connection.sendall(wrong)
                    answer = connection.recv(1 << 12)
                    assert not answer.startswith(b"HTTP/1.1 200")
            except OSError:
                pass
            tried.append(1)

    guessers = [threading.Thread(target=guess) for _ in range(16)]
    for guesser in guessers:
        guesser.start()
    try:
        times = []
        while len(tried) < 1000:
            began = time.monotonic()
            assert dashboard.ask("GET", VERSION).status == 200
            times.append(time.monotonic() - began)
    finally:
        over.set()
        for guesser in guessers:
            guesser.join()
    # The machine may have much else to do, but nobody stands in a row behind those that wait.
    assert sorted(times)[len(times) // 2] < 3.0, times


def test_a_thousand_wrong_tokens_at_once_open_nothing_and_a_right_one_does(dashboard: Dashboard) -> None:
    wrong = f"GET {VERSION} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'w' * 32}\r\n\r\n".encode()
    answers: list[bytes] = []
    with ExitStack() as stack:
        strangers = []
        for _ in range(1000):
            stranger = stack.enter_context(socket.socket())
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", dashboard.port))
            strangers.append(stranger)
        for stranger in strangers:
            stranger.settimeout(60)
            # Who comes when all places are taken has that of who waited longest, and that one is closed.
            with suppress(OSError):
                stranger.sendall(wrong)
        # They are all there, and none of them was answered in order.
        assert dashboard.ask("GET", VERSION).status == 200
        for stranger in strangers:
            try:
                answers.append(stranger.recv(1 << 12))
            except OSError:
                answers.append(b"")
    assert len(answers) == 1000
    refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 403 ")]
    assert refused and all(answer in (b"", *refused) for answer in answers), {answer[:40] for answer in answers}
    assert dashboard.ask("GET", VERSION).status == 200


def test_who_only_reads_changes_nothing(dashboard: Dashboard) -> None:
    reading = dashboard.home.oxiray("dashboard", "token", "--read").stdout.strip()
    assert len(reading) == 64
    assert dashboard.ask("GET", "/api/jobs/", token=reading).status == 200
    for method, path in [("POST", "/api/jobs/"), ("DELETE", "/api/jobs/one"), ("POST", "/ox/v1/keys")]:
        answer = dashboard.ask(method, path, token=reading)
        assert (answer.status, answer.text) == (403, "Forbidden: this token only reads")
    mode = (dashboard.session / "http-token-read").stat().st_mode
    assert mode & 0o777 == 0o600
    assert not (dashboard.session / "http-token").exists(), "that of the environment is written nowhere"


def test_the_page_is_opened_once_by_a_key(dashboard: Dashboard) -> None:
    link = dashboard.home.oxiray("dashboard").stdout.strip()
    address, _, key = link.partition("/#key=")
    assert (address, len(key)) == (dashboard.url, 64)
    assert dashboard.ask("GET", VERSION, token=key).status == 403
    own_page = (f"Origin: {dashboard.url}", "User-Agent: Mozilla/5.0", "Content-Type: application/json")
    session = dashboard.ask("POST", "/ox/v1/session", *own_page, body=b"{}", token=key)
    assert session.status == 200, session
    shown = session.text.partition('"key":"')[2].partition('"')[0]
    assert dashboard.ask("GET", VERSION, *own_page, token=shown).status == 200
    assert dashboard.ask("POST", "/ox/v1/session", *own_page, body=b"{}", token=key).status == 403


def test_bodies_are_bounded_and_memory_stays_flat(dashboard: Dashboard) -> None:
    # One byte too many: whoever sends more may find the connection closed while it still sends.
    large = dashboard.ask("POST", "/api/jobs/", "Content-Type: application/json", body=b"x" * ((1 << 20) + 1))
    assert large.status == 413
    package = "/api/packages/gcs/_ray_pkg_00000000000000ff.zip"
    said = told(
        dashboard.raw(
            f"PUT {package} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Length: {513 << 20}\r\n\r\n".encode()
        )
    )
    assert said.status == 413
    before = memory(dashboard.pid())
    with dashboard.connect() as connection:
        connection.sendall(
            f"PUT {package} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        piece = b"100000\r\n" + b"z" * (1 << 20) + b"\r\n"
        try:
            for _ in range(520):
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            assert connection.recv(1 << 12).startswith(b"HTTP/1.1 413 ")
        except ConnectionResetError:
            pass
    assert memory(dashboard.pid()) - before < 64 << 10
    assert dashboard.ask("GET", package).status == 404
    wait_until(lambda: not list((dashboard.session / "uploads").iterdir()))


def archive(*members: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members:
            opened.writestr(name, content)
    return made.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    """A member that is a link, as `zip -y` writes one."""
    made = zipfile.ZipInfo(name)
    made.create_system, made.external_attr = 3, 0o120777 << 16
    return made


def bomb() -> bytes:
    """Half a MiB that says it is 600 MiB."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as opened, opened.open("zeros", "w") as member:
        for _ in range(600):
            member.write(bytes(1 << 20))
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("dots", lambda: archive(("a/../../outside.txt", b"harm")), "outside of its folder"),
        ("root", lambda: archive(("/outside.txt", b"harm")), "outside of its folder"),
        ("bomb", bomb, "OXIRAY_PACKAGE_BYTES_MAX"),
    ],
)
def test_an_archive_that_means_harm_is_refused_whole(
    dashboard: Dashboard, name: str, content: Callable[[], bytes], says: str
) -> None:
    done = uploaded(dashboard, f"harm-{name}", content())
    assert (done["status"], done["error_type"]) == ("FAILED", "RUNTIME_ENV_SETUP_FAILURE"), done
    assert says in done["message"]
    assert not list(dashboard.home.folder.rglob("outside.txt")) and not list(dashboard.home.folder.rglob("zeros"))


def test_a_link_in_an_archive_is_a_file_with_a_text(dashboard: Dashboard) -> None:
    leads = archive((link("lead"), b"/etc/passwd"), (link("up"), b"../.."))
    done = uploaded(dashboard, "links", leads, "test -f lead -a ! -L lead -a -f up -a ! -L up && grep -qx /etc/passwd lead")
    assert done["status"] == "SUCCEEDED", done


def uploaded(dashboard: Dashboard, name: str, content: bytes, entrypoint: str = "true") -> dict[str, str]:
    """What became of a job in the folder that was uploaded for it."""
    package = f"_ray_pkg_{name}.zip"
    assert dashboard.ask("PUT", f"/api/packages/gcs/{package}", body=content).status == 200
    asked = {"entrypoint": entrypoint, "submission_id": name, "runtime_env": {"working_dir": f"gcs://{package}"}}
    assert dashboard.ask("POST", "/api/jobs/", body=json.dumps(asked).encode()).status == 200
    job = lambda: json.loads(dashboard.ask("GET", f"/api/jobs/{name}").text)  # noqa: E731
    wait_until(lambda: job()["status"] in ("SUCCEEDED", "FAILED", "STOPPED"), 120)
    told: dict[str, str] = job()
    return told


def test_the_stream_of_a_log_is_for_no_page_of_another_site(dashboard: Dashboard) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
    for fields in (["Origin: http://evil.com"], ["Origin: null"], ["Sec-Fetch-Site: cross-site"]):
        assert dashboard.ask("GET", "/api/jobs/one/logs/tail", *upgrade, *fields).status == 403
    assert dashboard.ask("GET", "/api/jobs/one/logs/tail", *upgrade, "Host: evil.com").status == 421
    assert dashboard.ask("GET", "/api/jobs/one/logs/tail", *upgrade, token=None).status == 401
    assert dashboard.ask("GET", "/api/jobs/nobody/logs/tail", *upgrade, f"Origin: {dashboard.url}").status == 404


def test_the_nodes_health_has_a_port_of_its_own_and_nothing_else_there(dashboard: Dashboard) -> None:
    def ask(path: str) -> bytes:
        with socket.create_connection(("127.0.0.1", dashboard.agent_port), timeout=30) as connection:
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
            )
            answer = b""
            while piece := connection.recv(1 << 12):
                answer += piece
            return answer

    assert ask("/api/local_raylet_healthz").endswith(b"success")
    assert ask("/api/version").startswith(b"HTTP/1.1 403")
    assert ask("/").startswith(b"HTTP/1.1 403")
