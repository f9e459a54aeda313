"""Geometry of the report's charts, in user units of an SVG; the templates draw it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.report_history import History
from eval.schema_scores import IouHistogram

Point = tuple[float, float]
WIDTH, HEIGHT = 640, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 18, 44
SCORES = 6  # lines that can still be told apart
_PLOT_WIDTH, _PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, `at` user units along it."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar of a histogram; `invalid_height` of it, from the bottom, belongs to invalid outputs."""

    x: float
    width: float
    top: float
    height: float
    invalid_height: float
    count: int
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A histogram of IoU with its axes; `half` is where IoU .5 lies."""

    bars: tuple[Bar, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    half: float
    boxes: int
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve: the points to join, and a title for each."""

    name: str
    style: str
    points: tuple[Point, ...]
    titles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Losses or scores over training steps; `axis` is what the y axis shows."""

    axis: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def iou_histogram(data: IouHistogram) -> Histogram:
    """Bars of equal width; heights are linear in the number of boxes."""
    y_values = nice_ticks(0, max([1, *data.counts]), whole=True)
    top_value = y_values[-1]
    bars = []
    for place, count in enumerate(data.counts):
        low, high = data.edges[place], data.edges[place + 1]
        last = place == len(data.counts) - 1
        invalid = data.invalid if place == 0 else 0
        height = count / top_value * _PLOT_HEIGHT
        of_invalid = f", {invalid} of them of invalid outputs" if invalid else ""
        bars.append(
            Bar(
                x=_round(LEFT + low * _PLOT_WIDTH + 1),
                width=_round((high - low) * _PLOT_WIDTH - 2),
                top=_round(TOP + _PLOT_HEIGHT - height),
                height=_round(height),
                invalid_height=_round(invalid / top_value * _PLOT_HEIGHT),
                count=count,
                title=f"IoU [{low:.2f}, {high:.2f}{']' if last else ')'}: {count} boxes{of_invalid}",
            )
        )
    return Histogram(
        bars=tuple(bars),
        x_ticks=tuple(Tick(_round(LEFT + i / 10 * _PLOT_WIDTH), f"{i / 10:.1f}") for i in range(11)),
        y_ticks=tuple(Tick(_y(value, 0, top_value), _write(value)) for value in y_values),
        half=_round(LEFT + 0.5 * _PLOT_WIDTH),
        boxes=sum(data.counts),
        width=data.edges[1] - data.edges[0],
    )


def training_curve(history: History) -> Curve | None:
    """The losses of a run; `None` if it logged no finite loss."""
    points = [*history.training, *history.validation]
    if not points:
        return None
    named = {
        "training": ("training loss", history.training),
        "validation": ("validation loss", history.validation),
    }
    heights = nice_ticks(min(0.0, *(loss for _, loss in points)), max(loss for _, loss in points))
    return _curve("loss", named, heights)


def score_curve(history: History) -> Curve | None:
    """What validation answers scored: the number that chooses the checkpoint, and one or two metrics of each task.

    `None` if the run generated no validation answers.
    """
    if not history.scores:
        return None
    tasks = dict.fromkeys(name.partition("/")[0] for name in history.scores if "/" in name)
    shown = [
        f"{task}/{next(metric for metric in metrics if f'{task}/{metric}' in history.scores)}"
        for task in tasks
        for metrics in (("balanced_accuracy", "accuracy", "exact_match"), ("iou_at_0.5",))
        if any(f"{task}/{metric}" in history.scores for metric in metrics)
    ]
    names = [name for name in ("score", *shown) if name in history.scores]
    named = {f"score{number}": (name, history.scores[name]) for number, name in enumerate(names[:SCORES])}
    return _curve("score", named, [number / 5 for number in range(6)])


def _curve(axis: str, named: Mapping[str, tuple[str, Sequence[tuple[int, float]]]], y_values: list[float]) -> Curve:
    """Lines by style, each with its name and (step, value) pairs."""
    x_values = nice_ticks(0, max(step for _, found in named.values() for step, _ in found), whole=True)
    low, high, last = y_values[0], y_values[-1], x_values[-1]
    lines = tuple(
        Line(
            name=name,
            style=style,
            points=tuple((_round(LEFT + step / last * _PLOT_WIDTH), _y(value, low, high)) for step, value in found),
            titles=tuple(f"step {step}: {name} {value:.4g}" for step, value in found),
        )
        for style, (name, found) in named.items()
        if found
    )
    return Curve(
        axis=axis,
        lines=lines,
        x_ticks=tuple(Tick(_round(LEFT + value / last * _PLOT_WIDTH), _write(value)) for value in x_values),
        y_ticks=tuple(Tick(_y(value, low, high), _write(value)) for value in y_values),
    )


def nice_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """About five round values; the first is at most `low`, the last at least `high`."""
    span = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power * 4 >= span * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _y(value: float, low: float, high: float) -> float:
    return _round(TOP + (high - value) / (high - low) * _PLOT_HEIGHT)


def _round(value: float) -> float:
    return round(value, 2)


def _write(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.4g}"
