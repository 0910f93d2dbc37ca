"""Device objects: tensors that stay with the actor that made them, while references to them travel (`ray.experimental.rdt`)."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import ray
import torch
from oxiray import _core, _device_objects
from ray.experimental import (
    TensorTransportManager,
    TensorTransportMetadata,
    register_tensor_transport,
    set_target_device_for_ref,
    set_target_for_ref,
    wait_tensor_freed,
)
from ray.experimental.collective import create_collective_group, destroy_collective_group, get_collective_groups
from ray.experimental.rdt import CommunicatorMetadata
from ray.util import state
from watching import wait_until


@pytest.fixture(autouse=True, scope="module")
def _cluster() -> Iterator[None]:
    ray.shutdown()
    ray.init(num_cpus=4, runtime_env={"preload": ["torch"]})
    yield
    ray.shutdown()


def used() -> int:
    """Bytes of the store that objects take."""
    gc.collect()
    return int(_core.cluster()["store"]["used"])


@ray.remote(num_cpus=0, enable_tensor_transport=True, max_restarts=1)
class Holder:
    """Makes tensors that stay, and looks at those of others."""

    def __init__(self) -> None:
        self.made: Any = None

    @ray.method(tensor_transport="auto")
    def make(self, value: Any) -> Any:
        self.made = value
        return value

    @ray.method(tensor_transport="gloo")
    def make_for_group(self, value: Any) -> Any:
        return value

    def plain(self, value: Any) -> Any:
        self.made = value
        return value

    def total(self, value: Any) -> float:
        return float(sum(tensor.double().sum() for tensor in value))

    def is_own(self, value: Any) -> bool:
        return value[0] is self.made[0]

    def keep(self, boxed: list[Any]) -> None:
        self.boxed = boxed

    def put(self, value: Any, transport: str) -> Any:
        return [ray.put(value, _tensor_transport=transport)]

    def holds(self) -> int:
        from oxiray import _device_objects

        return len(_device_objects._held)

    def waits_until_freed(self, timeout: float) -> str:
        try:
            wait_tensor_freed(self.made[0], timeout)
        except TimeoutError as error:
            return str(error)
        return ""

    def ways(self) -> list[str]:
        """From now on, notes by which way tensors come."""
        from oxiray import _device_objects

        self.seen: list[str] = []
        for name in ("_by_group", "_through_the_store"):
            way = getattr(_device_objects, name)
            setattr(_device_objects, name, lambda *given, name=name, way=way: self.seen.append(name) or way(*given))
        return self.seen

    def seen_ways(self) -> list[str]:
        return self.seen

    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def two() -> Iterator[list[Any]]:
    actors = [Holder.remote(), Holder.remote()]
    yield actors
    for actor in actors:
        ray.kill(actor)


def test_tensors_stay_until_the_last_reference_goes(two: list[Any]) -> None:
    first, second = two
    reference = first.make.remote([torch.arange(5), torch.ones(3)])
    assert ray.get(second.total.remote(reference)) == 13 and ray.get(first.holds.remote()) == 1
    for _ in range(20):
        assert ray.get(first.is_own.remote(reference)), "here they are the tensors themselves, however often they come back"
    ray.get(second.keep.remote([reference]))
    del reference
    assert ray.get(second.total.remote([torch.ones(1)])) == 1 and ray.get(first.holds.remote()) == 1, "the other still refers to it"
    ray.get(second.keep.remote([]))
    wait_until(lambda: ray.get(first.holds.remote()) == 0)
    # One that nobody looked at goes as well.
    ray.wait([first.make.remote([torch.ones(2)])])
    wait_until(lambda: ray.get(first.holds.remote()) == 0)


def test_what_is_held_is_told_by_device(two: list[Any]) -> None:
    reference = two[0].make.remote([torch.zeros(1000), torch.zeros(500, dtype=torch.float64)])
    ray.wait([reference])
    held = [("reference_type", "=", "HELD_ON_DEVICE")]
    (row,) = state.list_objects(filters=held)
    assert (row.object_size, row.pid) == (8000, ray.get(two[0].pid.remote()))
    oxiray = Path(sys.executable).with_name("oxiray")
    command = [oxiray, "memory", "--json", f"--address={ray.get_runtime_context().gcs_address}"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (shown,) = [one for one in json.loads(told)["references"] if one["reference_type"] == "HELD_ON_DEVICE"]
    assert (shown["place"], shown["object_size"]) == ("cpu", 8000)
    del reference
    wait_until(lambda: not state.list_objects(filters=held))


def test_values_arrive_as_they_were(two: list[Any]) -> None:
    shared = torch.arange(12).reshape(3, 4)
    value = {
        "shared": [shared, shared], "part": shared[:, 1:3], "half": torch.ones(3, dtype=torch.bfloat16), "one": torch.tensor(7),
        "none": torch.empty(0, 2), "array": numpy.arange(200_000), "text": "x", "reference": [ray.put(5)],
    }  # fmt: skip
    found = ray.get(two[0].make.remote(value))
    assert found["shared"][0] is found["shared"][1] and torch.equal(found["shared"][0], shared)
    assert torch.equal(found["part"], shared[:, 1:3]) and found["half"].dtype == torch.bfloat16 and int(found["one"]) == 7
    assert found["none"].shape == (0, 2) and (found["array"] == value["array"]).all() and found["text"] == "x"
    assert ray.get(found["reference"]) == [5]
    found["half"].zero_()
    # What has no tensors is an ordinary value.
    assert ray.get(two[0].make.remote({"a": 1})) == {"a": 1} and ray.get(two[0].make.remote(None)) is None


def test_calls_and_puts_say_so_too(two: list[Any]) -> None:
    first, second = two
    reference = first.plain.options(tensor_transport="AUTO").remote([torch.ones(4)])
    assert ray.get(second.total.remote(reference)) == 4 and ray.get(first.holds.remote()) == 1
    (put,) = ray.get(first.put.remote([torch.ones(6)], "auto"))
    assert ray.get(second.total.remote(put)) == 6 and ray.get(first.holds.remote()) == 2
    (plain,) = ray.get(first.put.remote([torch.ones(6)], "object_store"))
    assert ray.get(second.total.remote(plain)) == 6 and ray.get(first.holds.remote()) == 2


def test_a_tensor_is_written_to_when_nobody_refers_to_it(two: list[Any]) -> None:
    reference = two[0].make.remote([torch.ones(4)])
    ray.wait([reference])
    assert "not freed from RDT object store after 0.1s" in ray.get(two[0].waits_until_freed.remote(0.1))
    freed = two[0].waits_until_freed.remote(60)
    del reference
    assert ray.get(freed) == ""


@pytest.mark.parametrize("limit", [None, 0], ids=["mapped", "copied"])
def test_a_reader_has_its_tensors_for_itself(two: list[Any], monkeypatch: pytest.MonkeyPatch, limit: int | None) -> None:
    """Whether its memory is the object's own until it writes there, or a copy."""
    if limit is not None:
        monkeypatch.setattr(_device_objects, "_private_limit", lambda: limit)
    holder = two[0]
    numbers = torch.arange(1 << 20, dtype=torch.float64)
    made = holder.make.remote({"numbers": numbers, "bits": numbers.to(torch.bfloat16).reshape(1 << 10, -1), "few": numbers[:3]})
    first, second = ray.get(made), ray.get(made)
    for key in ("numbers", "bits", "few"):
        first[key].fill_(5)
    assert torch.equal(second["numbers"], numbers) and torch.equal(second["few"], numbers[:3])
    assert torch.equal(second["bits"], numbers.to(torch.bfloat16).reshape(1 << 10, -1))
    assert torch.equal(ray.get(made)["numbers"], numbers), "the holder's are as they were"
    last = first["numbers"][-4:]
    del first, second
    assert last.tolist() == [5.0] * 4, "the memory stays as long as any of it is seen"


