"""Cases of Ray Serve: what each comes to is the same on Ray and on Oxiray.

Requests go over HTTP to the proxy at 127.0.0.1:8000, or through handles. Each case deletes what it deployed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
import requests
from ray import serve
from ray.serve.exceptions import BackPressureError
from ray.util.state import list_actors
from serve_shop import Shop
from starlette.requests import Request
from starlette.responses import StreamingResponse

URL = "http://127.0.0.1:8000"
#: How long anything may take, in seconds.
PATIENCE_S = 60
#: How many connections come to every one of a few proxies.
CONNECTIONS = 30
#: What the names of applications begin with that have a replica on every node, where there are several.
EVERYWHERE = "everywhere-"


@contextlib.contextmanager
def running(application: Any, name: str = "default", prefix: str | None = "/") -> Iterator[Any]:
    """The handle of an application that runs meanwhile."""
    handle = deployed(application, name, prefix)
    try:
        yield handle
    finally:
        serve.delete(name)


def deployed(application: Any, name: str = "default", prefix: str | None = "/") -> Any:
    """Runs an application; returns its handle once every proxy knows the way to it."""
    have_proxies_everywhere()
    handle = serve.run(application, name=name, route_prefix=prefix)
    until(lambda: is_known(prefix))
    return handle


@functools.cache
def have_proxies_everywhere() -> None:
    """Sees to it that every node has a proxy, as long as this program runs.

    A node has a proxy as long as it has replicas. Those of nodes on one machine share a port, so that whichever there are take
    requests; one that comes or goes meanwhile would answer some of a case's with 404, or leave them unanswered.
    """
    nodes = [node["NodeID"] for node in ray.nodes()]
    if len(nodes) == 1:
        return
    for number, node in enumerate(nodes):
        options = {"num_cpus": 0, "label_selector": {"ray.io/node-id": node}}
        # It has a route: a proxy is not ready before it knows of a route with replicas.
        serve.run(Pid.options(ray_actor_options=options).bind(), name=f"{EVERYWHERE}{number}", route_prefix=f"/{EVERYWHERE}{number}")
    until(lambda: [str(one.value) for one in serve.status().proxies.values()] == ["HEALTHY"] * len(nodes))


def is_known(prefix: str | None) -> bool:
    """Whether all proxies know a route. Each of them hears of it for itself, also after `serve.run` has returned."""
    if prefix is None or len(ray.nodes()) == 1:
        return True
    answers = (got("/-/routes") for _ in range(CONNECTIONS))
    return all(answer.ok and prefix in answer.json() for answer in answers)


def until(holds: Callable[[], Any]) -> Any:
    """What `holds` returns once that is true."""
    end = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        if time.monotonic() > end:
            raise TimeoutError("it never came to hold")
        time.sleep(0.05)
    return found


def got(path: str = "/", **options: Any) -> requests.Response:
    return requests.get(URL + path, timeout=PATIENCE_S, **options)


@serve.deployment
class Adder:
    """Adds what it was made with."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def __call__(self, value: int) -> int:
        return value + self.amount

    def minus(self, value: int) -> int:
        return value - self.amount


@serve.deployment
class Pid:
    def __call__(self, request: Any = None) -> int:
        return os.getpid()


def a_function_over_http() -> Any:
    @serve.deployment
    def greet(request: Request) -> str:
        return f"hello {request.query_params['name']}"

    with running(greet.bind()):
        answer = got("/?name=Ada")
        return [answer.status_code, answer.text]


def a_class_over_http_answers_json() -> Any:
    @serve.deployment
    class Sum:
        async def __call__(self, request: Request) -> dict[str, int]:
            return {"sum": sum(await request.json())}

    with running(Sum.bind()):
        return requests.post(URL, json=[1, 2, 3], timeout=PATIENCE_S).json()


def an_unknown_path_is_not_found() -> Any:
    with running(Pid.bind(), prefix="/here"):
        return [got("/there").status_code, got("/here").status_code]


