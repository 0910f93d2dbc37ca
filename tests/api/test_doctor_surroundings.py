"""`oxiray doctor` on what surrounds Oxiray: commands on PATH, programs beside the native one, ports, and where objects are spilled."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import pytest
from homes import Home, free_port
from oxiray import _cli, _doctor_ports, _doctor_programs, _doctor_storage
from oxiray._doctor_findings import Finding
from s3 import BUCKET, SECRET, S3Server, serving
from watching import wait_until

#: As pip writes a command.
SCRIPT = "#!{interpreter}\n# -*- coding: utf-8 -*-\nimport re\nimport sys\nfrom {module} import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
LONG_SCRIPT = "#!/bin/sh\n'''exec' \"{interpreter}\" \"$0\" \"$@\"\n' '''\nfrom {module} import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
#: As uv writes one with a long path, and one in an environment that can be moved.
UV_SCRIPT = LONG_SCRIPT.replace('"{interpreter}"', "'{interpreter}'")
MOVABLE_SCRIPT = LONG_SCRIPT.replace('"{interpreter}"', "\"$(dirname -- \"$(realpath -- \"$0\")\")\"/'python'")
ALIAS, OXIRAY, RAY = "oxiray_ray_alias.command", "oxiray._cli", "ray.scripts.scripts"


def doctor(*arguments: str, **environment: str) -> dict[str, dict[str, Any]]:
    """What `oxiray doctor --json` says, by check."""
    command = [sys.executable, "-c", commands._PROGRAM, "doctor", "--json", *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=variables)
    return {one["check"]: one for one in json.loads(done.stdout)["checks"]}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def write(path: Path, module: str, interpreter: str = sys.executable, form: str = SCRIPT) -> None:
    path.write_text(form.format(interpreter=interpreter, module=module))
    path.chmod(0o755)


def on_path() -> tuple[Finding, Finding]:
    """What is said of the commands `oxiray` and `ray`."""
    oxiray, ray = _doctor_programs.on_path()
    assert (oxiray.check, ray.check) == ("command oxiray", "command ray")
    assert all(bool(one.advice) != one.is_ok for one in (oxiray, ray))
    return oxiray, ray


@pytest.mark.parametrize("form", [SCRIPT, LONG_SCRIPT, UV_SCRIPT], ids=["short", "long", "of uv"])
def test_commands_of_this_interpreter_are_as_they_should_be(path: Path, form: str) -> None:
    write(path / "oxiray", OXIRAY, form=form)
    write(path / "ray", ALIAS, form=form)
    assert [(one.is_ok, one.found) for one in on_path()] == [
        (True, f"{path}/oxiray is this interpreter's"),
        (True, f"{path}/ray is Oxiray's, and this interpreter's"),
    ]


def test_a_command_that_can_be_moved_is_of_the_environment_it_lies_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path / "oxiray", OXIRAY, form=MOVABLE_SCRIPT)
    assert f"than this interpreter: {path}/python" in on_path()[0].found
    monkeypatch.setattr(sys, "executable", str(path / "python3"))
    assert on_path()[0].is_ok


def test_shims_of_version_managers_are_no_fault(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shims = path / "shims"
    shims.mkdir()
    monkeypatch.setenv("PATH", str(shims))
    for name in ("oxiray", "ray"):
        (shims / name).write_text('#!/usr/bin/env bash\nset -e\nexec "/opt/pyenv/bin/pyenv" exec "${0##*/}" "$@"\n')
        (shims / name).chmod(0o755)
    assert [(one.is_ok, "the version manager chooses" in one.found) for one in on_path()] == [(True, True)] * 2


def test_an_interpreter_that_env_finds_is_the_one_on_path(path: Path) -> None:
    (path / "python3").symlink_to(sys.executable)
    write(path / "oxiray", OXIRAY, "/usr/bin/env python3")
    assert str(path / "python3") in on_path()[0].found, "its folder is of another environment"


def test_no_command_on_path_is_no_fault(path: Path) -> None:
    oxiray, ray = on_path()
    assert oxiray.is_ok and oxiray.found.startswith("none on PATH; ")
    assert ray.is_ok and "commands of `ray` are those of `oxiray`" in ray.found


def test_the_command_of_ray_itself_is_told(path: Path) -> None:
    write(path / "ray", RAY, "/opt/ray/bin/python3")
    ray = on_path()[1]
    assert not ray.is_ok and f"{path}/ray is Ray's own (/opt/ray/bin/python3)" in ray.found
    assert "Write `oxiray` in place of `ray`" in ray.advice


def test_a_command_of_another_environment_is_told(path: Path) -> None:
    write(path / "oxiray", OXIRAY, "/opt/other/bin/python3")
    write(path / "ray", ALIAS, "/opt/other/bin/python3")
    for one in on_path():
        assert not one.is_ok and "of another environment than this interpreter: /opt/other/bin/python3" in one.found
        assert "first on PATH" in one.advice


def test_a_command_without_the_name_that_it_needs_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path / "ray", ALIAS)
    monkeypatch.setattr(_doctor_programs._alias, "is_installed", lambda: False)
    ray = on_path()[1]
    assert not ray.is_ok and "and fails" in ray.found and "oxiray ray install" in ray.advice


def test_commands_of_something_else_are_told(path: Path) -> None:
    for name in ("oxiray", "ray"):
        (path / name).write_text("#!/bin/sh\nexit 0\n")
        (path / name).chmod(0o755)
    oxiray, ray = on_path()
    assert not oxiray.is_ok and "is not the command of the Python package" in oxiray.found
    assert not ray.is_ok and "is neither Oxiray's nor Ray's" in ray.found


def test_the_native_program_on_path_is_one_of_the_same_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "oxiray").symlink_to(_cli.native_binary())
    assert on_path()[0].found == f"{path}/oxiray is the native program, which has not the commands of the Python package"
    monkeypatch.setattr(_doctor_programs, "VERSION", "9.9.9")
    other = on_path()[0]
    assert not other.is_ok and "beside 9.9.9 of the Python package" in other.found


def test_programs_beside_the_native_one_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.is_ok for one in _doctor_programs.companions()] == [True, True]
    # The program is found through links, as a daemon finds it.
    (tmp_path / "link").symlink_to(_cli.native_binary())
    monkeypatch.setenv("OXIRAY_BINARY", str(tmp_path / "link"))
    assert [one.is_ok for one in _doctor_programs.companions()] == [True, True]
    alone = tmp_path / "alone"
    alone.mkdir()
    monkeypatch.setenv("OXIRAY_BINARY", str(alone / "oxiray"))
    (alone / "oxiray-storage").write_text("#!/bin/sh\necho oxiray-storage 9.9.9\n")
    (alone / "oxiray-storage").chmod(0o755)
    dashboard, storage = _doctor_programs.companions()
    assert not dashboard.is_ok and "oxiray-dashboard is missing: the dashboard" in dashboard.found and "Reinstall" in dashboard.advice
    assert not storage.is_ok and "of version 9.9.9" in storage.found
    (alone / "oxiray-storage").write_text("#!/bin/sh\necho 'no such library' >&2\nexit 1\n")
    assert "cannot be run: no such library" in list(_doctor_programs.companions())[1].found


def test_a_port_is_free_or_it_is_told_who_has_it() -> None:
    port = free_port()
    assert doctor("--port", str(port))[f"port {port}"]["found"].startswith("free")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", port))
        listening.listen()
        taken = doctor("--port", str(port))[f"port {port}"]
        name = Path("/proc/self/comm").read_text().strip()
        assert not taken["is_ok"] and f"is in use by {name}, pid {os.getpid()}, of user " in taken["found"]
        assert "name another port" in taken["advice"]


def test_ports_of_heads_and_nodes_have_their_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one.check: one for one in _doctor_ports.of_machine([])}
    assert set(found) == {"port 6379", "port 8265", "ports of nodes"}
    assert "--node-manager-port" in found["ports of nodes"].found and "--metrics-export-port" in found["ports of nodes"].found
    # As where others have them all; a dashboard takes another port by itself.
    monkeypatch.setattr(_doctor_ports, "why_not_free", lambda _: "Address already in use")
    monkeypatch.setattr(_doctor_ports, "holder", lambda _: _doctor_ports.Holder("root", 12, "redis-server"))
    found = {one.check: one for one in _doctor_ports.of_machine([])}
    head, dashboard = found["port 6379"], found["port 8265"]
    assert not head.is_ok and head.found == "is in use by redis-server, pid 12, of user root" and "--port" in head.advice
    assert dashboard.is_ok and "takes the next free port" in dashboard.found
    monkeypatch.setattr(_doctor_ports, "holder", lambda _: _doctor_ports.Holder("root", 12, "oxiray"))
    assert next(_doctor_ports.of_machine([])).is_ok
    monkeypatch.setattr(_doctor_ports, "holder", lambda _: None)
    assert "CAP_NET_BIND_SERVICE" in {one.check: one for one in _doctor_ports.of_machine([80])}["port 80"].advice


def test_a_port_that_is_none_is_refused() -> None:
    assert "`65536` is no port: give a number from 1 to 65535" in commands.run("doctor", "--port", "65536", check=False)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.oxiray("stop")


def test_the_ports_of_a_running_cluster_are_tried(home: Home) -> None:
    ports = {"dashboard": free_port(), "metrics": free_port()}
    options = (f"--dashboard-port={ports['dashboard']}", f"--metrics-export-port={ports['metrics']}", f"--port={home.port}")
    started = home.oxiray("start", "--head", "--num-cpus=1", "--node-ip-address=127.0.0.1", *options)
    assert started.returncode == 0, started.stderr
    wait_until(lambda: home.oxiray("dashboard", "url").returncode == 0)
    # The dashboard writes which nodes export metrics.
    (session,) = home.folder.glob("oxiray-*/session_*")
    wait_until(lambda: _doctor_ports._exporters(session))
    wait_until(lambda: not _doctor_ports.connected(f"127.0.0.1:{ports['metrics']}"))
    found = doctor("--port", str(home.port), OXIRAY_TMPDIR=str(home.folder))
    assert found["head"]["is_ok"] and found["head"]["found"].startswith(f"127.0.0.1:{home.port} can be reached, from this machine only")
    assert found["dashboard"]["found"] == f"http://127.0.0.1:{ports['dashboard']} can be reached from here"
    assert found["metrics"]["found"] == f"127.0.0.1:{ports['metrics']} can be reached from here"
    dashboard = _doctor_ports.holder(ports["dashboard"])
    assert dashboard is not None and dashboard.name == "oxiray-dashboard", "the whole name, of which the kernel keeps 15 letters"
    assert found[f"port {home.port}"]["is_ok"] and "is in use by Oxiray: oxiray, pid " in found[f"port {home.port}"]["found"]


def test_a_head_without_a_port_says_so(home: Home) -> None:
    assert home.oxiray("start", "--head", "--num-cpus=1").returncode == 0
    found = doctor(OXIRAY_TMPDIR=str(home.folder))
    assert found["head"]["is_ok"] and "opens no port" in found["head"]["found"]
    assert "dashboard" not in found and "metrics" not in found


def test_ports_of_a_cluster_that_cannot_be_reached_are_told() -> None:
    closed = f"127.0.0.1:{free_port()}"
    for one in (
        _doctor_ports._of_head(closed, None),
        _doctor_ports._of_head(closed, {"listens": closed}),
        _doctor_ports._of_url(f"http://{closed}"),
        _doctor_ports._of_exporters([closed]),
    ):
        assert not one.is_ok and closed in one.found and "cannot be reached from here" in one.found and one.advice


@pytest.fixture
def spilled(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in list(os.environ):
        if name.startswith("AWS_") or name in (_doctor_storage.PLACE, _doctor_storage.CONFIG):
            monkeypatch.delenv(name)
    yield monkeypatch


def test_without_a_place_to_spill_to_nothing_is_said(spilled: pytest.MonkeyPatch) -> None:
    assert list(_doctor_storage.spilling()) == []


def test_the_folder_of_spilled_objects_is_looked_at(spilled: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def said(place: Path | str, name: str = _doctor_storage.PLACE) -> Finding:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, str(place))
            (found,) = _doctor_storage.spilling()
        return found

    spilled.setattr(_doctor_storage.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100 << 30, 50 << 30, 50 << 30))
    assert said(tmp_path).is_ok and said(f"file://{tmp_path}").found.startswith(f"{tmp_path}, ")
    assert said(json.dumps({"type": "filesystem", "params": {"directory_path": [str(tmp_path)]}}), _doctor_storage.CONFIG).is_ok
    missing = said(tmp_path / "none")
    assert not missing.is_ok and "does not exist" in missing.found and f"mkdir -p {tmp_path}/none" in missing.advice
    (tmp_path / "file").touch()
    assert "is not a folder" in said(tmp_path / "file").found
    spilled.setattr(_doctor_storage.os, "access", lambda *_: False)
    assert "cannot write to" in said(tmp_path).found
    spilled.undo()
    spilled.setattr(_doctor_storage.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100 << 30, 97 << 30, 3 << 30))
    full = said(tmp_path)
    assert not full.is_ok and "3 GiB free, 97 % full" in full.found


@pytest.mark.parametrize("config", ["{", "[]", '{"type": "smart_open", "params": {"uri": ["s3://a", "s3://b"]}}', '{"type": "x", "params": {}}'])
def test_a_configuration_that_no_node_follows_is_told(spilled: pytest.MonkeyPatch, config: str) -> None:
    spilled.setenv(_doctor_storage.CONFIG, config)
    (found,) = _doctor_storage.spilling()
    assert not found.is_ok and config in found.found and '"uri": "s3://bucket/prefix"' in found.advice


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


def test_storage_is_asked_and_says_what_is_missing(spilled: pytest.MonkeyPatch, s3: S3Server) -> None:
    def said(**variables: str) -> Finding:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setenv(_doctor_storage.PLACE, f"s3://{BUCKET}/prefix")
            (found,) = _doctor_storage.spilling()
        return found

    works = said(**s3.variables)
    assert works.is_ok and works.found == f"s3://{BUCKET}/prefix answers, and lets these credentials look what is there"
    assert s3.keys() == [], "nothing is written"
    bare = said(AWS_EC2_METADATA_DISABLED="true")
    assert not bare.is_ok and bare.found == f"`s3://{BUCKET}/prefix` needs credentials, and none are set"
    assert bare.advice.startswith("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    plain = said(AWS_ENDPOINT_URL=s3.endpoint)
    assert not plain.is_ok and plain.advice == "Name an endpoint with https://, or set AWS_ALLOW_HTTP=true."
    stranger = said(**s3.variables | {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": SECRET})
    assert not stranger.is_ok and stranger.advice.startswith("Look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")


def test_storage_that_does_not_answer_is_told(spilled: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for name, value in {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
            spilled.setenv(name, value)
        spilled.setenv(_doctor_storage.PLACE, "s3://b/p")
        spilled.setattr(_doctor_storage, "STORAGE_LIMIT_S", 1.0)
        (found,) = _doctor_storage.spilling()
    assert not found.is_ok and found.found == "s3://b/p did not answer within 1 s" and "AWS_ENDPOINT_URL" in found.advice


def test_a_bucket_that_is_not_there_is_told(spilled: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As the program says what S3 answers.
    program, place = tmp_path / "oxiray-storage", "s3://none/prefix"
    spilled.setenv("OXIRAY_BINARY", str(tmp_path / "oxiray"))
    spilled.setenv(_doctor_storage.PLACE, place)
    for code, is_ok in (("NoSuchBucket", False), ("NoSuchKey", True)):
        told = f"gone reading oxiray-doctor at `{place}` failed: <Code>{code}</Code>. Look whether the bucket and the file are there"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{told}\nEND\n")
        program.chmod(0o755)
        (found,) = _doctor_storage.spilling()
        assert found.is_ok == is_ok
        assert is_ok or (code in found.found and found.advice == "Look whether the bucket and the file are there.")


def test_storage_without_its_program_or_of_another_kind_is_told(spilled: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spilled.setenv(_doctor_storage.PLACE, "gs://bucket/prefix")
    (found,) = _doctor_storage.spilling()
    assert not found.is_ok and "only storage that speaks S3 is known" in found.found and found.advice == "Name one as s3://bucket/prefix."
    spilled.setenv("OXIRAY_BINARY", str(tmp_path / "oxiray"))
    (found,) = _doctor_storage.spilling()
    assert not found.is_ok and f"{tmp_path}/oxiray-storage: No such file" in found.found and "Reinstall" in found.advice
