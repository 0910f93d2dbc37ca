"""How the dashboard is asked for, what is refused, and which ports are open then."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from dashboard_client import TOKEN, session_of, started
from homes import Home, free_port
from oxiray._cli import native_binary
from oxiray.job_submission import JobSubmissionClient
from watching import alive, stopped, wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def start(home: Home, *options: str) -> subprocess.CompletedProcess[str]:
    return home.oxiray("start", "--head", f"--port={home.port}", "--num-cpus=1", *options)


def descriptors_of(pid: int) -> Iterator[str]:
    """What the descriptors of this process lead to; one that is closed while they are read is none."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield os.readlink(entry)


def children_of(pid: int) -> Iterator[str]:
    """The command lines of this process's children; a child that ends while they are read is none."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):
            yield Path(f"/proc/{child}/cmdline").read_text()


def listening(pid: int) -> list[int]:
    """The ports of TCP that this process listens at."""
    sockets = {name[8:-1] for name in descriptors_of(pid) if name.startswith("socket:[")}
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return sorted(int(fields[1].rpartition(":")[2], 16) for fields in lines if fields[3] == "0A" and fields[9] in sockets)


def test_without_a_word_there_is_none(home: Home) -> None:
    for options in ([], ["--include-dashboard=false", f"--dashboard-port={free_port()}"], ["--dashboard-host=127.0.0.1"]):
        assert start(home, *options).returncode == 0
        try:
            told = home.oxiray("dashboard", "url")
            assert told.returncode == 1 and "no dashboard that runs" in told.stderr
            daemon = json.loads((session_of(home) / "session.json").read_text())["pid"]
            assert listening(daemon) == [home.port]
            assert not any("oxiray-dashboard" in line for line in children_of(daemon))
        finally:
            assert home.oxiray("stop", "--force").returncode == 0


def test_what_is_said_of_a_dashboard_that_is_not_there_is_told_of(home: Home) -> None:
    done = start(home, "--dashboard-host=127.0.0.1", "--dashboard-allow-host=here")
    home.oxiray("stop", "--force")
    assert done.returncode == 0
    for option in ("--dashboard-host", "--dashboard-allow-host"):
        assert f"{option} (no dashboard was asked for" in done.stdout, done.stdout


def health(port: int, path: str) -> int:
    """The status of an answer; 0 where nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            assert answer.read() == b"success"
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:
        return 0


def test_each_node_tells_its_health_where_that_was_asked_for(home: Home) -> None:
    """As the probes of KubeRay ask it, of heads and of workers."""
    of_head, of_member = free_port(), free_port()
    assert start(home, f"--dashboard-agent-listen-port={of_head}").returncode == 0
    try:
        option = f"--dashboard-agent-listen-port={of_member}"
        joined = home.oxiray("start", f"--address=127.0.0.1:{home.port}", "--num-cpus=1", option)
        assert joined.returncode == 0, joined
        for port in (of_head, of_member):
            wait_until(lambda port=port: health(port, "/api/local_raylet_healthz") == 200)  # type: ignore[misc]
            assert health(port, "/api/version") in (401, 404) and health(port, "/") in (401, 404)
        taken = home.oxiray("start", f"--address=127.0.0.1:{home.port}", "--num-cpus=1", option)
        assert taken.returncode == 1 and f"port {of_member}" in taken.stderr, taken
    finally:
        home.oxiray("stop", "--force")
    wait_until(lambda: health(of_member, "/api/local_raylet_healthz") == 0)


def is_described(folder: Path) -> bool:
    """Whether a session is there; folders that go meanwhile are looked through again."""
    try:
        return any(path.name == "session.json" for path in folder.rglob("*"))
    except FileNotFoundError:
        return True


def test_the_ports_that_were_asked_for_are_open_and_no_others(tmp_path: Path) -> None:
    made = started(tmp_path)
    try:
        assert listening(made.pid()) == sorted([made.port, made.agent_port])
        daemon = json.loads((made.session / "session.json").read_text())["pid"]
        assert listening(daemon) == [made.home.port]
    finally:
        made.home.oxiray("stop", "--force")
    wait_until(lambda: not is_described(tmp_path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dashboard-host=nowhere", "--dashboard-port=1"], "takes an IP address"),
        (["--dashboard-tls-cert=/x"], "--dashboard-tls-key"),
        (["--include-dashboard", "--dashboard-plaintext", "--dashboard-tls-cert=/x", "--dashboard-tls-key=/y"], "cannot be used with"),
    ],
)
def test_what_is_not_safe_or_makes_no_sense_is_refused(home: Home, options: list[str], words: str) -> None:
    done = start(home, *options)
    assert done.returncode != 0 and words in done.stderr, done.stderr


