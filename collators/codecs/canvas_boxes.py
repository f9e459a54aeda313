"""Boxes as location numbers on the composed canvas, and back to native pixels of the right image.

The numbers are those of `collators.codecs.location` on the whole canvas. The squash to the model's square
changes nothing: the share of the width is the same before and after.

The loss is half a bin (`Layout.half_bin`) a coordinate for boxes at least two bins wide and high. A thinner one
would be lost where both edges round to one number, or could lie on the neighbouring panel; it is written at least
one bin wide and with both numbers inside its panel, which moves an edge by less than two bins.
"""

from __future__ import annotations

from benchmarks.canvas import Layout
from benchmarks.schema import XYXY, Box
from collators.codecs.base import CodecError
from collators.codecs.location import LAST, GridBox, box_to_grid

# An edge that was rounded outwards lies up to half a bin beyond its panel; the rest is for the float arithmetic.
_REACH = 1 + 1e-9


def box_to_numbers(box: Box, layout: Layout) -> GridBox:
    """The grid numbers (x1, y1, x2, y2) of a box.

    Raises:
        CodecError: The box leaves its image, or the image covers less than a bin of the canvas.
    """
    panel = layout.panel(box.image)
    x1, y1, x2, y2 = box.xyxy
    if x1 < 0 or y1 < 0 or x2 > panel.width or y2 > panel.height:
        raise CodecError(
            f"box {box.xyxy} leaves its image of {panel.width}x{panel.height} pixels: it would reach into another view",
            fix="mend the record's box",
        )
    left, top, right, bottom = box_to_grid(layout.place(box.image, box.xyxy), (layout.width, layout.height))
    left, right = _span((left, right), (panel.x, panel.x + panel.width), layout.width)
    top, bottom = _span((top, bottom), (panel.y, panel.y + panel.height), layout.height)
    return left, top, right, bottom


def numbers_to_canvas(numbers: GridBox, layout: Layout) -> XYXY:
    """The box in canvas pixels; empty or inverted where the numbers do not increase."""
    x1, y1, x2, y2 = numbers
    width, height = layout.width, layout.height
    return x1 * width / LAST, y1 * height / LAST, x2 * width / LAST, y2 * height / LAST


def canvas_to_native(xyxy: XYXY, layout: Layout) -> tuple[int, XYXY] | str:
    """Image and native pixels of a box that was read from numbers, or the reason why it has none."""
    return layout.locate(xyxy, reach(layout))


def reach(layout: Layout) -> tuple[float, float]:
    """How far an edge that was read from numbers may lie outside its panel, in canvas pixels (x, y)."""
    across, down = layout.half_bin(LAST + 1)
    return across * _REACH, down * _REACH


def _span(numbers: tuple[int, int], panel: tuple[int, int], side: int) -> tuple[int, int]:
    """The numbers of two edges, at least one apart; `panel` is where their panel begins and ends on the side."""
    low, high = numbers
    if high - low >= 2:
        return low, high
    first, last = -(-panel[0] * LAST // side), panel[1] * LAST // side
    if first >= last:
        raise CodecError(
            f"an image takes {panel[1] - panel[0]} of {side} pixels of the canvas, too few for two location numbers",
            fix="arrange images of like size on one canvas, or use a codec that writes pixels",
        )
    low = min(max(low, first), last - 1)
    return low, min(max(high, low + 1), last)
