"""How the published scorer reads one text: the lenient parse, validity, the audit.

The scorer stops with an exception on some texts (`TypeError` for a list as view, task or class, for
boxes that are no sequence and for an output that is no text; `OverflowError` for an integer beyond
the range of floats; what `json.loads` raises on too many digits or too deep nesting). These functions
raise the same types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from benchmarks.scintiground_text import BOX_TASKS, CLASS_WORDS, FIELDS, TASKS, TEXT_VIEWS
from collators.codecs.scintiground_parse import Gate, first_fault, is_sentence, load_object

Row = Mapping[str, Any]
XYXY = tuple[float, float, float, float]

_TASKS = frozenset(TASKS)
_VIEWS = frozenset(TEXT_VIEWS.values())


@dataclass(frozen=True, slots=True)
class LenientBox:
    """A box as read; `view` is the text's (`ANT`, `PST`), `None` for a box outside any view tag."""

    view: str | None
    bbox: XYXY

    def plain(self) -> dict[str, Any]:
        """As the reference cases write it."""
        return {"view": self.view, "bbox": list(self.bbox)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lenient:
    """What the lenient parse finds; `None` where a field is missing or not text."""

    task: str | None = None
    answer: str | None = None
    region: str | None = None
    label: str | None = None
    boxes: tuple[LenientBox, ...] = ()


def parse_lenient(text: object) -> Lenient:
    """Reads whatever a text offers; nothing at all unless it is one JSON object.

    Raises:
        TypeError: Not a text, an unhashable task or view, or boxes that cannot be iterated.
        OverflowError: An integer coordinate beyond the range of floats.
    """
    payload = _loads(text)
    if not isinstance(payload, dict):
        return Lenient()
    task = payload.get("task")
    return Lenient(
        task=task if task in _TASKS else None,
        answer=_text(payload.get("answer")),
        region=_text(payload.get("region")),
        label=_text(payload.get("class")),
        boxes=lenient_boxes(payload),
    )


def lenient_boxes(payload: Mapping[str, Any]) -> tuple[LenientBox, ...]:
    """The items of `boxes` with a known view and four increasing numbers; the others are skipped.

    Raises:
        TypeError: `boxes` cannot be iterated, or a view is unhashable.
        OverflowError: An integer coordinate beyond the range of floats.
    """
    boxes: list[LenientBox] = []
    for item in payload.get("boxes", ()):
        if not isinstance(item, dict) or item.get("view") not in _VIEWS:
            continue
        values = item.get("bbox")
        bbox = increasing_box(values) if isinstance(values, list) else None
        if bbox is not None:
            boxes.append(LenientBox(item["view"], bbox))
    return tuple(boxes)


def increasing_box(values: list[Any]) -> XYXY | None:
    """Four values convertible to float with x1 < x2 and y1 < y2, else `None`."""
    if len(values) != 4:
        return None
    try:
        x1, y1, x2, y2 = (float(value) for value in values)
    except (TypeError, ValueError):
        return None
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None


def is_valid(text: object, row: Row) -> bool:
    """Published validity of a text for its row.

    Raises:
        TypeError: The check arrives at an unhashable class.
    """
    payload = load_object(text)
    if not isinstance(payload, dict):
        return False
    fault = first_fault(payload, Gate(task=row["task"], sizes=_sizes(row)))
    if fault == "invalid_class":
        # The published check is a look-up in a set, which stops on a list or an object.
        hash(payload["class"])
    return fault is None


def audit_issues(text: object, row: Row) -> list[str]:
    """All issues of a text in the audit's order; unlike validity, they add up.

    Blank answers and coordinates outside the image are no issue here.

    Raises:
        TypeError: Not a text, or an unhashable class or view.
    """
    try:
        payload = json.loads(cast("str", text))
    except json.JSONDecodeError:
        return ["invalid_json"]
    if not isinstance(payload, dict):
        return ["json_not_object"]
    task = row["task"]
    issues: list[str | None] = [
        "task_mismatch" if payload.get("task") != task else None,
        "field_set_mismatch" if set(payload) != {"task", *FIELDS[task]} else None,
    ]
    if task in CLASS_WORDS:
        issues.append("invalid_answer" if not isinstance(payload.get("answer"), str) else None)
        issues.append("invalid_class" if payload.get("class") not in frozenset(CLASS_WORDS[task]) else None)
    if task in BOX_TASKS:
        issues.append("invalid_region" if not is_sentence(payload.get("region")) else None)
        issues.append(_boxes_issue(payload.get("boxes")))
    return [issue for issue in issues if issue is not None]


def _boxes_issue(boxes: object) -> str | None:
    if not isinstance(boxes, list) or not boxes:
        return "invalid_boxes"
    for item in boxes:
        issue = _box_issue(item)
        if issue is not None:
            return issue
    views = [item["view"] for item in boxes]
    return "duplicate_box_view" if len(set(views)) < len(views) else None


def _box_issue(item: object) -> str | None:
    if not isinstance(item, dict) or set(item) != {"view", "bbox"}:
        return "invalid_box_object"
    if item["view"] not in _VIEWS:
        return "invalid_box_view"
    bbox = item["bbox"]
    if not isinstance(bbox, list) or len(bbox) != 4 or not all(type(value) is int for value in bbox):
        return "invalid_integer_bbox"
    x1, y1, x2, y2 = bbox
    return None if x1 < x2 and y1 < y2 else "non_increasing_bbox"


def _loads(text: object) -> object:
    try:
        return json.loads(cast("str", text))
    except json.JSONDecodeError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _sizes(row: Row) -> dict[str, tuple[float, float]]:
    sizes: dict[str, tuple[float, float]] = {}
    for image in row.get("images") or ():
        size = image.get("image_size")
        if size and image.get("view") in TEXT_VIEWS:
            sizes[TEXT_VIEWS[image["view"]]] = (size[0], size[1])
    return sizes
