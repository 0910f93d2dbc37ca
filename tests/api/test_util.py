"""`oxiray.util`: names of device types, scheduling strategies, annotations, and saying a thing once."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from oxiray.util import accelerators, annotations, debug
from oxiray.util import scheduling_strategies as strategies
from oxiray.util.accelerators import accelerators as constants


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA_TESLA_V100", "V100"),
        ("NVIDIA_A100", "A100"),
        ("NVIDIA_H100", "H100"),
        ("NVIDIA_H200", "H200"),
        ("NVIDIA_RTX_PRO_6000", "RTX-PRO-6000"),
        ("NVIDIA_A100_80G", "A100-80G"),
        ("AMD_INSTINCT_MI250x", "AMD-Instinct-MI250X"),
        ("AMD_INSTINCT_MI300x", "AMD-Instinct-MI300X-OAM"),
        ("INTEL_GAUDI", "Intel-GAUDI"),
        ("AWS_NEURON_CORE", "aws-neuron-core"),
        ("GOOGLE_TPU_V5LITEPOD", "TPU-V5LITEPOD"),
        ("HUAWEI_NPU_910B", "Ascend910B"),
        ("APPLE_M1_PRO", "M1-Pro"),
    ],
)
def test_names_of_device_types(name: str, value: str) -> None:
    assert getattr(accelerators, name) == getattr(constants, name) == value


def test_every_name_is_exported() -> None:
    exported: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("from oxiray.util.accelerators import *", exported)  # noqa: S102
    defined = {name for name, value in vars(constants).items() if name.isidentifier() and isinstance(value, str)}
    assert {name for name in defined if not name.startswith("__")} <= set(exported)
    assert len(constants.__all__) == 62


def test_the_old_name_of_the_a100_warns() -> None:
    with pytest.warns(annotations.RayDeprecationWarning, match="NVIDIA_A100"):
        assert accelerators.NVIDIA_TESLA_A100 == "A100"
    with pytest.raises(AttributeError, match="module 'ray.util.accelerators' has no attribute 'NVIDIA_Z9'"):
        accelerators.NVIDIA_Z9  # noqa: B018


NODE = "ab" * 28
REFUSED: list[Callable[[], object]] = [
    lambda: strategies.NodeAffinitySchedulingStrategy("x", soft=False),
    lambda: strategies.NodeAffinitySchedulingStrategy(5, soft=False),  # type: ignore[arg-type]
    lambda: strategies.NodeAffinitySchedulingStrategy("f" * 56, soft=False),
    lambda: strategies.NodeAffinitySchedulingStrategy(NODE, soft=False, _spill_on_unavailable=True),
    lambda: strategies.NodeAffinitySchedulingStrategy(NODE, soft=True, _fail_on_unavailable=True),
    lambda: strategies.NodeLabelSchedulingStrategy({}),
    lambda: strategies.NodeLabelSchedulingStrategy({}, soft={}),
    lambda: strategies.NodeLabelSchedulingStrategy({"a": 1}),  # type: ignore[dict-item]
    lambda: strategies.NodeLabelSchedulingStrategy({1: strategies.Exists()}),  # type: ignore[dict-item]
    lambda: strategies.NodeLabelSchedulingStrategy(1),  # type: ignore[arg-type]
    lambda: strategies.In(),
    lambda: strategies.NotIn(),
    lambda: strategies.In(1),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("make", REFUSED)
def test_strategies_refuse(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        make()


def test_strategies_keep_what_they_are_given() -> None:
    affinity = strategies.NodeAffinitySchedulingStrategy(NODE, soft=True)
    assert (affinity.node_id, affinity.soft) == (NODE, True)
    label = strategies.NodeLabelSchedulingStrategy({"zone": strategies.In("a", "b")}, soft={"x": strategies.Exists()})
    assert isinstance(label.hard["zone"], strategies.In)
    assert label.hard["zone"].values == ["a", "b"]
    assert isinstance(label.soft["x"], strategies.Exists)


def test_annotations_mark_and_leave_alone() -> None:
    @annotations.PublicAPI
    def first() -> int:
        return 1

    @annotations.PublicAPI(stability="alpha")
    @annotations.DeveloperAPI
    def second() -> int:
        return 2

    @annotations.Deprecated(message="use second", warning=True)
    def third() -> int:
        return 3

    assert (first(), second()) == (1, 2)
    with pytest.warns(annotations.RayDeprecationWarning, match="use second"):
        assert third() == 3
    with pytest.raises(ValueError, match="stability"):
        annotations.PublicAPI(stability="rotten")
    with pytest.raises(ValueError, match="colour"):
        annotations.PublicAPI(colour="red")


def test_a_deprecated_class_warns_when_made() -> None:
    @annotations.Deprecated(message="gone soon", warning=True)
    class Old:
        def __init__(self, value: int) -> None:
            self.value = value

    with pytest.warns(annotations.RayDeprecationWarning, match="gone soon"):
        assert Old(4).value == 4


def test_saying_a_thing_once() -> None:
    fresh = importlib.reload(debug)
    assert [fresh.log_once("a"), fresh.log_once("a"), fresh.log_once("b")] == [True, False, True]
    fresh.reset_log_once("a")
    assert [fresh.log_once("a"), fresh.log_once("b")] == [True, False]
    fresh.disable_log_once_globally()
    assert fresh.log_once("c") is False
    assert importlib.reload(debug).log_once("a") is True
