"""Cases of Ray Data: each function uses the library and returns what JSON can hold. They run on Oxiray and on Ray alike."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow
import ray
import ray.data


def range_sum() -> Any:
    return int(ray.data.range(1000, override_num_blocks=8).sum("id"))


def map_batches_of_tasks() -> Any:
    made = ray.data.range(500, override_num_blocks=5).map_batches(lambda batch: {"square": batch["id"] ** 2}, batch_size=50)
    return [int(made.sum("square")), made.count()]


class AddTen:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"] + 10}


def map_batches_of_actors() -> Any:
    return int(ray.data.range(200, override_num_blocks=4).map_batches(AddTen, concurrency=2).sum("id"))


def an_autoscaling_pool() -> Any:
    made = ray.data.range(200, override_num_blocks=10).map_batches(AddTen, concurrency=(1, 3))
    return sorted(row["id"] for row in made.take_all())[:5]


def filter_and_flat_map() -> Any:
    kept = ray.data.range(100).filter(lambda row: row["id"] % 10 == 0)
    return sorted(row["n"] for row in kept.flat_map(lambda row: [{"n": row["id"]}, {"n": -row["id"]}]).take_all())


def groupby_sum() -> Any:
    rows = ray.data.from_items([{"key": number % 3, "value": number} for number in range(60)])
    return sorted(([row["key"], row["sum(value)"]] for row in rows.groupby("key").sum("value").take_all()))


def groupby_map_groups() -> Any:
    rows = ray.data.from_items([{"key": number % 4, "value": number} for number in range(40)])
    made = rows.groupby("key").map_groups(lambda group: {"key": group["key"][:1], "most": [group["value"].max()]})
    return sorted([int(row["key"]), int(row["most"])] for row in made.take_all())


def sort_rows() -> Any:
    rows = ray.data.from_items([{"value": (number * 37) % 101} for number in range(101)])
    return [row["value"] for row in rows.sort("value", descending=True).take(5)]


def shuffle_rows() -> Any:
    made = ray.data.range(200, override_num_blocks=4).random_shuffle(seed=7)
    found = [row["id"] for row in made.take_all()]
    return [sorted(found) == list(range(200)), found != list(range(200))]


def repartition_and_split() -> Any:
    parts = ray.data.range(120, override_num_blocks=2).repartition(6).split(3, equal=True)
    return [part.count() for part in parts]


def zip_and_union() -> Any:
    one, other = ray.data.range(50), ray.data.range(50).map(lambda row: {"other": row["id"] * 2})
    zipped = one.zip(other)
    return [int(zipped.sum("other")), one.union(ray.data.range(10)).count()]


def join_two() -> Any:
    left = ray.data.from_items([{"id": number, "left": number * 2} for number in range(20)])
    right = ray.data.from_items([{"id": number, "right": number * 3} for number in range(10, 30)])
    joined = left.join(right, join_type="inner", num_partitions=2, on=("id",))
    return sorted([row["id"], row["left"], row["right"]] for row in joined.take_all())


def files_of_parquet_and_csv() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        rows = ray.data.from_pandas(pandas.DataFrame({"a": range(30), "b": [str(number) for number in range(30)]}))
        rows.write_parquet(f"{folder}/parquet")
        rows.write_csv(f"{folder}/csv")
        parquet, csv = ray.data.read_parquet(f"{folder}/parquet"), ray.data.read_csv(f"{folder}/csv")
        return [int(parquet.sum("a")), int(csv.sum("b")), parquet.schema().names, bool(list(Path(folder, "csv").iterdir()))]


def files_of_json_and_text() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rows.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
        Path(folder, "lines.txt").write_text("one\ntwo\nthree\n")
        texts = ray.data.read_text(f"{folder}/lines.txt").take_all()
        return [int(ray.data.read_json(f"{folder}/rows.jsonl").sum("x")), sorted(row["text"] for row in texts)]


def tensors() -> Any:
    made = ray.data.from_numpy(numpy.arange(24).reshape(6, 2, 2)).map_batches(lambda batch: {"data": batch["data"] * 2})
    return numpy.stack([row["data"] for row in made.take_all()]).sum().item()


def batches_of_iterators() -> Any:
    made = ray.data.range(100, override_num_blocks=4)
    return [[len(batch["id"]) for batch in made.iter_batches(batch_size=32)], sum(row["id"] for row in made.iter_rows())]


@ray.remote
def read_part(part: Any) -> int:
    return sum(int(batch["id"].sum()) for batch in part.iter_batches(batch_size=10))


def streaming_split() -> Any:
    parts = ray.data.range(300, override_num_blocks=6).streaming_split(2, equal=True)
    return sum(ray.get([read_part.remote(part) for part in parts]))


def statistics_and_schema() -> Any:
    made = ray.data.range(100).map(lambda row: {"id": row["id"], "half": row["id"] / 2}).materialize()
    schema = made.schema()
    return [schema.names, [str(one) for one in schema.types], made.count(), "Operator" in made.stats(), made.size_bytes() > 0]


def aggregates() -> Any:
    made = ray.data.range(101)
    return [made.min("id"), made.max("id"), made.mean("id"), round(made.std("id"), 6), len(made.unique("id"))]


def errors_of_functions() -> Any:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("wrong row")

    try:
        ray.data.range(10).map(fail).take_all()
    except Exception as error:
        return [isinstance(error, ValueError), "wrong row" in str(error)]
    return None


def from_references() -> Any:
    blocks = [ray.put(pyarrow.table({"a": [number, number + 1]})) for number in range(3)]
    return int(ray.data.from_arrow_refs(blocks).sum("a"))


def limits_and_columns() -> Any:
    made = ray.data.range(1000).add_column("twice", lambda frame: frame["id"] * 2).limit(7)
    return [made.select_columns(["twice"]).take_all(), made.drop_columns(["twice"]).columns()]
