"""What makes a ScintiGround text valid: the published gate, as the name of the first fault.

The gate works on the parsed JSON object and never raises. Reasons are the names of the published
audit where it has one; `box_outside_image` (also for negative coordinates) and `invalid_bbox` (the
forms that allow fractions) are ours.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.scintiground_text import BOX_TASKS, CLASS_WORDS, FIELDS, TEXT_VIEWS
from collators.codecs.base import Invalid

_BOX_KEYS = frozenset({"view", "bbox"})
_TAGGED = re.compile(
    r"(?P<head>.*?)<REG>(?P<region>[^<]*)</REG>(?:<CLS>(?P<label>[^<]*)</CLS>)?"
    r"(?P<boxes>(?:<(?:ANT|PST)><BBX>[^<]*</BBX></(?:ANT|PST)>)*)\s*",
    re.DOTALL,
)
_TAGGED_BOX = re.compile(r"<(ANT|PST)><BBX>([^<]*)</BBX></(ANT|PST)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a text is checked against.

    Attributes:
        task: The task asked.
        sizes: Text view (`ANT`, `PST`) -> (width, height) of its image in pixels; other views are
            not bounded.
        with_task: The form names its task.
        whole_pixels: Only integers are coordinates; else any finite number is.
    """

    task: str
    sizes: Mapping[str, tuple[float, float]]
    with_task: bool = True
    whole_pixels: bool = True


def load_object(text: object) -> dict[str, Any] | Invalid:
    """Parses the whole text as one JSON object; the later of two equal keys counts."""
    if not isinstance(text, str):
        return Invalid("not_text")
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        # ValueError: not JSON, or an integer with more digits than Python converts.
        return Invalid("invalid_json")
    return payload if isinstance(payload, dict) else Invalid("json_not_object")


def first_fault(payload: Mapping[str, Any], gate: Gate) -> str | None:
    """The first fault in the published order of checks, or `None` if the object is valid."""
    fields = FIELDS[gate.task]
    if gate.with_task and payload.get("task") != gate.task:
        return "task_mismatch"
    if set(payload) != {*fields, *(("task",) if gate.with_task else ())}:
        return "field_set_mismatch"
    if gate.task in CLASS_WORDS:
        if not is_sentence(payload["answer"]):
            return "invalid_answer"
        if not isinstance(payload["class"], str) or payload["class"] not in CLASS_WORDS[gate.task]:
            return "invalid_class"
    if gate.task in BOX_TASKS:
        if not is_sentence(payload["region"]):
            return "invalid_region"
        return _boxes_fault(payload["boxes"], gate)
    return None


def _boxes_fault(boxes: object, gate: Gate) -> str | None:
    if not isinstance(boxes, list) or not boxes:
        return "invalid_boxes"
    seen: set[str] = set()
    for box in boxes:
        if not isinstance(box, dict) or box.keys() != _BOX_KEYS:
            return "invalid_box_object"
        view = box["view"]
        if not isinstance(view, str) or view not in TEXT_VIEWS.values():
            return "invalid_box_view"
        if view in seen:
            return "duplicate_box_view"
        seen.add(view)
        fault = _bbox_fault(box["bbox"], gate.sizes.get(view), whole_pixels=gate.whole_pixels)
        if fault is not None:
            return fault
    return None


def _bbox_fault(bbox: object, size: tuple[float, float] | None, *, whole_pixels: bool) -> str | None:
    if not isinstance(bbox, list) or len(bbox) != 4 or not all(_is_number(v, whole=whole_pixels) for v in bbox):
        return "invalid_integer_bbox" if whole_pixels else "invalid_bbox"
    x1, y1, x2, y2 = bbox
    if not (x1 < x2 and y1 < y2):
        return "non_increasing_bbox"
    if x1 < 0 or y1 < 0 or (size is not None and (x2 > size[0] or y2 > size[1])):
        return "box_outside_image"
    return None


def _is_number(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (not whole and isinstance(value, float) and math.isfinite(value))


def is_sentence(value: object) -> bool:
    """Text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_storable(text: str) -> bool:
    """Whether UTF-8 can hold the text; half of a surrogate pair, which JSON escapes can produce, it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def load_tags(text: object, task: str) -> dict[str, Any] | Invalid:
    """Parses the tag form into the fields of the older JSON form, for the same gate.

    The whole text must be a sentence, a region, a class (grounded questions only) and boxes, in
    this order.
    """
    if not isinstance(text, str):
        return Invalid("not_text")
    match = _TAGGED.fullmatch(text)
    if match is None:
        return Invalid("invalid_tags")
    boxes: list[dict[str, Any]] = []
    for view, numbers, closing in _TAGGED_BOX.findall(match["boxes"]):
        if view != closing:
            return Invalid("invalid_tags")
        boxes.append({"view": view, "bbox": _numbers(numbers)})
    # One blank belongs to the form, any other to the sentence.
    fields = {"answer": match["head"].removesuffix(" "), "region": match["region"], "boxes": boxes}
    if match["label"] is not None:
        fields["class"] = match["label"]
    if task == "grounding":
        # Its sentence repeats the region and is no answer.
        del fields["answer"]
    return fields


def _numbers(text: str) -> list[float] | None:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return None
