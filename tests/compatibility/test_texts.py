"""Texts of errors: the phrases that programs match."""

import threading

import pytest
import ray
from ray.util.scheduling_strategies import In, NotIn, PlacementGroupSchedulingStrategy

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def use(x):
    return x


@ray.remote(num_cpus=0)
class Plain:
    def method(self, x=None):
        return x


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_calls": -1}, "The keyword 'max_calls' only accepts None, 0 or a positive integer"),
        ({"max_retries": -2}, "only accepts None, 0, -1 or a positive integer, where -1 represents infinity"),
        ({"num_cpus": -1}, "The quantity of resource num_cpus cannot be negative"),
        ({"resources": {"part": -1}}, "The quantity of resource part cannot be negative"),
        ({"resources": {"part": 0.00001}}, "The precision of the fractional quantity of resource part cannot go beyond 0.0001"),
        ({"resources": {"CPU": 1}}, "Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword"),
        ({"num_returns": -1}, "non-negative integer"),
        ({"no_such_option": 1}, "Invalid option keyword no_such_option for remote functions"),
        ({"placement_group_bundle_index": 1}, "If placement group is not set, the value of bundle index must be -1."),
    ],
)
def test_options_of_tasks_that_are_refused(options, text):
    with pytest.raises(ValueError) as caught:
        ray.remote(**options)(lambda: None).remote()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_restarts": -2}, "The keyword 'max_restarts' only accepts None, 0, -1 or a positive integer, where -1 represents infinity"),
        ({"max_task_retries": -3}, "only accepts None, 0, -1 or a positive integer"),
        ({"max_pending_calls": -2}, "The keyword 'max_pending_calls' only accepts None, 0, -1 or a positive integer"),
        ({"max_concurrency": -1}, "The keyword 'max_concurrency' only accepts None, 0 or a positive integer"),
        ({"lifetime": "long"}, "actor `lifetime` argument must be one of 'detached', 'non_detached' and"),
        ({"get_if_exists": True}, "The actor name must be specified to use `get_if_exists`"),
        ({"name": ""}, "Actor name cannot be an empty string"),
        ({"namespace": ""}, '"" is not a valid namespace'),
        ({"max_retries": 1}, "Invalid option keyword max_retries for actors"),
    ],
)
def test_options_of_actors_that_are_refused(options, text):
    class A:
        pass

    with pytest.raises(ValueError) as caught:
        ray.remote(**options)(A).remote()
    assert text in str(caught.value)


def test_types_of_options_are_named():
    with pytest.raises(TypeError, match="The type of keyword 'num_cpus' must be"):
        ray.remote(num_cpus="1")(lambda: None)


def test_a_name_that_is_taken():
    first = Plain.options(name="text-taken").remote()
    ray.get(first.method.remote())
    with pytest.raises(ValueError, match="The name text-taken .* is already taken. Please use a different name or get the existing actor using ray.get_actor") as caught:
        Plain.options(name="text-taken").remote()
    assert isinstance(caught.value, ray.exceptions.ActorAlreadyExistsError)


def test_a_name_that_nobody_has():
    with pytest.raises(ValueError, match="Failed to look up actor with name 'text-nobody'. This could because 1. You are trying to look up a named actor you didn't create. 2. The named actor died. 3. You did not use a namespace matching the namespace of the actor."):
        ray.get_actor("text-nobody")


def test_names_and_namespaces_that_are_none():
    with pytest.raises(ValueError, match="Please supply a non-empty value to get_actor"):
        ray.get_actor("")
    with pytest.raises(TypeError, match="namespace must be None or a string."):
        ray.get_actor("a", namespace=123)
    with pytest.raises(ValueError, match='"" is not a valid namespace'):
        ray.get_actor("a", namespace="")


def test_a_value_that_cannot_be_put():
    with pytest.raises(TypeError, match="Could not serialize the put value .*:\n"):
        ray.put(threading.Lock())


def test_an_argument_that_cannot_be_written():
    with pytest.raises(TypeError) as caught:
        use.remote(threading.Lock())
    text = str(caught.value)
    assert text.startswith("Could not serialize the argument <unlocked _th")
    assert f" for a task or actor {__name__}.use:\n" in text


def test_an_argument_by_name_that_cannot_be_written():
    with pytest.raises(TypeError, match="Could not serialize the argument"):
        use.remote(x=threading.Lock())


def test_an_argument_of_a_method_that_cannot_be_written():
    with pytest.raises(TypeError, match="Could not serialize the argument"):
        Plain.remote().method.remote(threading.Lock())


def test_a_function_that_cannot_be_written():
    lock = threading.Lock()

    @ray.remote
    def locked():
        return lock

    with pytest.raises(TypeError, match="Could not serialize the function .*locked:\n"):
        locked.remote()


def test_a_class_that_cannot_be_written():
    held = threading.Lock()

    @ray.remote
    class Locked:
        lock = held

    with pytest.raises(TypeError, match="Could not serialize the actor class .*Locked.__init__:\n"):
        Locked.remote()


def test_a_function_that_is_too_large():
    data = b"x" * (97 << 20)

    @ray.remote
    def large():
        return data

    with pytest.raises(ValueError, match="The remote function .*large is too large .97 MiB > FUNCTION_SIZE_ERROR_THRESHOLD=95 MiB"):
        large.remote()