def an_exception_is_an_error_of_the_server() -> Any:
    @serve.deployment
    def fail(request: Request) -> None:
        raise ValueError("no")

    with running(fail.bind()):
        return got().status_code


def fastapi_routes() -> Any:
    with running(Shop.bind()):
        return [
            got("/items/7?big=true").json(),
            got("/items/seven").status_code,
            requests.post(f"{URL}/items", json={"name": "pen", "price": 1.5}, timeout=PATIENCE_S).json(),
        ]


def a_websocket_echoes() -> Any:
    from websockets.sync.client import connect

    with running(Shop.bind()), connect("ws://127.0.0.1:8000/echo") as socket:
        heard = []
        for word in ("one", "two", "three"):
            socket.send(word)
            heard.append(socket.recv())
        return heard


def a_stream_over_http() -> Any:
    @serve.deployment
    class Count:
        def __call__(self, request: Request) -> StreamingResponse:
            return StreamingResponse((f"{number}\n" for number in range(5)), media_type="text/plain")

    with running(Count.bind()):
        with got(stream=True) as answer:
            return [line.decode() for line in answer.iter_lines()]


def a_handle_is_called() -> Any:
    with running(Adder.bind(3)) as handle:
        return [handle.remote(4).result(), handle.minus.remote(4).result()]


def a_hundred_calls_of_a_handle() -> Any:
    with running(Adder.options(num_replicas=2).bind(1)) as handle:
        responses = [handle.remote(number) for number in range(100)]
        return sum(response.result(timeout_s=PATIENCE_S) for response in responses)


def a_handle_awaits_in_an_event_loop() -> Any:
    with running(Adder.bind(3)) as handle:

        async def call() -> int:
            return sum(await asyncio.gather(*(handle.remote(number) for number in range(10))))

        return asyncio.run(call())


def an_exception_comes_to_who_called() -> Any:
    @serve.deployment
    class Fails:
        def __call__(self) -> None:
            raise KeyError("gone")

    with running(Fails.bind()) as handle:
        try:
            handle.remote().result()
        except KeyError as error:
            return [isinstance(error, ray.exceptions.RayTaskError), "gone" in str(error)]
    return None


def deployments_call_each_other() -> Any:
    @serve.deployment
    class Both:
        def __init__(self, first: Any, second: Any) -> None:
            self.first, self.second = first, second

        async def __call__(self, value: int) -> list[int]:
            return list(await asyncio.gather(self.first.remote(value), self.second.minus.remote(value)))

    with running(Both.bind(Adder.bind(1), Adder.options(name="Other").bind(10))) as handle:
        return handle.remote(5).result()


def a_response_is_an_argument() -> Any:
    @serve.deployment
    class Chain:
        def __init__(self, adder: Any) -> None:
            self.adder = adder

        async def __call__(self, value: int) -> int:
            return await self.adder.remote(self.adder.remote(value))

    with running(Chain.bind(Adder.bind(2))) as handle:
        return handle.remote(1).result()


def a_handle_streams() -> Any:
    @serve.deployment
    class Count:
        def __call__(self, end: int) -> Iterator[int]:
            yield from range(end)

        async def slowly(self, end: int) -> Any:
            for number in range(end):
                await asyncio.sleep(0)
                yield number * number

    with running(Count.bind()) as handle:
        streaming = handle.options(stream=True)
        return [list(streaming.remote(4)), list(streaming.slowly.remote(4))]


def calls_are_batched() -> Any:
    @serve.deployment(max_ongoing_requests=16)
    class Batched:
        @serve.batch(max_batch_size=4, batch_wait_timeout_s=5)
        async def __call__(self, values: list[int]) -> list[list[int]]:
            return [[value, len(values)] for value in values]

    with running(Batched.bind()) as handle:
        return [response.result() for response in [handle.remote(number) for number in range(8)]]


