"""The published scorer of the older tags and the older JSON.

It has no validity gate and no region check, takes fractions of a pixel and, of two boxes in one
view, the later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from benchmarks.scintiground_text import CLASS_WORDS
from eval.scintiground.parse import LenientBox, Row, increasing_box, lenient_boxes
from eval.scintiground.report import rate
from eval.scintiground.scoring import HIT, count_boxed_targets, target_ious

_VIEW_BOX = re.compile(r"<(ANT|PST)><BBX>([^<]*)</BBX></\1>")
_BARE_BOX = re.compile(r"<BBX>([^<]*)</BBX>")
_REGION = re.compile(r"<REG>([^<]+)</REG>")
_CLASS = re.compile(r"<CLS>(normal|abnormal)</CLS>")


@dataclass(frozen=True, slots=True, kw_only=True)
class OldOutput:
    """What an older text says; `None` where it does not."""

    region: str | None = None
    label: str | None = None
    boxes: tuple[LenientBox, ...] = ()


def parse_tags(text: object) -> OldOutput:
    """Reads tags anywhere in the text; boxes outside view tags count only if there are no others.

    Raises:
        TypeError: Not a text.
    """
    text = cast("str", text)
    region, label = _REGION.search(text), _CLASS.search(text)
    boxes = tuple(_boxes(_VIEW_BOX.findall(text))) or tuple(
        _boxes((None, numbers) for numbers in _BARE_BOX.findall(text))
    )
    return OldOutput(region=region and region[1], label=label and label[1], boxes=boxes)


def _boxes(found: Iterable[tuple[str | None, str]]) -> Iterable[LenientBox]:
    for view, numbers in found:
        bbox = increasing_box(numbers.split(","))
        if bbox is not None:
            yield LenientBox(view, bbox)


def parse_old_json(text: object, task: str) -> OldOutput:
    """Reads the fields of one JSON object; the class only if it is exactly a word of the task.

    Raises:
        TypeError: Not a text, boxes that cannot be iterated, or an unhashable view.
        OverflowError: An integer coordinate beyond the range of floats.
    """
    try:
        payload = json.loads(cast("str", text))
    except json.JSONDecodeError:
        return OldOutput()
    if not isinstance(payload, dict):
        return OldOutput()
    region, label = payload.get("region"), payload.get("class")
    words = CLASS_WORDS.get(task, CLASS_WORDS["grounded_vqa"])
    return OldOutput(
        region=region if isinstance(region, str) else None,
        label=label if isinstance(label, str) and label in words else None,
        boxes=lenient_boxes(payload),
    )


def score_old(row: Row, output: OldOutput) -> dict[str, Any]:
    """Scores one output; strict is every target found with an IoU of one half and the class right."""
    ious = target_ious(row, output.boxes)
    found = all(iou >= HIT for iou in ious)
    has_class = row["task"] in CLASS_WORDS
    label_correct = output.label is not None and output.label == row.get("answer_label")
    return {
        "region": output.region,
        "class": output.label,
        "boxes_lenient": [box.plain() for box in output.boxes],
        "iou": [round(iou, 6) for iou in ious],
        "class_correct": label_correct,
        "mean_iou": rate(sum(ious), len(ious)),
        "iou_at_0_5": rate(sum(iou >= HIT for iou in ious), len(ious)),
        "valid_boxes": count_boxed_targets(row, output.boxes),
        "strict": found and (label_correct or not has_class),
    }
