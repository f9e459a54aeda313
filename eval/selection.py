"""The number by which checkpoints are chosen."""

from __future__ import annotations

from eval.evaluate import Profile, evaluate
from eval.metrics import HEADLINE
from eval.published import selection_score
from eval.run import LoadedRun
from eval.schema_scores import Metric

# scintiground.md, section 5, "Checkpoint choice"; names of the corrected profile.
_TERMS = {
    "scintiground": (("vqa", "balanced_accuracy"), ("grounding", "iou_at_0.5"), ("grounded_vqa", "strict_with_region"))
}


def select(run: LoadedRun, profile: Profile) -> tuple[float | None, dict[str, float]]:
    """A run's selection score, and the corrected metrics a learning curve shows.

    The score is the benchmark's own rule where there is one, else the mean over tasks of the first defined headline
    metric of each. In `corrected` it is computed from corrected metrics, over those of the rule's tasks that the records
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
    tasks = dict.fromkeys(record.task for record in run.records)
    terms = [term for term in _TERMS.get(run.info.benchmark, ()) if term[0] in tasks] or [
        (task, next(name for name in HEADLINE if (task, name) in found)) for task in dict.fromkeys(t for t, _ in found)
    ]
    if not terms or any(term not in found for term in terms):
        return None, shown
    return sum(_value(found[term]) for term in terms) / len(terms), shown


def _value(metric: Metric) -> float:
    assert metric.value is not None
    return metric.value
