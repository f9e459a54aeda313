"""Writes phantom volumes in the forms of the three real sources.

    OUT/hdf5/multicoil_{train,val}/NAME.h5                          fastMRI: `reconstruction_rss`
    OUT/annotations/{brain,knee}.csv                                fastMRI+: one row per box or study-level label
    OUT/release/data_generation/qa_reasoning_data/{brain,knee}/     SGMRI-VQA: four JSON lists per organ

As in fastMRI, rows are stored upside down; boxes belong to the picture after they are reversed. As in fastMRI+, slices
count from 0, volumes without a box have a study-level row with empty box fields, and `Joint Effusion ` ends in a blank.
Sources: sgmri.md, sections 1 and 2; the README beside the fastMRI+ tables.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.dataset import write_atomic
from benchmarks.phantom_mri import MriConfig, Volume, draw_volume
from benchmarks.phantom_mri_anatomy import Organ
from benchmarks.phantom_mri_questions import image_rows, volume_rows
from benchmarks.sgmri import LEVELS

COLUMNS = ("file", "slice", "study_level", "x", "y", "width", "height", "label")
ORGANS: tuple[Organ, Organ] = ("brain", "knee")
# What file names call `val` is the paper's test split.
SPLITS = ("train", "val")
# Study-level labels of a volume without a finding, as the tables spell them.
_NORMAL = {"brain": "Normal for age", "knee": "artifact"}
_MOTION = "Motion artifact"
Row = dict[str, Any]


def write_sources(config: MriConfig, folder: Path) -> None:
    """Draws all volumes of `config` and writes the three folders; what lies there already is overwritten."""
    for organ in ORGANS:
        table: list[tuple[object, ...]] = []
        rows: dict[tuple[str, str], list[Row]] = {(split, level): [] for split in SPLITS for level in LEVELS}
        for number in tqdm(range(config.train + config.val), desc=f"{organ} phantoms", unit="volume"):
            split = SPLITS[number >= config.train]
            volume = draw_volume(config, organ, number)
            _write_hdf5(volume, folder / f"hdf5/multicoil_{split}")
            table += _annotations(volume, number)
            rows[split, "image"] += image_rows(config, volume, split)
            rows[split, "volume"] += volume_rows(config, volume)
        _write_csv(table, folder / f"annotations/{organ}.csv")
        questions = folder / "release/data_generation/qa_reasoning_data" / organ
        questions.mkdir(parents=True, exist_ok=True)
        for (split, level), found in rows.items():
            name = f"gpt4o_{organ}_{split}_{level}_qa_{level}_qa_pairs.json"
            write_atomic(questions / name, json.dumps(found, indent=1).encode())


def _write_hdf5(volume: Volume, folder: Path) -> None:
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / f"{volume.name}.h5", "w") as file:
        file.create_dataset("reconstruction_rss", data=volume.pixels[:, ::-1])
        file.attrs["acquisition"] = volume.name.split("_")[2] if volume.organ == "brain" else "CORPD_FBK"


def _annotations(volume: Volume, number: int) -> Iterator[tuple[object, ...]]:
    """A row per box; a study-level one for a normal volume and, as motion is noted on some, for one brain in seven."""
    if not volume.findings:
        yield volume.name, 0, "Yes", "", "", "", "", _NORMAL[volume.organ]
    if volume.organ == "brain" and number % 7 == 3:
        yield volume.name, 0, "Yes", "", "", "", "", _MOTION
    for index in range(len(volume.pixels)):
        for label, box in volume.on_slice(index):
            yield volume.name, index, "No", *box, f"{label} " if label == "Joint Effusion" else label


def _write_csv(table: list[tuple[object, ...]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *table])
    write_atomic(path, text.getvalue().encode())
