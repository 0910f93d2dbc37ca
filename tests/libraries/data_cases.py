"""Cases of Ray Data: each function uses the library and returns what JSON can hold. They run on Oxiray and on Ray alike."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow
import pyarrow.compute
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext, Datasink, Datasource
from ray.data.aggregate import AggregateFn, Count, CountDistinct, Max, Mean, Min, Quantile, Std
from ray.data.block import BlockMetadata
from ray.data.context import ShuffleStrategy
from ray.data.datasource import Partitioning, ReadTask
from ray.data.expressions import DataType, col, lit, udf
from ray.data.preprocessors import Chain, Concatenator, OrdinalEncoder, SimpleImputer, StandardScaler


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


@contextlib.contextmanager
def set_in_context(**values: Any) -> Iterator[None]:
    """Values of the driver's `DataContext` meanwhile."""
    context = DataContext.get_current()
    before = {name: getattr(context, name) for name in values}
    for name, value in values.items():
        setattr(context, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)


def two_sides(blocks: int) -> tuple[Any, Any]:
    """Rows 0 to 5 and rows 3 to 8, by `id`."""
    left = ray.data.from_items([{"id": number, "left": number * 2} for number in range(6)], override_num_blocks=blocks)
    right = ray.data.from_items([{"id": number, "right": number * 3} for number in range(3, 9)], override_num_blocks=blocks)
    return left, right


def joined(kind: str, **options: Any) -> list[list[Any]]:
    left, right = two_sides(2)
    rows = left.join(right, join_type=kind, num_partitions=2, on=("id",), **options).take_all()
    return sorted([row["id"], row.get("left"), row.get("right")] for row in rows)


def joins_that_keep_a_side() -> Any:
    left, right, both = joined("left_outer"), joined("right_outer"), joined("full_outer")
    return [[sum(1 for row in rows if None in row) for rows in (left, right, both)], both]


def joins_that_only_filter() -> Any:
    return {kind: [row[0] for row in joined(kind)] for kind in ("left_semi", "left_anti", "right_semi", "right_anti")}


def a_join_on_two_keys_of_other_names() -> Any:
    left = ray.data.from_items([{"a": number % 2, "b": number % 3, "value": number} for number in range(6)])
    right = ray.data.from_items([{"c": number % 2, "d": number % 3, "value": -number} for number in range(4)])
    rows = left.join(
        right, join_type="inner", num_partitions=3, on=("a", "b"), right_on=("c", "d"), left_suffix="_l", right_suffix="_r"
    ).take_all()  # fmt: skip
    return sorted([row["a"], row["b"], row["value_l"], row["value_r"]] for row in rows)


def sums_by_each_strategy() -> Any:
    """The same groups by sorting, where blocks are pulled and where they are pushed, and by two kinds of hashing."""
    rows = ray.data.range(400, override_num_blocks=8).map(lambda row: {"key": row["id"] % 5, "value": row["id"]})
    found = {}
    for strategy in ("SORT_SHUFFLE_PULL_BASED", "SORT_SHUFFLE_PUSH_BASED", "HASH_SHUFFLE", "SHUFFLE_V2"):
        with set_in_context(shuffle_strategy=ShuffleStrategy[strategy]):
            grouped = rows.groupby("key").sum("value").take_all()
        found[strategy] = sorted([row["key"], row["sum(value)"]] for row in grouped)
    return found


def a_pushed_sort_of_two_keys() -> Any:
    rows = [{"letter": "abc"[number % 3], "number": (number * 7) % 30} for number in range(30)]
    with set_in_context(shuffle_strategy=ShuffleStrategy.SORT_SHUFFLE_PUSH_BASED):
        made = ray.data.from_items(rows, override_num_blocks=6).sort(["letter", "number"], descending=[True, False])
        return [[row["letter"], row["number"]] for row in made.take_all()]


def a_sort_with_boundaries() -> Any:
    made = ray.data.range(100, override_num_blocks=4).sort("id", boundaries=[30, 70]).materialize()
    sizes = [len(frame) for frame in ray.get(made.to_pandas_refs())]
    return [[size for size in sizes if size], made.take(1)[0]["id"]]


def repartition_by_keys() -> Any:
    made = ray.data.range(90, override_num_blocks=3).map(lambda row: {"key": row["id"] % 9, "id": row["id"]})
    parts = ray.get(made.repartition(4, keys=["key"]).materialize().to_pandas_refs())
    homes = [sorted({int(key) for key in part["key"]}) for part in parts]
    return [sum(len(part) for part in parts), len(parts), sorted(key for keys in homes for key in keys)]


