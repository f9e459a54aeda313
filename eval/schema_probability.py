"""The parts of a result about closed answers as probabilities; conventions as in `eval/schema.py`.

P(positive) is the softmax over the two label scores of a row. The curves themselves are not stored:
`label` and `p_positive` of the rows give them.
"""

from __future__ import annotations

import msgspec


class ReliabilityBin(msgspec.Struct, frozen=True, kw_only=True):
    """Records whose P(positive) lies in [low, high), the last bin with `high`; means are `None` in an empty bin.

    Attributes:
        low: Lower edge.
        high: Upper edge.
        n_records: Records in the bin.
        mean_probability: Their mean P(positive).
        positive_share: Share of them whose target is the positive class.
    """

    low: float
    high: float
    n_records: int
    mean_probability: float | None
    positive_share: float | None


class MissingScores(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a task without a probability, for one reason.

    Attributes:
        reason: `error` (failed on our side), `invalid` (no answer and no scores) or `no label scores`
            (a valid answer without scores).
        count: How many.
        first: Id of the first.
    """

    reason: str
    count: int
    first: str


class Probability(msgspec.Struct, frozen=True, kw_only=True):
    """What the probabilities of one task rest on; the metrics are `auroc`, `average_precision`, `brier` and `ece`.

    Attributes:
        task: Task name.
        positive: The class whose probability is scored.
        negative: The other class.
        n_records: Records of the task that have a class, failed ones included.
        n_scored: Those with label scores; all four metrics cover these, whether the answer is valid or not.
        missing: Why the others have none.
        at: How many scores were read right after the `prompt`, after `generated` text, or do not say (`unknown`).
        bins: The reliability diagram; the bins of `ece`.
    """

    task: str
    positive: str
    negative: str
    n_records: int
    n_scored: int
    missing: list[MissingScores]
    at: dict[str, int]
    bins: list[ReliabilityBin]


class ThresholdChange(msgspec.Struct, frozen=True, kw_only=True):
    """A metric with the system's own class decisions and with those of the threshold.

    Attributes:
        metric: Metric name.
        before: Value with the decisions of the texts.
        before_low: Lower bound of its interval.
        before_high: Upper bound.
        after: Value with the decisions of the threshold.
        after_low: Lower bound of its interval.
        after_high: Upper bound.
        difference: `after - before`.
        low: Lower bound of the paired interval of the difference.
        high: Upper bound.
        p: Two-sided bootstrap p of the difference.
        n_records: Records it rests on.
        n_groups: Groups it rests on.
        undefined_resamples: Resamples in which the difference is not defined.
    """

    metric: str
    before: float | None
    before_low: float | None
    before_high: float | None
    after: float | None
    after_low: float | None
    after_high: float | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    n_records: int
    n_groups: int
    undefined_resamples: int


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold on P(positive), chosen on validation predictions and applied to the scored ones.

    A valid answer with scores becomes positive if `P(positive) >= threshold`, else negative. Invalid
    outputs stay invalid, boxes stay, and a valid answer without scores keeps its class.

    Attributes:
        task: Task name.
        positive: The class of the probability.
        negative: The other class.
        folder: The validation predictions.
        dataset_hash: Hash of their dataset.
        validation: Validation records per target class that have scores; the choice rests on these alone.
        validation_missing: Validation records of the task with a class but without scores.
        threshold: The threshold; `None` if there is none to choose.
        validation_balanced_accuracy: Balanced accuracy of the threshold on these validation records.
        to_positive: Scored records whose class the threshold turns into the positive one.
        to_negative: Scored records whose class it turns into the negative one.
        kept: Valid answers without scores, which keep their class.
        minority: The class with fewer scored records (the positive one if they are equal); its F1 is in `changes`.
        changes: Metrics before and after.
        note: Why there is no threshold, or why it could not be applied; else empty.
    """

    task: str
    positive: str
    negative: str
    folder: str
    dataset_hash: str
    validation: dict[str, int]
    validation_missing: int
    threshold: float | None
    validation_balanced_accuracy: float | None
    to_positive: int = 0
    to_negative: int = 0
    kept: int = 0
    minority: str = ""
    changes: list[ThresholdChange] = []
    note: str = ""