def test_what_is_mapped_is_let_go_with_the_last_tensor(two: list[Any]) -> None:
    size = 4 << 20
    made = two[0].make.remote(torch.ones(size // 4))
    ray.get(made)
    # The argument and what the reader had are gone.
    wait_until(lambda: used() < size)
    tensor = ray.get(made)
    assert used() >= size
    tensor += 1
    part = tensor[10:20]
    del tensor
    assert used() >= size and part.sum() == 20
    del part
    wait_until(lambda: used() < size)


def test_members_of_a_group_send_them_to_each_other(two: list[Any]) -> None:
    first, second = two
    group = create_collective_group(two, "gloo", "pair")
    assert group.get_rank(second) == 1 and get_collective_groups([first], "gloo") == [group] and group.backend == "GLOO"
    ray.get([actor.ways.remote() for actor in two])
    there, back = first.make_for_group.remote([torch.arange(4), torch.ones(2)]), second.make_for_group.remote([torch.full((3,), 2.0)])
    assert ray.get([second.total.remote(there), first.total.remote(back)]) == [8, 6]
    assert ray.get([actor.seen_ways.remote() for actor in two]) == [["_by_group"], ["_by_group"]]
    assert torch.equal(ray.get(there)[0], torch.arange(4)), "whoever is no member reads them through the store"
    assert torch.equal(ray.get(there, _use_object_store=True)[0], torch.arange(4))
    with pytest.raises(RuntimeError, match="already in group for backend GLOO"):
        create_collective_group([first], "gloo")
    destroy_collective_group(group)
    assert get_collective_groups([first]) == []
    assert ray.get(second.total.remote(first.make_for_group.remote([torch.ones(3)]))) == 3
    assert ray.get(second.seen_ways.remote()) == ["_by_group", "_through_the_store"]
    with pytest.raises(ValueError, match="No group with name pair found"):
        destroy_collective_group("pair")


def test_tensors_are_read_into_buffers(two: list[Any]) -> None:
    reference = two[0].make.remote([torch.arange(3), torch.ones(2)])
    buffers = [torch.empty(3, dtype=torch.int64), torch.empty(2)]
    set_target_for_ref(reference, buffers)
    found = ray.get([reference, ray.put(1)])
    assert found[0][0] is buffers[0] and buffers[0].tolist() == [0, 1, 2] and found[1] == 1
    for wrong, says in (
        ([torch.empty(3)], r"Length of tensor_buffers \(1\) does not match length from object metadata \(2\)"),
        ([torch.empty(4, dtype=torch.int64), torch.empty(2)], "Shape of tensor_buffer at index 0"),
        ([torch.empty(3), torch.empty(2)], "Dtype of tensor_buffer at index 0"),
    ):
        set_target_for_ref(reference, wrong)
        with pytest.raises(Exception, match=says):
            ray.get(reference)
    set_target_device_for_ref(reference, "meta")
    assert ray.get(reference)[0].device.type == "meta" and ray.get(reference)[0].device.type == "cpu"
    plain = ray.put(5)
    set_target_device_for_ref(plain, "cpu")
    with pytest.raises(ValueError, match="is not an RDT object"):
        ray.get(plain)


def test_the_end_of_the_holder_is_told(two: list[Any]) -> None:
    first, second = two
    reference = first.make.remote([torch.ones(3)])
    ray.wait([reference])
    pid = ray.get(first.pid.remote())
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ray.get(first.pid.options(max_task_retries=-1).remote()) != pid)
    with pytest.raises(ray.exceptions.RayError, match="were held by an earlier process of actor"):
        ray.get(reference)
    again = first.make.remote([torch.ones(3)])
    ray.wait([again])
    ray.kill(first)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(again, timeout=60)
    with pytest.raises(ray.exceptions.RayError):
        ray.get(second.total.remote(again), timeout=60)


@ray.remote(num_cpus=0)
class Later:
    """An actor whose methods are async."""

    @ray.method(tensor_transport="auto")
    async def make(self) -> list[torch.Tensor]:
        return [torch.ones(5)]


def test_async_methods_leave_them_too(two: list[Any]) -> None:
    later = Later.remote()
    assert ray.get(two[0].total.remote(later.make.remote())) == 5


class Plain:
    """A class that says nothing of tensors."""

    def call(self) -> None: ...


def test_what_cannot_be_is_refused(two: list[Any]) -> None:
    with pytest.raises(ValueError, match="Invalid tensor transport: PIGEON. There are AUTO, GLOO"):
        ray.method(tensor_transport="pigeon")(lambda self: None)
    with pytest.raises(ValueError, match="Invalid tensor transport: PIGEON"):
        two[0].plain.options(tensor_transport="pigeon")
    with pytest.raises(ValueError, match="only support 1 return value"):
        two[0].plain.options(tensor_transport="auto", num_returns=2).remote(1)
    with pytest.raises(ValueError, match="not supported for two-sided RDT transport 'GLOO'"):
        ray.get(two[0].put.remote([torch.ones(1)], "gloo"))
    assert ray.get(ray.put(torch.ones(2), _tensor_transport="auto")).tolist() == [1, 1], "a driver has no device objects"
    put = ray.remote(Plain).remote().__ray_call__.remote(lambda self: ray.put(torch.ones(1), _tensor_transport="auto"))
    with pytest.raises(ValueError, match="needs an actor with @ray.remote\\(enable_tensor_transport=True"):
        ray.get(put)
    with pytest.raises(Exception, match="NCCL does not support tensor transfer on device cpu"):
        ray.get(two[0].plain.options(tensor_transport="nccl").remote([torch.ones(1)]))

    with pytest.raises(ValueError, match="enable_tensor_transport=False. Please set"):
        ray.remote(Plain).remote().call.options(tensor_transport="auto").remote()

    class Marked:
        @ray.method(tensor_transport="auto")
        def call(self) -> None: ...

    with pytest.raises(ValueError, match="but @ray.remote\\(enable_tensor_transport=False\\)"):
        ray.remote(enable_tensor_transport=False)(Marked).remote()


class InFiles(TensorTransportManager):
    """A transport of this program: tensors lie in files."""

    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "transports")

    def tensor_transport_backend(self) -> str:
        return "FILES"

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        torch.save(rdt_object, self._file(obj_id))
        return TensorTransportMetadata([(tensor.shape, tensor.dtype) for tensor in rdt_object], "cpu")

    def _file(self, name: str) -> Path:
        return self.folder / name

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def recv_multiple_tensors(self, obj_id: str, meta: Any, between: Any, target_buffers: Any = None) -> list[Any]:
        return torch.load(self._file(obj_id))

    def send_multiple_tensors(self, tensors: list[Any], meta: Any, between: Any) -> None:
        raise AssertionError("nobody sends: readers take part alone")

    def garbage_collect(self, obj_id: str, meta: Any, tensors: list[Any]) -> None:
        self._file(obj_id).unlink()

    def abort_transport(self, obj_id: str, between: Any) -> None: ...


