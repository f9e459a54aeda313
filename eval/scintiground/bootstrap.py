"""The published patient bootstrap, with the published numbers at a small part of the work.

Published: per resample as many patients as there are are drawn with replacement, all rows of a
drawn patient enter once a draw, and the whole report is computed again. Here each patient's counts
are computed once; a resample is how often each patient was drawn times these counts. The rates then
come from the same arithmetic on the same integers. Only the sum of IoU is added up in another
order, which can matter where a mean lies on the edge between two roundings: there it is added again
in the published order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.scintiground_text import TASKS
from eval.scintiground.report import task_block
from eval.scintiground.scoring import Counts, ScoredRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

RESAMPLES = 2000
SEED = 20260722
METHOD = "patient_cluster_bootstrap_percentile"
METRICS: tuple[tuple[str, str], ...] = (
    ("vqa", "balanced_accuracy"),
    ("vqa", "macro_f1"),
    ("grounding", "mean_iou"),
    ("grounding", "iou_at_0_5"),
    ("grounding", "strict_grounding_accuracy"),
    ("grounded_vqa", "balanced_accuracy"),
    ("grounded_vqa", "macro_f1"),
    ("grounded_vqa", "mean_iou"),
    ("grounded_vqa", "iou_at_0_5"),
    ("grounded_vqa", "strict_grounded_accuracy"),
)
Replicates = dict[str, list[float | None]]

# Bounds the memory: so many resamples are held at once.
_CHUNK = 250
# In millionths: far wider than the error of a mean of all the benchmark's IoU values (about 1e-12).
_EDGE = 1e-4


def patients_of(scored: Sequence[ScoredRow]) -> list[str]:
    """The patients, sorted as text.

    Raises:
        ValueError: A row without a patient id in text form, or fewer than two patients.
    """
    patients = {row.row.get("patient_id") for row in scored}
    named = sorted(patient for patient in patients if isinstance(patient, str) and patient)
    if len(named) < len(patients):
        raise ValueError("every row needs a patient_id, as text, for the patient bootstrap")
    if len(named) < 2:
        raise ValueError("the patient bootstrap needs at least two patients")
    return named


def replicates(scored: Sequence[ScoredRow], *, resamples: int = RESAMPLES, seed: int = SEED) -> Replicates:
    """The ten metrics of every resample, in the order of the resamples.

    Raises:
        ValueError: As `patients_of`.
    """
    patients = patients_of(scored)
    number = {patient: index for index, patient in enumerate(patients)}
    tasks = {task: _TaskSums([row for row in scored if row.row["task"] == task], number) for task in TASKS}
    values: Replicates = {f"{task}.{name}": [] for task, name in METRICS}
    for drawn in _draws(len(patients), resamples, seed):
        times = np.stack([np.bincount(draw, minlength=len(patients)) for draw in drawn]).astype(np.float64)
        counts = {task: sums.of(drawn, times) for task, sums in tasks.items()}
        for index in range(len(drawn)):
            blocks = {task: task_block(task, counts[task][index]) for task in TASKS}
            for task, name in METRICS:
                values[f"{task}.{name}"].append(blocks[task][name])
    return values


def _draws(patients: int, resamples: int, seed: int) -> Iterator[Ints]:
    """Chunks of draws, shape (resamples of the chunk, patients): the patient numbers as drawn."""
    rng = random.Random(seed)
    numbers = range(patients)
    for start in range(0, resamples, _CHUNK):
        size = min(_CHUNK, resamples - start)
        yield np.array([rng.choices(numbers, k=patients) for _ in range(size)], dtype=np.int64)


class _TaskSums:
    """Counts of one task per patient, and their sums over resamples."""

    def __init__(self, scored: Sequence[ScoredRow], number: dict[str, int]) -> None:
        self._per_patient: Floats = np.zeros((len(number), len(Counts._fields)))
        self._ious: list[list[float]] = [[] for _ in number]
        for row in scored:
            patient = number[row.row["patient_id"]]
            self._per_patient[patient] += row.counts
            self._ious[patient].extend(row.ious)

    def of(self, drawn: Ints, times: Floats) -> list[Counts]:
        """Counts of each resample; `drawn` and `times` have the shape (resamples, patients)."""
        sums = times @ self._per_patient
        resampled: list[Counts] = []
        for draw, row in zip(drawn, sums.tolist(), strict=True):
            *numbers, iou_sum = row
            counts = Counts(*map(int, numbers))._replace(iou_sum=iou_sum)
            if counts.targets and _is_on_edge(iou_sum / counts.targets):
                counts = counts._replace(iou_sum=self._published_sum(draw))
            resampled.append(counts)
        return resampled

    def _published_sum(self, draw: Ints) -> float:
        total = 0.0
        for patient in draw.tolist():
            for iou in self._ious[patient]:
                total += iou
        return total


def _is_on_edge(mean: float) -> bool:
    """Whether another order of addition could round `mean` to another sixth place."""
    return abs(mean * 1e6 % 1 - 0.5) < _EDGE


def bounds(values: Sequence[float]) -> tuple[float, float] | None:
    """The published percentile bounds: sorted values at `round((n - 1) * p)`, halves to even."""
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[round(last * 0.025)], ordered[round(last * 0.975)]


def intervals(values: Replicates, *, patients: int, resamples: int = RESAMPLES, seed: int = SEED) -> dict[str, Any]:
    """The published block of intervals, from `replicates` of the same `resamples` and `seed`."""
    return {
        "method": METHOD,
        "confidence_level": 0.95,
        "resamples": resamples,
        "seed": seed,
        "patients": patients,
        "metrics": {name: _interval(metric) for name, metric in values.items()},
    }


def _interval(metric: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in metric if value is not None]
    lower, upper = bounds(known) or (None, None)
    return {"valid_resamples": len(known), "lower_95": lower, "upper_95": upper}
