"""Predictions with label scores, for validation and test splits of one small dataset."""

from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec

from benchmarks.predictions import Prediction
from benchmarks.schema import Record
from tests.eval.cases import perfect, predict, record, text_for, write_data, write_run

CLASSES = {"vqa": ("yes", "no"), "grounded_vqa": ("abnormal", "normal")}
SYSTEM = {"weights_hash": "a" * 64, "recipe": {"name": "ours", "train": {"learning_rate": 1e-4, "epochs": 2}}}


def scores(asked: Record, p: float, **fields: object) -> dict[str, object]:
    """Fields of a prediction whose P(positive) is `p`; the two labels hold .9 of the mass."""
    positive, negative = CLASSES[asked.task]
    given = {positive: math.log(0.9 * p), negative: math.log(0.9 * (1 - p))}
    return {"label_scores": given, "label_scores_at": "prompt"} | fields


def make_records(per_split: int = 24) -> list[Record]:
    """Validation and test records of all tasks, a third positive, two records per patient."""
    found = []
    for split in ("val", "test"):
        for i in range(per_split):
            task = ("vqa", "grounding", "grounded_vqa")[i % 3]
            label = CLASSES[task][0 if i // 3 % 3 == 0 else 1] if task in CLASSES else None
            found.append(
                msgspec.structs.replace(record(f"{split}{i}", task, label, group=f"{split}-{i // 2}"), split=split)
            )
    return found


def answers(records: list[Record], split: str, *, seed: int = 0, skill: float = 0.3) -> list[Prediction]:
    """A system that says the negative class throughout, whose probabilities know better."""
    rng, rows = random.Random(seed), []
    for asked in records:
        if asked.split != split:
            continue
        if asked.task not in CLASSES:
            rows.append(perfect(asked))
            continue
        positive, negative = CLASSES[asked.task]
        p = 0.05 + 0.3 * rng.random() + (skill if asked.target.label == positive else 0.0)
        rows.append(predict(asked, text_for(asked, label=negative), **scores(asked, min(p, 0.45))))
    return rows


def write_folders(folder: Path, records: list[Record], **fields: object) -> tuple[Path, Path, Path]:
    """The dataset, the test predictions and the validation predictions of one system."""
    data = write_data(folder / "data", records)
    test = write_run(folder / "test", data, answers(records, "test", seed=1), name="ours", **(SYSTEM | fields))
    val = write_run(
        folder / "val", data, answers(records, "val", seed=2), name="ours", split="val", **(SYSTEM | fields)
    )
    return data, test, val
