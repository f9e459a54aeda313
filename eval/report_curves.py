"""Geometry of the report's ROC, precision-recall and reliability charts, in user units of an SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.intervals import Array
from eval.report_figures import Point
from eval.report_format import number
from eval.schema_probability import Probability, Threshold
from eval.schema_scores import RowResult

SIDE, LEFT, TOP = 220, 48, 12
WIDTH, HEIGHT = LEFT + SIDE + 14, TOP + SIDE + 42
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
# The radius of a dot of the reliability chart that holds every record.
_FULL_RADIUS = 11.0
_LEAST_RADIUS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A marked point with its radius and what it says."""

    x: float
    y: float
    radius: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """A chart whose axes both run from 0 to 1.

    Attributes:
        name: Title.
        x_title: What the horizontal axis is.
        y_title: What the vertical axis is.
        reference: Two ends of the dashed line.
        points: The curve.
        dots: Marked points on it.
        caption: What the chart shows.
    """

    name: str
    x_title: str
    y_title: str
    reference: tuple[Point, Point]
    points: tuple[Point, ...]
    dots: tuple[Dot, ...]
    caption: str


def place(x: float, y: float) -> Point:
    """The user units of a point of the unit square."""
    return round(LEFT + x * SIDE, 1), round(TOP + (1 - y) * SIDE, 1)


def charts(rows: Sequence[RowResult], found: Probability, threshold: Threshold | None) -> tuple[Square, ...]:
    """The charts of one task: ROC and precision-recall (only if both classes occur) and reliability.

    Args:
        rows: The system's rows; those of the task with a probability are drawn.
        found: Their summary.
        threshold: The threshold to mark, if one was chosen.
    """
    scored = [row for row in rows if row.task == found.task and row.p_positive is not None]
    p = np.array([row.p_positive for row in scored], dtype=np.float64)
    positive = np.array([row.label == found.positive for row in scored], dtype=np.bool_)
    chosen = threshold.threshold if threshold is not None else None
    if positive.all() or not positive.any():
        return (_reliability(found),)
    return (_roc(p, positive, chosen), _precision_recall(p, positive, chosen), _reliability(found))


def _steps(p: Array, positive: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Positive and negative records that score at least each distinct score, highest first, shape (scores,)."""
    order = np.argsort(-p, kind="stable")
    last = np.flatnonzero(np.append(np.diff(p[order]) != 0, True))
    true = np.cumsum(positive[order], dtype=np.float64)[last]
    return true, last + 1 - true


def _roc(p: Array, positive: NDArray[np.bool_], threshold: float | None) -> Square:
    true, false = _steps(p, positive)
    points = [(0.0, 0.0), *zip(false / false[-1], true / true[-1], strict=True)]
    dots = []
    if threshold is not None:
        called = p >= threshold
        x, y = float(called[~positive].mean()), float(called[positive].mean())
        title = f"threshold {threshold:.4g}: recall {number(y)}, false positive rate {number(x)}"
        dots = [_dot(x, y, 5.0, title)]
    return Square(
        name="ROC",
        x_title="false positive rate",
        y_title="recall",
        reference=(place(0, 0), place(1, 1)),
        points=_thin(points),
        dots=tuple(dots),
        caption="ROC curve; dashed: chance." + _ring(threshold),
    )


def _precision_recall(p: Array, positive: NDArray[np.bool_], threshold: float | None) -> Square:
    true, false = _steps(p, positive)
    precision, recall = true / (true + false), true / true[-1]
    before = np.concatenate([[0.0], recall[:-1]])
    points = []
    for low, high, level in zip(before, recall, precision, strict=True):
        # The step whose area the average precision adds; a score without positives adds none.
        if high > low:
            points += [(low, level), (high, level)]
    share = float(positive.mean())
    dots = []
    if threshold is not None and (called := p >= threshold).any():
        x, y = float(called[positive].mean()), float(positive[called].mean())
        title = f"threshold {threshold:.4g}: recall {number(x)}, precision {number(y)}"
        dots = [_dot(x, y, 5.0, title)]
    return Square(
        name="precision and recall",
        x_title="recall",
        y_title="precision",
        reference=(place(0, share), place(1, share)),
        points=_thin(points),
        dots=tuple(dots),
        caption=f"Precision and recall; dashed: share of positives, {number(share)}." + _ring(threshold),
    )


def _reliability(found: Probability) -> Square:
    dots = []
    for part in found.bins:
        if part.mean_probability is None or part.positive_share is None:
            continue
        closing = "]" if part.high == 1 else ")"
        title = (
            f"P in [{part.low:.2f}, {part.high:.2f}{closing}: {part.n_records} records, "
            f"mean P {number(part.mean_probability)}, share of positives {number(part.positive_share)}"
        )
        radius = max(_LEAST_RADIUS, _FULL_RADIUS * (part.n_records / found.n_scored) ** 0.5)
        dots.append(_dot(part.mean_probability, part.positive_share, round(radius, 1), title))
    return Square(
        name="reliability",
        x_title=f"mean P({found.positive})",
        y_title=f"share of {found.positive}",
        reference=(place(0, 0), place(1, 1)),
        points=tuple((dot.x, dot.y) for dot in dots),
        dots=tuple(dots),
        caption=f"Reliability in {len(found.bins)} bins of equal width; the larger a dot, the more records; "
        "dashed: perfect calibration.",
    )


def _dot(x: float, y: float, radius: float, title: str) -> Dot:
    at_x, at_y = place(x, y)
    return Dot(x=at_x, y=at_y, radius=radius, title=title)


def _ring(threshold: float | None) -> str:
    return "" if threshold is None else f" Ring: the threshold {threshold:.4g}."


def _thin(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points in user units, without those that repeat one or lie on a horizontal or vertical way on."""
    kept: list[Point] = []
    for point in (place(x, y) for x, y in points):
        if kept and point == kept[-1]:
            continue
        if len(kept) > 1 and _on_the_way(kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return tuple(kept)


def _on_the_way(first: Point, middle: Point, last: Point) -> bool:
    for same, other in ((0, 1), (1, 0)):
        if first[same] == middle[same] == last[same]:
            return (middle[other] - first[other]) * (last[other] - middle[other]) > 0
    return False
