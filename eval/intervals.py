"""Cluster bootstrap over groups (patients or volumes), on sufficient statistics.

A metric here is a formula of sums over records (hits, counts, summed IoUs), so a resample needs no
record again: with the per-group sums as a matrix (groups, columns) and a resample as the number of
times each group was drawn, the sums of all resamples are one matrix product. Systems scored on the
same groups with the same seed see the same resamples, which makes their differences paired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Totals = Mapping[str, Array]
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A bootstrap interval; the bounds are NaN if fewer than two resamples define the metric."""

    low: float
    high: float
    undefined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSums:
    """Sufficient statistics: one line per group of the dataset, one named column per sum.

    Attributes:
        names: Column names.
        sums: Shape (groups, columns); groups without a record hold zeros.
    """

    names: tuple[str, ...]
    sums: Array

    def totals(self, draws: Array | None = None) -> dict[str, Array]:
        """Column sums.

        Args:
            draws: How often each group was drawn, shape (resamples, groups); `None` for every group once.

        Returns:
            Column name -> shape (resamples,), or (1,) without `draws`.
        """
        summed = self.sums.sum(axis=0, keepdims=True) if draws is None else draws @ self.sums
        return {name: summed[:, column] for column, name in enumerate(self.names)}


def draw_groups(groups: int, resamples: int, seed: int) -> Array:
    """How often each group is drawn in each resample, shape (resamples, groups); every line sums to `groups`."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, groups, size=(resamples, groups))
    flat = (drawn + np.arange(resamples)[:, None] * groups).ravel()
    return np.bincount(flat, minlength=resamples * groups).reshape(resamples, groups).astype(np.float64)


def sum_by_group(columns: Mapping[str, Array], codes: NDArray[np.intp], groups: int) -> GroupSums:
    """Adds up per-record columns by group.

    Args:
        columns: Column name -> value per record, shape (records,).
        codes: Group number per record, shape (records,).
        groups: Number of groups of the dataset.
    """
    sums = np.zeros((groups, len(columns)))
    for number, values in enumerate(columns.values()):
        sums[:, number] = np.bincount(codes, weights=values, minlength=groups)
    return GroupSums(names=tuple(columns), sums=sums)


def ratio(numerator: Array, denominator: Array) -> Array:
    """Elementwise quotient, NaN where the denominator is 0."""
    result = np.full(np.shape(numerator), np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def percentile_interval(replicates: Array) -> Interval:
    """Percentile interval of the replicates that are defined (not NaN)."""
    defined = replicates[~np.isnan(replicates)]
    undefined = len(replicates) - len(defined)
    if len(defined) < 2:
        return Interval(low=float("nan"), high=float("nan"), undefined=undefined)
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(low=float(low), high=float(high), undefined=undefined)


def two_sided_p(differences: Array) -> float:
    """Two-sided bootstrap p that the difference is 0; NaN without a defined replicate.

    Twice the smaller share of replicates at or beyond 0, one added to count and number so that it is never 0.
    """
    defined = differences[~np.isnan(differences)]
    if not len(defined):
        return float("nan")
    tail = min(int((defined <= 0).sum()), int((defined >= 0).sum()))
    return min(1.0, 2 * (tail + 1) / (len(defined) + 1))


def or_none(value: float) -> float | None:
    """A number as results hold it: NaN becomes `None`, "not defined"."""
    return None if math.isnan(value) else float(value)


def bound(value: float, groups: int) -> float | None:
    """A bound or p, which one group alone cannot give: every resample would be that group."""
    return or_none(value) if groups > 1 else None