def repartition_to_a_target_of_rows() -> Any:
    made = ray.data.range(100, override_num_blocks=3).repartition(target_num_rows_per_block=20, strict=True).materialize()
    return [made.num_blocks(), sorted(len(frame) for frame in ray.get(made.to_pandas_refs()))]


def splits_for_training() -> Any:
    made = ray.data.range(100, override_num_blocks=4)
    train, test = made.train_test_split(test_size=0.25)
    parts = made.split_proportionately([0.2, 0.5])
    at = made.split_at_indices([10, 60])
    shuffled, _ = made.train_test_split(test_size=0.5, shuffle=True, seed=3)
    return [
        [train.count(), test.count()],
        [part.count() for part in parts],
        [[part.count(), int(part.min("id"))] for part in at],
        shuffled.count(),
    ]


def aggregates_of_groups() -> Any:
    rows = ray.data.from_items([{"key": number % 3, "value": float(number)} for number in range(30)])
    made = rows.groupby("key").aggregate(
        Count(), Min("value"), Max("value"), Mean("value"), Std("value", alias_name="spread"), Quantile("value", q=0.5, alias_name="half"),
        CountDistinct("value", alias_name="distinct"),
    )  # fmt: skip
    return sorted([row["key"], *(round(float(value), 6) for name, value in sorted(row.items()) if name != "key")] for row in made.take_all())


def an_own_aggregate() -> Any:
    longest = AggregateFn(
        init=lambda key: "",
        accumulate_row=lambda kept, row: max(kept, row["word"], key=len),
        merge=lambda one, other: max(one, other, key=len),
        name="longest",
    )
    words = "a of the long longer longest shuffled".split()
    rows = ray.data.from_items([{"word": word} for word in words], override_num_blocks=3)
    return [rows.aggregate(longest), rows.aggregate(Count())]


@udf(return_dtype=DataType.int64())
def doubled(values: pyarrow.Array) -> pyarrow.Array:
    return pyarrow.compute.multiply(values, 2)


def expressions_make_columns() -> Any:
    made = ray.data.range(10).with_column("more", col("id") + lit(1)).with_columns({"twice": doubled(col("id")), "big": col("id") > 7})
    kept = made.filter(expr=(col("more") >= 3) & (col("twice") < 16)).rename_columns({"more": "next"})
    return sorted(([row["id"], row["next"], row["twice"], row["big"]] for row in kept.take_all()))


def expressions_of_text() -> Any:
    rows = ray.data.from_items([{"name": name} for name in ("Ada", "Grace", "Alan")])
    made = rows.with_column("upper", col("name").str.upper()).filter(expr=col("name").str.starts_with("A"))
    return sorted(row["upper"] for row in made.take_all())


class Counting:
    """Counts its calls; made with arguments."""

    def __init__(self, begin: int, *, step: int) -> None:
        self.count, self.step = begin, step

    def __call__(self, batch: dict[str, Any], added: int) -> dict[str, Any]:
        self.count += self.step
        return {"id": batch["id"] + added, "calls": numpy.full(len(batch["id"]), self.count)}


def actors_made_with_arguments() -> Any:
    made = ray.data.range(60, override_num_blocks=3).map_batches(
        Counting, batch_size=20, compute=ActorPoolStrategy(size=1), fn_args=(100,), fn_constructor_args=(10,), fn_constructor_kwargs={"step": 5}
    )  # fmt: skip
    rows = made.take_all()
    return [sorted({int(row["calls"]) for row in rows}), min(int(row["id"]) for row in rows)]


class Waits:
    """An asynchronous function of rows."""

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"] * 3}


def asynchronous_actors() -> Any:
    return int(ray.data.range(50, override_num_blocks=2).map(Waits, concurrency=1).sum("id"))


