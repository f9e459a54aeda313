"""The report's comparison tables: systems by headline metrics, per task and profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eval.published import Column, PublishedTable, get_published
from eval.schema import EvalResult, PublishedRow, System
from eval.schema_scores import Metric

# Column -> names under which the published scorer or its table may have it.
PUBLISHED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "balanced_accuracy": ("balanced_accuracy",),
    "macro_f1": ("macro_f1",),
    "accuracy": ("accuracy",),
    "mean_iou": ("mean_iou",),
    "iou_at_0_5": ("iou_at_0_5",),
    "strict": ("strict_grounding_accuracy", "strict_grounded_accuracy"),
    "valid_output_rate": ("valid_output_rate",),
}
CORRECTED_COLUMNS = (
    "balanced_accuracy",
    "macro_f1",
    "accuracy",
    "exact_match",
    "majority_share",
    "a_score",
    "v_score",
    "iou_over_max",
    "box_f1_at_0.5",
    "frame_f1",
    "ar_score",
    "mean_iou",
    "iou_at_0.5",
    "strict",
    "strict_with_region",
    "valid_rate",
)
# The same for every system: nothing to win.
_NO_CONTEST = "majority_share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A number with its interval.

    Attributes:
        value: The number; `None` if not defined.
        low: Lower bound; `None` without an interval.
        high: Upper bound.
        best: Whether no system of the table has a higher one.
        note: Why it is not defined, or how often.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    best: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a comparison table.

    Attributes:
        name: System.
        kind: `system`, `control` or `published` (not run here).
        mark: Letter of the encoder, or empty.
        note: What a reader must know; the published scorer's exception for instance.
        cells: One per column, `None` where the row has no such metric.
        records: Records it rests on; `None` if not known.
        groups: Patients it rests on.
        invalid: Invalid outputs.
        errors: Records that failed on our side.
    """

    name: str
    kind: str
    mark: str = ""
    note: str = ""
    cells: tuple[Cell | None, ...] = ()
    records: int | None = None
    groups: int | None = None
    invalid: int | None = None
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Systems by metrics, for one profile and a task, or a table of the paper.

    Attributes:
        title: The task, or the table's own name.
        profile: `corrected` or `published`.
        columns: Metric names.
        rows: One per system.
        heads: Head and help of each column of a table of the paper, whose numbers are in percent; else empty.
        note: What a reader must know of the columns.
    """

    title: str
    profile: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    heads: tuple[Column, ...] = ()
    note: str = ""


def headline_tables(result: EvalResult) -> list[Table]:
    """The comparison tables: per task, the corrected profile and then the published one; last, tables of several tasks."""
    tasks = [count.task for count in result.dataset.tasks]
    published = get_published(result.dataset.benchmark) if "published" in result.profiles else None
    layouts = published.tables(tasks) if published is not None else []
    tables = []
    for task in tasks:
        if "corrected" in result.profiles:
            tables.append(_corrected(result, task))
        tables += [_published(result, layout) for layout in layouts if layout.part == task]
    return tables + [_published(result, layout) for layout in layouts if layout.part not in tasks]


def _corrected(result: EvalResult, task: str) -> Table:
    found = [{metric.metric: metric for metric in system.metrics if metric.task == task} for system in result.systems]
    columns = tuple(name for name in CORRECTED_COLUMNS if any(name in metrics for metrics in found))
    rows = []
    for system, metrics in zip(result.systems, found, strict=True):
        valid = metrics.get("valid_rate")
        rows.append(
            Row(
                name=system.name,
                kind="control" if system.control else "system",
                mark=system.encoder_mark,
                cells=tuple(_metric_cell(metrics.get(name), result.resamples) for name in columns),
                records=valid.n_records if valid else 0,
                groups=valid.n_groups if valid else 0,
                invalid=sum(count.count for count in system.invalid if count.task == task),
                errors=_errors(system, task),
            )
        )
    return Table(title=task, profile="corrected", columns=columns, rows=_mark_best(columns, rows))


def _errors(system: System, task: str) -> int:
    return sum(row.error is not None for row in system.rows if row.task == task)


def _metric_cell(metric: Metric | None, resamples: int) -> Cell | None:
    if metric is None:
        return None
    note = metric.note
    if metric.value is not None and metric.undefined_resamples:
        note = f"not defined in {metric.undefined_resamples} of {resamples} resamples"
    return Cell(value=metric.value, low=metric.low, high=metric.high, note=note)


def _published(result: EvalResult, layout: PublishedTable) -> Table:
    names = {column.name: (column.name,) for column in layout.columns} or PUBLISHED_COLUMNS
    rows = [_published_system(system, layout, names) for system in result.systems]
    paper = [_paper_row(row, names) for row in result.published_rows if row.task == layout.part]
    columns = tuple(names)
    used = [i for i in range(len(columns)) if any(row.cells and row.cells[i] is not None for row in [*rows, *paper])]
    kept = tuple(columns[i] for i in used)
    marked = _mark_best(kept, [_only(row, used) for row in rows], decimals=4 if layout.columns else 3)
    return Table(
        title=layout.title,
        profile="published",
        columns=kept,
        rows=(*marked, *(_only(row, used) for row in paper)),
        heads=tuple(column for column in layout.columns if column.name in kept),
        note=layout.note,
    )


def _published_system(system: System, layout: PublishedTable, names: Mapping[str, tuple[str, ...]]) -> Row:
    report, kind = system.published, "control" if system.control else "system"
    if report is None or report.report is None or layout.part not in report.report:
        stop = next((stop for stop in report.stops if stop.part in (None, layout.part)), None) if report else None
        note = f"the published scorer stops with {stop.exception} at {stop.id}" if stop else "not scored"
        return Row(name=system.name, kind=kind, mark=system.encoder_mark, note=note)
    block: Mapping[str, Any] = report.report[layout.part]
    bounds = (report.bootstrap or {}).get("metrics", {})
    cells = []
    for keys in names.values():
        name = next((name for name in keys if name in block), None)
        cells.append(None if name is None else published_cell(block[name], bounds.get(f"{layout.part}.{name}", {})))
    # The paper's tables rest on several counts, and their scorer knows no invalid output.
    rows = block["total_samples" if layout.columns else "rows"]
    return Row(
        name=system.name,
        kind=kind,
        mark=system.encoder_mark,
        cells=tuple(cells),
        records=rows,
        groups=None,
        invalid=None if layout.columns else rows - block["valid_output_rows"],
    )


def published_cell(value: float | None, bounds: Mapping[str, Any]) -> Cell:
    """A number of the published report with its entry in the published bootstrap, if there is one."""
    return Cell(value=value, low=bounds.get("lower_95"), high=bounds.get("upper_95"))


def _paper_row(row: PublishedRow, names: Mapping[str, tuple[str, ...]]) -> Row:
    cells = []
    for keys in names.values():
        value = next((row.values[name] for name in keys if name in row.values), None)
        cells.append(None if value is None else Cell(value=value))
    return Row(name=row.system, kind="published", note=row.note, cells=tuple(cells))


def _only(row: Row, used: Sequence[int]) -> Row:
    return replace(row, cells=tuple(row.cells[i] for i in used) if row.cells else ())


def _mark_best(columns: Sequence[str], rows: Sequence[Row], *, decimals: int = 3) -> tuple[Row, ...]:
    """Marks the highest value of each column, as printed, among the rows that were run here."""
    marked = [list(row.cells) for row in rows]
    for place, name in enumerate(columns):
        values = {
            number: round(cell.value, decimals)
            for number, cells in enumerate(marked)
            if cells and (cell := cells[place]) is not None and cell.value is not None
        }
        if len(values) < 2 or name == _NO_CONTEST:
            continue
        for number, value in values.items():
            cell = marked[number][place]
            if cell is not None and value == max(values.values()):
                marked[number][place] = replace(cell, best=True)
    return tuple(replace(row, cells=tuple(cells)) for row, cells in zip(rows, marked, strict=True))
