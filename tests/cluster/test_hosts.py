"""Hosts with addresses of their own: they join, work, are cut off, come back, and lose processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Hosts
from oxiray._cli import native_binary
from watching import alive, wait_until
from wheels import Wheels

PREAMBLE = """
import os, signal, subprocess, sys, time
import ray

def until(holds, limit=60.0):
    end = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < end, "it did not come to be in time"
        time.sleep(0.02)

def alive():
    return {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}

def is_gone(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True

@ray.remote(num_cpus=0)
class Somewhere:
    def pid(self):
        return os.getpid()
    def make(self, mib):
        import numpy
        return numpy.ones(mib << 17)
    def sum(self, values):
        return float(values.sum())
    def ask(self, other):
        return ray.get(other.pid.remote())

def on(host, thing=Somewhere, **options):
    return thing.options(resources={host: 0.1}, **options)

ray.init(address="auto")
until(lambda: len(alive()) == 3)
"""


#: What each host has.
OFFERS = [
    ["--num-cpus=2", f'--resources={{"h{index}": 4}}', f"--object-store-memory={1400 << 20}"] for index in range(3)
]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Three hosts in one cluster; each has a resource with its number."""
    if os.geteuid() != 0:
        pytest.skip("hosts of their own are network namespaces, which only root can make: run these tests as root")
    made = Hosts(tmp_path_factory.mktemp("hosts"), lease=15.0)
    try:
        for index in range(3):
            made.start(index, *OFFERS[index])
        yield made
    finally:
        made.end()


def test_work_and_values_go_from_host_to_host(hosts: Hosts) -> None:
    hosts.program(
        PREAMBLE
        + """
assert set(alive()) == {"10.77.0.1", "10.77.0.2", "10.77.0.3"}
first, second, here = on("h1").remote(), on("h2").remote(), on("h0").remote()
pids = ray.get([actor.pid.remote() for actor in (first, second, here)])
assert ray.get(first.ask.remote(second)) == pids[1]
assert ray.get(second.ask.remote(here)) == pids[2]
assert ray.get(here.ask.remote(first)) == pids[0]
made = first.make.remote(1024)
assert ray.get(second.sum.remote(made)) == 1024 << 17
"""
    )


def test_a_program_runs_on_the_host_of_a_member(hosts: Hosts) -> None:
    shown = hosts.program(
        PREAMBLE
        + """
assert ray.get_runtime_context().get_node_id() == alive()["10.77.0.3"]
first, here = on("h1").remote(), on("h2").remote()
made = first.make.remote(10)
assert ray.get(here.sum.remote(made)) == ray.get(made).sum() == 10 << 17
import numpy
assert ray.get(first.sum.remote(ray.put(numpy.ones(10 << 17)))) == 10 << 17
@ray.remote(resources={"h0": 0.1})
def say():
    print("hello from the head's host")
ray.get(say.remote())
""",
        host=2,
    )
    assert shown.count("hello from the head's host") == 1
    status = subprocess.run(hosts.command(2, str(native_binary()), "status"), capture_output=True, text=True, check=False)
    assert status.returncode == 0 and "10.77.0.2" in status.stdout, status.stderr


def test_a_program_on_a_member_that_is_killed_leaves_nothing_behind(hosts: Hosts) -> None:
    text = (
        PREAMBLE
        + """
actors = [on(host).remote() for host in ("h0", "h1", "h2")]
print(*ray.get([actor.pid.remote() for actor in actors]), flush=True)
time.sleep(600)
"""
    )
    driver = subprocess.Popen(hosts.command(1, sys.executable, "-c", text), stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    with driver.stdout as output:
        pids = [int(word) for word in output.readline().split()]
    assert len(pids) == 3 and all(alive(pid) for pid in pids)
    driver.kill()
    driver.wait()
    wait_until(lambda: not any(alive(pid) for pid in pids))


def test_environments_are_made_on_the_host_that_needs_them(hosts: Hosts, tmp_path: Path) -> None:
    """Programs on the head's host and on a member's: packages travel by way of the head."""
    text = (
        PREAMBLE
        + """
from pathlib import Path
made = Path(os.environ["OXIRAY_TMPDIR"], "made")
(made / "dir").mkdir(parents=True, exist_ok=True)
(made / "dir" / "data").write_bytes(os.urandom(5 << 20))  # more than one piece
(made / "dir" / "name").write_text(sys.argv[1])
(made / "greet.py").write_text(f"def hello():\\n    return 'hello from {sys.argv[1]}'\\n")
environment = {"working_dir": str(made / "dir"), "py_modules": [str(made / "greet.py")], "env_vars": {"WHO": sys.argv[1]}}

@ray.remote(runtime_env=environment)
def look():
    import greet
    return open("name").read(), os.path.getsize("data"), greet.hello(), os.environ["WHO"]

@ray.remote(runtime_env={"py_executable": "/no/such/python"})
def never():
    pass

@ray.remote(runtime_env={"pip": {"packages": ["tinyone==1.0"], "pip_install_options": sys.argv[2:]}})
def version():
    import tinyone
    return tinyone.VERSION

assert ray.get([on(host, version).remote() for host in ("h1", "h2")], timeout=90) == ["1.0", "1.0"]
for host in ("h0", "h1", "h2"):
    found = ray.get(on(host, look).remote(), timeout=60)
    assert found == (sys.argv[1], 5 << 20, f"hello from {sys.argv[1]}", sys.argv[1]), (host, found)
try:
    ray.get(on("h1", never).remote(), timeout=60)
    raise SystemExit("an interpreter that is not there runs")
except ray.exceptions.RuntimeEnvSetupError as error:
    assert "/no/such/python" in str(error)
"""
    )
    wheels = Wheels(tmp_path / "wheels")
    wheels.make("tinyone", "1.0")
    for host in (0, 2):
        hosts.program(text, f"host {host}", *wheels.offline, host=host)
    for host in range(3):
        assert len(list(hosts.folder(host).glob("oxiray-*/cache/packages/*.zip"))) == 4


def test_an_interpreter_of_one_host_is_stood_in_for_by_those_of_the_others(hosts: Hosts) -> None:
    own = hosts.folder(2) / "venv"
    make = [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(own)]
    subprocess.run(make, check=True)
    here = "import site, sys; print(*[path for path in sys.path if path.endswith('site-packages')], sep='\\n')"
    known = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, check=True).stdout.split()
    library = next(own.glob("lib/*/site-packages"))
    (library / "others.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in known))
    text = (
        PREAMBLE
        + """
@ray.remote
def interpreter():
    return sys.executable
assert "venv" in sys.executable
assert ray.get(on("h2", interpreter).remote()) == sys.executable
for host in ("h0", "h1"):
    found = ray.get(on(host, interpreter).remote(), timeout=60)
    assert found != sys.executable and os.path.exists(found), found
"""
    )
    done = subprocess.run(
        hosts.command(2, str(own / "bin" / "python"), "-c", text), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


#: Both ways, or one way only: what the host, or what the head, sends to the other is dropped.
CUTS = {
    "both": (2, "link set eth0 down", "link set eth0 up"),
    "from": (2, "route add blackhole 10.77.0.1/32", "route del blackhole 10.77.0.1/32"),
    "to": (0, "route add blackhole 10.77.0.3/32", "route del blackhole 10.77.0.3/32"),
}


@pytest.mark.parametrize("way", CUTS)
def test_a_host_that_is_cut_off_ends_its_work_first_and_comes_back_as_another(hosts: Hosts, way: str) -> None:
    where, cut, heal = CUTS[way]
    hosts.program(
        PREAMBLE
        + """
before = alive()
lost = on("h2").remote()
pid = ray.get(lost.pid.remote())
subprocess.run(["ip", "-n", sys.argv[1], *sys.argv[2].split()], check=True)
until(lambda: is_gone(pid) or "10.77.0.3" not in alive())
assert is_gone(pid), "the head gave the host up before it had ended its work"
until(lambda: "10.77.0.3" not in alive())
try:
    ray.get(lost.pid.remote(), timeout=60)
    raise SystemExit("an actor on a host that is given up answers")
except ray.exceptions.RayActorError:
    pass
assert ray.available_resources().get("h2") is None, "what a dead host had is not handed on"
subprocess.run(["ip", "-n", sys.argv[1], *sys.argv[3].split()], check=True)
until(lambda: alive().get("10.77.0.3", before["10.77.0.3"]) != before["10.77.0.3"])
# What it asked while it was cut off may be answered when its lease is over, so that it asks again.
assert ray.get(on("h2", max_restarts=-1, max_task_retries=-1).remote().pid.remote()) != pid
""",
        hosts.names[where],
        cut,
        heal,
    )


PARENT = """
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
"""


def test_workers_templates_and_daemons_that_hang_may_die(hosts: Hosts) -> None:
    hosts.program(
        PREAMBLE
        + PARENT
        + """
actor = on("h1", max_restarts=-1, max_task_retries=-1).remote()
worker = ray.get(actor.pid.remote())
os.kill(worker, signal.SIGKILL)
again = ray.get(actor.pid.remote())
assert again != worker
os.kill(parent(again), signal.SIGKILL)  # its template
until(lambda: is_gone(again))
third = ray.get(actor.pid.remote())
assert third not in (worker, again)
daemon = parent(parent(third))
before, supervisor = alive()["10.77.0.2"], parent(daemon)
os.kill(daemon, signal.SIGSTOP)  # it cannot end its work by itself: the kernel does
until(lambda: is_gone(daemon) and is_gone(third))
until(lambda: alive().get("10.77.0.2", before) != before)
until(lambda: [node["Alive"] for node in ray.nodes() if node["NodeID"] == before] == [False])
# Another is started in its place, and does its work.
fourth = ray.get(actor.pid.remote(), timeout=60)
assert fourth != third and parent(parent(parent(fourth))) == supervisor
"""
    )
    log = max(hosts.folder(1).glob("oxiray-*/logs/session_*/daemon.log"), key=lambda path: path.stat().st_mtime_ns)
    others = [path.read_text() for path in hosts.folder(1).glob("oxiray-*/logs/session_*/daemon.log") if path != log]
    assert any("said nothing for longer than its lease of 15 s" in text.splitlines()[-1] for text in others), others


def test_a_member_that_is_killed_takes_its_work_with_it_and_gives_nothing_away_twice(hosts: Hosts) -> None:
    hosts.program(
        PREAMBLE
        + PARENT
        + """
lasting = dict(max_restarts=-1, max_task_retries=-1, lifetime="detached", namespace="hosts")
pid = ray.get(on("h1", name="comes back", **lasting).remote().pid.remote())
made = on("h1").remote().make.remote(8)
ray.wait([made], fetch_local=False)
os.kill(parent(parent(pid)), signal.SIGKILL)
until(lambda: is_gone(pid))
until(lambda: "10.77.0.2" not in alive())
assert ray.available_resources().get("h1") is None, "what a dead host had is not handed on"
try:
    ray.get(made, timeout=60)
    raise SystemExit("the only copy was on a host that is dead, and nobody can make it again")
except ray.exceptions.ObjectLostError:
    pass
"""
    )
    hosts.start(1, *OFFERS[1])
    hosts.program(
        PREAMBLE
        + """
actor = ray.get_actor("comes back", namespace="hosts")
ray.get(actor.pid.remote(), timeout=60)
ray.kill(actor)
until(lambda: ray.available_resources().get("h1") == 4)
"""
    )


def test_a_driver_that_is_killed_leaves_only_what_is_detached(hosts: Hosts) -> None:
    hosts.program(
        PREAMBLE
        + """
text = '''
import os, ray, sys, time
ray.init(address="auto", namespace="hosts")
@ray.remote(num_cpus=0)
class One:
    def pid(self):
        return os.getpid()
mine = One.options(resources={"h1": 1}).remote()
lasting = One.options(resources={"h2": 1}, lifetime="detached", name="lasting").remote()
print(*ray.get([mine.pid.remote(), lasting.pid.remote()]), flush=True)
time.sleep(600)
'''
driver = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
mine, lasting = map(int, driver.stdout.readline().split())
driver.kill()
driver.wait()
until(lambda: is_gone(mine))
until(lambda: ray.available_resources().get("h1") == 4)
kept = ray.get_actor("lasting", namespace="hosts")
assert ray.get(kept.pid.remote(), timeout=60) == lasting and not is_gone(lasting)
ray.kill(kept)
until(lambda: is_gone(lasting) and ray.available_resources().get("h2") == 4)
"""
    )


def test_a_copy_of_the_token_that_others_may_read_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    copy = tmp_path / "token"
    copy.write_text(hosts.token_file().read_text())
    copy.chmod(0o644)
    words = [str(native_binary()), "start", "--address=10.77.0.1:6379", "--token-file", str(copy)]
    done = subprocess.run(hosts.command(1, *words), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "0600" in done.stderr
