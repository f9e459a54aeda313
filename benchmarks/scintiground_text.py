"""The official text forms of a ScintiGround answer, written from plain values.

Three forms exist: the multitask JSON of the release, the older JSON without the task, and the older
tags. Everything that writes such a text (the export of a release, the codecs, the controls) calls
these functions, so that the bytes are decided in one place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

TASKS = ("vqa", "grounding", "grounded_vqa")
# The positive word comes first: scorers try and report it first.
CLASS_WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"vqa": ("yes", "no"), "grounded_vqa": ("abnormal", "normal")}
)
BOX_TASKS = ("grounding", "grounded_vqa")
# Rows and images say POST, texts say PST.
TEXT_VIEWS: Mapping[str, str] = MappingProxyType({"ANT": "ANT", "POST": "PST"})
FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "vqa": ("answer", "class"),
        "grounding": ("region", "boxes"),
        "grounded_vqa": ("answer", "region", "class", "boxes"),
    }
)

ViewBox = tuple[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialAnswer:
    """What a target text says.

    Attributes:
        task: One of `TASKS`.
        answer: The sentence; `vqa` and `grounded_vqa`.
        label: The class word; `vqa` and `grounded_vqa`.
        region: The region with blanks (`left knee`); `grounding` and `grounded_vqa`.
        boxes: `(view, [x1, y1, x2, y2])` in the order of the text; the view as in rows (`ANT`,
            `POST`), the coordinates in pixels of that view's native image.
    """

    task: str
    answer: str | None = None
    label: str | None = None
    region: str | None = None
    boxes: tuple[ViewBox, ...] = ()


def region_text(label: str) -> str:
    """The region as texts spell it: blanks become underscores."""
    return label.replace(" ", "_")


def plain_number(value: int | float) -> int | float:
    """A whole number as `int`, any other as it is: `40.0` -> `40`, `30.5` -> `30.5`."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def multitask_json(answer: OfficialAnswer) -> str:
    """The release's target text: compact ASCII JSON, `task` first, keys in the release's order."""
    return _dumps({"task": answer.task, **_fields(answer)})


def old_json(answer: OfficialAnswer) -> str:
    """The older JSON: the same fields without `task`."""
    return _dumps(_fields(answer))


def tags(answer: OfficialAnswer) -> str:
    """The older tag form; for `vqa` it is the sentence alone, so the class is lost."""
    if answer.task == "vqa":
        return answer.answer or ""
    region = answer.region or ""
    sentence = f"The location of the {region} is" if answer.task == "grounding" else answer.answer
    label = f"<CLS>{answer.label}</CLS>" if answer.task == "grounded_vqa" else ""
    boxes = "".join(_box_tags(view, bbox) for view, bbox in answer.boxes)
    return f"{sentence} <REG>{region_text(region)}</REG>{label}{boxes}"


def _box_tags(view: str, bbox: Sequence[float]) -> str:
    name = TEXT_VIEWS[view]
    return f"<{name}><BBX>{','.join(str(plain_number(v)) for v in bbox)}</BBX></{name}>"


def _fields(answer: OfficialAnswer) -> dict[str, object]:
    values: dict[str, object] = {
        "answer": answer.answer,
        "region": region_text(answer.region or ""),
        "class": answer.label,
        "boxes": [{"view": TEXT_VIEWS[view], "bbox": [plain_number(v) for v in bbox]} for view, bbox in answer.boxes],
    }
    return {name: values[name] for name in FIELDS[answer.task]}


def _dumps(fields: dict[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":"))