def models_are_multiplexed() -> Any:
    @serve.deployment
    class Models:
        def __init__(self) -> None:
            self.loaded: list[str] = []

        @serve.multiplexed(max_num_models_per_replica=2)
        async def model(self, name: str) -> str:
            self.loaded.append(name)
            return name.upper()

        async def __call__(self) -> list[Any]:
            return [await self.model(serve.get_multiplexed_model_id()), list(self.loaded)]

    with running(Models.bind()) as handle:
        names = ("a", "b", "a", "c", "a")
        return [handle.options(multiplexed_model_id=name).remote().result() for name in names]


def replicas_are_processes() -> Any:
    with running(Pid.options(num_replicas=3, ray_actor_options={"num_cpus": 0.1}).bind()) as handle:
        found: set[int] = set()

        def all_answer() -> bool:
            found.update(response.result() for response in [handle.remote() for _ in range(20)])
            return len(found) == 3

        return until(all_answer)


def a_replica_that_was_killed_comes_back() -> Any:
    with running(Pid.bind()) as handle:
        first = handle.remote().result()
        os.kill(first, signal.SIGKILL)

        def another() -> int | None:
            try:
                pid = handle.remote().result(timeout_s=5)
            except Exception:
                return None
            return pid if pid != first else None

        return until(another) != first


def a_replica_that_is_unhealthy_is_replaced() -> Any:
    @serve.deployment(health_check_period_s=0.5, health_check_timeout_s=5)
    class Sick:
        def __init__(self) -> None:
            self.is_well = True

        def check_health(self) -> None:
            if not self.is_well:
                raise RuntimeError("unwell")

        def fall_ill(self) -> int:
            self.is_well = False
            return os.getpid()

        def __call__(self) -> int:
            return os.getpid()

    with running(Sick.bind()) as handle:
        ill = handle.fall_ill.remote().result()

        def another() -> bool:
            try:
                return handle.remote().result(timeout_s=5) != ill
            except Exception:
                return False

        return until(another)


def a_new_version_replaces_the_old() -> Any:
    @serve.deployment
    class Version:
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self, request: Any = None) -> int:
            return self.number

    with running(Version.bind(1)) as handle:
        first = handle.remote().result()
        handle = deployed(Version.bind(2))
        return [first, handle.remote().result(), got().text]


def a_new_configuration_is_applied() -> Any:
    @serve.deployment(user_config={"threshold": 1})
    class Configured:
        def reconfigure(self, config: dict[str, int]) -> None:
            self.threshold = config["threshold"]

        def __call__(self) -> int:
            return self.threshold

    with running(Configured.bind()) as handle:
        first = handle.remote().result()
        handle = serve.run(Configured.options(user_config={"threshold": 5}).bind())
        return [first, until(lambda: handle.remote().result() == 5)]


def applications_lie_beside_each_other() -> Any:
    with running(Adder.bind(1), "one", "/one"), running(Pid.bind(), "two", "/two"):
        told = serve.status().applications
        statuses = {name: str(one.status.value) for name, one in told.items() if not name.startswith(EVERYWHERE)}
        handle = serve.get_app_handle("one")
        return [statuses, handle.remote(1).result(), int(got("/two").text) > 0]


def a_deleted_application_is_gone() -> Any:
    with running(Pid.bind(), "brief", "/brief"):
        pass
    return ["brief" in serve.status().applications, until(lambda: got("/brief").status_code == 404)]


def a_handle_is_found_by_name_in_a_task() -> Any:
    @ray.remote
    def call() -> int:
        return serve.get_deployment_handle("Adder", app_name="default").remote(1).result()

    with running(Adder.bind(41)):
        return ray.get(call.remote(), timeout=PATIENCE_S)


def a_handle_travels_to_an_actor() -> Any:
    @ray.remote
    class Caller:
        def __init__(self, handle: Any) -> None:
            self.handle = handle

        async def call(self) -> int:
            return await self.handle.remote(1)

    with running(Adder.bind(6)) as handle:
        caller = Caller.remote(handle)
        return ray.get(caller.call.remote(), timeout=PATIENCE_S)


