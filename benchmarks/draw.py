"""Draws a record: its views side by side with target and predicted boxes, and text below.

Used by `python -m benchmarks show`, by single-image prediction and by the report.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont

from benchmarks.schema import Box

TARGET_COLOUR = (64, 200, 96)
PREDICTED_COLOUR = (255, 140, 0)
_INK, _PAPER = (20, 20, 20), (255, 255, 255)
_MARGIN, _FONT_SIZE, _LINE = 8, 14, 18
_MIN_HEIGHT, _MAX_HEIGHT, _MAX_WIDTH, _MIN_SHEET = 512, 1024, 2048, 420


def draw_record(
    images: Sequence[PIL.Image.Image],
    target_boxes: Sequence[Box] = (),
    predicted_boxes: Sequence[Box] = (),
    *,
    titles: Sequence[str] = (),
    caption: Sequence[str] = (),
) -> PIL.Image.Image:
    """Draws all images of a record in one row.

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
    scale = _scale(max(image.width for image in images), max(image.height for image in images))
    panels = []
    for number, image in enumerate(images):
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        panel = image.convert("RGB").resize(size, PIL.Image.Resampling.BICUBIC)
        for boxes, colour in ((target_boxes, TARGET_COLOUR), (predicted_boxes, PREDICTED_COLOUR)):
            for box in boxes:
                if box.image == number:
                    _frame(panel, box, scale, colour)
        panels.append(panel)
    return _compose(panels, titles, caption, legend=bool(predicted_boxes))


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
    width = max(sum(panel.width + _MARGIN for panel in panels) + _MARGIN, _MIN_SHEET)
    per_line = max(20, int((width - 2 * _MARGIN) / (_FONT_SIZE * 0.55)))
    text = [part for line in caption for part in (textwrap.wrap(line, per_line) or [""])]
    entries = [("target", TARGET_COLOUR), ("predicted", PREDICTED_COLOUR)] if legend else []
    tallest = max(panel.height for panel in panels)
    lines = [(line, _INK) for line in text] + entries
    sheet = PIL.Image.new("RGB", (width, heading + tallest + 2 * _MARGIN + _LINE * len(lines) + _MARGIN), _PAPER)
    draw = PIL.ImageDraw.Draw(sheet)
    left = _MARGIN
    for number, panel in enumerate(panels):
        if number < len(titles):
            draw.text((left, _MARGIN // 2), _one_line(titles[number]), fill=_INK, font=_font())
        sheet.paste(panel, (left, heading + _MARGIN))
        left += panel.width + _MARGIN
    for row, (line, colour) in enumerate(lines):
        draw.text((_MARGIN, heading + tallest + 2 * _MARGIN + _LINE * row), line, fill=colour, font=_font())
    return sheet
