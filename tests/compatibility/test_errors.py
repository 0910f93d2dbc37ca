"""Errors: what a failure is an instance of, what it carries, and how its text begins."""

import io
import logging
import os
import threading
import time

import pytest
import ray
from ray import cloudpickle

pytestmark = pytest.mark.usefixtures("session")


@ray.remote
def bad():
    raise ValueError("the cause")


@ray.remote
def use(x):
    return x


@ray.remote
def use_again(x):
    return x


@ray.remote(max_retries=0)
def crash():
    os._exit(1)


@ray.remote(num_cpus=0)
class Fragile:
    def __init__(self, x=None):
        self.x = x

    def die(self):
        os._exit(1)

    def fail(self):
        raise KeyError("missing")

    def __repr__(self):
        return "Fragile<7>"


def raised_by(reference):
    with pytest.raises(Exception) as caught:
        ray.get(reference, timeout=60)
    return caught.value


def test_an_error_is_of_both_classes():
    error = raised_by(bad.remote())
    assert isinstance(error, ValueError)
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert isinstance(error, ray.exceptions.RayError)
    assert isinstance(error.cause, ValueError)
    assert error.args[0].args == ("the cause",)


def test_an_error_tells_its_task_and_where_it_was_raised():
    text = str(raised_by(bad.remote()))
    assert "ray::bad()" in text
    assert "pid=" in text and "ip=" in text
    assert 'raise ValueError("the cause")' in text
    assert text.rstrip().endswith("ValueError: the cause")


def test_errors_are_of_the_module_ray_exceptions():
    assert type(raised_by(bad.remote())).__module__ == "ray.exceptions"
    assert ray.exceptions.GetTimeoutError.__module__ == "ray.exceptions"


def test_a_task_of_a_failed_task_fails_with_both_names():
    error = raised_by(use_again.remote(use.remote(bad.remote())))
    assert isinstance(error, ValueError)
    assert isinstance(error, ray.exceptions.RayTaskError)
    text = str(error)
    assert text.index("ray::use_again()") < text.index("ray::use()") < text.index("ray::bad()")
    assert text.count("At least one of the input arguments for this task could not be computed:") == 2
    assert "ray.exceptions.RayTaskError: " in text


def test_a_task_of_a_dead_actors_call_fails_as_a_task():
    actor = Fragile.remote()
    error = raised_by(use.remote(actor.die.remote()))
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert isinstance(error, ray.exceptions.ActorDiedError)
    assert isinstance(error.cause, ray.exceptions.ActorDiedError)
    assert "ray::use()" in str(error)


def test_a_task_of_a_crashed_task_fails_as_a_task():
    error = raised_by(use.remote(crash.remote()))
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert isinstance(error, ray.exceptions.WorkerCrashedError)
    assert "At least one of the input arguments for this task could not be computed:" in str(error)


def test_an_actor_whose_argument_failed_dies_of_it():
    error = raised_by(Fragile.remote(bad.remote()).__ray_ready__.remote())
    assert isinstance(error, ray.exceptions.ActorDiedError)
    assert "The actor died because of an error raised in its creation task" in str(error)
    assert "ray::Fragile.__init__()" in str(error)
    assert "At least one of the input arguments for this task could not be computed:" in str(error)


def test_a_crash_is_told():
    error = raised_by(crash.remote())
    assert type(error) is ray.exceptions.WorkerCrashedError
    assert "The worker died unexpectedly while executing this task." in str(error)


def test_the_repr_of_the_actor_stands_in_the_head_of_an_error():
    error = raised_by(Fragile.remote().fail.remote())
    assert isinstance(error, KeyError)
    head = str(error).splitlines()[0]
    assert "ray::Fragile.fail()" in head
    assert "actor_id=" in head
    assert head.endswith("repr=Fragile<7>)")


def test_the_repr_of_an_actor_without_one_names_its_class():
    @ray.remote
    class Plain:
        def fail(self):
            raise KeyError("missing")

    head = str(raised_by(Plain.remote().fail.remote())).splitlines()[0]
    assert "repr=<" in head and "Plain object at 0x" in head


def test_the_repr_of_an_actor_stands_in_the_error_of_its_constructor():
    @ray.remote
    class Broken:
        def __init__(self):
            raise RuntimeError("no")

        def __repr__(self):
            return "Broken<1>"

    text = str(raised_by(Broken.remote().__ray_ready__.remote()))
    assert "ray::Broken.__init__()" in text
    assert "repr=Broken<1>" in text


def test_an_error_with_read_only_args_is_of_both_classes():
    class ReadOnly(Exception):
        @property
        def args(self):
            return ("always",)

    @ray.remote
    def fail():
        raise ReadOnly()

    error = raised_by(fail.remote())
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert isinstance(error, ReadOnly) or type(error.cause).__name__ == "ReadOnly"
    assert error.args == (error.cause,)


