"""Finds one record of a prepared dataset and draws it (`python -m benchmarks show`)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import PIL.Image

from benchmarks.canvas import compose, plan_layout
from benchmarks.dataset import image_root, load_info, read_records
from benchmarks.draw import draw_record
from benchmarks.errors import DataError
from benchmarks.images import load_image
from benchmarks.predictions import Prediction, read_predictions
from benchmarks.schema import Answer, Box, Record
from benchmarks.validate import source_of
from recipes.errors import RecipeError
from recipes.inputs import Canvas
from recipes.load import load_recipe


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
    return draw_record(
        _pictures(dataset, record),
        record.target.boxes,
        _predicted(record, prediction),
        titles=[image.view or (f"frame {image.frame}" if image.frame else image.path) for image in record.images],
        caption=describe(record, prediction),
    )


def read_plan(recipe: str, overrides: Sequence[str]) -> Canvas:
    """The canvas of a recipe.

    Args:
        recipe: A recipe file, or the name of a shipped one.
        overrides: `canvas.key=value` changes to it.

    Raises:
        RecipeError: The recipe has mistakes, or no canvas.
    """
    canvas = load_recipe(recipe, overrides).canvas
    if canvas is None:
        raise RecipeError(
            "the recipe has no canvas: its model takes each image by itself",
            where=recipe,
            fix="leave out --canvas, or name a recipe of a family that sees one picture",
        )
    return canvas


def draw_canvas(
    dataset: Path, record: Record, plan: Canvas, prediction: Prediction | None = None
) -> tuple[PIL.Image.Image, str]:
    """Draws the one picture that a model with a canvas sees, boxes included.

    Returns:
        The drawing, and a line on the canvas: its size, and what location numbers lose on it.

    Raises:
        DataError: An image cannot be read, or the images do not fit the plan.
    """
    layout = plan_layout(plan, record.images)
    square = compose(_pictures(dataset, record), layout)
    targets, guesses = (
        [msgspec.structs.replace(box, image=0, xyxy=layout.to_canvas(box.image, box.xyxy)) for box in boxes]
        for boxes in (record.target.boxes, _predicted(record, prediction))
    )
    across, down = layout.half_bin()
    rim = layout.mask_rim()
    line = (
        f"canvas: {layout.width}x{layout.height} native pixels {'padded and ' if plan.resize == 'pad' else ''}"
        f"resized to {plan.size}x{plan.size}; location numbers lose at most {across:.2f} x {down:.2f} native "
        f"pixels, the rim of a mask at most {rim[0]:.2f} x {rim[1]:.2f}"
    )
    drawn = draw_record([square], targets, guesses, titles=["canvas"], caption=[*describe(record, prediction), line])
    return drawn, line


def describe(record: Record, prediction: Prediction | None = None) -> list[str]:
    """Lines of text about a record: task, question, target, prediction."""
    lines = [f"{record.id}  ({record.split}, {record.task})", f"Q: {record.question}"]
    lines.append(f"target: {_answer(record.target, record)}")
    if prediction is not None:
        if prediction.answer is not None:
            lines.append(f"predicted: {_answer(prediction.answer, record)}")
        else:
            reason = prediction.error or prediction.invalid or "no answer"
            lines.append(f"predicted: none ({reason}); text: {prediction.text or ''}")
    return lines


def _pictures(dataset: Path, record: Record) -> list[PIL.Image.Image]:
    root = image_root(dataset)
    return [load_image(root, image, where=source_of(record)) for image in record.images]


def _predicted(record: Record, prediction: Prediction | None) -> list[Box]:
    """The predicted boxes that lie on an image of the record."""
    if prediction is None or prediction.answer is None:
        return []
    return [box for box in prediction.answer.boxes if box.image < len(record.images)]


def _answer(answer: Answer, record: Record) -> str:
    label = f"[{answer.label}]" if answer.label is not None else ""
    boxes = [
        f"{box.label or 'box'} on {_place(box, record)}: {', '.join(f'{value:g}' for value in box.xyxy)}"
        for box in answer.boxes
    ]
    return "  ".join(part for part in (label, answer.text or "", *boxes) if part)


def _place(box: Box, record: Record) -> str:
    frame = record.images[box.image].frame if box.image < len(record.images) else None
    return f"image {box.image + 1}" if frame is None else f"frame {frame}"
