"""Names: what programs import, from public modules and from those that are private by name."""

import importlib
import sys

import pytest
import ray

pytestmark = pytest.mark.usefixtures("session")


@pytest.mark.parametrize(
    "name",
    """ray.ActorID ray.JobID ray.NodeID ray.TaskID ray.WorkerID ray.ObjectID ray.ObjectRef ray.UniqueID ray.FunctionID
    ray.ActorClassID ray.PlacementGroupID ray.ObjectRefGenerator ray.DynamicObjectRefGenerator ray.Language ray.client
    ray.ClientBuilder ray.java_function ray.java_actor_class ray.SCRIPT_MODE ray.WORKER_MODE ray.worker
    ray.state ray.log ray.ray_constants ray.serialization ray.LoggingConfig ray.method ray.timeline ray.get_gpu_ids
    ray.util.connect ray.util.disconnect ray.util.ActorPool ray.util.as_completed ray.util.map_unordered ray.util.timer
    ray.util.log_once ray.util.list_named_actors ray.util.get_node_ip_address ray.util.inspect_serializability
    ray.util.iter.from_items ray.util.iter.ParallelIterator ray.util.iter.LocalIterator ray.util.actor_group.ActorGroup
    ray.util.client_connect.connect ray.client_builder.client ray.cluster_utils.cluster_not_supported
    ray.cluster_utils.Cluster ray.cluster_utils.AutoscalingCluster ray.actor.ActorHandle ray.actor.exit_actor
    ray.actor.ActorClassInheritanceException ray.remote_function.RemoteFunction ray.cross_language.java_function
    ray.runtime_env.RuntimeEnv ray.runtime_env.RuntimeEnvConfig ray.job_config.JobConfig ray.exceptions.RayError
    ray.experimental.tqdm_ray.tqdm
    ray.experimental.internal_kv._internal_kv_get ray.experimental.queue.Queue ray.experimental.multiprocessing.Pool
    ray.experimental.state.api.list_actors ray._raylet.ObjectRefGenerator ray._raylet.DynamicObjectRefGenerator
    ray._raylet.StreamingObjectRefGenerator ray._raylet.ObjectRef ray._raylet.JobID ray._raylet.RAY_NODE_ID_KEY
    ray._raylet.setproctitle ray._raylet.getproctitle ray._raylet.Language ray._raylet.RayError
    ray._private.worker.global_worker ray._private.worker.init ray._private.worker.SCRIPT_MODE
    ray._common.utils.binary_to_hex ray._common.utils.hex_to_binary ray._private.utils.get_num_cpus
    ray._private.utils.get_system_memory ray._private.services.get_node_ip_address ray._private.state.actors
    ray._private.state.jobs ray._private.state.available_resources_per_node ray._private.state.total_resources_per_node
    ray._private.ray_constants.DEFAULT_PORT ray._private.ray_constants.LOGGER_FORMAT
    ray._private.ray_constants.RAY_ADDRESS_ENVIRONMENT_VARIABLE ray._private.internal_api.memory_summary
    ray._private.test_utils.wait_for_condition ray._private.test_utils.wait_for_pid_to_exit
    ray._private.test_utils.kill_actor_and_wait_for_failure ray._private.object_ref_generator.DynamicObjectRefGenerator
    ray._private.client_mode_hook.client_mode_hook ray._private.auto_init_hook.wrap_auto_init
    ray._private.async_compat.has_async_methods ray._private.inspect_util.is_class_method
    ray._common.test_utils.SignalActor ray._common.test_utils.Semaphore ray._common.test_utils.wait_for_condition
    ray._common.test_utils.async_wait_for_condition ray._common.utils.get_or_create_event_loop
    ray._common.utils.import_attr ray._common.constants.HEAD_NODE_RESOURCE_NAME ray._common.network_utils.build_address
    ray._common.network_utils.parse_address ray._common.ray_option_utils.task_options
    ray._common.ray_option_utils.actor_options ray._common.signature.get_signature
    ray.util.state.common.StateSchema ray.util.state.common.ActorState ray.util.state.common.TaskState
    ray.util.state.common.StateResource ray.util.state.common.Humanify ray.util.state.common.AVAILABLE_STATES
    ray.util.state.list_tasks ray.util.state.exception.RayStateApiException""".split(),
)
def test_this_name_is_there(name):
    module, _, attribute = name.rpartition(".")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        found = getattr(importlib.import_module(module.rpartition(".")[0]), module.rpartition(".")[2])
    assert getattr(found, attribute, None) is not None or name.endswith("cluster_not_supported")


def test_modules_are_known_after_they_were_looked_at():
    assert sys.modules["ray._raylet"] is ray._raylet
    assert sys.modules["ray.util"] is ray.util
    assert ray.util.state is sys.modules["ray.util.state"]
    assert ray.autoscaler is sys.modules["ray.autoscaler"]


