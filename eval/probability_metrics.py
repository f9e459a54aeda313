"""How good probabilities of a class are: ranking, average precision, Brier score, calibration.

* `auroc`: the share of (positive, negative) pairs of records that are ranked right; a tie is half right
  (Mann-Whitney).
* `average_precision`: precision at each distinct score, weighted by the recall it adds; no
  interpolation, records of one score enter together.
* `brier`: mean squared distance of P(positive) to 1 for positive records and to 0 for the others
  (Brier 1950, for one class).
* `ece`: mean distance between P(positive) and share of positives over 15 bins of equal width, weighted
  by records (Guo et al. 2017, there on the confidence). Chance alone makes it larger than 0, the more
  the fewer records a bin has, and resampling adds to that.

The first two are not defined without both classes. In a resample a record counts as often as its
group was drawn; ranks do not change, so one sort serves all resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.intervals import Array, bound, or_none, percentile_interval, ratio, sum_by_group
from eval.measure import Sample, paired
from eval.schema import Comparison, System
from eval.schema_probability import ReliabilityBin
from eval.schema_scores import Metric, RowResult

METRICS = ("auroc", "average_precision", "brier", "ece")
BINS = 15
# Resamples are taken in blocks that keep a matrix (resamples, records) at this many numbers (32 MB).
_BLOCK = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Records with a probability.

    Attributes:
        p: P(positive), shape (records,).
        positive: Whether the target is the positive class, shape (records,).
        codes: Group number, shape (records,).
        groups: Number of groups of the dataset.
    """

    p: Array
    positive: NDArray[np.bool_]
    codes: NDArray[np.intp]
    groups: int

    def values(self, draws: Array | None = None) -> dict[str, Array]:
        """The four metrics.

        Args:
            draws: How often each group was drawn, shape (resamples, groups); `None` for every group once.

        Returns:
            Name -> shape (resamples,), or (1,) without `draws`; NaN where not defined.
        """
        weights = np.ones((1, self.groups)) if draws is None else draws
        auroc, precision = _ranking(self, weights)
        brier, ece = _calibration(self, weights)
        return dict(zip(METRICS, (auroc, precision, brier, ece), strict=True))


def select(rows: Sequence[RowResult], places: NDArray[np.intp], positive: str, sample: Sample) -> Scored:
    """The given rows, each of which has a probability."""
    return Scored(
        p=np.array([rows[place].p_positive for place in places], dtype=np.float64),
        positive=np.array([rows[place].label == positive for place in places], dtype=np.bool_),
        codes=sample.codes[places],
        groups=sample.groups,
    )


def _places(rows: Sequence[RowResult], task: str) -> NDArray[np.intp]:
    return np.array([i for i, row in enumerate(rows) if row.task == task and row.p_positive is not None], dtype=np.intp)


def measure_probabilities(
    rows: Sequence[RowResult], pairs: Mapping[str, tuple[str, str]], sample: Sample
) -> list[Metric]:
    """The four metrics of every task that has probabilities, with intervals."""
    result: list[Metric] = []
    for task, (positive, negative) in pairs.items():
        places = _places(rows, task)
        if not len(places):
            continue
        scored = select(rows, places, positive, sample)
        n_groups = len(np.unique(scored.codes))
        n_positive = int(scored.positive.sum())
        counts = f"targets: {n_positive} {positive}, {len(places) - n_positive} {negative}"
        point, replicates = scored.values(), scored.values(sample.draws)
        for name in METRICS:
            value = or_none(point[name][0])
            interval = percentile_interval(replicates[name])
            result.append(
                Metric(
                    metric=name,
                    task=task,
                    value=value,
                    low=bound(interval.low, n_groups),
                    high=bound(interval.high, n_groups),
                    n_records=len(places),
                    n_groups=n_groups,
                    undefined_resamples=interval.undefined,
                    note="" if value is not None else counts,
                )
            )
    return result


