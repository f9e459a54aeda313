"""The images of a card in the report: pictures with target and predicted boxes in native pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.schema import Box, Record
from eval.boxes import iou
from eval.report_format import number
from eval.report_pictures import Picture, PictureStore
from eval.schema_scores import RowResult

# In CSS pixels: two images stand in a row of this width, each at most so high.
ROW_WIDTH, FRAME_HEIGHT = 376, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A box to draw, in native pixels, with the text that names it."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One image of a card.

    Attributes:
        place: Its number among the images shown, from 0.
        picture: The picture.
        title: View or frame.
        display_width: Width on the page, CSS pixels.
        targets: Target boxes.
        predicted: Predicted boxes.
    """

    place: int
    picture: Picture
    title: str
    display_width: int
    targets: tuple[Outline, ...]
    predicted: tuple[Outline, ...]


def is_volume(record: Record) -> bool:
    """Whether the record's images are slices of a volume: more than one has a frame."""
    return sum(image.frame is not None for image in record.images) > 1


def build_views(
    record: Record, shown: Sequence[int], predicted: Sequence[Box], row: RowResult, store: PictureStore
) -> tuple[View, ...]:
    """The images of a record as one system answered it.

    Args:
        record: The record.
        shown: Numbers of the images to show.
        predicted: The boxes of the answer.
        row: How it was scored.
        store: Holds the pictures of the images shown.
    """
    width = ROW_WIDTH / (2 if len(shown) > 1 and not is_volume(record) else 1)
    return tuple(_view(record, shown, place, predicted, row, store, width=width) for place in range(len(shown)))


def _view(
    record: Record,
    shown: Sequence[int],
    place: int,
    predicted: Sequence[Box],
    row: RowResult,
    store: PictureStore,
    *,
    width: float,
) -> View:
    image = record.images[shown[place]]
    targets = [(box, overlap) for box, overlap in _with_iou(record, row) if box.image == shown[place]]
    scale = min(width / image.width, FRAME_HEIGHT / image.height)
    return View(
        place=place,
        picture=store.get(image),
        title=title_of(record, shown[place]),
        display_width=max(24, round(image.width * scale)),
        targets=tuple(_outline("target", box, overlap) for box, overlap in targets),
        predicted=tuple(
            _outline("predicted", box, _best(box, [target for target, _ in targets]))
            for box in predicted
            if box.image == shown[place]
        ),
    )


def title_of(record: Record, place: int) -> str:
    """Name of image `place`, counted from 0: `ANT`, `frame 7`, `frame 7 of 16`.

    Where frames are not simply 1, 2, 3 ... the number of the image is given too: `frame 22, image 3 of 5`.
    """
    image, count = record.images[place], len(record.images)
    frame = "" if image.frame is None else f"frame {image.frame}"
    if is_volume(record):
        plain = all(other.frame == number for number, other in enumerate(record.images, start=1))
        frame = f"{frame} of {count}" if plain else ", ".join(filter(None, [frame, f"image {place + 1} of {count}"]))
    return " ".join(filter(None, [image.view, frame])) or f"image {place + 1}"


def _with_iou(record: Record, row: RowResult) -> list[tuple[Box, float | None]]:
    """Target boxes with their scored IoU; a task that does not ask for boxes has none."""
    boxes = record.target.boxes
    return [(box, row.ious[place] if len(row.ious) == len(boxes) else None) for place, box in enumerate(boxes)]


def _best(box: Box, targets: Sequence[Box]) -> float | None:
    return max((iou(target.xyxy, box.xyxy) for target in targets), default=None)


def _outline(kind: str, box: Box, overlap: float | None) -> Outline:
    x1, y1, x2, y2 = box.xyxy
    where = ", ".join(f"{value:g}" for value in box.xyxy)
    label = f" {box.label}" if box.label else ""
    suffix = f", IoU {number(overlap)}" if overlap is not None else ""
    return Outline(x=x1, y=y1, width=x2 - x1, height=y2 - y1, title=f"{kind}{label} [{where}]{suffix}")
