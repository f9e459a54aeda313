"""A whole official file: means, breakdowns, the leaderboard of the authors' tool, and a row of the paper's tables.

Source: sgmri.md sections 7 to 9; checked against the authors' scorer (github.com/lamawmouk/SGMRIQA, commit a77adeb).
Kept faults: means are over samples, so that a task or organ with more questions weighs more; detection numbers leave
out samples without a predicted box.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from eval.sgmri.marks import TextMarks
from eval.sgmri.published_tables import AVERAGE, COLUMNS, Mode
from eval.sgmri.result import ScoredResult, score_result

GROUPS: Final = ("dataset", "level", "qa_type", "task")
_LEADERBOARD_METRICS: Final = ("a_score", "ar_score", "v_score")
_NO_MARKS: Final = TextMarks()

Evaluation = Mapping[str, Any]


def evaluate_inference(inference: Mapping[str, Any], mode: Mode, marks: Mapping[str, TextMarks]) -> dict[str, Any]:
    """The published evaluation of an official file.

    Args:
        inference: Content of a `*_inference.json`: the model's names and `results`.
        mode: Which of the two files of a model it is; names the tables' columns.
        marks: `sample_id` -> what judge and BERTScore said; results without marks are scored without them.

    Returns:
        `model_key`, `model_name`, `model_id`, `eval_mode`, `total_samples` (skipped questions left out),
        `aggregates` (score -> mean and count; `detection`: name -> mean; a score that no sample has is absent),
        `breakdowns` (dataset, level, qa_type, task -> group -> score -> mean and count; groups without any score are
        absent) and `results` (`sample_id`, the four groups, `scores`: name -> value). Without any result it is empty;
        the authors' tool then writes none.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError, AttributeError: As `score_result`.
    """
    results = inference.get("results", ())
    each = (score_result(result, marks.get(result.get("sample_id", ""), _NO_MARKS)) for result in results)
    scored = [result for result in each if result is not None]
    return {
        **{name: inference.get(name, "") for name in ("model_key", "model_name", "model_id")},
        "eval_mode": mode,
        "total_samples": len(scored),
        "aggregates": _aggregates(scored),
        "breakdowns": {group: _breakdown(scored, group) for group in GROUPS},
        "results": [{"sample_id": result.sample_id, **result.groups, "scores": result.scores} for result in scored],
    }


def _aggregates(scored: Sequence[ScoredResult]) -> dict[str, Any]:
    aggregates: dict[str, Any] = dict(_means(result.scores for result in scored))
    detection = _means(result.v.detection for result in scored if result.v is not None and result.v.detection)
    if detection:
        aggregates["detection"] = {name: mean["mean"] for name, mean in detection.items()}
    return aggregates


def _breakdown(scored: Sequence[ScoredResult], group: str) -> dict[str, Any]:
    members: dict[str, list[Mapping[str, float]]] = {}
    for result in scored:
        if result.scores:
            members.setdefault(result.groups[group], []).append(result.scores)
    return {value: _means(scores) for value, scores in members.items()}


def _means(scores: Iterable[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and count of every name that has a value."""
    values: dict[str, list[float]] = {}
    for each in scores:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    return {name: {"mean": sum(found) / len(found), "count": len(found)} for name, found in values.items()}


def leaderboard_row(evaluation: Evaluation) -> dict[str, Any]:
    """The row that the authors' `aggregate_results` makes of an evaluation: means to four decimals, with counts."""
    names = {name: evaluation[name] for name in ("model_key", "model_name", "model_id", "eval_mode")}
    return {
        **names,
        "eval_level": evaluation["eval_mode"],
        "total_samples": evaluation["total_samples"],
        **_rounded(evaluation["aggregates"]),
    }


def leaderboard_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table that the authors' tool prints of leaderboard rows, sorted by level and then by A-Score."""
    if not rows:
        return "No results to display.\n"
    lines = ["", f"{'Model':<25} {'Level':<7} {'A-Score':>8} {'AR-Score':>9} {'V-Score':>8} {'Samples':>8}", "-" * 71]
    for row in sorted(rows, key=lambda row: (row["eval_level"], -(row["a_score_mean"] or 0.0))):
        a, ar, v = (_cell(row[f"{metric}_mean"]) for metric in _LEADERBOARD_METRICS)
        lines.append(f"{row['model_key']:<25} {row['eval_level']:<7} {a:>8} {ar:>9} {v:>8} {row['total_samples']:>8}")
    return "\n".join([*lines, "", ""])


def breakdown_rows(evaluation: Evaluation) -> dict[str, list[dict[str, Any]]]:
    """Dataset, level, qa_type and task -> a row per group, in the order in which the file first scores them."""
    names = {"model_key": evaluation["model_key"], "eval_level": evaluation["eval_mode"]}
    return {
        key: [{**names, "group": group, **_rounded(means)} for group, means in groups.items()]
        for key, groups in evaluation["breakdowns"].items()
    }


def paper_columns(evaluation: Evaluation, mode: Mode) -> dict[str, dict[str, float | None]]:
    """Columns of Table 3 (image) or Table 4 (video), as task/score -> `percent` (two decimals), `mean` and `count`.

    Means are over samples of brain and knee together. A column that no sample fills has the count 0 and no mean.
    """
    columns: dict[str, dict[str, float | None]] = {}
    for column in COLUMNS[mode]:
        task, metric = column.split("/")
        found = evaluation["breakdowns"]["task"].get(task, {}).get(metric, {"mean": None, "count": 0})
        columns[column] = {"percent": _percent(found["mean"]), **found}
    return columns


def paper_row(evaluation: Evaluation, mode: Mode) -> dict[str, float | None]:
    """The six columns in percent with two decimals, then `average`: their mean, `None` if one of them is empty.

    The average is taken of the unrounded means. Localization counts twice in it, as V- and as AR-Score.
    """
    columns = paper_columns(evaluation, mode)
    row = {column: cell["percent"] for column, cell in columns.items()}
    return {**row, AVERAGE: _percent(paper_average(evaluation, mode))}


def paper_average(evaluation: Evaluation, mode: Mode) -> float | None:
    """Unweighted mean of the six columns' means, not in percent; `None` if one of them is empty."""
    means = [cell["mean"] for cell in paper_columns(evaluation, mode).values()]
    filled = [mean for mean in means if mean is not None]
    return sum(filled) / len(filled) if len(filled) == len(means) else None


def _rounded(means: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for metric in _LEADERBOARD_METRICS:
        found = means.get(metric)
        row[f"{metric}_mean"] = None if found is None else round(found["mean"], 4)
        row[f"{metric}_count"] = 0 if found is None else found["count"]
    return row


def _cell(mean: float | None) -> str:
    return "N/A" if mean is None else f"{mean:.4f}"


def _percent(mean: float | None) -> float | None:
    return None if mean is None else round(100 * mean, 2)
