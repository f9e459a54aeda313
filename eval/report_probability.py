"""The report's tables about closed answers as probabilities and about thresholds on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.probability_metrics import METRICS
from eval.report_curves import Square, charts
from eval.report_tables import Cell
from eval.schema import EvalResult, System
from eval.schema_probability import Probability, Threshold

# Of these the lowest value is the best.
LOWER_IS_BETTER = ("brier", "ece")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityRow:
    """A system's line: its summary of the task, and one cell per metric."""

    system: System
    found: Probability
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityTable:
    """Systems by metrics of P(positive), for one task."""

    task: str
    positive: str
    columns: tuple[str, ...]
    rows: tuple[ProbabilityRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCharts:
    """The charts of one system and task."""

    task: str
    positive: str
    charts: tuple[Square, ...]


def probability_tables(result: EvalResult) -> list[ProbabilityTable]:
    """One table per task in which some system has label scores."""
    tables = []
    for task in (count.task for count in result.dataset.tasks):
        entries = [(system, found) for system in result.systems for found in system.probabilities if found.task == task]
        if entries:
            values = [_metrics(system, task) for system, _ in entries]
            rows = tuple(
                ProbabilityRow(
                    system=system, found=found, cells=tuple(_cell(name, own[name], values) for name in METRICS)
                )
                for (system, found), own in zip(entries, values, strict=True)
            )
            tables.append(ProbabilityTable(task=task, positive=entries[0][1].positive, columns=METRICS, rows=rows))
    return tables


def _metrics(system: System, task: str) -> dict[str, Cell]:
    return {
        metric.metric: Cell(value=metric.value, low=metric.low, high=metric.high, note=metric.note)
        for metric in system.metrics
        if metric.task == task and metric.metric in METRICS
    }


def _cell(name: str, cell: Cell, values: Sequence[dict[str, Cell]]) -> Cell:
    """The cell, marked if no system of the table has a better value as printed."""
    others = [round(value, 3) for row in values if (value := row[name].value) is not None]
    if cell.value is None or len(others) < 2:
        return cell
    best = min(others) if name in LOWER_IS_BETTER else max(others)
    return Cell(value=cell.value, low=cell.low, high=cell.high, note=cell.note, best=round(cell.value, 3) == best)


def task_charts(system: System) -> list[TaskCharts]:
    """The charts of every task for which a system has probabilities."""
    chosen = {threshold.task: threshold for threshold in system.thresholds}
    return [
        TaskCharts(task=found.task, positive=found.positive, charts=charts(system.rows, found, chosen.get(found.task)))
        for found in system.probabilities
    ]


def thresholds(result: EvalResult) -> list[tuple[System, Threshold]]:
    """Every threshold of the result with its system, by task."""
    tasks = [count.task for count in result.dataset.tasks]
    found = [(system, threshold) for system in result.systems for threshold in system.thresholds]
    return sorted(found, key=lambda entry: tasks.index(entry[1].task))
