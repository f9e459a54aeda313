"""Records and predictions in the official ScintiGround form, which the published scorer reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.errors import DataError
from benchmarks.predictions import Prediction
from benchmarks.schema import XYXY, Answer, Record
from benchmarks.scintiground_rules import default_strata
from benchmarks.scintiground_text import TEXT_VIEWS, plain_number
from collators.codecs.base import CodecError
from collators.codecs.registry import get_codec

OFFICIAL_CODEC = "scintiground_json"


def official_row(record: Record) -> dict[str, Any]:
    """The export row of a record, without `target`: the scorer never reads the target text.

    A record that did not come from the release may lack strata, which then follow from its boxes and
    images.

    Raises:
        DataError: An image that is not one of the two views.
    """
    for image in record.images:
        if image.view not in TEXT_VIEWS:
            raise DataError(
                f"view {image.view!r} of {image.path} is not one of {', '.join(TEXT_VIEWS)}",
                where=f"{record.place}, field images",
                fix="name the views when preparing, or prepare the data as benchmark `generic`",
            )
    strata = {**default_strata(record), **record.strata}
    return {
        "task_id": record.id,
        "task": record.task,
        "split": record.split,
        "patient_id": record.group,
        "images": [
            {"view": image.view, "image": image.path, "image_size": [image.width, image.height]}
            for image in record.images
        ],
        "prompt": record.question,
        "answer_label": record.target.label,
        "label": strata["region"],
        "targets": [
            {"view": record.images[box.image].view, "bbox": [plain_number(value) for value in box.xyxy]}
            for box in record.target.boxes
        ],
        "region_level": strata["region_level"],
        "view_scope": strata["view_scope"],
    }


def official_texts(records: Sequence[Record], predictions: Sequence[Prediction], codec: str) -> dict[str, str]:
    """The official string per id, predictions in the order of the records.

    It is the model's text where the codec is the official one. Else it is the decoded answer written by
    the official codec, coordinates rounded half to even, or the model's own text where the answer is
    invalid or has no official form. A record that failed on our side has the empty text.
    """
    return {record.id: _official_text(record, row, codec) for record, row in zip(records, predictions, strict=True)}


def _official_text(record: Record, row: Prediction, codec: str) -> str:
    text = row.text or ""
    if codec == OFFICIAL_CODEC or row.answer is None:
        return text
    try:
        return get_codec(OFFICIAL_CODEC).encode(_rounded(row.answer), record.ask())
    except (CodecError, ValueError):
        # No class, no region, or a box so thin that nothing of it is left after rounding.
        return text


def _rounded(answer: Answer) -> Answer:
    boxes = tuple(msgspec.structs.replace(box, xyxy=_rounded_box(box.xyxy)) for box in answer.boxes)
    return msgspec.structs.replace(answer, boxes=boxes)


def _rounded_box(box: XYXY) -> XYXY:
    x1, y1, x2, y2 = (float(round(value)) for value in box)
    return x1, y1, x2, y2