def test_without_an_authority_nothing_is_sent_in_the_clear(home: Home) -> None:
    done = home.oxiray("start", "--head", "--num-cpus=1", "--dashboard-host=0.0.0.0")
    assert done.returncode == 1 and "sent there in the clear: give --port" in done.stderr, done.stderr


def test_the_clusters_authority_makes_the_certificate_and_another_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = started(tmp_path, "--dashboard-host=0.0.0.0", "--dashboard-allow-host=localhost.example")
    authority = made.session / "dashboard-authority.pem"
    try:
        monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)

        def shown() -> bytes:
            """The certificate that is shown to who knows the authority and asks this address."""
            context = ssl.create_default_context(cafile=str(authority))
            with (
                socket.create_connection(("127.0.0.1", made.port), timeout=30) as connection,
                context.wrap_socket(connection, server_hostname="127.0.0.1") as stream,
            ):
                certificate = stream.getpeercert(binary_form=True)
            assert certificate is not None
            return certificate

        def is_shown() -> bool:
            try:
                return bool(shown())
            except OSError:
                return False

        wait_until(is_shown)
        first, known = shown(), authority.read_bytes()
        client = JobSubmissionClient(f"https://127.0.0.1:{made.port}", verify=str(authority))
        assert client.get_version() == "4"
        with pytest.raises(ConnectionError):
            JobSubmissionClient(f"https://127.0.0.1:{made.port}")
        assert (made.session / "dashboard-key.pem").stat().st_mode & 0o777 == 0o600
        daemon, dashboard = json.loads((made.session / "session.json").read_text())["pid"], made.pid()
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: not alive(daemon) and not alive(dashboard))
        again = start(made.home, "--dashboard-host=0.0.0.0", f"--dashboard-port={made.port}")
        assert again.returncode == 0, again.stderr
        wait_until(is_shown)
        assert authority.read_bytes() == known and shown() != first
    finally:
        made.home.oxiray("stop", "--force")


def test_a_name_of_nodes_is_no_name_of_the_dashboard(home: Home) -> None:
    done = start(home, "--dashboard-host=0.0.0.0", "--dashboard-allow-host=head.oxiray")
    assert done.returncode == 1 and "one of the cluster's nodes" in done.stderr, done.stderr


def test_a_port_that_somebody_has_is_told_of_at_once(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = start(home, f"--dashboard-port={taken.getsockname()[1]}")
    assert done.returncode == 1 and "cannot be listened at" in done.stderr


def test_members_have_none(home: Home) -> None:
    done = home.oxiray("start", "--address=127.0.0.1:1", "--include-dashboard=true")
    assert done.returncode == 1 and "the head answers for the cluster" in done.stderr


def test_a_pod_of_kuberays_answers_its_operator_and_says_what_is_missing(home: Home) -> None:
    # In a pod, without a token: others could not ask, and nothing is sent in the clear.
    home.environment |= {"RAY_CLUSTER_NAME": "demo", "RAY_CLUSTER_NAMESPACE": "team"}
    done = start(home, "--dashboard-host=0.0.0.0", f"--dashboard-port={free_port()}")
    assert done.returncode == 0 and "authOptions: {mode: token}" in done.stdout
    home.oxiray("stop", "--force")


def test_in_a_pod_of_kuberays_the_services_names_are_known(tmp_path: Path) -> None:
    made = started(tmp_path, "--dashboard-host=0.0.0.0", RAY_CLUSTER_NAME="demo", RAY_CLUSTER_NAMESPACE="team")
    try:
        for host, status in [("demo-head-svc.team.svc:8265", 200), ("demo-head-svc.other.svc", 421), ("demo-head-svc.team.svc.evil.com", 421)]:
            assert made.ask("GET", "/api/version", f"Host: {host}").status == status
        log = next(made.home.folder.rglob("dashboard.log")).read_text()
        assert "WARNING: tokens and answers travel in the clear" in log and TOKEN not in log
    finally:
        made.home.oxiray("stop", "--force")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(folder / "key"), "-out", str(folder / "certificate")],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip(f"openssl makes no certificate: {made.stderr.decode()}")
    return folder / "certificate", folder / "key"


