"""How the published scorer finds boxes in a text: eight steps, of which the first that yields a box is the last.

Source: sgmri.md section 8; checked against the authors' scorer (github.com/lamawmouk/SGMRIQA, commit a77adeb).
Boxes are `(x, y, width, height)`. An exception that escapes here ends the published evaluation of a whole model:
`TypeError` (a null or a list as coordinate of `bbox_2d` or of x, y, width, height; a null as their frame),
`OverflowError` (a JSON number beyond floats, an infinite frame), `ValueError` (a frame of thousands of digits) and
`RecursionError` (JSON nested too deep).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

XYWH = tuple[float, float, float, float]
Size = tuple[int, int]

# Kept faults: nothing may stand between number and box but one separator, so "Frame 7 at", "Frame 7 (left):" and
# "Frame #7" give no frame; "Frames 7-9" and "Slice 7" are no frames at all. Nothing is given back (`++`), which no match
# needs and a long run of blanks would pay for.
_FRAME: Final = r"(?:[Ff]rame\s++(?P<frame>\d++)\s*+[:\-,]?\s*+)?"
_PAIR: Final = r"\((\d+)\s*,\s*(\d+)\)"
# Kept faults: `<bbo>` and `<bxx>` are tags too, and any closer goes with any opener; `<BBX>` is none.
_TAG: Final = re.compile(_FRAME + r"<bb[ox]+>\s*\[(?P<numbers>[^\]]+)\]\s*<[/\\]bb[ox]+>")
# Kept fault: integers only, so that a decimal hides the box.
_TOKENS: Final = re.compile(_FRAME + rf"<\|box_start\|>\s*{_PAIR}\s*,\s*{_PAIR}\s*<\|box_end\|>")
# Kept fault: any case covers the prefix as well, so "FRAME 7" is a frame here and nowhere else.
_CALL: Final = re.compile(_FRAME + r"bbox\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)", re.IGNORECASE)
# Kept fault: two pairs of any kind ("range (3,4) (5,9)") are corners.
_PAIRS: Final = re.compile(_FRAME + rf"{_PAIR}\s*,?\s*{_PAIR}")
# Kept fault: the frame is looked for before the brace, while a frame key inside is ignored.
_BBOX_2D: Final = re.compile(_FRAME + r'(?P<object>\{[^{}]*"bbox_2d"[^{}]*\})')
# Kept fault: a frame before the brace is ignored, and objects inside objects are read without the outer one.
_OBJECT: Final = re.compile(r"\{[^{}]*\}")
# Kept faults: any list of four numbers is a box ("slices [3, 4, 5, 6]"); a minus sign hides it.
_BRACKETS: Final = re.compile(_FRAME + r"\[(?P<numbers>\d[\d.,\s]*)\]")

_CORNERS: Final = frozenset({"min_x", "min_y", "max_x", "max_y"})
_LARGEST: Final = 10_000


class FramedBox(NamedTuple):
    """A box as read; `frame` is `None` if the text gives none, and may be 0.

    Attributes:
        frame: 1-based frame as written.
        box: `(x, y, width, height)`, in pixels as far as the scorer can tell.
    """

    frame: int | None
    box: XYWH


class Reading(NamedTuple):
    """What a text gives.

    Attributes:
        step: Name of the step that ended the parse, `None` without a box.
        boxes: The boxes in the order of the text.
    """

    step: str | None
    boxes: tuple[FramedBox, ...]


def read_boxes(text: str, size: Size | None) -> Reading:
    """Reads boxes by the published steps.

    Args:
        text: An answer without thinking.
        size: Width and height of the image in pixels, `None` if unknown.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: Where the published parser lets them escape.
    """
    boxes, whole = _normalized_json(text, size)
    if boxes and whole:
        return Reading("normalized_json", tuple(boxes))
    # Kept fault: what a broken-off document gave stays in the list, which the tag step returns with its own.
    boxes += _tags(text)
    if boxes:
        return Reading("bbx_tag", tuple(boxes))
    for name, step in _LATER_STEPS.items():
        found = tuple(step(text, size))
        if found:
            return Reading(name, found)
    return Reading(None, ())


def _normalized_json(text: str, size: Size | None) -> tuple[list[FramedBox], bool]:
    """Boxes of a text that is one JSON document, and whether it was read to its end."""
    boxes: list[FramedBox] = []
    try:
        document = json.loads(text)
        listed = document["bboxes"] if isinstance(document, dict) and "bboxes" in document else ()
        for item in listed:
            if isinstance(item, dict) and item.keys() >= _CORNERS:
                box = _normalized_box(item, size)
                if box is not None:
                    boxes.append(FramedBox(_frame_key(item), box))
    except (ValueError, TypeError):
        return boxes, False
    return boxes, True


def _normalized_box(item: Mapping[str, Any], size: Size | None) -> XYWH | None:
    left, top, right, bottom = (float(item[key]) for key in ("min_x", "min_y", "max_x", "max_y"))
    # Kept fault: the unit is guessed for each box from its own numbers.
    if size is not None and max(left, top, right, bottom) <= 1:
        left, top, right, bottom = left * size[0], top * size[1], right * size[0], bottom * size[1]
    return _from_corners((left, top, right, bottom))


def _tags(text: str) -> Iterator[FramedBox]:
    for frame, match in _framed(_TAG, text):
        numbers = _four_numbers(match["numbers"])
        if numbers is not None:
            # Kept fault: no sign check, no scaling.
            yield FramedBox(frame, numbers)


def _box_tokens(text: str, size: Size | None) -> Iterator[FramedBox]:
    for frame, match in _framed(_TOKENS, text):
        corners = _integers(match)
        # Kept fault: thousandths are assumed whatever the prompt asked for.
        yield from _kept(frame, _from_corners(_thousandths(corners, size) if size is not None else corners))


def _bbox_calls(text: str, _size: Size | None) -> Iterator[FramedBox]:
    for frame, match in _framed(_CALL, text):
        yield from _kept(frame, _from_corners(_integers(match)))


def _paren_pairs(text: str, _size: Size | None) -> Iterator[FramedBox]:
    for frame, match in _framed(_PAIRS, text):
        yield from _kept(frame, _from_corners(_integers(match)))


def _bbox_2d_objects(text: str, size: Size | None) -> Iterator[FramedBox]:
    for frame, match in _framed(_BBOX_2D, text):
        try:
            values = json.loads(match["object"])["bbox_2d"]
            # Kept fault: the length of a null has no catcher, nor has the conversion of a null to a float.
            corners = _xywh(float(values[index]) for index in range(4)) if len(values) == 4 else None
        except (ValueError, KeyError):
            continue
        if corners is not None:
            yield from _kept(frame, _from_corners(_rescaled(corners, size)))


def _xywh_objects(text: str, _size: Size | None) -> Iterator[FramedBox]:
    for match in _OBJECT.finditer(text):
        try:
            item = json.loads(match[0])
            if not all(key in item for key in ("x", "y", "width", "height")):
                continue
            box = _xywh(float(item[key]) for key in ("x", "y", "width", "height"))
            # A word as frame loses this object alone; a null has no catcher.
            frame = _frame_key(item)
        except ValueError:
            continue
        yield from _kept(frame, box if box[2] > 0 and box[3] > 0 else None)


def _bracket_lists(text: str, size: Size | None) -> Iterator[FramedBox]:
    for frame, match in _framed(_BRACKETS, text):
        numbers = _four_numbers(match["numbers"])
        if numbers is None or max(numbers) > _LARGEST or numbers[2] <= 0 or numbers[3] <= 0:
            continue
        # Kept faults: x, y, width, height are taken for corners whenever they could be, and the scale is
        # chosen after that.
        yield FramedBox(frame, _rescaled(_from_corners(numbers) or numbers, size))


# Step -> its reader, in the order of the published parser, after the first two.
_LATER_STEPS: Final[Mapping[str, Callable[[str, Size | None], Iterable[FramedBox]]]] = {
    "box_tokens": _box_tokens,
    "bbox_call": _bbox_calls,
    "paren_pairs": _paren_pairs,
    "bbox_2d_json": _bbox_2d_objects,
    "xywh_json": _xywh_objects,
    "brackets": _bracket_lists,
}


def _framed(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int | None, re.Match[str]]]:
    """Matches with their frames; without a prefix the last one counts, even that of a box that was rejected."""
    last: int | None = None
    for match in pattern.finditer(text):
        if match["frame"] is not None:
            last = int(match["frame"])
        yield last, match


def _frame_key(item: Mapping[str, Any]) -> int | None:
    return int(item["frame"]) if "frame" in item else None


def _kept(frame: int | None, box: XYWH | None) -> Iterator[FramedBox]:
    if box is not None:
        yield FramedBox(frame, box)


def _four_numbers(text: str) -> XYWH | None:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return None
    return _xywh(numbers) if len(numbers) == 4 else None


def _integers(match: re.Match[str]) -> XYWH:
    """The four groups beside the frame, which is the first."""
    return _xywh(float(digits) for digits in match.groups()[1:])


def _xywh(values: Iterable[float]) -> XYWH:
    x, y, width, height = values
    return x, y, width, height


def _from_corners(corners: Sequence[float]) -> XYWH | None:
    """Corners as x, y, width, height; `None` unless both sides are positive."""
    left, top, right, bottom = corners
    width, height = right - left, bottom - top
    return (left, top, width, height) if width > 0 and height > 0 else None


def _thousandths(values: XYWH, size: Size) -> XYWH:
    x, y, right, bottom = values
    return x / 1000 * size[0], y / 1000 * size[1], right / 1000 * size[0], bottom / 1000 * size[1]


def _rescaled(values: XYWH, size: Size | None) -> XYWH:
    """Kept fault: numbers are thousandths if the largest one of this box does not fit the longer side."""
    return _thousandths(values, size) if size is not None and max(values) > max(size) else values