def too_many_that_wait_are_refused() -> Any:
    marks = Path(tempfile.mkdtemp())

    @serve.deployment(max_ongoing_requests=1, max_queued_requests=1)
    class Slow:
        def __init__(self) -> None:
            self.may_end = asyncio.Event()

        async def __call__(self) -> str:
            (marks / "began").touch()
            await self.may_end.wait()
            return "done"

        async def end(self) -> None:
            self.may_end.set()

    with running(Slow.bind()) as handle:
        # While it is on its way it may have the one place of those that wait.
        _first = handle.remote()
        until((marks / "began").exists)
        rest = [handle.remote() for _ in range(5)]

        def ends_as(response: Any) -> str:
            try:
                response.result(timeout_s=2)
            except BackPressureError:
                return "refused"
            except TimeoutError:
                return "waits"
            return "done"

        with ThreadPoolExecutor() as pool:
            return sorted(set(pool.map(ends_as, rest)))


def a_request_is_cancelled() -> Any:
    marks = Path(tempfile.mkdtemp())

    @serve.deployment
    class Sleeps:
        async def __call__(self) -> None:
            (marks / "began").touch()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                (marks / "cancelled").touch()
                raise

    with running(Sleeps.bind()) as handle:
        response = handle.remote()
        until((marks / "began").exists)
        response.cancel()
        return until((marks / "cancelled").exists)


def a_request_that_takes_too_long_is_given_up() -> Any:
    @serve.deployment
    class Sleeps:
        async def __call__(self) -> None:
            await asyncio.sleep(600)

    with running(Sleeps.bind()) as handle:
        try:
            handle.remote().result(timeout_s=0.2)
        except TimeoutError:
            return "TimeoutError"
    return None


def replicas_come_and_go_with_the_load() -> Any:
    autoscaling = {
        "min_replicas": 1,
        "max_replicas": 3,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 0.2,
        "downscale_delay_s": 0.5,
        "metrics_interval_s": 0.1,
        "look_back_period_s": 0.5,
    }

    @serve.deployment(autoscaling_config=autoscaling, ray_actor_options={"num_cpus": 0.1}, max_ongoing_requests=10)
    class Works:
        async def __call__(self) -> None:
            await asyncio.sleep(0.2)

    def replicas() -> int:
        return serve.status().applications["default"].deployments["Works"].replica_states.get("RUNNING", 0)

    with running(Works.bind()) as handle:
        is_over = threading.Event()

        def load() -> None:
            while not is_over.is_set():
                handle.remote().result(timeout_s=PATIENCE_S)

        with ThreadPoolExecutor(8) as pool:
            for _ in range(8):
                pool.submit(load)
            try:
                grown = until(lambda: replicas() == 3)
            finally:
                is_over.set()
        return [grown, until(lambda: replicas() == 1)]


def a_replica_has_a_placement_group() -> Any:
    @serve.deployment(
        ray_actor_options={"num_cpus": 0.1},
        placement_group_bundles=[{"CPU": 0.1}, {"CPU": 0.1}],
        placement_group_strategy="PACK",
    )
    class Group:
        def __call__(self) -> int:
            return len(ray.util.get_current_placement_group().bundle_specs)

    with running(Group.bind()) as handle:
        return handle.remote().result()


def replicas_are_so_many_on_each_node() -> Any:
    """One on each node; one more waits for a node that is not there."""
    nodes = len(ray.nodes())

    def replicas() -> dict[str, int]:
        told = serve.status().applications["spread"].deployments["Pid"].replica_states
        return {str(getattr(state, "value", state)): count for state, count in told.items()}

    spread = Pid.options(num_replicas=nodes, max_replicas_per_node=1, ray_actor_options={"num_cpus": 0})
    serve.run(spread.bind(), name="spread", route_prefix="/spread")
    places = {actor.node_id for actor in list_actors(filters=[("state", "=", "ALIVE")]) if "spread#Pid" in actor.name}
    more = serve.RunTarget(spread.options(num_replicas=nodes + 1).bind(), name="spread", route_prefix="/spread")
    serve.run_many([more], wait_for_applications_running=False)
    until(lambda: replicas() == {"RUNNING": nodes, "STARTING": 1})
    serve.delete("spread")
    return len(places) == nodes