@pytest.mark.parametrize("name", ["importlib", "sys", "os", "logging", "RAY_COMMIT", "RAY_VERSION", "annotations"])
def test_this_name_is_not_there(name):
    assert not hasattr(ray, name)
    assert name not in dir(ray)


def test_a_missing_name_is_the_error_that_python_raises():
    with pytest.raises(AttributeError):
        ray.no_such_name
    with pytest.raises(ImportError):
        from ray import no_such_name  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ray.no_such_module")


def test_names_of_labels():
    assert ray._raylet.RAY_NODE_ID_KEY == "ray.io/node-id"
    assert ray._raylet.RAY_NODE_ACCELERATOR_TYPE_KEY == "ray.io/accelerator-type"


def test_clusters_are_supported_here():
    assert ray.cluster_utils.cluster_not_supported is False


def test_functions_of_java_exist():
    assert callable(ray.java_function)
    assert callable(ray.java_actor_class)


def test_constants():
    from ray._private import ray_constants

    assert ray_constants.RAY_ADDRESS_ENVIRONMENT_VARIABLE == "RAY_ADDRESS"
    assert ray_constants.ID_SIZE == 28
    assert ray_constants.DEFAULT_PORT == 6379
    assert ray_constants.DEFAULT_TASK_MAX_RETRIES == 3
    assert ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES == 75 * 1024 * 1024
    assert ray._common.constants.HEAD_NODE_RESOURCE_NAME == "node:__internal_head__"


def test_identifiers():
    assert ray.JobID.from_int(1).hex() == "01000000"
    assert ray.JobID(b"\x02\x00\x00\x00").int() == 2
    assert ray.NodeID.from_random() != ray.NodeID.from_random()
    assert ray.NodeID.nil().is_nil()
    assert ray.ActorID.from_random().size() == 16
    assert ray.TaskID.for_driver_task(ray.JobID.from_int(1)).hex() == "ff" * 20 + "01000000"
    assert len({ray.UniqueID.from_random() for _ in range(10)}) == 10
    one = ray.NodeID.from_random()
    assert ray.NodeID(one.binary()) == one == ray.NodeID.from_hex(one.hex()) == ray.NodeID.from_binary(one.binary())
    assert repr(one) == f"NodeID({one.hex()})"


def test_identifiers_are_of_one_base():
    from ray._raylet import BaseID

    assert isinstance(ray.put(1), BaseID)
    assert isinstance(ray.NodeID.nil(), BaseID)


def test_a_signal_is_waited_for():
    from ray._common.test_utils import SignalActor

    signal = SignalActor.remote()

    @ray.remote(num_cpus=0)
    def wait():
        ray.get(signal.wait.remote())
        return "sent"

    reference = wait.remote()
    ready, _ = ray.wait([reference], timeout=0.3)
    assert not ready
    ray.get(signal.send.remote())
    assert ray.get(reference, timeout=30) == "sent"


def test_a_signal_counts_who_waits():
    from ray._common.test_utils import SignalActor, wait_for_condition

    signal = SignalActor.remote()
    waiting = [signal.wait.remote() for _ in range(3)]
    wait_for_condition(lambda: ray.get(signal.cur_num_waiters.remote()) == 3, timeout=60)
    ray.get(signal.send.remote(clear=True))
    ray.get(waiting)


def test_a_semaphore_has_places():
    from ray._common.test_utils import Semaphore

    semaphore = Semaphore.remote(value=1)
    ray.get(semaphore.acquire.remote())
    assert ray.get(semaphore.locked.remote())
    second = semaphore.acquire.remote()
    ready, _ = ray.wait([second], timeout=0.2)
    assert not ready
    ray.get(semaphore.release.remote())
    ray.get(second, timeout=30)


def test_a_condition_that_does_not_come_raises():
    from ray._common.test_utils import wait_for_condition

    with pytest.raises(RuntimeError, match="The condition wasn't met before the timeout expired"):
        wait_for_condition(lambda: False, timeout=0.3)
    with pytest.raises(ZeroDivisionError):
        wait_for_condition(lambda: 1 / 0, timeout=5, raise_exceptions=True)
    wait_for_condition(lambda x: x == 1, x=1)


def test_a_program_is_run_as_a_driver():
    from ray._common.test_utils import run_string_as_driver

    assert "hello 3" in run_string_as_driver("print('hello', 1 + 2)")


def test_addresses_are_put_together_and_taken_apart():
    from ray._common.network_utils import build_address, is_ipv6, parse_address

    assert build_address("10.0.0.1", 80) == "10.0.0.1:80"
    assert build_address("::1", 80) == "[::1]:80"
    assert tuple(parse_address("10.0.0.1:80")) == ("10.0.0.1", "80")
    assert tuple(parse_address("[::1]:80")) == ("::1", "80")
    assert is_ipv6("::1") and not is_ipv6("10.0.0.1")


def test_attributes_are_imported_by_path():
    from ray._common.utils import import_attr

    assert import_attr("os.path.join") is __import__("os").path.join


