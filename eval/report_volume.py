"""A volume in the report's gallery: every frame behind a slider, and a strip that says where the boxes are.

The page holds a figure for each frame with boxes and for the frame shown first. Without script these
are simply shown; the script (`templates/viewer.js`) shows one at a time and builds the bare ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.report_format import visible
from eval.report_pictures import Picture
from eval.report_views import View

# A mark of the strip: at most so much of the distance between two frames, and of the whole strip.
_MARK_GAP, _MARK_STRIP = 0.8, 1 / 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A frame with boxes, at `place` on the slider."""

    place: int
    title: str
    targets: bool
    predicted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What the slider of a card runs over.

    Attributes:
        titles: Name of every frame on the slider.
        pictures: Their pictures.
        start: Which is shown first, counted from 0.
        figures: The frames with boxes and the first one.
        marks: The frames with boxes.
        mark_width: Width of a mark; frames are 1 apart.
        summary: The same in words.
        size: Width and height that hold every frame, native pixels.
        display_width: Width on the page, CSS pixels.
    """

    titles: tuple[str, ...]
    pictures: tuple[Picture, ...]
    start: int
    figures: tuple[View, ...]
    marks: tuple[Mark, ...]
    mark_width: float
    summary: str
    size: tuple[int, int]
    display_width: int


def build_volume(views: Sequence[View]) -> Volume:
    """The slider over the frames of a card.

    It starts at the first frame with a target box, else with a predicted one, else in the middle.

    Args:
        views: The frames shown, two at least, in the record's order.
    """
    targets = [view.place for view in views if view.targets]
    predicted = [view.place for view in views if view.predicted]
    start = [*targets, *predicted, len(views) // 2][0]
    # The page makes control characters visible, but what stands in JSON would come back as it was.
    titles = tuple(visible(view.title) for view in views)
    return Volume(
        titles=titles,
        pictures=tuple(view.picture for view in views),
        start=start,
        figures=tuple(view for view in views if view.targets or view.predicted or view.place == start),
        marks=tuple(
            Mark(
                place=view.place,
                title=f"{view.title}, {boxes_in_words(view)}",
                targets=bool(view.targets),
                predicted=bool(view.predicted),
            )
            for view in views
            if view.targets or view.predicted
        ),
        mark_width=round(min(_MARK_GAP, (len(views) - 1) * _MARK_STRIP), 3),
        summary=f"target boxes: {_names(titles, targets)}; predicted boxes: {_names(titles, predicted)}",
        size=(max(view.picture.image.width for view in views), max(view.picture.image.height for view in views)),
        display_width=max(view.display_width for view in views),
    )


def boxes_in_words(view: View) -> str:
    """`1 target box, 2 predicted boxes`, as `templates/viewer.js` says it too."""
    kinds = (("target", len(view.targets)), ("predicted", len(view.predicted)))
    return ", ".join(f"{count} {kind} {'box' if count == 1 else 'boxes'}" for kind, count in kinds)


def _names(titles: Sequence[str], places: Sequence[int]) -> str:
    return ", ".join(titles[place] for place in places) or "none"
