"""Location numbers: boxes on a 1024-step grid, written as four `<locNNNN>` codes in y, x order.

The arithmetic of the published code, on the composed canvas: `round(v / size * 1023)` with halves
to even, clamped to 0..1023. There is no way back to pixels here: the published scorer compares
boxes on the grid. The loss is at most `size / 2046` pixels a coordinate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LAST = 1023
GridBox = tuple[int, int, int, int]
_CODES = re.compile(r"<loc(\d{4})><loc(\d{4})><loc(\d{4})><loc(\d{4})>")


def to_grid(value: float, size: float) -> int:
    """A coordinate of a side of `size` pixels as a grid number, 0..1023."""
    return min(max(round(value / size * LAST), 0), LAST)


def box_to_grid(box: Sequence[float], canvas: Sequence[float]) -> GridBox:
    """`(x1, y1, x2, y2)` in canvas pixels to `(x1, y1, x2, y2)` on the grid; `canvas` is (width, height)."""
    x1, y1, x2, y2 = box
    width, height = canvas
    return to_grid(x1, width), to_grid(y1, height), to_grid(x2, width), to_grid(y2, height)


def grid_to_text(box: GridBox) -> str:
    """Four codes in the order y1 x1 y2 x2."""
    x1, y1, x2, y2 = box
    return "".join(f"<loc{value:04d}>" for value in (y1, x1, y2, x2))


def text_to_grid(text: str) -> GridBox | None:
    """The first four codes that stand directly together, as `(x1, y1, x2, y2)`.

    `None` if there are none, or if these do not increase; later groups are not tried.
    """
    match = _CODES.search(text)
    if match is None:
        return None
    y1, x1, y2, x2 = (int(code) for code in match.groups())
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None