def a_replica_has_its_environment() -> Any:
    @serve.deployment(ray_actor_options={"runtime_env": {"env_vars": {"OF_THE_REPLICA": "yes"}}})
    class Environment:
        def __call__(self) -> str | None:
            return os.environ.get("OF_THE_REPLICA")

    with running(Environment.bind()) as handle:
        return handle.remote().result()


def a_deployment_that_cannot_start_says_why() -> Any:
    @serve.deployment
    class Broken:
        def __init__(self) -> None:
            raise ImportError("no such model")

    try:
        serve.run(Broken.bind(), name="broken", route_prefix="/broken")
    except RuntimeError:
        status = serve.status().applications["broken"]
        serve.delete("broken")
        told = " ".join(one.message for one in status.deployments.values())
        return [str(status.status.value), "no such model" in told]
    return None


def the_state_of_an_application_is_told() -> Any:
    with running(Adder.options(num_replicas=2, ray_actor_options={"num_cpus": 0.1}).bind(1)):
        told = serve.status().applications["default"]
        deployment = told.deployments["Adder"]
        return [str(told.status.value), str(deployment.status.value), dict(deployment.replica_states)]


def a_request_knows_its_context() -> Any:
    @serve.deployment
    class Context:
        def __call__(self, request: Request) -> list[str]:
            context = serve.get_replica_context()
            return [context.app_name, context.deployment, request.headers.get("x-request-id", "")]

    with running(Context.bind()):
        return got(headers={"X-Request-ID": "mine"}).json()


APPLICATION = """
from ray import serve

@serve.deployment
class Echo:
    async def __call__(self, request):
        return (await request.body()).decode() + "!"

application = Echo.bind()
"""


