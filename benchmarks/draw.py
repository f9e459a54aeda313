"""Draws a record: its views side by side, or its slices in rows, with target and predicted boxes, and text below.

Used by `python -m benchmarks show`, by single-image prediction and by the report.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont

from benchmarks.schema import Box

TARGET_COLOUR = (64, 200, 96)
PREDICTED_COLOUR = (255, 140, 0)
_INK, _PAPER = (20, 20, 20), (255, 255, 255)
_MARGIN, _FONT_SIZE, _LINE = 8, 14, 18
_MIN_HEIGHT, _MAX_HEIGHT, _MAX_WIDTH, _MIN_SHEET = 512, 1024, 2048, 420
# More images than these in a row become a sheet of small ones, more than the second number a choice of them.
_IN_ROW, _MOST, _SMALL_HEIGHT = 4, 24, 320


def draw_record(
    images: Sequence[PIL.Image.Image],
    target_boxes: Sequence[Box] = (),
    predicted_boxes: Sequence[Box] = (),
    *,
    titles: Sequence[str] = (),
    caption: Sequence[str] = (),
) -> PIL.Image.Image:
    """Draws the images of a record: up to four in one row, more in several rows of smaller ones.

    Of more than 24 those with boxes are drawn, then others evenly, and a line says so.

    Args:
        images: RGB pictures in the record's order, native size.
        target_boxes: Boxes in native pixels, drawn as green solid frames with their labels.
        predicted_boxes: Boxes in native pixels, drawn as orange frames; coordinates outside the
            image are clipped, so that a wild prediction is still visible at the border.
        titles: A heading per image, the views for instance; empty for none.
        caption: Lines below the images (question, answers); long ones are wrapped.

    Returns:
        RGB picture. All images are scaled by one factor, to a height between 512 and 1024 pixels if the
        width then stays within 2048, so that a 2-pixel line stays visible on a small scan.
    """
    if not images:
        raise ValueError("a record without images cannot be drawn")
    places = _chosen(len(images), {box.image for box in (*target_boxes, *predicted_boxes)})
    if len(places) < len(images):
        caption = [*caption, f"{len(places)} of {len(images)} images drawn: those with boxes first"]
    size = max(image.width for image in images), max(image.height for image in images)
    scale = _scale(*size) if len(places) <= _IN_ROW else _SMALL_HEIGHT / size[1]
    panels = []
    for number in places:
        image = images[number]
        scaled = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        panel = image.convert("RGB").resize(scaled, PIL.Image.Resampling.BICUBIC)
        for boxes, colour in ((target_boxes, TARGET_COLOUR), (predicted_boxes, PREDICTED_COLOUR)):
            for box in boxes:
                if box.image == number:
                    _frame(panel, box, scale, colour)
        panels.append(panel)
    shown = [titles[number] for number in places if number < len(titles)]
    return _compose(panels, shown, caption, legend=bool(predicted_boxes))


def _chosen(count: int, boxed: Collection[int]) -> list[int]:
    """Numbers of the images to draw, in order."""
    if count <= _MOST:
        return list(range(count))
    evenly = [place * (count - 1) // (_MOST - 1) for place in range(_MOST)]
    first = dict.fromkeys([*sorted(place for place in boxed if place < count), *evenly])
    return sorted(list(first)[:_MOST])


def _scale(width: int, height: int) -> float:
    return min(min(max(height, _MIN_HEIGHT), _MAX_HEIGHT) / height, _MAX_WIDTH / width)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _font() -> PIL.ImageFont.FreeTypeFont | PIL.ImageFont.ImageFont:
    return PIL.ImageFont.load_default(size=_FONT_SIZE)


def _frame(panel: PIL.Image.Image, box: Box, scale: float, colour: tuple[int, int, int]) -> None:
    draw = PIL.ImageDraw.Draw(panel)
    x1, x2 = (min(max(x * scale, 0.0), panel.width - 1.0) for x in (box.xyxy[0], box.xyxy[2]))
    y1, y2 = (min(max(y * scale, 0.0), panel.height - 1.0) for y in (box.xyxy[1], box.xyxy[3]))
    draw.rectangle((x1, y1, x2, y2), outline=colour, width=2)
    if box.label is None:
        return
    # Below the frame where there is no room above it; pulled left at the right border.
    label = _one_line(box.label)
    width = draw.textlength(label, font=_font())
    top = y1 - _LINE if y1 >= _LINE else min(y2 + 2, panel.height - _LINE)
    draw.text((max(min(x1, panel.width - width), 0), top), label, fill=colour, font=_font())


def _compose(
    panels: Sequence[PIL.Image.Image], titles: Sequence[str], caption: Sequence[str], *, legend: bool
) -> PIL.Image.Image:
    heading = _LINE if titles else 0
    rows = _rows(panels)
    width = max(*(sum(panel.width + _MARGIN for panel in row) + _MARGIN for row in rows), _MIN_SHEET)
    per_line = max(20, int((width - 2 * _MARGIN) / (_FONT_SIZE * 0.55)))
    text = [part for line in caption for part in (textwrap.wrap(line, per_line) or [""])]
    entries = [("target", TARGET_COLOUR), ("predicted", PREDICTED_COLOUR)] if legend else []
    lines = [(line, _INK) for line in text] + entries
    heights = [heading + max(panel.height for panel in row) + _MARGIN for row in rows]
    sheet = PIL.Image.new("RGB", (width, sum(heights) + 2 * _MARGIN + _LINE * len(lines)), _PAPER)
    draw = PIL.ImageDraw.Draw(sheet)
    names = iter(titles)
    top = 0
    for row, height in zip(rows, heights, strict=True):
        left = _MARGIN
        for panel in row:
            draw.text((left, top + _MARGIN // 2), _one_line(next(names, "")), fill=_INK, font=_font())
            sheet.paste(panel, (left, top + heading + _MARGIN))
            left += panel.width + _MARGIN
        top += height
    for number, (line, colour) in enumerate(lines):
        draw.text((_MARGIN, top + _MARGIN + _LINE * number), line, fill=colour, font=_font())
    return sheet


def _rows(panels: Sequence[PIL.Image.Image]) -> list[list[PIL.Image.Image]]:
    """The panels in rows: few in one, many in as many as fit the sheet's width."""
    if len(panels) <= _IN_ROW:
        return [list(panels)]
    columns = max(1, (_MAX_WIDTH - _MARGIN) // (max(panel.width for panel in panels) + _MARGIN))
    return [list(panels[start : start + columns]) for start in range(0, len(panels), columns)]