def generators_in_batches() -> Any:
    def halves(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        middle = len(batch["id"]) // 2
        yield {"id": batch["id"][:middle]}
        yield {"id": batch["id"][middle:] * 10}

    made = ray.data.range(40, override_num_blocks=2).map_batches(halves, batch_size=20)
    return [made.count(), int(made.sum("id"))]


def formats_of_batches() -> Any:
    def of_pandas(frame: pandas.DataFrame) -> pandas.DataFrame:
        return frame.assign(kind=type(frame).__name__)

    def of_arrow(table: pyarrow.Table) -> pyarrow.Table:
        return table.append_column("form", pyarrow.array([type(table).__name__] * len(table)))

    made = ray.data.range(6).map_batches(of_pandas, batch_format="pandas").map_batches(of_arrow, batch_format="pyarrow")
    return sorted({(row["kind"], row["form"]) for row in made.take_all()})


def batches_shuffled_in_a_window() -> Any:
    made = ray.data.range(100, override_num_blocks=4).iter_batches(batch_size=25, local_shuffle_buffer_size=50, local_shuffle_seed=5, drop_last=True)
    found = [int(number) for batch in made for number in batch["id"]]
    return [sorted(found) == list(range(100)), found != list(range(100))]


def order_kept_by_parallel_tasks() -> Any:
    context = DataContext.get_current().execution_options
    before, context.preserve_order = context.preserve_order, True
    try:
        made = ray.data.range(80, override_num_blocks=16).map_batches(lambda batch: {"id": batch["id"] + 1}, num_cpus=0.5)
        return [row["id"] for row in made.iter_rows()] == list(range(1, 81))
    finally:
        context.preserve_order = before


def samples_and_blocks_in_random_order() -> Any:
    made = ray.data.range(1000, override_num_blocks=10)
    sample, again = (made.random_sample(0.1, seed=1).take_all() for _ in range(2))
    moved = made.randomize_block_order(seed=2).take_all()
    return [sample == again, 50 < len(sample) < 150, sorted(row["id"] for row in moved) == list(range(1000))]


def files_of_numpy_and_binary() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        ray.data.from_numpy(numpy.arange(12).reshape(4, 3)).write_numpy(f"{folder}/arrays", column="data")
        Path(folder, "raw").mkdir()
        for number in range(3):
            Path(folder, "raw", f"{number}.bin").write_bytes(bytes([number] * (number + 1)))
        arrays = ray.data.read_numpy(f"{folder}/arrays").take_all()
        files = ray.data.read_binary_files(f"{folder}/raw", include_paths=True).take_all()
        return [
            int(sum(row["data"].sum() for row in arrays)),
            sorted([Path(row["path"]).name, len(row["bytes"])] for row in files),
        ]


def files_of_images() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        pictures = [{"image": numpy.full((8, 8, 3), number * 20, dtype=numpy.uint8)} for number in range(4)]
        ray.data.from_items(pictures).write_images(f"{folder}/images", column="image")
        read = ray.data.read_images(f"{folder}/images", size=(4, 4), mode="RGB").take_all()
        return [sorted(int(row["image"].mean()) for row in read), list(read[0]["image"].shape)]


def files_of_orc_avro_and_tar() -> Any:
    import fastavro

    with tempfile.TemporaryDirectory() as folder:
        ray.data.range(20).write_orc(f"{folder}/orc")
        schema = {"type": "record", "name": "Row", "fields": [{"name": "x", "type": "long"}]}
        with Path(folder, "rows.avro").open("wb") as file:
            fastavro.writer(file, schema, [{"x": number} for number in range(5)])
        samples = [{"__key__": f"{number:03}", "txt": f"text {number}", "cls": number} for number in range(3)]
        ray.data.from_items(samples).write_webdataset(f"{folder}/tar")
        tar = ray.data.read_webdataset(f"{folder}/tar").take_all()
        return [
            int(ray.data.read_orc(f"{folder}/orc").sum("id")),
            int(ray.data.read_avro(f"{folder}/rows.avro").sum("x")),
            sorted([row["__key__"], row["txt"], row["cls"]] for row in tar),
        ]


def partitioned_parquet() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        rows = ray.data.from_items([{"year": 2020 + number % 3, "value": number} for number in range(12)])
        rows.write_parquet(folder, partition_cols=["year"])
        read = ray.data.read_parquet(folder, partitioning=Partitioning("hive"), columns=["value", "year"])
        only = read.filter(expr=col("value") >= 6)
        return [sorted(path.name for path in Path(folder).iterdir()), read.count(), sorted(row["value"] for row in only.take_all())]


def tables_of_sql() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.db"
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE films(title TEXT, year INTEGER)")
            database.commit()
        films = ray.data.from_items([{"title": "one", "year": 1990}, {"title": "two", "year": 2000}])
        films.write_sql("INSERT INTO films VALUES(?, ?)", lambda: sqlite3.connect(path))
        read = ray.data.read_sql("SELECT title FROM films WHERE year > 1995", lambda: sqlite3.connect(path))
        return read.take_all()


class Squares(Datasource):
    """A source of one's own: as many parts as are asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def estimate_inmemory_data_size(self) -> int:
        return 8 * self.count

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        def part(begin: int, end: int) -> ReadTask:
            metadata = BlockMetadata(num_rows=end - begin, size_bytes=8 * (end - begin), input_files=None, exec_stats=None)
            return ReadTask(lambda: [pyarrow.table({"square": [number**2 for number in range(begin, end)]})], metadata)

        step = self.count // 4
        return [part(begin, begin + step) for begin in range(0, self.count, step)]


class Summing(Datasink):
    """Gathers a sum of each block where the rows are, and all of them in the driver."""

    def write(self, blocks: Iterable[pyarrow.Table], context: Any) -> int:
        return sum(pyarrow.compute.sum(block["square"]).as_py() for block in blocks)

    def on_write_complete(self, result: Any) -> None:
        self.total = int(sum(result.write_returns))


def an_own_source_and_sink() -> Any:
    sink = Summing()
    ray.data.read_datasource(Squares(20)).write_datasink(sink)
    return sink.total


def preprocessors_are_fitted() -> Any:
    rows = [{"size": float(number) if number != 2 else None, "color": ["red", "blue"][number % 2]} for number in range(6)]
    data = ray.data.from_items(rows)
    chain = Chain(SimpleImputer(["size"], strategy="mean"), OrdinalEncoder(["color"]), StandardScaler(["size"]), Concatenator(["size", "color"], output_column_name="all"))
    made = chain.fit_transform(data)
    return sorted([round(float(number), 5) for number in row["all"]] for row in made.take_all())


def conversions_out() -> Any:
    made = ray.data.range(10, override_num_blocks=2)
    tables = ray.get(made.to_arrow_refs())
    arrays = ray.get(made.to_numpy_refs())
    frame = made.to_pandas()
    return [sum(len(table) for table in tables), int(sum(array["id"].sum() for array in arrays)), int(frame["id"].sum())]


def torch_datasets_and_batches() -> Any:
    import torch

    made = ray.data.from_torch(torch.utils.data.TensorDataset(torch.arange(12).reshape(6, 2)))
    numbers = ray.data.range(10).iter_torch_batches(batch_size=4, dtypes=torch.float32)
    shapes = [[list(batch["id"].shape), str(batch["id"].dtype)] for batch in numbers]
    return [made.count(), shapes]


def rows_of_several_readers_in_a_task() -> Any:
    """A dataset is read in a task that is no driver."""

    @ray.remote
    def count(data: Any) -> int:
        return sum(int(row["id"]) for row in data.iter_rows())

    made = ray.data.range(100, override_num_blocks=4).map(lambda row: {"id": row["id"] + 1})
    return ray.get(count.remote(made))


def a_lineage_is_written_and_read() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        ray.data.range(20).write_parquet(folder)
        made = ray.data.read_parquet(folder).map(lambda row: {"id": row["id"] * 2})
        again = ray.data.Dataset.deserialize_lineage(made.serialize_lineage())
        return int(again.sum("id"))


def errors_that_are_let_pass() -> Any:
    def fail(batch: dict[str, Any]) -> dict[str, Any]:
        if 3 in batch["id"]:
            raise ValueError("wrong block")
        return batch

    with set_in_context(max_errored_blocks=1):
        return ray.data.range(8, override_num_blocks=4).map_batches(fail, batch_size=None).count()


def datasets_that_are_mixed() -> Any:
    one = ray.data.range(40, override_num_blocks=4)
    other = ray.data.range(20, override_num_blocks=2).map(lambda row: {"id": -1 - row["id"]})
    rows = [row["id"] for row in one.mix(other, weights=[2, 1]).take_all()]
    return [len(rows), sum(1 for number in rows if number < 0)]


def null_keys_and_missing_values() -> Any:
    rows = ray.data.from_items([{"key": key, "value": value} for key, value in (("a", 1), (None, 2), ("a", None), ("b", 4))])
    made = rows.groupby("key").sum("value", ignore_nulls=True).take_all()
    return [sorted(([row["key"], row["sum(value)"]] for row in made), key=str), rows.sum("value", ignore_nulls=True)]


def a_hundred_groups_by_actors() -> Any:
    class Spread:
        def __call__(self, group: pandas.DataFrame) -> pandas.DataFrame:
            return pandas.DataFrame({"key": [group["key"].iloc[0]], "spread": [group["value"].max() - group["value"].min()]})

    rows = ray.data.range(1000, override_num_blocks=5).map(lambda row: {"key": row["id"] % 100, "value": row["id"]})
    made = rows.groupby("key").map_groups(Spread, batch_format="pandas", concurrency=2)
    found = made.take_all()
    return [len(found), sorted({int(row["spread"]) for row in found})]