def compare_probabilities(
    first: System, second: System, pairs: Mapping[str, tuple[str, str]], sample: Sample
) -> Iterator[Comparison]:
    """Paired differences over the records that have a probability in both systems."""
    for task, (positive, _) in pairs.items():
        places = np.intersect1d(_places(first.rows, task), _places(second.rows, task))
        if not len(places):
            continue
        both = [select(system.rows, places, positive, sample) for system in (first, second)]
        point = [part.values() for part in both]
        replicates = [part.values(sample.draws) for part in both]
        for name in METRICS:
            yield paired(
                Comparison(
                    first=first.name,
                    second=second.name,
                    metric=name,
                    task=task,
                    difference=or_none(point[0][name][0] - point[1][name][0]),
                    low=None,
                    high=None,
                    p=None,
                    n_records=len(places),
                    n_groups=len(np.unique(both[0].codes)),
                    undefined_resamples=0,
                ),
                replicates[0][name] - replicates[1][name],
            )


def reliability(rows: Sequence[RowResult], positive: str) -> list[ReliabilityBin]:
    """The bins of the calibration error for rows that all have a probability."""
    p = np.array([row.p_positive for row in rows], dtype=np.float64)
    target = np.array([row.label == positive for row in rows], dtype=np.float64)
    columns = {"count": np.ones(len(p)), "p": p, "target": target}
    count, p_sum, target_sum = sum_by_group(columns, _bins(p), BINS).sums.T
    means, shares = ratio(p_sum, count), ratio(target_sum, count)
    return [
        ReliabilityBin(
            low=place / BINS,
            high=(place + 1) / BINS,
            n_records=int(count[place]),
            mean_probability=or_none(means[place]),
            positive_share=or_none(shares[place]),
        )
        for place in range(BINS)
    ]


def _bins(p: Array) -> NDArray[np.intp]:
    return np.minimum((p * BINS).astype(np.intp), BINS - 1)


def _ranking(scored: Scored, draws: Array) -> tuple[Array, Array]:
    """AUROC and average precision of each resample, shape (resamples,) each."""
    order = np.argsort(scored.p, kind="stable")
    p, is_positive, codes = scored.p[order], scored.positive[order], scored.codes[order]
    high, low = p[is_positive], p[~is_positive]
    # For each positive record: negatives strictly below, negatives not above, positives strictly below.
    below, not_above = np.searchsorted(low, high, "left"), np.searchsorted(low, high, "right")
    own = np.searchsorted(high, high, "left")
    auroc, precision = np.full(len(draws), np.nan), np.full(len(draws), np.nan)
    step = max(1, _BLOCK // max(1, len(p)))
    for start in range(0, len(draws), step):
        block = draws[start : start + step]
        weights = block[:, codes[is_positive]]
        positives, negatives = _cumulative(weights), _cumulative(block[:, codes[~is_positive]])
        lower = negatives[:, below]
        wins = lower + (negatives[:, not_above] - lower) / 2
        n_positive, n_negative = positives[:, -1], negatives[:, -1]
        auroc[start : start + step] = ratio((weights * wins).sum(axis=1), n_positive * n_negative)
        right = n_positive[:, None] - positives[:, own]
        called = right + n_negative[:, None] - lower
        at_score = np.divide(right, called, out=np.zeros_like(right), where=called > 0)
        both = np.where(n_negative > 0, n_positive, 0)
        precision[start : start + step] = ratio((weights * at_score).sum(axis=1), both)
    return auroc, precision


def _cumulative(weights: Array) -> Array:
    """Sums of the first 0, 1, ... columns, shape (resamples, columns + 1)."""
    result = np.zeros((len(weights), weights.shape[1] + 1))
    np.cumsum(weights, axis=1, out=result[:, 1:])
    return result


def _calibration(scored: Scored, draws: Array) -> tuple[Array, Array]:
    """Brier score and calibration error of each resample, shape (resamples,) each."""
    gap = scored.p - scored.positive
    bins = _bins(scored.p)
    columns = {"rows": np.ones(len(gap)), "squared": gap**2}
    columns |= {f"gap:{place}": np.where(bins == place, gap, 0.0) for place in range(BINS)}
    totals = sum_by_group(columns, scored.codes, scored.groups).totals(draws)
    # A bin's records times the distance of its two means is the absolute sum of its gaps.
    distance = np.abs(np.stack([totals[f"gap:{place}"] for place in range(BINS)])).sum(axis=0)
    return ratio(totals["squared"], totals["rows"]), ratio(distance, totals["rows"])
