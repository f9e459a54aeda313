"""The terminal tables of an evaluation: plain text, one line per system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.published import PublishedTable, get_published
from eval.schema import ClassCount, Comparison, EvalResult, System
from eval.schema_scores import Metric
from eval.table_format import NAMES, NOT_DEFINED, aligned, metric_cell, number, percent, signed, system_label
from eval.table_probability import probability_tables, threshold_tables

# More columns than this do not fit a terminal; a benchmark of many classes has them in the JSON.
MAX_COLUMNS = 6
_PUBLISHED_CLASS = ("accuracy", "balanced_accuracy", "macro_f1")
_PUBLISHED_BOX = ("mean_iou", "iou_at_0_5", "strict", "valid_output_rate")
_CORRECTED_CLASS = ("a_score", "accuracy", "exact_match", "majority_share", "balanced_accuracy", "macro_f1")
_CORRECTED_BOX = ("mean_iou", "iou_at_0.5", "strict", "strict_with_region")
_CORRECTED_IOU = ("mean_iou_row", "mean_iou_group", "iou_at_0.3", "iou_at_0.75", "iou_at_0.9", "iou_sweep_mean")
_CORRECTED_SGMRI = ("v_score", "iou_over_max", "box_f1_at_0.5", "frame_f1", "ar_score")
_CORRECTED_PLACES = ("box_f1_at_0.3", "label_iou", "frame_precision", "frame_recall")
_CORRECTED_TEXT = ("bleu4", "rouge_l", "bertscore", "judge")
# Not printed where the other is known: it says the same, or less.
_INSTEAD = {"exact_match": "a_score"} | dict.fromkeys(("mean_iou", "iou_at_0.5", *_CORRECTED_IOU), "v_score")
_COMPARED = (
    "balanced_accuracy",
    "macro_f1",
    "exact_match",
    "mean_iou",
    "iou_at_0.5",
    "strict",
    "a_score",
    "v_score",
    "ar_score",
    "auroc",
    "average_precision",
)


def render(result: EvalResult) -> list[str]:
    """All tables of a result, as lines."""
    lines = _header(result)
    if "published" in result.profiles:
        lines += _published(result)
    if "corrected" in result.profiles:
        lines += _corrected(result)
    lines += ["", "notes"] + [f"  - {note}" for note in result.notes]
    return lines


def _header(result: EvalResult) -> list[str]:
    data = result.dataset
    lines = [
        f"{data.name} ({data.benchmark}), split {data.split}: {data.n_records} records, {data.n_groups} groups, "
        f"dataset {data.content_hash[:12]}"
    ]
    lines += [f"  {_describe_task(task)}" for task in data.tasks]
    if get_published(data.benchmark) is None:
        lines.append(f"  published: the benchmark {data.benchmark} has no published scorer")
    return lines


def _describe_task(task: ClassCount) -> str:
    classes = ", ".join(f"{count} {label}" for label, count in task.labels.items())
    total = sum(task.labels.values())
    share = f" (majority {max(task.labels.values()) / total:.1%})" if total else ""
    return f"{task.task}: {task.n_records} records{': ' if classes else ''}{classes}{share}"


def _published(result: EvalResult) -> list[str]:
    lines = ["", "PUBLISHED profile: what the benchmark's own scorer gives"]
    for system in result.systems:
        for stop in system.published.stops if system.published is not None else []:
            part = f" ({stop.part} level)" if stop.part else ""
            lines.append(f"  {system.name}: published: stops with {stop.exception} at {stop.id}{part}")
    published = get_published(result.dataset.benchmark)
    assert published is not None, "the profile is there only if the benchmark has a published scorer"
    for table in published.tables([task.task for task in result.dataset.tasks]):
        lines += ["", *_published_table(result, table)]
    return lines


def _published_table(result: EvalResult, table: PublishedTable) -> list[str]:
    rows = [
        [system_label(system), *_published_cells(system.published.report[table.part], table)]
        for system in result.systems
        if system.published is not None
        and system.published.report is not None
        and table.part in system.published.report
    ]
    other = "" if result.dataset.official_split else ", other data"
    rows += [
        [f"{row.system} [{row.kind}, not run here{other}]", *_published_cells(row.values, table)]
        for row in result.published_rows
        if row.task == table.part
    ]
    if table.columns:
        lines = aligned([table.title, *(column.head for column in table.columns)], rows)
        return [*lines, f"  {table.note}"]
    columns = [*_PUBLISHED_CLASS, *_PUBLISHED_BOX]
    return aligned([table.title, *(NAMES.get(name, name) for name in columns)], rows)


def _published_cells(block: Mapping[str, Any], table: PublishedTable) -> list[str]:
    if table.columns:
        return [percent(block[column.name]) for column in table.columns]
    cells = []
    for name in (*_PUBLISHED_CLASS, *_PUBLISHED_BOX):
        keys = (name, "strict_grounding_accuracy", "strict_grounded_accuracy") if name == "strict" else (name,)
        found = [key for key in keys if key in block]
        cells.append(number(block[found[0]]) if found else "")
    return cells


def _corrected(result: EvalResult) -> list[str]:
    lines = [
        "",
        f"CORRECTED profile: 95 % intervals from {result.resamples} resamples over groups; "
        f"{NOT_DEFINED} = not defined; ! = incomplete",
    ]
    for task in result.dataset.tasks:
        lines += _task_tables(task, result.systems)
    lines += probability_tables(result) + threshold_tables(result)
    lines += _undefined(result) + _invalid(result.systems) + _comparisons(result.comparisons)
    lines += ["", "strata, confusion matrices, further differences and single rows: --json, --html"]
    if result.faults:
        lines += ["", "what corrected changes"]
        lines += [f"  {fault.number:>2} {fault.id}: {fault.corrected}" for fault in result.faults]
    return lines


def _task_tables(task: ClassCount, systems: Sequence[System]) -> list[str]:
    """The tables of one task: classes, boxes, then per class and per IoU threshold."""
    per_system = [(s, {metric.metric: metric for metric in s.metrics if metric.task == task.task}) for s in systems]
    per_class = tuple(f"{part}:{label}" for label in task.labels for part in ("precision", "recall", "f1"))
    lines: list[str] = []
    known = {name for _, metrics in per_system for name in metrics}
    for names, table in (
        (_CORRECTED_CLASS, _block),
        (_CORRECTED_SGMRI, _block),
        (_CORRECTED_BOX, _block),
        (per_class, _details),
        (_CORRECTED_IOU, _details),
        (_CORRECTED_PLACES, _details),
        (_CORRECTED_TEXT, _details),
    ):
        columns = [name for name in names if name in known and _INSTEAD.get(name) not in known]
        if columns and len(columns) <= MAX_COLUMNS:
            lines += ["", *table(task.task, columns, per_system)]
    return lines


def _block(task: str, columns: Sequence[str], per_system: Sequence[tuple[System, dict[str, Metric]]]) -> list[str]:
    """One table: the columns with intervals, then valid rate, counts, and the first score read tolerantly."""
    lead = "iou_at_0.5" if "iou_at_0.5" in columns else "balanced_accuracy"
    rows = []
    for system, metrics in per_system:
        invalid = sum(count.count for count in system.invalid if count.task == task)
        tolerant = metrics[lead].tolerant if lead in metrics else None
        rows.append(
            [
                system_label(system),
                *(metric_cell(metrics[name]) if name in metrics else "" for name in columns),
                number(metrics["valid_rate"].value) if "valid_rate" in metrics else "",
                str(invalid),
                str(len(system.errors)),
                number(tolerant) if lead in metrics else "",
            ]
        )
    header = [task, *(NAMES.get(name, name) for name in columns), "valid", "invalid", "errors"]
    return aligned([*header, f"{NAMES[lead]} tolerant"], rows)


def _details(task: str, columns: Sequence[str], per_system: Sequence[tuple[System, dict[str, Metric]]]) -> list[str]:
    rows = [
        [system_label(system), *(metric_cell(metrics[name]) if name in metrics else "" for name in columns)]
        for system, metrics in per_system
    ]
    return aligned([task, *(NAMES.get(name, name) for name in columns)], rows)


def _undefined(result: EvalResult) -> list[str]:
    """One line for the metrics of a task that have the same reason, as all box metrics have."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for system in result.systems:
        for metric in system.metrics:
            if ":" in metric.metric or not (metric.value is None or metric.undefined_resamples):
                continue
            within = f"in {metric.undefined_resamples} of {result.resamples} resamples"
            reason = f"({metric.note})" if metric.value is None else within
            alike.setdefault((system.name, metric.task, reason), []).append(metric.metric)
    lines = [
        f"  {system}, {task} {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: "
        f"not defined {reason}"
        for (system, task, reason), names in alike.items()
    ]
    return ["", "not defined", *lines] if lines else []


def _invalid(systems: Sequence[System]) -> list[str]:
    lines = []
    for system in systems:
        counts: dict[str, int] = {}
        for row in system.invalid:
            counts[row.reason] = counts.get(row.reason, 0) + row.count
        if counts:
            listed = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items(), key=_by_count))
            lines.append(f"  {system.name}: {listed}")
    return ["", "invalid outputs by reason (each scores zero)", *lines] if lines else []


def _by_count(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _comparisons(comparisons: Sequence[Comparison]) -> list[str]:
    if not comparisons:
        return []
    known = {(row.task, row.metric) for row in comparisons}
    rows = [
        [
            f"{row.first} - {row.second}",
            row.task,
            NAMES.get(row.metric, row.metric),
            signed(row.difference),
            f"[{signed(row.low)}, {signed(row.high)}]",
            NOT_DEFINED if row.p is None else f"{row.p:.4f}",
            f"{row.n_records}/{row.n_groups}",
        ]
        for row in comparisons
        if row.metric in _COMPARED and (row.task, _INSTEAD.get(row.metric, "")) not in known
    ]
    return ["", *aligned(["paired difference", "task", "metric", "value", "95 %", "p", "records/groups"], rows)]
