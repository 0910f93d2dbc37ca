"""Queries of Daft on its Ray runner, each with the answer that plain Python gives: Daft publishes no tests of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import daft
import pytest
import ray
from daft import col

ROWS = 1000
TABLE = {
    "id": list(range(ROWS)),
    "group": [number % 7 for number in range(ROWS)],
    "value": [number * 0.5 for number in range(ROWS)],
}


@pytest.fixture(scope="module", autouse=True)
def on_ray() -> Iterator[None]:
    ray.init(num_cpus=2)
    daft.set_runner_ray(noop_if_initialized=True)
    yield
    ray.shutdown()


@pytest.fixture
def table() -> daft.DataFrame:
    return daft.from_pydict(TABLE).into_partitions(4)


def test_the_runner_is_rays() -> None:
    assert daft.runners.get_or_create_runner().name == "ray"


def test_rows_are_selected(table: daft.DataFrame) -> None:
    found = table.where(col("value") > 490).select("id").sort("id").to_pydict()
    assert found == {"id": [number for number in range(ROWS) if number * 0.5 > 490]}


def test_columns_are_computed(table: daft.DataFrame) -> None:
    found = table.with_column("double", col("id") * 2).sort("id").to_pydict()
    assert found["double"] == [2 * number for number in range(ROWS)]


def test_groups_are_aggregated(table: daft.DataFrame) -> None:
    found = table.groupby("group").agg(col("id").sum().alias("sum"), col("value").max().alias("max")).sort("group").to_pydict()
    assert found["sum"] == [sum(range(group, ROWS, 7)) for group in range(7)]
    assert found["max"] == [max(range(group, ROWS, 7)) * 0.5 for group in range(7)]


def test_tables_are_joined(table: daft.DataFrame) -> None:
    names = daft.from_pydict({"group": list(range(7)), "name": [f"g{group}" for group in range(7)]})
    found = table.join(names, on="group").sort("id").to_pydict()
    assert found["name"] == [f"g{number % 7}" for number in range(ROWS)]


def test_rows_are_sorted_over_partitions(table: daft.DataFrame) -> None:
    found = table.sort(["group", "id"], desc=[True, False]).to_pydict()
    assert list(zip(found["group"], found["id"], strict=True)) == sorted(
        zip(TABLE["group"], TABLE["id"], strict=True), key=lambda row: (-row[0], row[1])
    )


def test_partitions_are_made_anew(table: daft.DataFrame) -> None:
    spread = table.repartition(3, "group")
    of_group: dict[int, int] = {}
    for number, part in enumerate(spread.iter_partitions()):
        for group in ray.get(part).to_pydict()["group"]:
            assert of_group.setdefault(group, number) == number, "a group lies in one partition"
    assert sorted(of_group) == list(range(7))


def test_distinct_rows_and_counts(table: daft.DataFrame) -> None:
    assert sorted(table.select("group").distinct().to_pydict()["group"]) == list(range(7))
    assert table.count_rows() == ROWS


def test_rows_come_one_by_one(table: daft.DataFrame) -> None:
    assert sorted(row["id"] for row in table.iter_rows()) == TABLE["id"]


def test_partitions_come_as_references(table: daft.DataFrame) -> None:
    parts = list(table.iter_partitions())
    assert all(isinstance(part, ray.ObjectRef) for part in parts)
    assert sum(len(part) for part in ray.get(parts)) == ROWS


def test_lists_are_unfolded() -> None:
    found = daft.from_pydict({"of": [1, 2], "parts": [[1, 2], [3]]}).explode("parts").sort("parts").to_pydict()
    assert found == {"of": [1, 1, 2], "parts": [1, 2, 3]}


def test_files_are_written_and_read(table: daft.DataFrame, tmp_path: Path) -> None:
    written = table.write_parquet(str(tmp_path / "table")).to_pydict()["path"]
    assert all(os.path.exists(path) for path in written)
    found = daft.read_parquet(str(tmp_path / "table" / "*.parquet")).sort("id").to_pydict()
    assert found == TABLE


def test_functions_run_in_workers(table: daft.DataFrame) -> None:
    @daft.udf(return_dtype=daft.DataType.int64())
    def processes(numbers: daft.Series) -> list[int]:
        return [os.getpid()] * len(numbers)

    found = table.with_column("process", processes(col("id"))).to_pydict()["process"]
    assert os.getpid() not in found


def test_functions_with_state_run_in_actors(table: daft.DataFrame) -> None:
    @daft.udf(return_dtype=daft.DataType.int64(), concurrency=2)
    class Added:
        def __init__(self) -> None:
            self.summand = 100

        def __call__(self, numbers: daft.Series) -> list[int]:
            return [number + self.summand for number in numbers.to_pylist()]

    found = table.with_column("more", Added(col("id"))).sort("id").to_pydict()["more"]
    assert found == [number + 100 for number in range(ROWS)]


def test_an_error_in_a_function_reaches_the_program(table: daft.DataFrame) -> None:
    @daft.udf(return_dtype=daft.DataType.int64())
    def failing(numbers: daft.Series) -> list[int]:
        raise ValueError("no such number")

    with pytest.raises(Exception, match="no such number|failing"):
        table.with_column("bad", failing(col("id"))).collect()


def test_collected_tables_are_used_again(table: daft.DataFrame) -> None:
    kept = table.where(col("group") == 3).collect()
    assert kept.count_rows() == len(range(3, ROWS, 7))
    assert kept.agg(col("id").sum()).to_pydict()["id"] == [sum(range(3, ROWS, 7))]
