"""The canvas: several views as one square picture, with exact geometry there and back.

Three frames are in use, all with the origin at the top left and boxes as `(x1, y1, x2, y2)`:

* native pixels of one image, the frame of records and answers;
* canvas pixels: the panels at native size beside or below each other, padding included (`width` x `height`);
* pixels of the square that the model sees (`size` x `size`), to which the canvas is resized.

A box of the canvas belongs to the panel that holds more than 90 % of its area, and is clipped to it; where two do,
which rounded edges make possible on their border, to one that shows a view. Any other box has no image; the reasons are

| reason             | meaning                                                    |
|--------------------|------------------------------------------------------------|
| `outside_panels`   | it lies in padding or gaps only                            |
| `straddles_panels` | no panel holds more than 90 % of it                        |
| `missing_view`     | it lies on the black panel of a view that is not shown     |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import DataError
from benchmarks.schema import XYXY, Image
from recipes.inputs import Canvas

if TYPE_CHECKING:
    import PIL.Image

MOSTLY = 0.9
BoolMask = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The place of one view on the canvas.

    Attributes:
        image: Index into the record's images; `None` for the black panel of a view that the record does not show.
        view: Name of the view.
        x: Left edge in canvas pixels.
        y: Upper edge in canvas pixels.
        width: Width in canvas pixels, which are native ones.
        height: Height likewise.
    """

    image: int | None
    view: str | None
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where everything is.

    Attributes:
        panels: In the order in which they stand.
        width: Width of the canvas in canvas pixels, padding included.
        height: Height likewise.
        size: Side of the square in pixels.
    """

    panels: tuple[Panel, ...]
    width: int
    height: int
    size: int

    @property
    def scale(self) -> tuple[float, float]:
        """Pixels of the square per native pixel, across and down."""
        return self.size / self.width, self.size / self.height

    def half_bin(self, bins: int = 1024) -> tuple[float, float]:
        """Half the distance of neighbouring numbers where `bins` of them span the square, in native pixels (x, y).

        This is what rounding to PaliGemma's location numbers costs a coordinate at most; the size of the square
        does not matter.
        """
        return self.width / (2 * (bins - 1)), self.height / (2 * (bins - 1))

    def mask_rim(self) -> tuple[float, float]:
        """How far a mask's rim moves at most on the way to the square and back, in native pixels (x, y).

        Half a pixel of the square and half a native one: each takes the value found at its centre.
        """
        across, down = self.scale
        return 0.5 / across + 0.5, 0.5 / down + 0.5

    def panel(self, image: int) -> Panel:
        """The panel of an image.

        Raises:
            ValueError: The record has no such image.
        """
        for panel in self.panels:
            if panel.image == image:
                return panel
        raise ValueError(f"no panel for image {image} among {len(self.panels)} panels")

    def place(self, image: int, xyxy: XYXY) -> XYXY:
        """A box in native pixels of an image, in canvas pixels."""
        panel = self.panel(image)
        x1, y1, x2, y2 = xyxy
        return x1 + panel.x, y1 + panel.y, x2 + panel.x, y2 + panel.y

    def locate(self, xyxy: XYXY, slack: tuple[float, float] = (0.0, 0.0)) -> tuple[int, XYXY] | str:
        """A box in canvas pixels, in native pixels of the image it lies on.

        Args:
            xyxy: The box; x1 < x2 and y1 < y2.
            slack: An edge that is at most so many canvas pixels (x, y) outside a panel counts as lying on the
                panel's edge: a code that rounds coordinates cannot do better.

        Returns:
            Index of the image and the box, clipped to it; or the reason why it has none (see the module).
        """
        x1, y1, x2, y2 = xyxy
        shares: list[float] = (self.shares(0, x1, x2, slack[0]) * self.shares(1, y1, y2, slack[1])).tolist()
        share, panel = max(
            zip(shares, self.panels, strict=True),
            key=lambda pair: (pair[0] > MOSTLY and pair[1].image is not None, pair[0]),
        )
        if share <= 0:
            return "outside_panels"
        if share <= MOSTLY:
            return "straddles_panels"
        if panel.image is None:
            return "missing_view"
        x1, x2 = (min(max(x - panel.x, 0.0), float(panel.width)) for x in (x1, x2))
        y1, y2 = (min(max(y - panel.y, 0.0), float(panel.height)) for y in (y1, y2))
        return panel.image, (x1, y1, x2, y2)

    def shares(self, axis: Literal[0, 1], low: float | Floats, high: float | Floats, reach: float = 0.0) -> Floats:
        """Share of spans of one axis that lies on each panel; that of a box is the product of both axes'.

        Args:
            axis: 0 for x, 1 for y.
            low: Where the spans begin, in canvas pixels: one number, or of a shape that fits [..., P] for P panels.
            high: Where they end; a span that does not end after its beginning has the share 0.
            reach: An edge that is at most so far outside a panel is moved onto the panel's edge.

        Returns:
            float[..., P], 0 to 1.
        """
        start = np.array([(panel.x, panel.y)[axis] for panel in self.panels])
        end = start + [(panel.width, panel.height)[axis] for panel in self.panels]
        low = np.where((start - reach <= low) & (low < start), start, low)
        high = np.where((end < high) & (high <= end + reach), end, high)
        inside = np.minimum(high, end) - np.maximum(low, start)
        shares: Floats = np.divide(inside, high - low, out=np.zeros(inside.shape), where=inside > 0)
        return shares

    def to_canvas(self, image: int, xyxy: XYXY) -> XYXY:
        """A box in native pixels of an image, in pixels of the square."""
        across, down = self.scale
        x1, y1, x2, y2 = self.place(image, xyxy)
        return x1 * across, y1 * down, x2 * across, y2 * down

    def to_native(self, xyxy: XYXY) -> tuple[int, XYXY] | str:
        """A box in pixels of the square, as `locate`."""
        across, down = self.scale
        x1, y1, x2, y2 = xyxy
        return self.locate((x1 / across, y1 / down, x2 / across, y2 / down))

    def mask_to_canvas(self, image: int, mask: BoolMask) -> BoolMask:
        """A mask bool[h, w] of an image as bool[size, size]: each pixel has the value found at its centre.

        A mask that goes to the square and back takes the value of each pixel from one that is at most `mask_rim` away.
        """
        panel = self.panel(image)
        if mask.shape != (panel.height, panel.width):
            raise ValueError(f"mask of shape {mask.shape} for an image of {panel.height} rows, {panel.width} columns")
        canvas = np.zeros((self.height, self.width), dtype=np.bool_)
        canvas[panel.y : panel.y + panel.height, panel.x : panel.x + panel.width] = mask
        rows, columns = _centres(self.size, self.height), _centres(self.size, self.width)
        return canvas[np.ix_(rows, columns)]

    def mask_to_native(self, image: int, mask: BoolMask) -> BoolMask:
        """A mask bool[size, size] of the square as bool[h, w] of an image; what lies outside its panel is lost."""
        if mask.shape != (self.size, self.size):
            raise ValueError(f"mask of shape {mask.shape} for a square of {self.size} pixels")
        panel = self.panel(image)
        rows = _centres(self.height, self.size)[panel.y : panel.y + panel.height]
        columns = _centres(self.width, self.size)[panel.x : panel.x + panel.width]
        return mask[np.ix_(rows, columns)]


def plan_layout(plan: Canvas, images: Sequence[Image]) -> Layout:
    """Lays out the images of a record.

    Raises:
        DataError: There is no image, or the plan orders views and an image has none, one that is not in the order,
            or the same as another.
    """
    if not images:
        raise DataError("a record without images has no canvas", fix="give at least one image")
    largest = max(images, key=lambda image: image.width * image.height)
    panels: list[Panel] = []
    offset = 0
    for image, view in _sequence(plan, images):
        shown = largest if image is None else images[image]
        x, y = (offset, 0) if plan.arrange == "side_by_side" else (0, offset)
        panels.append(Panel(image=image, view=view, x=x, y=y, width=shown.width, height=shown.height))
        offset += plan.gap + (shown.width if plan.arrange == "side_by_side" else shown.height)
    width = max(panel.x + panel.width for panel in panels)
    height = max(panel.y + panel.height for panel in panels)
    if plan.resize == "pad":
        width = height = max(width, height)
    return Layout(panels=tuple(panels), width=width, height=height, size=plan.size)


def compose(pictures: Sequence[PIL.Image.Image], layout: Layout) -> PIL.Image.Image:
    """The square that the model sees.

    Args:
        pictures: The record's images in its order, RGB, each of its panel's size.
        layout: From `plan_layout`.

    Returns:
        RGB picture of `size` x `size` pixels: the panels on black, resized bicubically.
    """
    import PIL.Image  # codecs and scoring need the geometry only

    canvas = PIL.Image.new("RGB", (layout.width, layout.height))
    for panel in layout.panels:
        if panel.image is None:
            continue
        picture = pictures[panel.image]
        if picture.size != (panel.width, panel.height):
            raise ValueError(f"picture of {picture.size} for a panel of {panel.width}x{panel.height} pixels")
        canvas.paste(picture, (panel.x, panel.y))
    return canvas.resize((layout.size, layout.size), PIL.Image.Resampling.BICUBIC)


def _sequence(plan: Canvas, images: Sequence[Image]) -> list[tuple[int | None, str | None]]:
    """Image index and view of each panel, in order; the index is `None` for a black panel."""
    if not plan.order:
        return [(number, image.view) for number, image in enumerate(images)]
    places: dict[str, int] = {}
    for number, image in enumerate(images):
        if image.view is None or image.view not in plan.order or image.view in places:
            twice = image.view in places
            raise DataError(
                f"image {number + 1} ({image.path}) has the view {image.view!r}{', as another one has' if twice else ''}; "
                f"the canvas has one place for each of {', '.join(plan.order)}",
                fix="name the views of the images, or mend canvas.order in the recipe; empty, it takes any images",
            )
        places[image.view] = number
    return [(places.get(view), view) for view in plan.order if view in places or plan.missing == "black"]


def _centres(count: int, other: int) -> NDArray[np.intp]:
    """Which of `other` equal parts of a side holds the centre of each of `count` equal parts of it: intp[count]."""
    return ((2 * np.arange(count, dtype=np.int64) + 1) * other // (2 * count)).astype(np.intp)
