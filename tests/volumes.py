"""Prepared datasets in which volumes, single slices and questions without any image take turns as a test wants it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image as PILImage

from benchmarks.dataset import write_dataset
from benchmarks.schema import Answer, Box, Image, Record, Source, Split
from recipes.load import load_recipe
from train.plan import Plan, Sample

SIDE = 64  # pixels of a slice: 4 image tokens
# What a recipe says of such data.
MIXED = ("prompt.template=sgmri_short", "codec=sgmri_answer_first")
# Samples of a step, the longest first: they are dealt out to two processes in this order, one each a pass.
TEXT_AND_VOLUME = ("essay", "volume", "slice", "text")
VOLUME_AND_TEXT = ("volume", "note", "slice", "text")
VOLUME_AND_SLICE = ("volume", "slice", "text", "text")
WORDS = [
    "left",
    "right",
    "scan",
    "of",
    "the",
    "knee",
    "region",
    "shows",
    "uptake",
    "in",
    "anterior",
    "view",
    "and",
    "no",
    "lesion",
]


class Kind(NamedTuple):
    """Fewest and most slices, and words of the question; the longer a sample, the sooner its turn in a step."""

    slices: tuple[int, int]
    words: int


KINDS = {
    "essay": Kind((0, 0), 220),
    "volume": Kind((8, 12), 8),
    "slice": Kind((1, 1), 30),
    "note": Kind((0, 0), 50),
    "text": Kind((0, 0), 6),
}


def write_steps(folder: Path, steps: Sequence[Sequence[str]], *, validation: Sequence[str], seed: int = 0) -> Path:
    """Writes a dataset whose first pass shows samples of the given kinds in each step.

    Args:
        folder: Where dataset and slices go.
        steps: Kinds of the samples of each step, all equally many. Without `batch.group_by_length`, and as long as no
            sample is longer than those of the first step, a plan with this seed keeps to them.
        validation: Kinds of the validation records, in dataset order.
        seed: The recipe's `train.seed`.

    Returns:
        The prepared dataset.
    """
    total = sum(map(len, steps))
    batch = load_recipe("demo/lora", [f"batch.size={len(steps[0])}"]).batch
    plan = Plan([Sample(tokens=1, target=1)] * total, batch, seed=seed, processes=1).epoch(0)
    kinds = [""] * total
    for step, wanted in zip(plan, steps, strict=True):
        for position, kind in zip(step.parts[0][0].samples, wanted, strict=True):
            kinds[position] = kind
    records = [*_records(folder, kinds, "train", seed), *_records(folder, validation, "val", seed)]
    write_dataset(
        folder, records, name="mixed", benchmark="generic", reader="test@1", image_root=folder / "slices", sources={}
    )
    return folder


def _records(folder: Path, kinds: Iterable[str], split: Split, seed: int) -> list[Record]:
    rng = random.Random(f"{split}:{seed}")
    return [_record(folder, f"{split}-{number:02d}-{kind}", kind, split, rng) for number, kind in enumerate(kinds)]


def _record(folder: Path, name: str, kind: str, split: Split, rng: random.Random) -> Record:
    count = rng.randint(*KINDS[kind].slices)
    images = tuple(_slice(folder, f"{name}/{frame}.png", frame, rng) for frame in range(1, count + 1))
    boxes: tuple[Box, ...] = ()
    if kind == "volume":
        boxes = tuple(
            Box(image=place, xyxy=(rng.randint(0, 20), 5, 30 + place, 40), label="Mass")
            for place in sorted(rng.sample(range(count), 2))
        )
    return Record(
        id=name,
        benchmark="generic",
        split=split,
        task="volume_localization" if kind == "volume" else "image_detection",
        group=name,
        images=images,
        question=" ".join(rng.choice(WORDS) for _ in range(KINDS[kind].words)) + "?",
        target=Answer(text=rng.choice(("yes", "no", "no lesion")), boxes=boxes),
        source=Source(id=name, file="none", row=1),
    )


def _slice(folder: Path, path: str, frame: int, rng: random.Random) -> Image:
    file = folder / "slices" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    PILImage.frombytes("L", (SIDE, SIDE), rng.randbytes(SIDE * SIDE)).save(file)
    return Image(path=path, width=SIDE, height=SIDE, frame=frame)