def test_an_error_whose_class_refuses_subclasses_is_a_plain_task_error():
    class Final(Exception):
        def __init_subclass__(cls, **_):
            raise TypeError("no subclasses")

    @ray.remote
    def fail():
        raise Final("last")

    error = raised_by(fail.remote())
    assert type(error) is ray.exceptions.RayTaskError
    assert type(error.cause).__name__ == "Final"


def test_an_error_that_is_no_instance_of_its_class_is_warned_of():
    class Sealed(Exception):
        def __init_subclass__(cls, **_):
            raise TypeError("no subclasses")

    @ray.remote
    def fail():
        raise Sealed("last")

    shown = io.StringIO()
    handler = logging.StreamHandler(shown)
    logging.getLogger("ray.exceptions").addHandler(handler)
    raised_by(fail.remote())
    logging.getLogger("ray.exceptions").removeHandler(handler)
    assert "This exception is raised as RayTaskError only. You can use `ray_task_error.cause`" in shown.getvalue()


def test_an_error_that_cannot_be_read_keeps_its_text():
    class NeedsTwo(Exception):
        def __init__(self, first, second):
            super().__init__(first)

    @ray.remote
    def fail():
        raise NeedsTwo("one", "two")

    error = raised_by(fail.remote())
    assert isinstance(error, ray.exceptions.UnserializableException)
    text = str(error)
    assert "Failed to deserialize exception" in text
    assert "Original exception:" in text
    assert "ray::fail()" in text
    assert "NeedsTwo: one" in text


def test_an_error_that_cannot_be_written_keeps_its_text():
    @ray.remote
    def fail():
        class Locked(Exception):
            def __init__(self):
                self.lock = threading.Lock()
                super().__init__("locked")

        raise Locked()

    error = raised_by(fail.remote())
    assert isinstance(error, ray.exceptions.RayTaskError)
    assert "Locked: locked" in str(error)


def test_a_value_that_cannot_be_read_is_a_system_error():
    class Unreadable:
        def __reduce__(self):
            return eval, ("1 / 0",)

    with pytest.raises(ray.exceptions.RaySystemError) as caught:
        ray.get(ray.put(Unreadable()))
    assert "System error: division by zero" in str(caught.value)
    assert "traceback: Traceback (most recent call last):" in str(caught.value)


def test_an_argument_that_cannot_be_read_is_a_system_error_of_the_task():
    class Unreadable:
        def __reduce__(self):
            return eval, ("1 / 0",)

    error = raised_by(use.remote(ray.put(Unreadable())))
    assert isinstance(error, ray.exceptions.RaySystemError)
    assert isinstance(error, ray.exceptions.RayTaskError)


def test_a_cancelled_task_names_the_error():
    @ray.remote
    def sleep():
        time.sleep(60)

    reference = sleep.remote()
    ready, _ = ray.wait([reference], timeout=1)
    assert not ready
    ray.cancel(reference)
    error = raised_by(reference)
    assert isinstance(error, ray.exceptions.TaskCancelledError)


def test_a_task_error_is_made_of_its_parts():
    cause = ValueError("of my own")
    error = ray.exceptions.RayTaskError(function_name="f", traceback_str="Traceback: text", cause=cause)
    both = error.make_dual_exception_instance()
    assert isinstance(both, ValueError) and isinstance(both, ray.exceptions.RayTaskError)
    assert both.cause is cause
    assert both.args == (cause,)
    again = cloudpickle.loads(cloudpickle.dumps(both))
    assert isinstance(again, ValueError) and isinstance(again, ray.exceptions.RayTaskError)


def test_a_cause_of_several_arguments_travels():
    class Several(Exception):
        def __init__(self, first, second):
            super().__init__(first, second)
            self.first, self.second = first, second

        def __reduce__(self):
            return Several, (self.first, self.second)

    error = ray.exceptions.RayTaskError(function_name="f", traceback_str="text", cause=Several(1, 2))
    again = cloudpickle.loads(cloudpickle.dumps(error.make_dual_exception_instance()))
    assert again.cause.second == 2


def test_an_error_of_an_error_within_a_task_keeps_the_cause():
    @ray.remote
    def outer():
        return ray.get(bad.remote())

    error = raised_by(outer.remote())
    assert isinstance(error, ValueError)
    assert "ray::outer()" in str(error) and "ray::bad()" in str(error)


def test_an_authentication_error_tells_the_mode(monkeypatch):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    text = str(ray.exceptions.AuthenticationError("Token is missing"))
    assert text.startswith("Token is missing")
    assert "https://docs.ray.io/en/latest/ray-security/token-auth.html" in text


def test_the_timeout_of_get_is_a_timeout_error():
    @ray.remote
    def sleep():
        time.sleep(60)

    reference = sleep.remote()
    with pytest.raises(TimeoutError, match="Get timed out: some object"):
        ray.get(reference, timeout=0.1)
    ray.cancel(reference, force=True)
