"""The controls of ScintiGround that never see an image: `majority` and `prompt_only`.

Both learn from the official rows of the train split and write official texts, so that they are
scored like a model. `corrected` mends two faults of the published ones: regions are found in prompts
whatever the spelling, and only the asked views get a box.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.errors import DataError
from benchmarks.scintiground_text import (
    BOX_TASKS,
    CLASS_WORDS,
    TEXT_VIEWS,
    OfficialAnswer,
    ViewBox,
    multitask_json,
    region_text,
)

CONTROLS = ("majority", "prompt_only")
Row = Mapping[str, Any]
_WORD = re.compile(r"[a-z0-9_]+")
# Prompts say these for regions whose name they do not contain.
_SPOKEN = {"vertebra": "vertebral column"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPrior:
    """Classes and prompt words of one task in train.

    Attributes:
        rows: Class -> number of rows.
        words: Class -> word -> number of occurrences in the prompts of the class.
        vocabulary: Number of different words over all classes.
    """

    rows: Counter[str]
    words: Mapping[str, Counter[str]]
    vocabulary: int

    def majority(self) -> str:
        """The most frequent class; of equals the first in the alphabet."""
        return _most_frequent(self.rows)

    def most_likely(self, prompt: str) -> str:
        """Naive Bayes over the prompt's words with one added to every count; ties alphabetical."""
        words = _words(prompt)
        total = sum(self.rows.values())

        def score(label: str) -> float:
            counts = self.words[label]
            below = counts.total() + self.vocabulary
            return math.log(self.rows[label] / total) + sum(math.log((counts[word] + 1) / below) for word in words)

        return min(sorted(self.rows), key=lambda label: -score(label))


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """What the controls know of train.

    Attributes:
        classes: Task -> its classes.
        regions: Region, with underscores -> number of rows with boxes.
        boxes: (region, view) -> boxes `[x1, y1, x2, y2]`, the view as in rows.
    """

    classes: Mapping[str, ClassPrior]
    regions: Counter[str]
    boxes: Mapping[tuple[str, str], list[list[float]]]

    def region(self) -> str:
        """The most frequent region; of equals the first in the alphabet."""
        if not self.regions:
            raise DataError("train has no row with boxes", fix="the controls need grounding or grounded_vqa rows")
        return _most_frequent(self.regions)

    def named_region(self, prompt: str, *, any_spelling: bool) -> str | None:
        """The longest region that stands in the prompt as a whole word, as published.

        Published, a region of two words is found only where the prompt joins them by `_` or `-`;
        with `any_spelling` a blank does as well, and `vertebral column` names the vertebra.
        """
        found: list[tuple[int, str]] = []
        text = _fold(prompt) if any_spelling else prompt.lower().replace("-", "_")
        for region in self.regions:
            names = (_fold(region), _SPOKEN.get(region, "")) if any_spelling else (region,)
            found.extend((len(name), region) for name in names if name and _holds(text, name))
        return min(found, key=lambda item: (-item[0], item[1]))[1] if found else None

    def median_box(self, region: str, view: str) -> list[int]:
        """Coordinate-wise median of the region's boxes in a view, else of all boxes of the view.

        Rounded with halves to even, at least one pixel wide and high.
        """
        boxes = self.boxes.get((region, view)) or [
            box for (_, other), found in self.boxes.items() if other == view for box in found
        ]
        if not boxes:
            raise DataError(f"train has no box in the view {view}", fix="the controls need boxes of both views")
        x1, y1, x2, y2 = (round(median(values)) for values in zip(*boxes, strict=True))
        return [x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)]


def fit(train_rows: Iterable[Row]) -> Priors:
    """Learns from official rows; boxes and regions from the two tasks with boxes."""
    rows: dict[str, Counter[str]] = {}
    words: dict[str, dict[str, Counter[str]]] = {}
    regions: Counter[str] = Counter()
    boxes: dict[tuple[str, str], list[list[float]]] = {}
    for row in train_rows:
        task = row["task"]
        if task in CLASS_WORDS:
            label = row["answer_label"]
            rows.setdefault(task, Counter())[label] += 1
            words.setdefault(task, {}).setdefault(label, Counter()).update(_words(row["prompt"]))
        if task in BOX_TASKS:
            region = region_text(row["label"])
            regions[region] += 1
            for target in row["targets"]:
                boxes.setdefault((region, target["view"]), []).append(list(target["bbox"]))
    classes = {
        task: ClassPrior(rows=rows[task], words=words[task], vocabulary=len(set().union(*words[task].values())))
        for task in rows
    }
    return Priors(classes=classes, regions=regions, boxes=boxes)


def control_text(priors: Priors, row: Row, *, control: str, corrected: bool = False) -> str:
    """The control's answer to one row, as an official text.

    Args:
        priors: From `fit`.
        row: Official row; its target is not looked at.
        control: One of `CONTROLS`.
        corrected: Find regions in any spelling, and box only the asked views.

    Raises:
        DataError: Unknown control, or train lacks what the task needs.
    """
    if control not in CONTROLS:
        raise DataError(f"unknown control {control!r}", fix=f"the controls without images are {', '.join(CONTROLS)}")
    task = row["task"]
    answer = label = region = None
    boxes: tuple[ViewBox, ...] = ()
    if task in CLASS_WORDS:
        if task not in priors.classes:
            raise DataError(f"train has no row of the task {task}", fix="the controls need train rows of every task")
        prior = priors.classes[task]
        label = prior.majority() if control == "majority" else prior.most_likely(row["prompt"])
        answer = f"No-image prior: {label}."
    if task in BOX_TASKS:
        named = None if control == "majority" else priors.named_region(row["prompt"], any_spelling=corrected)
        region = priors.region() if named is None else named
        views = _asked_views(row) if corrected else tuple(TEXT_VIEWS)
        boxes = tuple((view, priors.median_box(region, view)) for view in views)
    return multitask_json(OfficialAnswer(task=task, answer=answer, label=label, region=region, boxes=boxes))


def _asked_views(row: Row) -> tuple[str, ...]:
    scope = row["view_scope"]
    return (scope,) if scope in TEXT_VIEWS else tuple(TEXT_VIEWS)


def _words(prompt: str) -> list[str]:
    return _WORD.findall(prompt.lower().replace("-", "_"))


def _fold(text: str) -> str:
    return " ".join(re.split(r"[\s_-]+", text.lower()))


def _holds(text: str, name: str) -> bool:
    return re.search(rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])", text) is not None


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda name: (-counts[name], name))
