"""Errors that nobody looked at are told once; references pickled by hand are kept."""

from __future__ import annotations

import gc
import logging
import pickle

import pytest
import ray
import ray._private.worker
from watching import wait_until

pytestmark = pytest.mark.usefixtures("two_cpus")


@pytest.fixture
def told(monkeypatch):
    errors: list[Exception] = []
    monkeypatch.setattr(ray._private.worker, "_unhandled_error_handler", errors.append)
    return errors


@ray.remote
def fail(text="no"):
    raise ValueError(text)


@ray.remote
def identity(value):
    return value


@ray.remote
class Actor:
    def fail(self):
        raise KeyError("no")


def settle() -> None:
    """Whatever was said before has been handled: news come in order."""
    marker: list[Exception] = []
    handler = ray._private.worker._unhandled_error_handler
    ray._private.worker._unhandled_error_handler = lambda error: (
        marker.append(error) if "marker" in str(error) else handler(error)
    )
    fail.remote("marker")
    wait_until(lambda: marker)
    ray._private.worker._unhandled_error_handler = handler


def test_dropped_errors_are_told(told) -> None:
    actor = Actor.remote()
    fail.remote()
    reference = fail.remote()
    actor.fail.remote()
    wait_until(lambda: len(told) == 2)
    del reference
    gc.collect()
    wait_until(lambda: len(told) == 3)
    assert all(isinstance(error, ray.exceptions.RayTaskError) for error in told)
    assert sorted(type(error.cause).__name__ for error in told) == ["KeyError", "ValueError", "ValueError"]


def test_errors_that_somebody_looked_at_are_not(told) -> None:
    got, waited, passed = fail.remote(), fail.remote(), fail.remote()
    with pytest.raises(ValueError):
        ray.get(got)
    ray.wait([waited])
    dependent = identity.remote(passed)
    with pytest.raises(ValueError):
        ray.get(dependent)
    future = fail.remote()
    with pytest.raises(ValueError):
        future.future().result(timeout=20)
    del got, waited, passed, dependent, future
    gc.collect()
    settle()
    assert not told


def test_they_can_be_silenced(told, monkeypatch) -> None:
    monkeypatch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    fail.remote()
    kept = fail.remote()
    del kept
    gc.collect()
    monkeypatch.delenv("RAY_IGNORE_UNHANDLED_ERRORS")
    # What was dropped while it was silenced may be looked at only now; so only this is certain.
    settle()
    assert len(told) <= 2


def test_the_text_names_the_way_to_silence_it(caplog) -> None:
    logging.getLogger("oxiray").propagate = True
    with caplog.at_level(logging.ERROR):
        fail.remote("this very text")
        wait_until(lambda: "this very text" in caplog.text)
    assert "RAY_IGNORE_UNHANDLED_ERRORS=1" in caplog.text


def test_a_workers_own_tasks_count_too(capfd) -> None:
    @ray.remote
    def parent():
        fail.remote("from within")
        return 1

    assert ray.get(parent.remote()) == 1
    wait_until(lambda: "from within" in capfd.readouterr().err)


def test_a_reference_pickled_by_hand_is_kept(monkeypatch, caplog) -> None:
    import oxiray._serialization as serialization

    monkeypatch.setattr(serialization, "_warned_of_out_of_band", False)
    reference = ray.put("kept")
    with caplog.at_level(logging.WARNING):
        data = ray.cloudpickle.dumps(reference)
        pickle.dumps(reference)
    assert caplog.text.count("RAY_allow_out_of_band_object_ref_serialization=0") == 1
    del reference
    gc.collect()
    assert ray.get(pickle.loads(data)) == "kept"

    @ray.remote
    def read(data):
        return ray.get(pickle.loads(data), timeout=20)

    assert ray.get(read.remote(data), timeout=30) == "kept"
    monkeypatch.setenv("RAY_allow_out_of_band_object_ref_serialization", "0")
    with pytest.raises(ray.exceptions.OufOfBandObjectRefSerializationException):
        pickle.dumps(pickle.loads(data))
    assert ray.get(identity.remote([ray.put(1)])), "within arguments it is as allowed as ever"