def an_application_is_run_by_the_command() -> Any:
    folder = Path(tempfile.mkdtemp())
    (folder / "of_the_command.py").write_text(APPLICATION)
    have_proxies_everywhere()
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = [sys.executable, "-m", "ray.serve.scripts", "run", "--non-blocking", "--name=command", "--route-prefix=/command"]
    done = subprocess.run(
        [*command, "of_the_command:application"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    try:
        until(lambda: is_known("/command"))
        return requests.post(f"{URL}/command", data="said", timeout=PATIENCE_S).text
    finally:
        serve.delete("command")


def is_answered(url: str) -> bool:
    try:
        return requests.get(url, timeout=PATIENCE_S).status_code > 0
    except requests.ConnectionError:
        return False


def applications_are_deployed_told_of_and_ended_by_the_command() -> Any:
    """In a cluster of its own, with the dashboard's address and without."""
    folder = Path(tempfile.mkdtemp(prefix="serve-"))
    (folder / "of_the_command.py").write_text(APPLICATION)
    with socket.create_server(("127.0.0.1", 0)) as proxy, socket.create_server(("127.0.0.1", 0)) as board:
        proxy_port, board_port = proxy.getsockname()[1], board.getsockname()[1]
    # Every JSON document is a YAML document.
    application: dict[str, Any] = {"name": "told", "route_prefix": "/told", "import_path": "of_the_command:application"}
    application["runtime_env"] = {"env_vars": {"PYTHONPATH": str(folder)}}
    config = {"http_options": {"host": "127.0.0.1", "port": proxy_port}, "applications": [application]}
    (folder / "config.yaml").write_text(json.dumps(config))
    environment = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAY_AUTH_MODE")}
    environment |= {"RAY_TMPDIR": str(folder), "PYTHONPATH": str(folder)}
    commands = Path(sys.executable).parent

    def tried(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(commands / words[0]), *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
        )  # fmt: skip

    def run(*words: str) -> str:
        done = tried(*words)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    head = subprocess.Popen(
        [str(commands / "ray"), "start", "--head", "--block", "--port=0", "--num-cpus=2", "--include-dashboard=true", f"--dashboard-port={board_port}"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: is_answered(f"http://127.0.0.1:{board_port}/api/version"))
        of_board = f"--address=http://127.0.0.1:{board_port}"
        run("serve", "deploy", of_board, "config.yaml")
        until(lambda: "RUNNING" in run("serve", "status", of_board, "--name=told"))
        text = requests.post(f"http://127.0.0.1:{proxy_port}/told", data="said", timeout=PATIENCE_S).text
        shown = "of_the_command:application" in run("serve", "config", of_board, "--name=told")
        # That is where the command asks by itself, but here it is said, and this cluster is not there.
        is_elsewhere = "told" in tried("serve", "status", "--address=http://localhost:8265").stdout
        run("serve", "shutdown", "-y", of_board)
        return [text, shown, "told" in run("serve", "status", of_board), is_elsewhere]
    finally:
        head.terminate()
        head.wait(PATIENCE_S)


def a_stream_is_left() -> Any:
    """The client leaves in the middle; the replica hears of it."""
    marks = Path(tempfile.mkdtemp())

    @serve.deployment
    class Endless:
        def __call__(self, request: Request) -> StreamingResponse:
            return StreamingResponse(self.lines(), media_type="text/plain")

        async def lines(self) -> Any:
            try:
                while True:
                    yield "line\n"
                    await asyncio.sleep(0.01)
            finally:
                (marks / "left").touch()

    with running(Endless.bind()):
        with got(stream=True) as answer:
            first = next(answer.iter_lines()).decode()
        return [first, until((marks / "left").exists)]


def events_are_sent_by_the_server() -> Any:
    @serve.deployment
    class Events:
        def __call__(self, request: Request) -> StreamingResponse:
            return StreamingResponse((f"data: {number}\n\n" for number in range(3)), media_type="text/event-stream")

    with running(Events.bind()):
        with got(stream=True) as answer:
            kind = answer.headers["content-type"].partition(";")[0]
            return [kind, [line.decode() for line in answer.iter_lines() if line]]


def applications_are_run_at_once() -> Any:
    targets = [serve.RunTarget(target=Adder.bind(number), name=f"app-{number}", route_prefix=f"/app-{number}") for number in (1, 2)]
    handles = serve.run_many(targets)
    try:
        return [handle.remote(10).result() for handle in handles]
    finally:
        for target in targets:
            serve.delete(target.name)


def batches_of_a_stream() -> Any:
    @serve.deployment(max_ongoing_requests=8)
    class Batched:
        @serve.batch(max_batch_size=3, batch_wait_timeout_s=5)
        async def numbers(self, ends: list[int]) -> Any:
            for number in range(max(ends)):
                yield [f"{number}/{end}" if number < end else StopIteration for end in ends]

        async def __call__(self, end: int) -> Any:
            async for number in self.numbers(end):
                yield number

    with running(Batched.bind()) as handle:
        responses = [handle.options(stream=True).remote(end) for end in (1, 2, 3)]
        return [list(response) for response in responses]


def batches_are_sized_anew() -> Any:
    @serve.deployment(max_ongoing_requests=16, user_config={"size": 2})
    class Batched:
        def reconfigure(self, config: dict[str, int]) -> None:
            self.sizes.set_max_batch_size(config["size"])
            self.sizes.set_batch_wait_timeout_s(5)

        @serve.batch
        async def sizes(self, values: list[int]) -> list[int]:
            return [len(values)] * len(values)

        async def __call__(self, value: int) -> int:
            return await self.sizes(value)

    with running(Batched.bind()) as handle:
        two = [response.result() for response in [handle.remote(number) for number in range(4)]]
        handle = serve.run(Batched.options(user_config={"size": 4}).bind())
        until(lambda: [response.result() for response in [handle.remote(number) for number in range(4)]] == [4] * 4)
        return two


def models_are_multiplexed_over_http() -> Any:
    @serve.deployment
    class Models:
        @serve.multiplexed(max_num_models_per_replica=1)
        async def model(self, name: str) -> str:
            return f"model {name}"

        async def __call__(self, request: Request) -> str:
            return await self.model(serve.get_multiplexed_model_id())

    with running(Models.bind()):
        return [got(headers={"serve_multiplexed_model_id": name}).text for name in ("a", "b", "a")]


def a_replica_ends_gracefully() -> Any:
    """A request that runs when its deployment is deleted is answered, and the replica cleans up after that."""
    marks = Path(tempfile.mkdtemp())

    @serve.deployment(graceful_shutdown_wait_loop_s=0.1, graceful_shutdown_timeout_s=PATIENCE_S)
    class Slow:
        async def __call__(self) -> str:
            (marks / "began").touch()
            while not (marks / "go").exists():
                await asyncio.sleep(0.01)
            return "answered"

        def __del__(self) -> None:
            (marks / "cleaned").touch()

    with running(Slow.bind()) as handle:
        response = handle.remote()
        until((marks / "began").exists)
        with ThreadPoolExecutor() as pool:
            deleted = pool.submit(serve.delete, "default")
            until(lambda: serve.status().applications["default"].status == "DELETING")
            (marks / "go").touch()
            answer = response.result(timeout_s=PATIENCE_S)
            deleted.result()
        return [answer, until((marks / "cleaned").exists)]


def a_replica_is_added_and_removed_by_hand() -> Any:
    sized = Pid.options(ray_actor_options={"num_cpus": 0.1})

    def replicas() -> int:
        return serve.status().applications["default"].deployments["Pid"].replica_states.get("RUNNING", 0)

    found = []
    try:
        for count in (1, 3, 2):
            serve.run(sized.options(num_replicas=count).bind(), route_prefix="/")
            found.append(until(lambda wanted=count: replicas() == wanted and wanted))
    finally:
        serve.delete("default")
    return found


def replicas_at_zero_wake_up() -> Any:
    autoscaling = {
        "min_replicas": 0, "initial_replicas": 0, "max_replicas": 1, "upscale_delay_s": 0, "metrics_interval_s": 0.1, "look_back_period_s": 0.2,
    }  # fmt: skip

    @serve.deployment(autoscaling_config=autoscaling)
    class Sleeping:
        def __call__(self) -> str:
            return "awake"

    with running(Sleeping.bind()) as handle:
        before = serve.status().applications["default"].deployments["Sleeping"].replica_states
        return [dict(before), handle.remote().result(timeout_s=PATIENCE_S)]


def middleware_of_fastapi() -> Any:
    from serve_shop import Guarded

    with running(Guarded.bind(), prefix="/guarded"):
        refused, let_in = got("/guarded/secret"), got("/guarded/secret", headers={"x-key": "right"})
        return [refused.status_code, let_in.json(), let_in.headers["x-guard"], got("/guarded/docs").status_code]


def methods_and_bodies_of_http() -> Any:
    @serve.deployment
    class Told:
        async def __call__(self, request: Request) -> dict[str, Any]:
            return {"method": request.method, "path": request.url.path, "size": len(await request.body())}

    with running(Told.bind(), prefix="/told"):
        answers = [
            requests.request(method, f"{URL}/told/deep/{method}", data=b"x" * size, timeout=PATIENCE_S).json()
            for method, size in (("PUT", 10), ("DELETE", 0), ("PATCH", 2_000_000))
        ]
        return [[answer["method"], answer["path"], answer["size"]] for answer in answers]


def arrays_through_handles() -> Any:
    import numpy

    @serve.deployment
    class Doubles:
        def __call__(self, array: Any) -> Any:
            return array * 2

    with running(Doubles.bind()) as handle:
        return int(handle.remote(numpy.ones(1_000_000)).result().sum())


def references_as_arguments() -> Any:
    with running(Adder.bind(1)) as handle:
        return handle.remote(ray.put(41)).result()


def twenty_clients_at_once() -> Any:
    with running(Pid.options(num_replicas=2, ray_actor_options={"num_cpus": 0.1}).bind()), ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: got().status_code, range(200)))
        return [len(answers), sorted(set(answers))]
