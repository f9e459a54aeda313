"""The report's tables of one system, and the paired comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from eval.report_tables import CORRECTED_COLUMNS, Cell, published_cell
from eval.schema import Comparison, System
from eval.schema_probability import ThresholdChange
from eval.schema_scores import Metric


def task_metrics(system: System, task: str) -> list[Metric]:
    """Every number of the corrected profile for a task."""
    return [metric for metric in system.metrics if metric.task == task]


def published_numbers(system: System, task: str) -> list[tuple[str, Any, Cell]]:
    """The published block of a task: key (nested ones joined by dots), value as it is, and the interval."""
    if system.published is None or system.published.report is None:
        return []
    bounds = (system.published.bootstrap or {}).get("metrics", {})
    return [
        (key, value, published_cell(value, bounds.get(f"{task}.{key}", {})))
        for key, value in _flat(system.published.report.get(task, {}))
    ]


def _flat(block: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumTable:
    """A task's main metrics by the values of one stratum: (value, metrics by column, records, groups)."""

    key: str
    task: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Metric | None, ...], int, int], ...]


def strata_tables(system: System) -> list[StratumTable]:
    """One table per stratum and task, in the order of the result."""
    tables = []
    found: dict[tuple[str, str], dict[str, dict[str, Metric]]] = {}
    for entry in system.strata:
        by_value = found.setdefault((entry.key, entry.metric.task), {})
        by_value.setdefault(entry.stratum, {})[entry.metric.metric] = entry.metric
    for (key, task), by_value in found.items():
        columns = tuple(name for name in CORRECTED_COLUMNS if any(name in metrics for metrics in by_value.values()))
        rows = []
        for value, metrics in by_value.items():
            counts = [(metric.n_records, metric.n_groups) for metric in metrics.values()]
            records, groups = max(counts)
            rows.append((value, tuple(metrics.get(name) for name in columns), records, groups))
        tables.append(StratumTable(key=key, task=task, columns=columns, rows=tuple(rows)))
    return tables


def sweep_rows(system: System) -> list[tuple[str, tuple[Metric, ...]]]:
    """Per task the share of boxes at each IoU threshold, then their mean."""
    found: dict[str, list[Metric]] = {}
    for metric in system.metrics:
        if metric.metric.startswith(("iou_at_", "iou_sweep_")):
            found.setdefault(metric.task, []).append(metric)
    return [(task, tuple(metrics)) for task, metrics in found.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Paired differences of two systems."""

    first: str
    second: str
    rows: tuple[Comparison, ...]


def pairs(comparisons: Sequence[Comparison]) -> list[Pair]:
    """Comparisons by pair of systems, in the order of the result."""
    return [
        Pair(first=first, second=second, rows=tuple(rows))
        for (first, second), rows in groupby(comparisons, key=lambda row: (row.first, row.second))
    ]


def reach(comparisons: Sequence[Comparison | ThresholdChange]) -> float:
    """Half width of a symmetric axis that holds every interval; at least .1."""
    bounds = [abs(bound) for row in comparisons for bound in (row.low, row.high, row.difference) if bound is not None]
    return max([0.1, *bounds])