def test_a_class_that_is_too_large():
    data = b"x" * (97 << 20)

    @ray.remote
    class Large:
        def get(self):
            return data

    with pytest.raises(ValueError, match="The actor Large is too large"):
        Large.remote()


def test_operators_of_labels_take_texts():
    with pytest.raises(ValueError, match="Type of value in position 0 for the In operator must be str"):
        In(123)
    with pytest.raises(ValueError, match="Type of value in position 1 for the NotIn operator must be str"):
        NotIn("a", 123)


def test_a_group_without_room():
    group = ray.util.placement_group([{"CPU": 1}])
    strategy = PlacementGroupSchedulingStrategy(group)
    with pytest.raises(ValueError, match="Cannot schedule use with the placement group because the resource request {'CPU': 2} cannot fit into any bundles for the placement group"):
        use.options(num_cpus=2, scheduling_strategy=strategy).remote(1)

    class Actor:
        pass

    with pytest.raises(ValueError) as caught:
        ray.remote(num_cpus=2, scheduling_strategy=strategy)(Actor).remote()
    assert "Cannot schedule test_a_group_without_room.<locals>.Actor with the placement group" in str(caught.value)
    with pytest.raises(ValueError, match="placement group bundle index 4 is invalid"):
        use.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 4)).remote(1)
    ray.util.remove_placement_group(group)


def test_the_old_option_of_groups_is_warned_of():
    group = ray.util.placement_group([{"CPU": 1}])
    with pytest.warns(DeprecationWarning, match="placement_group parameter is deprecated. Use scheduling_strategy=PlacementGroupSchedulingStrategy"):
        use.options(placement_group=group).remote(1)
    ray.util.remove_placement_group(group)


def test_the_store_of_an_actor_is_warned_of():
    class A:
        pass

    with pytest.warns(DeprecationWarning, match="Setting 'object_store_memory' for actors is deprecated since it doesn't actually reserve"):
        ray.remote(object_store_memory=100 << 20)(A)


def test_arguments_of_get_and_wait():
    with pytest.raises(ValueError, match="Invalid type of object refs, <class 'str'>, is given"):
        ray.get("text")
    with pytest.raises(TypeError, match="Attempting to call `get` on the value 1, which is not an ray.ObjectRef"):
        ray.get([1])
    reference = ray.put(1)
    with pytest.raises(TypeError, match="expected a list of ray.ObjectRef"):
        ray.wait(1)
    with pytest.raises(TypeError, match="expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got list containing <class 'str'>"):
        ray.wait(["text"])
    with pytest.raises(ValueError, match="Wait requires a list of unique ray_waitables"):
        ray.wait([reference, reference])
    with pytest.raises(ValueError, match="Invalid number of objects to return 0"):
        ray.wait([reference], num_returns=0)
    with pytest.raises(ValueError, match="num_returns cannot be greater than the number of ray_waitables provided to ray.wait"):
        ray.wait([reference], num_returns=2)
    with pytest.raises(ValueError, match="The 'timeout' argument must be nonnegative. Received -1"):
        ray.wait([reference], timeout=-1)


def test_arguments_of_kill_cancel_and_put():
    with pytest.raises(ValueError, match="only supported for actors. For tasks, try ray.cancel"):
        ray.kill("text")
    with pytest.raises(TypeError, match="only supported for object refs. For actors, try ray.kill"):
        ray.cancel("text")
    with pytest.raises(TypeError, match="Calling 'put' on an ray.ObjectRef is not allowed"):
        ray.put(ray.put(1))
    with pytest.raises(ValueError, match="force=True is not supported for actor tasks"):
        ray.cancel(Plain.remote().method.remote(), force=True)


def test_arguments_that_do_not_fit():
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        use.remote()
    with pytest.raises(TypeError, match="too many positional arguments"):
        use.remote(1, 2)


def test_a_wrong_number_of_results():
    @ray.remote(num_returns=3)
    def two():
        return 1, 2

    with pytest.raises(ValueError, match="Task returned 2 objects, but num_returns=3"):
        ray.get(two.remote())


def test_bytes_that_are_no_identifier():
    with pytest.raises(ValueError, match="ID string needs to have length 28, got 1"):
        ray.ObjectRef(b"x")
    with pytest.raises(ValueError, match="ID string needs to have length 4, got 1"):
        ray.JobID(b"x")
    with pytest.raises(TypeError):
        ray.JobID("text")


def test_things_of_an_ended_session(start):
    start(num_cpus=1)
    reference = ray.put(1)
    actor = Plain.remote()
    ray.get(actor.method.remote())
    ray.shutdown()
    start(num_cpus=1)
    for call in (lambda: use.remote(reference), lambda: use.remote([reference]), lambda: ray.wait([reference]), lambda: ray.put([reference])):
        with pytest.raises(ValueError, match="An application is trying to access a Ray object whose owner is unknown"):
            call()
    with pytest.raises(ValueError, match="You are trying to access Ray objects whose owner is unknown"):
        ray.get(reference)
    with pytest.raises(ray.exceptions.ActorHandleNotFoundError, match="ActorHandle objects are not valid across Ray sessions"):
        ray.kill(actor)
    with pytest.raises(Exception, match="Can't find actor"):
        ray.get(actor.method.remote())
