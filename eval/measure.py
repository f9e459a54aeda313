"""Metrics with intervals, strata and paired comparisons from scored rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.schema import Record
from eval.intervals import Array, bound, draw_groups, or_none, percentile_interval, two_sided_p
from eval.metrics import HEADLINE, Mask, common_values, counted, formulas, group_sums, row_columns, undefined_note
from eval.schema import Comparison, System
from eval.schema_scores import Metric, RowResult, StratumMetric
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
        extra = {name: or_none(form(second)[0]) for name, form in formulas(tolerant, labels, sample.accuracy).items()}
        result.extend(interval_metrics(task, columns, codes, sample, tolerant=extra))
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
                metrics = interval_metrics(task, part, sample.codes[places[inside]], sample, only=HEADLINE)
                result.extend(StratumMetric(key=key, stratum=value, metric=metric) for metric in metrics)
    return sorted(result, key=lambda row: (keys.index(row.key), row.stratum))


def interval_metrics(
    task: str,
    columns: Mapping[str, Array],
    codes: NDArray[np.intp],
    sample: Sample,
    *,
    tolerant: Mapping[str, float | None] | None = None,
    only: Collection[str] | None = None,
) -> Iterator[Metric]:
    """The metrics of some rows of a task, with intervals.

    Args:
        task: Task name.
        columns: From `row_columns`, shape (rows,) each.
        codes: Group number per row, shape (rows,).
        sample: The groups and their resamples.
        tolerant: The same metrics after extraction-tolerant reading.
        only: Names to keep; `None` for all.
    """
    labels = sample.labels[task]
    sums = group_sums(columns, codes, sample.groups)
    point, replicates = sums.totals(), sums.totals(sample.draws)
    for name, formula in formulas(columns, labels, sample.accuracy).items():
        if only is not None and name not in only:
            continue
        value = or_none(formula(point)[0])
        interval = percentile_interval(formula(replicates))
        used = counted(name, columns, labels, sample.accuracy)
        n_groups = _count_groups(codes, used)
        yield Metric(
            metric=name,
            task=task,
            value=value,
            low=bound(interval.low, n_groups),
            high=bound(interval.high, n_groups),
            n_records=int(used.sum()),
            n_groups=n_groups,
            undefined_resamples=interval.undefined,
            tolerant=None if tolerant is None else tolerant.get(name),
            note="" if value is not None else undefined_note(name, labels, point),
        )


def compare(first: System, second: System, sample: Sample) -> list[Comparison]:
    """Paired differences of the main metrics and of the rarest class's F1, over records that failed in neither."""
    result: list[Comparison] = []
    for task in sample.tasks:
        places = np.intersect1d(sample.places(first.rows, task), sample.places(second.rows, task))
        if len(places):
            labels = sample.labels[task]
            columns = common_values(
                *(row_columns([system.rows[i] for i in places], labels) for system in (first, second))
            )
            names = (first.name, second.name)
            minority = min(labels, key=lambda label: columns[0][f"support:{label}"].sum(), default=None)
            only = HEADLINE if minority is None else (*HEADLINE, f"f1:{minority}")
            result.extend(differences(task, names, columns, sample.codes[places], sample, only=only))
    return result


def differences(
    task: str,
    names: tuple[str, str],
    columns: Sequence[Mapping[str, Array]],
    codes: NDArray[np.intp],
    sample: Sample,
    *,
    only: Collection[str],
) -> Iterator[Comparison]:
    """Paired differences, first minus second, of two scorings of the same rows of a task.

    Args:
        task: Task name.
        names: What the two scorings are called.
        columns: Two sets of columns from `row_columns`, shape (rows,) each.
        codes: Group number per row, shape (rows,).
        sample: The groups and their resamples.
        only: Names of the metrics to compare.
    """
    labels = sample.labels[task]
    sums = [group_sums(part, codes, sample.groups) for part in columns]
    point = [part.totals() for part in sums]
    replicates = [part.totals(sample.draws) for part in sums]
    for name, formula in formulas(columns[0], labels, sample.accuracy).items():
        if name not in only:
            continue
        used = counted(name, columns[0], labels, sample.accuracy)
        yield paired(
            Comparison(
                first=names[0],
                second=names[1],
                metric=name,
                task=task,
                difference=or_none((formula(point[0]) - formula(point[1]))[0]),
                low=None,
                high=None,
                p=None,
                n_records=int(used.sum()),
                n_groups=_count_groups(codes, used),
                undefined_resamples=0,
            ),
            formula(replicates[0]) - formula(replicates[1]),
        )


def paired(comparison: Comparison, replicates: Array) -> Comparison:
    """Adds interval and p to a difference, from its value in each resample, shape (resamples,)."""
    interval = percentile_interval(replicates)
    return msgspec.structs.replace(
        comparison,
        low=bound(interval.low, comparison.n_groups),
        high=bound(interval.high, comparison.n_groups),
        p=bound(two_sided_p(replicates), comparison.n_groups),
        undefined_resamples=interval.undefined,
    )


def _count_groups(codes: NDArray[np.intp], used: Mask) -> int:
    return len(np.unique(codes[used]))
