"""The published V-Score: boxes matched one to one, the mean IoU over the truth.

Source: sgmri.md section 8; checked against the authors' scorer (github.com/lamawmouk/SGMRIQA, commit a77adeb).
Truth comes as official rows `{"x", "y", "width", "height", "frame" or "slice_num"}`, in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from eval.sgmri.answers import f1
from eval.sgmri.parse import XYWH, FramedBox, Size, read_boxes

# Kept fault: one size per organ; most brain images are larger.
IMAGE_SIZES: Final[Mapping[str, Size]] = MappingProxyType({"brain": (256, 256), "knee": (320, 320)})
THRESHOLDS: Final = (0.1, 0.25, 0.5)

TruthRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VScore:
    """V-Score of one answer.

    Attributes:
        value: Sum of matched IoUs over the number of truth boxes.
        truths: Truth boxes.
        predicted: Predicted boxes.
        ious: IoU of each matched pair, in the order of the truth; zeros included.
        frame_aware: Boxes of different frames could not match; `None` without a predicted box.
        detection: Precision, recall and F1 (`P@0.1`, `R@0.1`, `F1@0.1`, ...); `None` without a predicted box.
    """

    value: float
    truths: int
    predicted: int
    ious: tuple[float, ...] = ()
    frame_aware: bool | None = None
    detection: Mapping[str, float] | None = None

    @property
    def mean_f1(self) -> float | None:
        """Mean F1 over the thresholds, published as `map`; `None` without a predicted box."""
        if self.detection is None:
            return None
        return float(np.mean([self.detection[f"F1@{threshold}"] for threshold in THRESHOLDS]))


def rows_in_answer(answer: str, size: Size | None) -> list[TruthRow]:
    """Truth rows read from the official answer, for questions whose list of boxes is empty.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: As `read_boxes`.
    """
    # Kept fault: where a word hides the frame ("on frame 8 at"), the truth has none, and any frame matches.
    return [
        dict(zip(("x", "y", "width", "height"), box, strict=True)) | ({} if frame is None else {"frame": frame})
        for frame, box in read_boxes(answer, size).boxes
    ]


def truth_boxes(rows: Sequence[TruthRow]) -> list[XYWH]:
    """The boxes of the rows; rows that lack a key or hold a word are left out.

    Raises:
        TypeError: A null as coordinate.
    """
    boxes: list[XYWH] = []
    for row in rows:
        try:
            boxes.append((float(row["x"]), float(row["y"]), float(row["width"]), float(row["height"])))
        except (KeyError, ValueError):
            continue
    return boxes


def truth_frames(rows: Sequence[TruthRow]) -> list[int | None]:
    """The frame of every row: `frame`, or `slice_num` if that is missing or 0.

    Kept fault: rows whose box is left out keep their place here, so that later boxes get their frames.

    Raises:
        ValueError: A word as frame.
    """
    frames = [row.get("frame") or row.get("slice_num") for row in rows]
    return [None if frame is None else int(frame) for frame in frames]


def score_boxes(rows: Sequence[TruthRow], predicted: Sequence[FramedBox]) -> VScore | None:
    """Scores predicted boxes; `None` if no row of the truth has a box.

    Args:
        rows: Truth rows.
        predicted: Boxes with the frames that count; a box without one could match any frame.

    Raises:
        TypeError: A null as coordinate of the truth.
        ValueError: A word as frame of the truth, or a box whose overlap is not a number (tags are read with `nan` and `inf`).
    """
    truth, frames = truth_boxes(rows), truth_frames(rows)
    if not truth:
        return None
    if not predicted:
        return VScore(value=0.0, truths=len(truth), predicted=0)
    # Kept fault: one framed row makes the comparison aware of frames; a row without one still matches them all.
    overlaps = [
        [0.0 if _apart(frame, guess.frame) else box_iou(box, guess.box) for guess in predicted]
        for box, frame in zip(truth, frames, strict=False)
    ]
    from scipy.optimize import linear_sum_assignment

    ious = tuple(
        overlaps[row][column] for row, column in zip(*linear_sum_assignment(overlaps, maximize=True), strict=True)
    )
    return VScore(
        # Kept fault: further predictions cost nothing.
        value=float(np.mean([*ious, *[0.0] * (len(truth) - len(ious))])),
        truths=len(truth),
        predicted=len(predicted),
        ious=ious,
        frame_aware=any(frame is not None for frame in frames),
        detection=_detection(ious, truths=len(truth), predicted=len(predicted)),
    )


def _apart(truth: int | None, guess: int | None) -> bool:
    return truth is not None and guess is not None and truth != guess


def _detection(ious: Sequence[float], *, truths: int, predicted: int) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for threshold in THRESHOLDS:
        hits = sum(iou >= threshold for iou in ious)
        numbers |= {
            f"P@{threshold}": hits / predicted,
            f"R@{threshold}": hits / truths,
            f"F1@{threshold}": f1(hits, predicted=predicted, truths=truths),
        }
    return numbers


def box_iou(first: XYWH, second: XYWH) -> float:
    """Intersection over union of two `(x, y, width, height)` boxes; 0 unless the union is positive.

    Kept fault: boxes are not clipped to the image, and negative sides are multiplied as they are.
    """
    left, top = max(first[0], second[0]), max(first[1], second[1])
    right = min(first[0] + first[2], second[0] + second[2])
    bottom = min(first[1] + first[3], second[1] + second[3])
    shared = max(0.0, right - left) * max(0.0, bottom - top)
    union = _area(first) + _area(second) - shared
    return 0.0 if union <= 0 else shared / union


def _area(box: XYWH) -> float:
    # As corners: in floats this is not the product of the sides, and identical boxes must give 1.
    return ((box[0] + box[2]) - box[0]) * ((box[1] + box[3]) - box[1])
