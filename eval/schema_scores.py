"""What one system's result is made of: metrics, counts, and what became of each row. Part of `eval.schema`."""

from __future__ import annotations

import msgspec

INVALID = "invalid"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the corrected profile with its interval.

    Attributes:
        metric: Name; a class metric of one class is `f1:yes`.
        task: Task name.
        value: The value over all counted records; `None` if not defined.
        low: Lower bound of the interval; `None` if fewer than two groups or resamples define it.
        high: Upper bound.
        n_records: Records it rests on.
        n_groups: Groups it rests on.
        undefined_resamples: Resamples in which the metric was not defined; they are left out of the interval.
        tolerant: The same metric after extraction-tolerant reading (fences and surrounding words removed).
        note: Why it is not defined, with counts; else empty.
    """

    metric: str
    task: str
    value: float | None
    low: float | None
    high: float | None
    n_records: int
    n_groups: int
    undefined_resamples: int
    tolerant: float | None = None
    note: str = ""


class StratumMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over the records whose stratum `key` has the value `stratum`."""

    key: str
    stratum: str
    metric: Metric


class InvalidCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many outputs of a task were invalid for a reason; they score zero."""

    task: str
    reason: str
    count: int


class RowError(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose prediction failed on our side; it is in no score."""

    id: str
    error: str


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """Confusion matrix of a task.

    Attributes:
        task: Task name.
        targets: Target labels, one per line of `counts`.
        predicted: Predicted labels, one per column; the last is `invalid`.
        counts: Records, `counts[target][predicted]`.
    """

    task: str
    targets: list[str]
    predicted: list[str]
    counts: list[list[int]]


class IouHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """IoU of every target box of a task in 20 equal bins of [0, 1]; the last bin holds 1 as well.

    Attributes:
        task: Task name.
        edges: The 21 bin edges.
        counts: Boxes per bin; boxes of invalid outputs have IoU 0 and are in the first bin.
        invalid: How many of the first bin's boxes belong to invalid outputs.
    """

    task: str
    edges: list[float]
    counts: list[int]
    invalid: int


class RowResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one record was scored (corrected profile).

    Attributes:
        id: The record's id.
        task: Task name.
        group: Patient or volume.
        valid: Whether the output counts as an answer.
        reason: Why it does not (short stable name); `None` if valid.
        tolerant_valid: Whether it does after extraction-tolerant reading.
        error: The failure on our side; then nothing else of the row counts.
        label: Target class; `None` if the record has none.
        predicted: Predicted class; `None` if invalid or not asked.
        class_correct: Whether the class (or the text of an open question) is right; `None` if not asked.
        ious: IoU per target box in the record's order.
        extra_boxes: Predicted boxes beyond the number of targets of their image; each counts as an IoU of 0.
        region_correct: Whether the region name is right, blanks and underscores alike; `None` if not asked.
        strict: Every box at IoU >= 0.5 and, if asked, the class right; the region name is not looked at.
        strict_with_region: As `strict`, and the region name right.
        p_positive: Probability of the positive class; `None` without label scores or without a target class.
        values: Metric name -> the row's value in [0, 1], of metrics that are means over rows; absent where not asked.
        counts: What to count beside the scores: name -> number (boxes outside the image, open-ended keys).
    """

    id: str
    task: str
    group: str
    valid: bool
    reason: str | None = None
    tolerant_valid: bool = False
    error: str | None = None
    label: str | None = None
    predicted: str | None = None
    class_correct: bool | None = None
    ious: tuple[float, ...] = ()
    extra_boxes: int = 0
    region_correct: bool | None = None
    strict: bool | None = None
    strict_with_region: bool | None = None
    p_positive: float | None = None
    values: dict[str, float] = {}
    counts: dict[str, int] = {}
