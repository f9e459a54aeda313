"""The controls of SGMRI-VQA that never see an image: `majority` and `prompt_only`.

Both learn from the train split. `majority` gives the most frequent answer of the task and answer type; `prompt_only` that
of the training questions of the same task with the same words, else the majority's. In tasks with boxes the answer has one
box, the coordinate-wise median of the training boxes as shares of the image, on the frame at the most frequent share
of the volume. Of equally frequent values the smallest, or the first of the alphabet, is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import TypeVar

from benchmarks.errors import DataError
from benchmarks.schema import Answer, Ask, Box, Record
from benchmarks.sgmri import BOX_TASKS, level_and_task
from recipes.controls import PRIORS_OF

CONTROLS = PRIORS_OF["sgmri"]
# A frame's place in its volume, in parts of the volume: volumes differ in length.
PARTS = 10
Shares = tuple[float, float, float, float]
T = TypeVar("T", int, str)


@dataclass(frozen=True)
class _Group:
    """Training answers that one answer is to stand for; what they have in common is worked out once, for many questions.

    Attributes:
        texts: Answer text -> how often.
        boxes: Target boxes as shares of width and height.
        places: Part of the volume -> number of boxes there.
        labels: Label of a box -> how often.
    """

    texts: Counter[str] = field(default_factory=Counter)
    boxes: list[Shares] = field(default_factory=list)
    places: Counter[int] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record) -> None:
        """Adds a training record."""
        self.texts[record.target.text or ""] += 1
        for box in record.target.boxes:
            image = record.images[box.image]
            x1, y1, x2, y2 = box.xyxy
            self.boxes.append((x1 / image.width, y1 / image.height, x2 / image.width, y2 / image.height))
            self.places[box.image * PARTS // len(record.images)] += 1
            self.labels[box.label or ""] += 1

    @cached_property
    def text(self) -> str:
        """The most frequent text."""
        return _most_frequent(self.texts)

    @cached_property
    def box(self) -> Shares:
        """The coordinate-wise median of the boxes."""
        left, top, right, bottom = (median(values) for values in zip(*self.boxes, strict=True))
        return left, top, right, bottom


@dataclass(frozen=True, slots=True)
class SgmriPriors:
    """What the controls know of train.

    Attributes:
        by_type: (task, answer type) -> its records.
        by_task: Task -> its records.
        by_question: (task, question in small letters) -> its records.
    """

    by_type: Mapping[tuple[str, str | None], _Group]
    by_task: Mapping[str, _Group]
    by_question: Mapping[tuple[str, str], _Group]

    def answer(self, ask: Ask, control: str) -> Answer:
        """A control's answer to a question.

        Args:
            ask: The question.
            control: One of `CONTROLS`.

        Raises:
            DataError: Unknown control, or train has no record of the task, or none with a box where one is asked for.
        """
        if control not in CONTROLS:
            raise DataError(
                f"control {control!r} is not known to this benchmark",
                fix=f"the controls without images are {', '.join(CONTROLS)}",
            )
        if ask.task not in self.by_task:
            raise DataError(
                f"train has no record of the task {ask.task}", fix="the controls need train records of every task"
            )
        groups = [self.by_type.get((ask.task, ask.answer_type)), self.by_task[ask.task]]
        if control == "prompt_only":
            groups.insert(0, self.by_question.get((ask.task, _fold(ask.question))))
        known = [group for group in groups if group is not None]
        boxes = (_box(known, ask),) if level_and_task(ask)[1] in BOX_TASKS else ()
        return Answer(text=known[0].text, boxes=boxes)


def fit(records: Iterable[Record]) -> SgmriPriors:
    """Learns from the records of the train split."""
    by_type: dict[tuple[str, str | None], _Group] = {}
    by_task: dict[str, _Group] = {}
    by_question: dict[tuple[str, str], _Group] = {}
    for record in records:
        by_type.setdefault((record.task, record.answer_type), _Group()).add(record)
        by_task.setdefault(record.task, _Group()).add(record)
        by_question.setdefault((record.task, _fold(record.question)), _Group()).add(record)
    return SgmriPriors(by_type=by_type, by_task=by_task, by_question=by_question)


def _box(groups: Iterable[_Group], ask: Ask) -> Box:
    """The box of the first group that has any, in native pixels of its frame; whole numbers, at least one pixel a side."""
    group = next((group for group in groups if group.boxes), None)
    if group is None:
        raise DataError(f"train has no box of the task {ask.task}", fix="the controls need train records with boxes")
    # The middle of the part: with fewer frames than parts, some parts have no frame of their own.
    place = (2 * _most_frequent(group.places) + 1) * len(ask.images) // (2 * PARTS)
    image = ask.images[place]
    left, top, right, bottom = group.box
    x1, x2 = _inside(left, right, image.width)
    y1, y2 = _inside(top, bottom, image.height)
    label = _most_frequent(group.labels) or None
    return Box(image=place, xyxy=(x1, y1, x2, y2), label=label)


def _inside(low: float, high: float, size: int) -> tuple[float, float]:
    """Both ends in whole pixels, within the image."""
    first = min(max(round(low * size), 0), size - 1)
    return float(first), float(min(max(round(high * size), first + 1), size))


def _fold(question: str) -> str:
    return " ".join(question.casefold().split())


def _most_frequent(counts: Counter[T]) -> T:
    return min(counts, key=lambda value: (-counts[value], value))
