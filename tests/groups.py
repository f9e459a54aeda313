"""Records that share their images in groups of the sizes a test wants, with questions and answers of mixed lengths."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from PIL import Image as PILImage

from benchmarks.dataset import write_dataset
from benchmarks.schema import Answer, Image, Record, Source, Split
from tests.volumes import WORDS

SIDE = 64  # pixels of an image: 4 image tokens


def grouped_records(sizes: Sequence[int], *, images: int = 3, split: Split = "train", seed: int = 0) -> list[Record]:
    """`sizes[g]` questions about each set of images, in mixed order; a set of size 0 is one question without images."""
    rng = random.Random(f"{split}:{seed}")
    records = []
    for number, size in enumerate(sizes):
        shown = tuple(
            Image(path=f"{split}{number}/{place}.png", width=SIDE, height=SIDE, frame=place + 1)
            for place in range(images if size else 0)
        )
        records += [
            _record(f"{split}-{number}-{each}", f"{split}{number}", split, shown, rng) for each in range(max(size, 1))
        ]
    rng.shuffle(records)
    return records


def _record(name: str, group: str, split: Split, images: tuple[Image, ...], rng: random.Random) -> Record:
    def words(low: int, high: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))

    return Record(
        id=name,
        benchmark="generic",
        split=split,
        task="vqa",
        group=group,
        images=images,
        question=words(1, 25) + "?",
        target=Answer(text=words(1, 12)),
        source=Source(id=name, file="none", row=1),
    )


def write_groups(folder: Path, records: Sequence[Record]) -> Path:
    """Writes a dataset of such records, its images noise; returns the dataset."""
    for image in {image.path for record in records for image in record.images}:
        file = folder / "slices" / image
        file.parent.mkdir(parents=True, exist_ok=True)
        PILImage.frombytes("L", (SIDE, SIDE), random.Random(image).randbytes(SIDE * SIDE)).save(file)
    write_dataset(
        folder,
        list(records),
        name="groups",
        benchmark="generic",
        reader="test@1",
        image_root=folder / "slices",
        sources={},
    )
    return folder
