"""The published comparison of two models, on the same resamples of the same patients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eval.scintiground.bootstrap import Replicates, bounds


def compare(first: Replicates, second: Replicates) -> dict[str, dict[str, Any]]:
    """Metric -> difference, first minus second; resamples with a `None` on either side are dropped.

    Both must come from `replicates` with the same patients, resamples and seed.
    """
    return {name: _compare_metric(values, second[name]) for name, values in first.items()}


def _compare_metric(first: Sequence[float | None], second: Sequence[float | None]) -> dict[str, Any]:
    differences = [a - b for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    n = len(differences)
    interval = bounds(differences)
    if interval is None:
        return _block(0, None, None, None, None, None)
    mean = sum(differences) / n
    below, above = sum(value <= 0 for value in differences), sum(value >= 0 for value in differences)
    p_bootstrap = min(1.0, 2 * (min(below, above) + 1) / (n + 1))
    spread = _spread(differences, mean)
    p_z = p_t = None
    if spread:
        p_z = _two_sided(mean / spread)
        # The published t test on replicates reads its value off the normal curve. It shrinks with
        # the number of resamples and says nothing about the data.
        p_t = _two_sided(mean / (spread / math.sqrt(n)))
    return _block(n, mean, [round(bound, 6) for bound in interval], p_bootstrap, p_z, p_t)


def _block(
    pairs: int,
    mean: float | None,
    interval: list[float] | None,
    p_bootstrap: float | None,
    p_z: float | None,
    p_t: float | None,
) -> dict[str, Any]:
    return {
        "valid_pairs": pairs,
        "mean_difference": _rounded(mean),
        "difference_ci_95": interval,
        "p_bootstrap": _rounded(p_bootstrap),
        "p_z_difference_over_sd": _rounded(p_z),
        "p_paired_t_on_replicates": _rounded(p_t),
    }


def _spread(differences: Sequence[float], mean: float) -> float | None:
    """Sample standard deviation, `None` for a single value."""
    if len(differences) < 2:
        return None
    return math.sqrt(sum((value - mean) ** 2 for value in differences) / (len(differences) - 1))


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