class ByHand(InFiles):
    """The same, with the sender's part in it."""

    @staticmethod
    def is_one_sided() -> bool:
        return False

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        self._file(obj_id).touch()
        return TensorTransportMetadata([(tensor.shape, tensor.dtype) for tensor in rdt_object], obj_id)

    def send_multiple_tensors(self, tensors: list[Any], meta: Any, between: Any) -> None:
        new = self._file(f"{meta.tensor_device}.new")
        torch.save(tensors, new)
        new.rename(self._file(meta.tensor_device))

    def recv_multiple_tensors(self, obj_id: str, meta: Any, between: Any, target_buffers: Any = None) -> list[Any]:
        wait_until(lambda: self._file(obj_id).stat().st_size > 0)
        return torch.load(self._file(obj_id))


class Failing(InFiles):
    """One that fails."""

    def recv_multiple_tensors(self, obj_id: str, meta: Any, between: Any, target_buffers: Any = None) -> list[Any]:
        raise OSError("the pigeon is tired")


def test_a_program_has_transports_of_its_own(two: list[Any]) -> None:
    first, second = two
    InFiles.folder.mkdir()
    for name, manager in (("files", InFiles), ("by_hand", ByHand), ("failing", Failing)):
        register_tensor_transport(name, ["cpu"], manager, torch.Tensor)
    for name in ("files", "by_hand"):
        reference = first.plain.options(tensor_transport=name).remote([torch.arange(4)])
        assert ray.get(second.total.remote(reference)) == 6 and len(list(InFiles.folder.iterdir())) == 1
        assert ray.get(reference)[0].tolist() == [0, 1, 2, 3]
        del reference
        wait_until(lambda: not list(InFiles.folder.iterdir()))
    failed = first.plain.options(tensor_transport="failing").remote([torch.ones(1)])
    with pytest.raises(ray.exceptions.RayDirectTransportError, match="FAILING could not read from .*: OSError: the pigeon is tired"):
        ray.get(failed)
    assert ray.get([failed], _use_object_store=True)[0][0].tolist() == [1]
    del failed
    wait_until(lambda: not list(InFiles.folder.iterdir()))
    InFiles.folder.rmdir()
    with pytest.raises(ValueError, match="Transport FILES already registered"):
        register_tensor_transport("Files", ["cpu"], InFiles, torch.Tensor)
    with pytest.raises(ValueError, match="transport_manager_class int must be a subclass"):
        register_tensor_transport("number", ["cpu"], int, torch.Tensor)
