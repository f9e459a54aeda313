"""Finds one record of a prepared dataset and draws it (`python -m benchmarks show`)."""

from __future__ import annotations

import difflib
from pathlib import Path

import PIL.Image

from benchmarks.dataset import image_root, load_info, read_records
from benchmarks.draw import draw_record
from benchmarks.errors import DataError
from benchmarks.images import load_image
from benchmarks.predictions import Prediction, read_predictions
from benchmarks.schema import Answer, Record
from benchmarks.validate import source_of


def find_record(dataset: Path, record_id: str) -> Record:
    """Finds a record by its id in any split.

    Raises:
        DataError: No such id; names the nearest ones.
    """
    ids = []
    for split in load_info(dataset).counts:
        for record in read_records(dataset, split):
            if record.id == record_id:
                return record
            ids.append(record.id)
    # difflib is slow on tens of thousands of ids; those that contain the text come first anyway.
    near = [name for name in ids if record_id in name][:3] or difflib.get_close_matches(record_id, ids[:2000], n=3)
    raise DataError(
        f"no record {record_id!r} among {len(ids)}",
        where=str(dataset),
        fix=f"did you mean {', '.join(near)}?" if near else "ids are in records-<split>.jsonl",
    )


def find_prediction(folder: Path, record_id: str) -> Prediction:
    """Finds the prediction for a record.

    Raises:
        DataError: The folder has none for it.
    """
    for row in read_predictions(folder):
        if row.id == record_id:
            return row
    raise DataError(
        f"no prediction for {record_id!r}", where=str(folder), fix="was the record's split predicted, and to its end?"
    )


def draw(dataset: Path, record: Record, prediction: Prediction | None = None) -> PIL.Image.Image:
    """Draws a record of a dataset with its target and, if given, a prediction."""
    root = image_root(dataset)
    images = [load_image(root, image, where=source_of(record)) for image in record.images]
    predicted = prediction.answer.boxes if prediction is not None and prediction.answer is not None else ()
    usable = [box for box in predicted if box.image < len(images)]
    return draw_record(
        images,
        record.target.boxes,
        usable,
        titles=[image.view or (f"frame {image.frame}" if image.frame else image.path) for image in record.images],
        caption=describe(record, prediction),
    )


def describe(record: Record, prediction: Prediction | None = None) -> list[str]:
    """Lines of text about a record: task, question, target, prediction."""
    lines = [f"{record.id}  ({record.split}, {record.task})", f"Q: {record.question}"]
    lines.append(f"target: {_answer(record.target)}")
    if prediction is not None:
        if prediction.answer is not None:
            lines.append(f"predicted: {_answer(prediction.answer)}")
        else:
            reason = prediction.error or prediction.invalid or "no answer"
            lines.append(f"predicted: none ({reason}); text: {prediction.text or ''}")
    return lines


def _answer(answer: Answer) -> str:
    label = f"[{answer.label}]" if answer.label is not None else ""
    boxes = [
        f"{box.label or 'box'} on image {box.image + 1}: {', '.join(f'{value:g}' for value in box.xyxy)}"
        for box in answer.boxes
    ]
    return "  ".join(part for part in (label, answer.text or "", *boxes) if part)
