"""The jobs API: what each path answers, our own client over HTTP, and the log as a WebSocket."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from dashboard_client import TOKEN, Dashboard
from oxiray.job_submission import JobDetails, JobStatus, JobSubmissionClient, JobType
from watching import alive, wait_until

pytestmark = pytest.mark.timeout(300)
RECORDED = Path(__file__).parent.parent / "fixtures" / "ray_http"


def recorded(name: str) -> Any:
    """What Ray 2.60 answered."""
    return json.loads((RECORDED / f"{name}.body").read_text())


def shape(value: dict[str, Any]) -> list[str]:
    """Its keys in the order in which they came."""
    return list(value)


@pytest.fixture
def client(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> JobSubmissionClient:
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return JobSubmissionClient(dashboard.url)


def post(dashboard: Dashboard, path: str, body: Any) -> tuple[int, str]:
    answer = dashboard.ask("POST", path, body=body if isinstance(body, bytes) else json.dumps(body).encode())
    return answer.status, answer.text


def ended(client: JobSubmissionClient, job: str) -> JobDetails:
    wait_until(lambda: client.get_job_status(job).is_terminal(), timeout=120)
    return client.get_job_info(job)


def test_the_version_is_rays_and_ours(dashboard: Dashboard) -> None:
    told = json.loads(dashboard.ask("GET", "/api/version").text)
    assert shape(told) == [*shape(recorded("version")), "oxiray_version"]
    assert (told["version"], told["ray_version"]) == ("4", "2.60.0")
    assert shape(json.loads(dashboard.ask("GET", "/timezone").text)) == shape(recorded("tz"))


def test_a_program_runs_with_its_folder(client: JobSubmissionClient, tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "word.py").write_text("WORD = 'from a module'\n")
    (tmp_path / "program.py").write_text(
        "import os, sys, ray\nfrom part import word\nray.init(logging_level='WARNING')\n"
        "print(word.WORD, os.environ['WHO'], ray.get(ray.remote(lambda: 7).remote()), flush=True)\nsys.exit(int(sys.argv[1]))\n"
    )
    environment = {"working_dir": str(tmp_path), "env_vars": {"WHO": "me"}}
    job = client.submit_job(entrypoint="python program.py 0", runtime_env=environment, metadata={"a": "b"})
    assert job.startswith("raysubmit_") and len(job) == 26
    done = ended(client, job)
    assert (done.status, done.message) == (JobStatus.SUCCEEDED, "Job finished successfully."), client.get_job_logs(job)
    assert client.get_job_logs(job) == "from a module me 7\n"
    assert done.driver_info is not None and done.job_id == done.driver_info.id
    assert (done.type, done.submission_id, done.metadata) == (JobType.SUBMISSION, job, {"a": "b"})
    assert done.runtime_env is not None and done.runtime_env["working_dir"].startswith("gcs://_ray_pkg_")
    assert done.start_time and done.end_time and done.start_time <= done.end_time
    # The same folder is not uploaded again, and an exit code is the job's.
    failed = ended(client, client.submit_job(entrypoint="python program.py 3", runtime_env=environment))
    assert (failed.status, failed.error_type) == (JobStatus.FAILED, "JOB_ENTRYPOINT_COMMAND_ERROR")
    begin = "Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\n"
    assert failed.message == f"{begin}from a module me 7\n" and failed.driver_exit_code == 3


def test_details_have_rays_keys_in_rays_order(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    client.submit_job(entrypoint="true", submission_id="shape")
    ended(client, "shape")
    told = json.loads(dashboard.ask("GET", "/api/jobs/shape").text)
    assert shape(told) == shape(recorded("job_one"))
    assert [shape(row) for row in json.loads(dashboard.ask("GET", "/api/jobs/").text)][:1] == [shape(recorded("jobs")[0])]


def test_what_is_wrong_is_said_with_rays_codes(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    assert post(dashboard, "/api/jobs/", {"entrypoint": "true", "submission_id": "twice"})[0] == 200
    again = post(dashboard, "/api/jobs/", {"entrypoint": "true", "submission_id": "twice"})
    text = "ValueError: Job with submission_id twice already exists. Please use a different submission_id."
    assert again == (500, text)
    assert post(dashboard, "/api/jobs/", {"entrypoint": 5})[0] == 400
    assert "'colour'" in post(dashboard, "/api/jobs/", {"entrypoint": "true", "colour": 1})[1]
    assert post(dashboard, "/api/jobs/", b"no json")[0] == 500
    assert post(dashboard, "/api/jobs/", {"entrypoint": "true", "submission_id": "../x"})[0] == 400
    assert dashboard.ask("GET", "/api/jobs").status == 404
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/stop"), ("GET", "/logs"), ("GET", "/logs/tail")]:
        answer = dashboard.ask(method, f"/api/jobs/nope{path}")
        assert (answer.status, answer.text) == (404, "Job nope does not exist"), path
    assert dashboard.ask("PUT", "/api/jobs/nope").status == 405
    with pytest.raises(RuntimeError, match="404.*Job nope does not exist"):
        client.get_job_status("nope")


def test_a_job_is_stopped_and_deleted(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    client.submit_job(entrypoint="echo begun; sleep 600", submission_id="long")
    wait_until(lambda: "begun" in client.get_job_logs("long"), timeout=120)
    assert client.get_job_info("long").message == "Job is currently running."
    refused = dashboard.ask("DELETE", "/api/jobs/long")
    assert refused.status == 500
    assert "Attempted to delete job 'long', but it is in a non-terminal state RUNNING" in refused.text
    active = json.loads(dashboard.ask("GET", "/api/component_activities").text)
    assert shape(active["driver"]) == shape(recorded("activities")["driver"]) and active["driver"]["is_active"] == "ACTIVE"
    assert client.stop_job("long") is True
    assert ended(client, "long").message == "Job was intentionally stopped."
    assert client.stop_job("long") is False
    assert list(dashboard.home.folder.rglob("submitted-long.log"))
    assert client.delete_job("long") is True
    assert not list(dashboard.home.folder.rglob("submitted-long.log"))
    assert dashboard.ask("GET", "/api/jobs/long").status == 404


def test_a_job_says_by_which_signal_it_is_stopped(client: JobSubmissionClient, tmp_path: Path) -> None:
    # What it prints at last is more than travels ahead of what is written down.
    program = (
        "import signal; asked = {signal.SIGINT}; signal.pthread_sigmask(signal.SIG_BLOCK, asked); "
        "print('up', flush=True); signal.sigwait(asked); print('asked' * (1 << 20) + ' last', flush=True)"
    )
    variables = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "60"}
    client.submit_job(
        entrypoint=f'exec {sys.executable} -c "{program}"', submission_id="asked", runtime_env={"env_vars": variables}
    )
    wait_until(lambda: "up" in client.get_job_logs("asked"), timeout=120)
    client.stop_job("asked")
    told = ended(client, "asked")
    assert told.status == JobStatus.STOPPED
    printed = client.get_job_logs("asked")
    assert printed == "up\n" + "asked" * (1 << 20) + " last\n", (told, len(printed), printed[:100], printed[-100:])


def test_a_log_is_followed_until_the_job_ends(client: JobSubmissionClient) -> None:
    client.submit_job(entrypoint="for i in $(seq 25); do echo line-$i-é; done; printf end", submission_id="tailed")

    async def heard(job: str) -> list[str]:
        return [piece async for piece in client.tail_job_logs(job)]

    pieces = asyncio.run(heard("tailed"))
    assert "".join(pieces) == "".join(f"line-{i}-é\n" for i in range(1, 26)) + "end"
    assert all(len(piece.splitlines()) <= 10 for piece in pieces)
    with pytest.raises(RuntimeError, match="status code 404"):
        asyncio.run(heard("nope"))


def test_a_websocket_is_for_who_asks_for_one(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    client.submit_job(entrypoint="true", submission_id="plain")
    assert dashboard.ask("GET", "/api/jobs/plain/logs/tail").status == 426
    upgrade = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    assert dashboard.ask("GET", "/api/jobs/plain/logs/tail", *upgrade, "Origin: http://evil.com").status == 403
    assert dashboard.ask("GET", "/api/jobs/plain/logs/tail", *upgrade, token=None).status == 401


def test_packages_are_files_that_are_there_or_not(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    path = "/api/packages/gcs/_ray_pkg_0123456789abcdef.zip"
    absent = dashboard.ask("GET", path)
    assert (absent.status, absent.text) == (404, "Package gcs://_ray_pkg_0123456789abcdef.zip does not exist")
    for wrong in ("/api/packages/s3/a.zip", "/api/packages/gcs/a", "/api/packages/gcs/.a.zip"):
        assert dashboard.ask("PUT", wrong, body=b"x").status == 404, wrong
    assert dashboard.ask("PUT", path, body=b"no zip at all").status == 200
    assert [dashboard.ask(method, path).status for method in ("GET", "HEAD")] == [200, 200]
    for name in ("never-uploaded.zip", "_ray_pkg_0123456789abcdef.zip"):
        job = client.submit_job(entrypoint="true", runtime_env={"working_dir": f"gcs://{name}"})
        done = ended(client, job)
        assert (done.status, done.error_type) == (JobStatus.FAILED, "RUNTIME_ENV_SETUP_FAILURE"), done.message


def test_a_package_that_leads_elsewhere_is_not_unpacked(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("../outside.py", "harm")
    assert dashboard.ask("PUT", "/api/packages/gcs/_ray_pkg_outside.zip", body=made.getvalue()).status == 200
    done = ended(client, client.submit_job(entrypoint="true", runtime_env={"working_dir": "gcs://_ray_pkg_outside.zip"}))
    assert done.status == JobStatus.FAILED and "outside of its folder" in (done.message or "")
    assert not list(dashboard.home.folder.rglob("outside.py"))


def test_a_browser_sees_no_values(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    client.submit_job(entrypoint="true", submission_id="secret", runtime_env={"env_vars": {"X": "secret-value"}})
    assert "secret-value" in dashboard.ask("GET", "/api/jobs/secret").text
    assert "secret-value" not in dashboard.ask("GET", "/api/jobs/secret", "User-Agent: Mozilla/5.0").text


def test_a_program_that_nobody_submitted_is_a_driver(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    program = "import ray; ray.init(logging_level='WARNING'); print(ray.get_runtime_context().get_job_id())"
    environment = {**dashboard.home.environment, "RAY_ADDRESS": f"127.0.0.1:{dashboard.home.port}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    job = done.stdout.strip()
    assert client.get_job_info(job).type == JobType.DRIVER
    for method, path, act in [("POST", "/stop", "stop"), ("DELETE", "", "delete"), ("GET", "/logs", "get logs of")]:
        answer = dashboard.ask(method, f"/api/jobs/{job}{path}")
        assert (answer.status, answer.text) == (400, f"Can only {act} submission type jobs")


def test_headers_and_addresses_come_from_the_environment(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", dashboard.url)
    with pytest.raises(RuntimeError, match="401"):
        JobSubmissionClient("http://127.0.0.1:1")
    monkeypatch.setenv("RAY_JOB_HEADERS", json.dumps({"Authorization": f"Bearer {TOKEN}"}))
    assert JobSubmissionClient("http://127.0.0.1:1").get_version() == "4"
    monkeypatch.setenv("RAY_JOB_HEADERS", "no json")
    with pytest.raises(ValueError, match="RAY_JOB_HEADERS"):
        JobSubmissionClient()
    with pytest.raises(ValueError, match="line break"):
        monkeypatch.delenv("RAY_JOB_HEADERS")
        JobSubmissionClient(headers={"X": "a\r\nb"})


def test_nothing_depends_on_the_dashboard(dashboard: Dashboard, client: JobSubmissionClient) -> None:
    client.submit_job(entrypoint="echo begun; sleep 600", submission_id="outlives")
    wait_until(lambda: client.get_job_status("outlives") == JobStatus.RUNNING, timeout=120)
    first = dashboard.pid()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not alive(first))
    wait_until(lambda: dashboard.pid() != first)
    assert client.get_job_status("outlives") == JobStatus.RUNNING
    # With the daemon it ends, however that does.
    second = dashboard.pid()
    daemon = json.loads((dashboard.session / "session.json").read_text())["pid"]
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not alive(second))
