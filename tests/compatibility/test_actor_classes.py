"""What an actor class, a handle and a method of it show to the program."""


from ray import cloudpickle
import pytest
import ray


class Plain:
    CONSTANT = 17
    table = {"a": 1}

    def __init__(self, start=0):
        self.count = start

    def add(self, n=1):
        self.count += n
        return self.count

    def count_of_class(self):
        return self.CONSTANT

    @staticmethod
    def twice(n):
        return 2 * n

    @classmethod
    def name_of_class(cls):
        return cls.__name__

    @classmethod
    def starting_at(cls, start):
        return cls(start)


class Derived(Plain):
    OTHER = "other"


pytestmark = pytest.mark.usefixtures("session")


def test_constants_of_the_class_are_read_from_the_actor_class():
    Remote = ray.remote(Derived)
    assert Remote.CONSTANT == 17
    assert Remote.OTHER == "other"
    assert Remote.table == {"a": 1}


def test_static_and_class_methods_run_where_they_are_called():
    Remote = ray.remote(Plain)
    assert Remote.twice(4) == 8
    assert "Plain" in Remote.name_of_class()


def test_a_class_method_that_calls_its_class_makes_a_plain_instance():
    Remote = ray.remote(Plain)
    made = Remote.starting_at(5)
    assert isinstance(made, Plain)
    assert made.add() == 6


def test_constants_are_read_inside_the_actor():
    @ray.remote
    class Here:
        LIMIT = 3

        def limit(self):
            return self.LIMIT, type(self).LIMIT

    assert ray.get(Here.remote().limit.remote()) == (3, 3)
    assert Here.LIMIT == 3


def test_the_actor_class_is_read_by_name_inside_of_the_actor():
    @ray.remote
    class Named:
        LIMIT = 3

        def limit(self):
            return Named.LIMIT

    assert ray.get(Named.remote().limit.remote()) == 3


def test_a_missing_attribute_of_the_class_is_an_attribute_error():
    Remote = ray.remote(Plain)
    with pytest.raises(AttributeError, match="no_such_name"):
        Remote.no_such_name
    assert not hasattr(Remote, "no_such_name")


def test_public_names_of_an_actor_class():
    Remote = ray.remote(Plain)
    names = {name for name in dir(Remote) if not name.startswith("_")}
    own = {name for name in dir(Plain) if not name.startswith("_")}
    assert names == own | {"options", "remote", "bind"}


def test_names_of_a_handle_are_its_methods():
    handle = ray.remote(Plain).remote()
    methods = {"add", "count_of_class", "twice", "name_of_class", "starting_at"}
    assert set(dir(handle)) == methods | {"__init__", "__ray_ready__", "__ray_call__", "__ray_terminate__"}


def test_public_names_of_a_method():
    handle = ray.remote(Plain).remote()
    assert {name for name in dir(handle.add) if not name.startswith("_")} == {"options", "remote", "bind"}


def test_public_names_of_a_remote_function():
    @ray.remote
    def f():
        pass

    assert {"remote", "options", "bind"} <= set(dir(f))


def test_the_plain_class_is_in_the_metadata():
    Remote = ray.remote(Plain)
    assert issubclass(Remote.__ray_metadata__.modified_class, Plain)
    assert Remote.__ray_metadata__.modified_class(3).add() == 4
    assert Remote.__ray_metadata__.class_name == "Plain"
    assert Remote.__ray_actor_class__ is Plain


def test_the_plain_function_is_in_the_remote_function():
    @ray.remote
    def double(n):
        return 2 * n

    assert double._function(4) == 8


def test_an_actor_class_has_the_module_of_its_class():
    @ray.remote
    class Here:
        pass

    assert Here.__module__ == __name__


def test_an_attribute_of_the_object_hides_no_method():
    @ray.remote
    class Counter:
        def __init__(self):
            self.value = 0

        def value(self):
            return "method"

    assert ray.get(Counter.remote().value.remote()) == "method"


def test_a_method_travels_as_an_argument():
    handle = ray.remote(Plain).remote(10)

    @ray.remote
    def call(method, n):
        return ray.get(method.remote(n))

    assert ray.get(call.remote(handle.add, 5)) == 15
    assert ray.get(call.remote(handle.add.options(name="other"), 5)) == 20


