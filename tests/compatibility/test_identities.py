"""Identities: what a process may know of itself, the older ways too."""

import warnings

import pytest
import ray


pytestmark = pytest.mark.usefixtures("session")


def quietly(ask):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ask(ray.get_runtime_context())


def test_get_in_a_driver():
    known = quietly(lambda context: context.get())
    assert isinstance(known["job_id"], ray.JobID)
    assert isinstance(known["node_id"], ray.NodeID)
    assert known["namespace"] == ray.get_runtime_context().namespace
    assert "actor_id" not in known


def test_get_in_a_task():
    @ray.remote
    def task():
        return quietly(lambda context: context.get())

    known = ray.get(task.remote())
    assert isinstance(known["task_id"], ray.TaskID)
    assert "actor_id" not in known


def test_get_in_an_actor():
    @ray.remote
    class A:
        def known(self):
            return quietly(lambda context: context.get())

    actor = A.remote()
    known = ray.get(actor.known.remote())
    assert known["actor_id"] == actor._actor_id
    assert isinstance(known["task_id"], ray.TaskID)


def test_older_properties_are_identifiers():
    assert quietly(lambda context: context.job_id).hex() == ray.get_runtime_context().get_job_id()
    assert quietly(lambda context: context.node_id).hex() == ray.get_runtime_context().get_node_id()

    @ray.remote
    class A:
        def known(self):
            context = ray.get_runtime_context()
            return quietly(lambda c: (c.task_id.hex(), c.actor_id.hex())), context.get_task_id(), context.get_actor_id()

    old, task, actor = ray.get(A.remote().known.remote())
    assert old == (task, actor)


def test_a_task_has_no_actor():
    @ray.remote
    def known():
        return quietly(lambda context: context.actor_id)

    assert ray.get(known.remote()) is None


def test_the_placement_group_of_a_task():
    group = ray.util.placement_group([{"CPU": 1}])

    @ray.remote
    def known():
        return quietly(lambda context: context.current_placement_group_id), ray.get_runtime_context().get_placement_group_id()

    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    old, new = ray.get(known.options(scheduling_strategy=strategy).remote())
    assert old == group.id
    assert new == group.id.hex()
    old, new = ray.get(known.remote())
    assert new is None
    assert old.is_nil()
    ray.util.remove_placement_group(group)


@pytest.mark.parametrize(
    ("ask", "instead"),
    [
        (lambda c: c.job_id, "Use get_job_id() instead"),
        (lambda c: c.node_id, "Use get_node_id() instead"),
        (lambda c: c.get(), "Use get_xxx_id() methods to get relevant ids instead"),
    ],
)
def test_older_ways_are_warned_of(ask, instead):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask(ray.get_runtime_context())
    texts = [str(warning.message) for warning in caught if issubclass(warning.category, DeprecationWarning)]
    assert any(instead in text for text in texts), texts


def test_names_of_functions_are_qualified():
    @ray.remote
    def f():
        context = ray.get_runtime_context()
        return context.get_task_name(), context.get_task_function_name()

    name, function = ray.get(f.remote())
    assert name == "f" or name.endswith(".f")
    assert function == f"{__name__}.f"


def test_names_of_methods_are_qualified():
    @ray.remote
    class A:
        def m(self):
            context = ray.get_runtime_context()
            return context.get_task_name(), context.get_task_function_name()

        async def n(self):
            pass

    name, function = ray.get(A.remote().m.remote())
    assert name == "A.m"
    assert function == f"{__name__}.test_names_of_methods_are_qualified.<locals>.A.m"


def test_names_of_async_methods_are_qualified():
    @ray.remote
    class A:
        async def m(self):
            context = ray.get_runtime_context()
            return context.get_task_name(), context.get_task_function_name()

    name, function = ray.get(A.remote().m.remote())
    assert name == "A.m"
    assert function.endswith("<locals>.A.m") and function.startswith(__name__)


def test_task_names_are_what_the_options_say():
    @ray.remote
    def f():
        context = ray.get_runtime_context()
        return context.get_task_name(), context.get_task_function_name()

    name, function = ray.get(f.options(name="other").remote())
    assert name == "other"
    assert function.endswith("f")


def test_identifiers_are_texts():
    context = ray.get_runtime_context()
    assert len(context.get_job_id()) == 8
    assert len(context.get_node_id()) == 56
    assert len(context.get_worker_id()) == 56
    assert context.get_task_id() is None
    assert context.get_actor_id() is None
    assert context.get_placement_group_id() is None
    assert isinstance(context.namespace, str)


def test_job_identifiers_are_little_endian():
    assert ray.JobID.from_int(1).hex() == "01000000"
    assert ray.JobID.from_int(258).binary() == b"\x02\x01\x00\x00"
    assert ray.JobID.from_int(7).int() == 7
    assert ray.get_runtime_context().get_job_id() == "01000000"


def test_identifiers_end_in_their_job():
    @ray.remote
    class A:
        def task(self):
            return ray.get_runtime_context().get_task_id()

    actor = A.remote()
    assert actor._actor_id.hex().endswith("01000000")
    assert actor._actor_id.job_id == ray.JobID.from_int(1)
    assert ray.get(actor.task.remote()).endswith(actor._actor_id.hex())


def test_resources_of_a_task():
    @ray.remote(num_cpus=1)
    def known():
        return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(known.remote()) == {"CPU": 1.0}


def test_the_context_pickles_nothing_and_repeats():
    assert ray.get_runtime_context() is not None
    assert ray.runtime_context.get_runtime_context().get_node_id() == ray.get_runtime_context().get_node_id()


def test_current_actor_is_a_handle_of_oneself():
    @ray.remote
    class A:
        def me(self):
            return ray.get_runtime_context().current_actor

    actor = A.remote()
    assert ray.get(actor.me.remote()) == actor