def test_tables_of_options():
    from ray._common.ray_option_utils import actor_options, task_options

    assert {"num_cpus", "num_gpus", "max_calls", "max_retries", "num_returns", "runtime_env"} <= set(task_options)
    assert {"num_cpus", "max_restarts", "lifetime", "namespace", "concurrency_groups"} <= set(actor_options)
    with pytest.raises(TypeError):
        task_options["max_calls"].validate("max_calls", "x")


def test_actors_by_the_private_state():
    @ray.remote(num_cpus=0)
    class Listed:
        pass

    actor = Listed.remote()
    ray.get(actor.__ray_ready__.remote())
    known = ray._private.state.actors(actor._actor_id.hex())
    assert known["ActorClassName"].endswith("Listed")
    assert known["State"] == "ALIVE"
    assert actor._actor_id.hex() in ray._private.state.actors()


def test_jobs_by_the_private_state():
    jobs = ray._private.state.jobs()
    assert ray.get_runtime_context().get_job_id() in [job["JobID"] for job in jobs]


def test_locations_of_objects():
    import numpy as np

    large = ray.put(np.zeros(10**6))
    here = ray.get_runtime_context().get_node_id()
    known = ray.experimental.get_object_locations([large])
    assert known[large]["node_ids"] == [here]
    assert known[large]["object_size"] >= 8 * 10**6
    assert known[large]["did_spill"] is False


def test_the_location_of_a_spilled_object_says_so(start, eventually):
    import numpy as np

    start(num_cpus=1, object_store_memory=100 * 2**20)
    held = [ray.put(np.full(30 * 2**20, number, dtype=np.uint8)) for number in range(5)]
    eventually(lambda: ray.experimental.get_object_locations(held[:1])[held[0]]["did_spill"])
    assert int(ray.get(held[0])[0]) == 0


def test_figures_as_people_read_them():
    from ray.util.state.common import Humanify

    assert Humanify.memory(1536) == "1.500 KiB"
    assert Humanify.memory(1.5 * 2**30) == "1.500 GiB"
    assert Humanify.duration(3661000) == "1:01:01"


def test_rows_as_people_read_them():
    from ray.util.state.common import Humanify, WorkerState

    assert Humanify.node_resources({"CPU": 2.0, "memory": 1.5 * 2**30}) == {"CPU": 2.0, "memory": "1.500 GiB"}
    assert WorkerState.humanify({"worker_id": "a", "start_time_ms": 1000})["start_time_ms"].endswith(":01")


def test_logs_are_asked_for_by_options():
    from ray.util.state.common import DEFAULT_LOG_LIMIT, GetLogOptions

    asked = GetLogOptions(timeout=1, node_ip="10.0.0.1", pid="3")
    assert (asked.pid, asked.lines, asked.suffix) == (3, DEFAULT_LOG_LIMIT, "out")
    for wrong in ({}, {"pid": 3}, {"actor_id": "a", "node_id": "b", "node_ip": "c"}, {"actor_id": "a", "suffix": "x"}):
        with pytest.raises(ValueError):
            GetLogOptions(timeout=1, **wrong)


def test_rows_are_made_of_dictionaries():
    from ray.util.state.common import StateResource, WorkerState, dict_to_state, filter_fields, resource_to_schema

    assert resource_to_schema(StateResource.WORKERS) is WorkerState
    facts = {"worker_id": "a", "is_alive": True, "worker_type": "WORKER", "exit_type": None, "node_id": "n", "ip": "i", "pid": 1}
    row = dict_to_state({**facts, "else": 2}, StateResource.WORKERS)
    assert (row.pid, row.exit_type) == (1, None)
    kept = filter_fields({"pid": 1, "exit_detail": "of detail"}, WorkerState, False)
    assert kept["pid"] == 1 and "exit_detail" not in kept


def test_rows_are_written_as_json_and_as_a_table():
    import json

    from ray.util.state.common import WorkerState
    from ray.util.state.state_cli import AvailableFormat, format_get_api_output, format_list_api_output

    row = WorkerState(worker_id="a", is_alive=True, worker_type="WORKER", exit_type=None, node_id="n", ip="i", pid=1)
    written = format_list_api_output([row], schema=WorkerState, format=AvailableFormat.JSON)
    assert json.loads(written)[0]["worker_id"] == "a"
    table = format_list_api_output([row], schema=WorkerState)
    assert "Total: 1" in table and "WORKER_ID" in table
    assert "No resource in the cluster" in format_list_api_output([], schema=WorkerState)
    assert "Resource with id=a not found in the cluster" in format_get_api_output(None, "a", schema=WorkerState)


def test_the_older_names_of_the_state_api():
    from ray.experimental.state.api import list_tasks
    from ray.experimental.state.common import TaskState
    from ray.experimental.state.exception import RayStateApiException
    from ray.util import state

    assert callable(list_tasks) and callable(state.list_tasks)
    assert "task_id" in TaskState.columns() and issubclass(RayStateApiException, Exception)
