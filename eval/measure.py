"""Metrics with intervals, strata and paired comparisons from scored rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.schema import Record
from eval.intervals import Array, draw_groups, percentile_interval, two_sided_p
from eval.metrics import HEADLINE, Mask, counted, formulas, group_sums, row_columns, undefined_note
from eval.schema import Comparison, Metric, RowResult, StratumMetric, System
from eval.scorer import ScoredRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The records' groups and their resamples, the same for every system of a table.

    Attributes:
        codes: Group number per record, shape (records,).
        groups: Number of groups.
        draws: How often each group is drawn, shape (resamples, groups).
        tasks: Task names in the order of first appearance.
        labels: Classes per task.
        accuracy: Name of the share of right answers.
    """

    codes: NDArray[np.intp]
    groups: int
    draws: Array
    tasks: tuple[str, ...]
    labels: Mapping[str, tuple[str, ...]]
    accuracy: str

    def places(self, rows: Sequence[RowResult], task: str) -> NDArray[np.intp]:
        """Numbers of the rows of a task that did not fail on our side."""
        return np.array([i for i, row in enumerate(rows) if row.task == task and row.error is None], dtype=np.intp)


def make_sample(
    records: Sequence[Record], labels: Mapping[str, tuple[str, ...]], accuracy: str, *, resamples: int, seed: int
) -> Sample:
    """Numbers the groups in sorted order and draws the resamples."""
    names = sorted({record.group for record in records})
    number = {name: code for code, name in enumerate(names)}
    return Sample(
        codes=np.array([number[record.group] for record in records], dtype=np.intp),
        groups=len(names),
        draws=draw_groups(len(names), resamples, seed),
        tasks=tuple(labels),
        labels=labels,
        accuracy=accuracy,
    )


def measure(scored: ScoredRows, sample: Sample) -> list[Metric]:
    """Every metric of every task over all rows."""
    result: list[Metric] = []
    for task in sample.tasks:
        places = sample.places(scored.strict, task)
        if not len(places):
            continue
        labels = sample.labels[task]
        columns = row_columns([scored.strict[i] for i in places], labels)
        tolerant = row_columns([scored.tolerant[i] for i in places], labels)
        codes = sample.codes[places]
        second = group_sums(tolerant, codes, sample.groups).totals()
        extra = {name: _number(form(second)[0]) for name, form in formulas(tolerant, labels, sample.accuracy).items()}
        result.extend(_metrics(task, columns, codes, sample, tolerant=extra))
    return result


def measure_strata(
    scored: ScoredRows, records: Sequence[Record], keys: Sequence[str], sample: Sample
) -> list[StratumMetric]:
    """The main metrics of every task within each value of each stratum."""
    result: list[StratumMetric] = []
    for task in sample.tasks:
        places = sample.places(scored.strict, task)
        columns = row_columns([scored.strict[i] for i in places], sample.labels[task])
        for key in keys:
            values = np.array([records[i].strata.get(key) for i in places], dtype=object)
            for value in sorted({value for value in values if value is not None}):
                inside = values == value
                part = {name: column[inside] for name, column in columns.items()}
                metrics = _metrics(task, part, sample.codes[places[inside]], sample, only=HEADLINE)
                result.extend(StratumMetric(key=key, stratum=value, metric=metric) for metric in metrics)
    return sorted(result, key=lambda row: (keys.index(row.key), row.stratum))


def _metrics(
    task: str,
    columns: Mapping[str, Array],
    codes: NDArray[np.intp],
    sample: Sample,
    *,
    tolerant: Mapping[str, float | None] | None = None,
    only: Collection[str] | None = None,
) -> Iterator[Metric]:
    labels = sample.labels[task]
    sums = group_sums(columns, codes, sample.groups)
    point, replicates = sums.totals(), sums.totals(sample.draws)
    for name, formula in formulas(columns, labels, sample.accuracy).items():
        if only is not None and name not in only:
            continue
        value = _number(formula(point)[0])
        interval = percentile_interval(formula(replicates))
        used = counted(name, columns, labels, sample.accuracy)
        n_groups = _count_groups(codes, used)
        yield Metric(
            metric=name,
            task=task,
            value=value,
            low=_bound(interval.low, n_groups),
            high=_bound(interval.high, n_groups),
            n_records=int(used.sum()),
            n_groups=n_groups,
            undefined_resamples=interval.undefined,
            tolerant=None if tolerant is None else tolerant[name],
            note="" if value is not None else undefined_note(name, labels, point),
        )


def compare(first: System, second: System, sample: Sample) -> list[Comparison]:
    """Paired differences of the main metrics over the records that failed in neither system."""
    result: list[Comparison] = []
    for task in sample.tasks:
        places = np.intersect1d(sample.places(first.rows, task), sample.places(second.rows, task))
        if len(places):
            result.extend(_compare_task(task, first, second, places, sample))
    return result


def _compare_task(
    task: str, first: System, second: System, places: NDArray[np.intp], sample: Sample
) -> Iterator[Comparison]:
    labels, codes = sample.labels[task], sample.codes[places]
    columns = [row_columns([system.rows[i] for i in places], labels) for system in (first, second)]
    sums = [group_sums(part, codes, sample.groups) for part in columns]
    point = [part.totals() for part in sums]
    replicates = [part.totals(sample.draws) for part in sums]
    for name, formula in formulas(columns[0], labels, sample.accuracy).items():
        if name not in HEADLINE:
            continue
        differences = formula(replicates[0]) - formula(replicates[1])
        interval = percentile_interval(differences)
        used = counted(name, columns[0], labels, sample.accuracy)
        n_groups = _count_groups(codes, used)
        yield Comparison(
            first=first.name,
            second=second.name,
            metric=name,
            task=task,
            difference=_number((formula(point[0]) - formula(point[1]))[0]),
            low=_bound(interval.low, n_groups),
            high=_bound(interval.high, n_groups),
            p=_bound(two_sided_p(differences), n_groups),
            n_records=int(used.sum()),
            n_groups=n_groups,
            undefined_resamples=interval.undefined,
        )


def _count_groups(codes: NDArray[np.intp], used: Mask) -> int:
    return len(np.unique(codes[used]))


def _bound(value: float, groups: int) -> float | None:
    """A bound or p, which one group alone cannot give: every resample would be that group."""
    return _number(value) if groups > 1 else None


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