def test_tls_is_spoken_where_there_is_a_certificate(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, key = certificate
    made = started(tmp_path, "--dashboard-host=0.0.0.0", f"--dashboard-tls-cert={file}", f"--dashboard-tls-key={key}")
    try:
        context = ssl.create_default_context(cafile=str(file))
        asked = urllib.request.Request(f"https://127.0.0.1:{made.port}/api/version", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
            assert json.load(answer)["ray_version"] == "2.60.0"
        monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
        client = JobSubmissionClient(f"https://127.0.0.1:{made.port}", verify=str(file))
        printed = "for i in $(seq 20000); do echo a-line-of-the-log-$i; done"
        client.submit_job(entrypoint=printed, submission_id="tls")

        async def heard() -> str:
            return "".join([piece async for piece in client.tail_job_logs("tls")])

        import asyncio

        lines = asyncio.run(heard()).splitlines()
        assert (len(lines), lines[-1]) == (20_000, "a-line-of-the-log-20000")
        assert client.get_job_logs("tls").splitlines() == lines
        assert made.home.oxiray("dashboard").stdout.startswith(f"https://127.0.0.1:{made.port}/#key=")
        with pytest.raises(ConnectionError):
            JobSubmissionClient(f"https://127.0.0.1:{made.port}")
    finally:
        made.home.oxiray("stop", "--force")


def test_a_programs_own_cluster_has_one_where_it_says_so(tmp_path: Path) -> None:
    program = (
        "import ray, time\n"
        "context = ray.init(num_cpus=1, include_dashboard=True, dashboard_port=PORT, logging_level='ERROR')\n"
        "while not context.dashboard_url:\n    time.sleep(0.01)\n"
        "from ray.job_submission import JobSubmissionClient\n"
        "client = JobSubmissionClient('http://' + context.dashboard_url)\n"
        "while not (types := [job.type.value for job in client.list_jobs()]):\n    time.sleep(0.01)\n"
        "print(context.dashboard_url, client.get_version(), types, flush=True)\n"
        "input()\n"
    )
    port = free_port()
    # The token is the cluster's own, which this user's programs find.
    environment = {**os.environ, "OXIRAY_TMPDIR": str(tmp_path)}
    for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN"):
        environment.pop(name, None)
    command = [sys.executable, "-c", program.replace("PORT", str(port))]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None and run.stdout is not None
        assert run.stdout.readline() == f"127.0.0.1:{port} 4 ['DRIVER']\n"
        (told,) = tmp_path.rglob("dashboard.json")
        pid = int(json.loads(told.read_text())["pid"])
        run.stdin.close()
    wait_until(lambda: not alive(pid))


def test_a_dashboard_that_was_stopped_hears_of_all_that_happened_meanwhile(tmp_path: Path) -> None:
    made = started(tmp_path)

    def heard() -> int:
        told = made.ask("GET", "/ox/v1/rows/events?kind=placement_group&limit=1")
        return int(json.loads(told.body)["total"])

    # Each group is three entries of the chronicle: together several batches.
    groups = 500
    program = (
        "import ray, sys\nray.init(address=sys.argv[1], logging_level='ERROR')\n"
        "from ray.util import placement_group, remove_placement_group\n"
        f"for number in range({groups}):\n"
        "    made = placement_group([{'CPU': 0.01}], name='a-name-of-some-length-' * 40)\n"
        "    ray.get(made.ready())\n    remove_placement_group(made)\n"
    )
    try:
        session = json.loads((made.session / "session.json").read_text())
        wait_until(lambda: made.ask("GET", "/ox/v1/rows/events").status == 200)
        with stopped(made.pid()):
            command = [sys.executable, "-c", program, session["address"]]
            subprocess.run(command, env=made.home.environment, check=True, timeout=240)
        wait_until(lambda: heard() == 3 * groups)
    finally:
        made.home.oxiray("stop", "--force")


def test_the_program_travels_in_the_wheel() -> None:
    program = native_binary().with_name("oxiray-dashboard")
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("oxiray-dashboard ")
