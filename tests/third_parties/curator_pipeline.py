"""A pipeline of NeMo-Curator over documents, with each of its executors that run on Ray, on processors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ray
from nemo_curator.backends.ray_actor_pool import RayActorPoolExecutor
from nemo_curator.backends.ray_data import RayDataExecutor
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.resources import Resources
from nemo_curator.stages.text.filters import DocumentFilter, ScoreFilter
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.stages.text.io.writer import JsonlWriter
from nemo_curator.tasks import DocumentBatch

FILES, DOCUMENTS = 4, 25


class LongEnough(DocumentFilter):
    """Keeps documents of so many words."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words = words

    def score_document(self, text: str) -> int:
        return len(text.split())

    def keep_document(self, score: int) -> bool:
        return score >= self.words


class Shout(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage whose workers are set up once: it runs in actors."""

    name = "shout"
    resources = Resources(cpus=0.5)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["text"]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], ["text"]

    def setup(self, worker_metadata: Any = None) -> None:
        self.end = "!"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        rows = task.to_pandas()
        rows["text"] = rows["text"].str.upper() + self.end
        return DocumentBatch(dataset_name=task.dataset_name, data=rows, _metadata=task._metadata)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(FILES):
        rows = [{"id": number * DOCUMENTS + row, "text": " ".join(["word"] * (row + 1))} for row in range(DOCUMENTS)]
        (folder / f"part-{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("executor", [RayDataExecutor, RayActorPoolExecutor])
def test_documents_are_filtered_and_changed(documents: Path, tmp_path: Path, executor: type) -> None:
    written = tmp_path / "written"
    stages = [
        JsonlReader(file_paths=str(documents), files_per_partition=1),
        ScoreFilter(LongEnough(11), text_field="text", score_field="words"),
        Shout(),
        JsonlWriter(path=str(written)),
    ]
    ray.init(num_cpus=4)
    pipeline = Pipeline(name="documents", description="of a test", stages=stages)
    assert len(pipeline.run(executor())) == FILES
    rows = [json.loads(line) for path in written.glob("*.jsonl") for line in path.read_text().splitlines()]
    expected = {number * DOCUMENTS + row: row + 1 for number in range(FILES) for row in range(10, DOCUMENTS)}
    assert {row["id"]: row["words"] for row in rows} == expected
    assert all(row["text"] == " ".join(["WORD"] * row["words"]) + "!" for row in rows)
