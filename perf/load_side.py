"""One side of `perf.load`, in a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image as PILImage

from benchmarks import schema
from perf.bare import loader_of
from perf.baselines import load, with_labels
from perf.profile_side import prepared_job
from perf.rows import read_rows
from perf.stopwatch import Job
from train.loader import Inputs
from train.prepare import Prepared

if TYPE_CHECKING:
    from collators.sources import ImageSource


WARM = 2  # passes over the rows that are not timed: kept pixels are verified when they are first read


def run_side(side: str, job: Job) -> None:
    """Measures one side and prints the result as JSON."""
    print(json.dumps(MEASURES[side](job)))


def load_stock(job: Job) -> dict[str, float]:
    """The stock processor, question by question.

    Returns:
        Questions and opened pictures a second.
    """
    _, processor = load(job)
    rows = read_rows(job.data, job.task, job.questions)
    seconds = 0.0
    for _ in range(WARM + 1):
        start = time.perf_counter()
        for row in rows:
            with_labels(job, processor, row)
        seconds = time.perf_counter() - start
    return _rates(len(rows), sum(len(row.images) for row in rows), seconds)


def load_ours(job: Job, *, share: bool, workers: int = 0, cache: str = "off") -> dict[str, float]:
    """Our collator; see `load_stock`.

    Args:
        job: The job.
        share: Whether questions about the same pictures make one batch.
        workers: Worker processes.
        cache: The recipe's `vision_cache`.
    """
    overrides = [f"batch.workers={workers}", f"vision_cache={cache}"]
    # Workers read ahead into the pass behind the last one, as they did into that one when the clock started.
    with prepared_job(job, share=share, epochs=WARM + 2, overrides=overrides) as prepared:
        collator: Any = prepared.collator
        opened = collator.pictures.images = Opened(collator.pictures.images)
        stream = _stream(prepared)
        passes = sum(len(step.parts[0]) for step in prepared.schedule.epoch(0))
        for _ in range(WARM * passes):
            batch = next(stream)
            if cache == "memory":
                _see(prepared, batch)
        before, start = int(opened.count), time.perf_counter()
        for _ in range(passes):
            next(stream)
        seconds = time.perf_counter() - start
        pictures = int(opened.count) - before
    return _rates(job.questions, pictures, seconds)


class Opened:
    """Counts pictures that are opened, in worker processes too.

    Args:
        source: Opens them.

    Attributes:
        count: int64[1], in memory that processes share.
    """

    def __init__(self, source: ImageSource) -> None:
        self.source = source
        self.count = torch.zeros(1, dtype=torch.int64)
        self.count.share_memory_()  # type: ignore[no-untyped-call]

    def __call__(self, image: schema.Image, where: str) -> PILImage.Image:
        """See `collators.sources.ImageSource`."""
        self.count += 1
        return self.source(image, where)

    def content(self, image: schema.Image, where: str) -> str:
        """See `collators.sources.ImageSource`."""
        return self.source.content(image, where)


def _stream(prepared: Prepared) -> Iterator[Inputs]:
    for step in loader_of(prepared):
        yield from step.batches


def _see(prepared: Prepared, batch: Inputs) -> None:
    """Computes the features of a batch, which keeps them."""
    inputs = {name: value for name, value in batch.items() if name not in ("targets", "weights")}
    with torch.no_grad():
        prepared.model(**inputs)


def _rates(questions: int, pictures: int, seconds: float) -> dict[str, float]:
    return {"questions_per_second": questions / seconds, "pictures_per_second": pictures / seconds}


MEASURES: dict[str, Callable[[Job], dict[str, float]]] = {
    "stock": load_stock,
    "separate": partial(load_ours, share=False),
    "shared": partial(load_ours, share=True),
    "workers-2": partial(load_ours, share=True, workers=2),
    "pixels": partial(load_ours, share=True, cache="pixels"),
    "cached": partial(load_ours, share=True, cache="memory"),
}