def test_a_captured_method_is_called_in_a_task():
    add = ray.remote(Plain).remote(10).add

    @ray.remote
    def call():
        return ray.get(add.remote(1))

    assert ray.get(call.remote()) == 11


def test_static_and_class_methods_are_methods_of_the_handle():
    handle = ray.remote(Plain).remote()
    assert ray.get(handle.twice.remote(3)) == 6
    assert ray.get(handle.name_of_class.remote()) == "Plain"


def test_handles_of_one_actor_are_equal_and_hash_alike():
    handle = ray.remote(Plain).remote()

    @ray.remote
    def back(handles):
        return handles[0]

    other = ray.get(back.remote([handle]))
    assert other == handle
    assert hash(other) == hash(handle)
    assert len({other, handle}) == 1


def test_an_actor_class_travels():
    Remote = ray.remote(Plain)

    @ray.remote
    def use(cls):
        actor = cls.remote(1)
        return ray.get(actor.add.remote())

    assert ray.get(use.remote(Remote)) == 2
    assert cloudpickle.loads(cloudpickle.dumps(Remote)).CONSTANT == 17


def test_an_actor_class_is_no_instance_of_its_class_and_refuses_calls():
    Remote = ray.remote(Plain)
    with pytest.raises(TypeError, match="Actors cannot be instantiated directly"):
        Remote()


def test_methods_of_a_handle_refuse_calls():
    handle = ray.remote(Plain).remote()
    with pytest.raises(TypeError, match="Actor methods cannot be called directly"):
        handle.add()


def test_remote_functions_refuse_calls():
    @ray.remote
    def f():
        pass

    with pytest.raises(TypeError, match="Remote functions cannot be called directly"):
        f()


def test_a_class_derived_from_an_actor_class_is_refused():
    Remote = ray.remote(Plain)
    with pytest.raises(ray.actor.ActorClassInheritanceException, match="Inheriting from actor classes is not currently supported"):

        class Lower(Remote):
            pass


def test_the_actor_class_is_an_actor_class_of_the_module():
    Remote = ray.remote(Plain)
    assert isinstance(Remote, ray.actor.ActorClass)
    assert isinstance(Remote.remote(), ray.actor.ActorHandle)
    assert isinstance(Remote.remote().add, ray.actor.ActorMethod)


def test_a_handle_has_its_identifier():
    handle = ray.remote(Plain).remote()
    assert isinstance(handle._actor_id, ray.ActorID)
    assert handle._ray_actor_id == handle._actor_id
    assert repr(handle).startswith("Actor(Plain,")
    assert repr(handle).endswith(f"{handle._actor_id.hex()})")


def test_representations():
    Remote = ray.remote(Plain)

    @ray.remote
    def f():
        pass

    assert "ActorClass(Plain)" in repr(Remote)
    assert isinstance(f, ray.remote_function.RemoteFunction)


def test_a_missing_method_is_an_attribute_error():
    handle = ray.remote(Plain).remote()
    with pytest.raises(AttributeError, match="no_such_method"):
        handle.no_such_method.remote()


def test_options_of_an_actor_class_have_its_remote_and_bind():
    wrapped = ray.remote(Plain).options(num_cpus=0)
    assert ray.get(wrapped.remote(3).add.remote()) == 4
    assert hasattr(wrapped, "bind")


def test_plain_pickle_of_a_method_of_an_async_actor_in_a_list():
    @ray.remote
    class Echo:
        async def echo(self, x):
            return x

    echo = Echo.remote()

    @ray.remote
    def call(methods):
        return ray.get([m.remote(1) for m in methods])

    assert ray.get(call.remote([echo.echo, echo.echo])) == [1, 1]


def test_annotations_name_actors_by_their_class() -> None:
    from ray.actor import ActorClass, ActorProxy

    class Typed:
        @ray.method
        def double(self, value: int) -> int:
            return 2 * value

    actor_class: ActorClass[Typed] = ray.remote(Typed)
    actor: ActorProxy[Typed] = actor_class.remote()
    reference: ray.ObjectRef[int] = actor.double.remote(4)
    assert ray.get(reference) == 8
