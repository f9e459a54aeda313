"""The number by which checkpoints are chosen."""

from __future__ import annotations

from collections.abc import Mapping

from eval.evaluate import Profile, evaluate
from eval.metrics import HEADLINE
from eval.published_scintiground import selection_score
from eval.run import LoadedRun
from eval.schema_scores import Metric

# scintiground.md, section 5, "Checkpoint choice"; names of the corrected profile.
_TERMS = {
    "scintiground": (("vqa", "balanced_accuracy"), ("grounding", "iou_at_0.5"), ("grounded_vqa", "strict_with_region"))
}
# SGMRI-VQA: what the papers' tables show of each task; the first that the records define. The AR-Score has no judge
# here. Of all other tasks it is the A-Score, and a task of open-ended questions alone has none.
_SGMRI = {"localization": ("v_score", "ar_score"), "captioning": ("ar_score",)}


def select(run: LoadedRun, profile: Profile) -> tuple[float | None, dict[str, float]]:
    """A run's selection score, and the corrected metrics a learning curve shows.

    The score is the benchmark's own rule where there is one, else the mean over tasks of the first defined headline
    metric of each; for SGMRI-VQA the mean over tasks of A-Score, V-Score (localization) or AR-Score (captioning). In `corrected` it is computed from corrected metrics, over those of the rule's tasks that the records
    have.

    Args:
        run: Predictions on validation records.
        profile: `published` takes the published scorer's rule; only benchmarks that have one.

    Returns:
        The score, `None` where one of its terms is not defined (a class without a record; in `published` also a task),
        and the metrics by `task/name`.
    """
    system = evaluate([run], profiles=("corrected",), resamples=1).systems[0]
    found = {(metric.task, metric.metric): metric for metric in system.metrics if metric.value is not None}
    shown = {f"{task}/{name}": _value(metric) for (task, name), metric in found.items() if name in HEADLINE}
    if profile == "published":
        return selection_score(run), shown
    terms = _terms(run, found)
    if not terms or any(term not in found for term in terms):
        return None, shown
    return sum(_value(found[term]) for term in terms) / len(terms), shown


def _terms(run: LoadedRun, found: Mapping[tuple[str, str], Metric]) -> list[tuple[str, str]]:
    """Task and metric of each term of the score."""
    tasks = dict.fromkeys(record.task for record in run.records)
    if run.info.benchmark == "sgmri":
        first = {task: _SGMRI.get(task.partition("_")[2], ("a_score",)) for task in tasks}
        names = {task: next((name for name in first[task] if (task, name) in found), None) for task in tasks}
        return [(task, name) for task, name in names.items() if name is not None]
    return [term for term in _TERMS.get(run.info.benchmark, ()) if term[0] in tasks] or [
        (task, next(name for name in HEADLINE if (task, name) in found)) for task in dict.fromkeys(t for t, _ in found)
    ]


def _value(metric: Metric) -> float:
    assert metric.value is not None
    return metric.value
