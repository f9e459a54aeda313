"""Choosing a threshold on P(positive) by balanced accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.intervals import Array

HALF = 0.5


@dataclass(frozen=True, slots=True)
class Choice:
    """A threshold (positive if P(positive) >= `threshold`) and the balanced accuracy it has where it was chosen."""

    threshold: float
    balanced_accuracy: float


def choose_threshold(p: Array, positive: NDArray[np.bool_]) -> Choice | None:
    """The threshold with the highest balanced accuracy; `None` unless both classes occur.

    All thresholds between two neighbouring scores decide alike. Such a range stands for 0.5 if it holds
    0.5, else for its middle; of several best ranges the one nearest to 0.5 is taken, of two as near
    the lower.

    Args:
        p: P(positive), shape (records,).
        positive: Whether the target is the positive class, shape (records,).
    """
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if not n_positive or not n_negative:
        return None
    scores, place = np.unique(p, return_inverse=True)
    # Cut k calls positive what scores at least scores[k]; the last cut calls nothing positive.
    missed = _before(np.bincount(place[positive], minlength=len(scores)))
    passed = _before(np.bincount(place[~positive], minlength=len(scores)))
    # Whole numbers, so that ties are exact.
    merit = (n_positive - missed) * n_negative + passed * n_positive
    cuts = range(len(scores) + (scores[-1] < 1))
    best = max(merit[cut] for cut in cuts)
    candidates = [_within(scores, cut) for cut in cuts if merit[cut] == best]
    threshold = min(candidates, key=lambda value: (abs(value - HALF), value))
    return Choice(threshold, float(best) / (2 * n_positive * n_negative))


def _before(counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Sums of the first 0, 1, ... counts."""
    return np.concatenate([np.zeros(1, dtype=np.intp), np.cumsum(counts)])


def _within(scores: Array, cut: int) -> float:
    """The threshold that stands for the range (scores[cut - 1], scores[cut]], which [0, 1] bounds."""
    low = float(scores[cut - 1]) if cut else 0.0
    high = float(scores[cut]) if cut < len(scores) else 1.0
    if (low < HALF or not cut) and high >= HALF:
        return HALF
    middle = (low + high) / 2
    # Between neighbouring floats there is no middle.
    return middle if middle > low else high
