"""Truth boxes of SGMRI-VQA: where they come from, and what of them can be used."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from benchmarks.readers.sgmri_rows import RowBox
from benchmarks.schema import Box, Image
from benchmarks.sgmri_text import FRAMES, frame_numbers

_TAG = re.compile(r"<bbx>\s*\[\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*\]\s*</bbx>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Boxes that can be used, and why others, or parts of them, cannot."""

    boxes: tuple[Box, ...]
    dropped: tuple[str, ...]


def shifted_boxes(boxes: Sequence[RowBox], offset: int) -> list[RowBox]:
    """The boxes with their frames, where they have one, moved by `offset`."""
    return [
        box if box.frame is None or not offset else msgspec.structs.replace(box, frame=box.frame + offset)
        for box in boxes
    ]


def answer_boxes(answer: str) -> list[RowBox]:
    """The boxes that an official answer states, each on the frame named last before it."""
    found = []
    for tag in _TAG.finditer(answer):
        named = [match["numbers"] for match in FRAMES.finditer(answer, 0, tag.start())]
        frame = next(frame_numbers(named[-1])) if named else None
        x, y, width, height = (float(value) for value in tag.groups())
        found.append(RowBox(x=x, y=y, width=width, height=height, frame=frame))
    return found


def cut_boxes(rows: Sequence[RowBox], images: Sequence[Image]) -> Truth:
    """Boxes in native pixels of their images, cut at the border; exact repeats stay.

    Args:
        rows: Boxes of the release; of a single image no frame is looked at.
        images: The question's images.
    """
    places = {image.frame: number for number, image in enumerate(images)}
    boxes: list[Box] = []
    dropped: list[str] = []
    for row in rows:
        place = 0 if len(images) == 1 else places.get(row.frame)
        if place is None:
            dropped.append("the box names no frame of the volume")
            continue
        image = images[place]
        if not all(map(math.isfinite, (row.x, row.y, row.width, row.height))):
            dropped.append("the box has a side that is no number")
            continue
        whole = (row.x, row.y, row.x + row.width, row.y + row.height)
        x1, y1, x2, y2 = max(0.0, whole[0]), max(0.0, whole[1]), min(image.width, whole[2]), min(image.height, whole[3])
        if not (x1 < x2 and y1 < y2):
            dropped.append("the box has no area inside its image")
            continue
        if (x1, y1, x2, y2) != whole:
            dropped.append("the part of the box outside its image")
        boxes.append(Box(image=place, xyxy=(x1, y1, x2, y2), label=row.label.strip() or None))
    return Truth(boxes=tuple(boxes), dropped=tuple(dropped))
