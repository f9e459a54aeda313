"""Closed answers as probabilities: from the label scores of prediction rows to P(positive).

A row has a probability if it did not fail on our side, its record has a target class and it carries
scores of the task's two classes; whether its text is a valid answer does not matter. What has none is
counted by reason, and all metrics of a task say how many of its records they cover.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.errors import DataError
from benchmarks.predictions import PREDICTIONS, Prediction
from eval.probability_metrics import reliability
from eval.run import LoadedRun
from eval.schema_probability import MissingScores, Probability
from eval.schema_scores import INVALID, RowResult
from eval.scorer import Scorer

Pair = tuple[str, str]
NO_SCORES = "no label scores"
# Log probabilities are at most 0; sums of rounded ones may exceed it by a little.
SLACK = 1e-3


def class_pairs(scorer: Scorer, labels: Mapping[str, tuple[str, ...]]) -> dict[str, Pair]:
    """Task -> positive and negative class, for the tasks that have such two."""
    found = {task: scorer.pair(classes) for task, classes in labels.items()}
    return {task: pair for task, pair in found.items() if pair is not None}


def attach_probabilities(
    run: LoadedRun, rows: Sequence[RowResult], pairs: Mapping[str, Pair], scorer: Scorer
) -> tuple[RowResult, ...]:
    """Adds `p_positive` to the scored rows of a run, which are in record order.

    Raises:
        DataError: Label scores that are not the natural log probabilities of the task's two classes.
    """
    result = []
    for row, prediction in zip(rows, run.predictions, strict=True):
        if row.error is None and row.label is not None and row.task in pairs and prediction.label_scores is not None:
            value = _positive_probability(prediction, pairs[row.task], scorer, run)
            result.append(msgspec.structs.replace(row, p_positive=value))
        else:
            result.append(row)
    return tuple(result)


def _positive_probability(prediction: Prediction, pair: Pair, scorer: Scorer, run: LoadedRun) -> float:
    """Softmax over the two label scores."""
    given = prediction.label_scores or {}
    scores = {scorer.class_name(label): value for label, value in given.items()}
    fault = None
    if set(scores) != set(pair) or len(scores) != len(given):
        fault = (
            f"they name {', '.join(map(repr, given)) or 'no label'}, the task's classes are {pair[0]!r}, {pair[1]!r}"
        )
    elif not all(math.isfinite(value) and value <= SLACK for value in scores.values()):
        fault = f"{given} holds a number that no log probability can be: they are finite and at most 0"
    if fault is not None:
        raise DataError(
            f"label scores cannot be read as probabilities: {fault}",
            where=f"{run.folder / PREDICTIONS}, record {prediction.id}, field label_scores",
            fix="predict again, or leave the field out where it is not known",
        )
    margin = scores[pair[0]] - scores[pair[1]]
    # The form whose exponential cannot overflow.
    small = math.exp(-abs(margin))
    return 1 / (1 + small) if margin >= 0 else small / (1 + small)


def summarise(
    run: LoadedRun, rows: Sequence[RowResult], pairs: Mapping[str, Pair], scorer: Scorer
) -> list[Probability]:
    """What the probabilities of each task rest on; tasks without any are left out."""
    result = []
    for task, (positive, negative) in pairs.items():
        places = [
            place
            for place, record in enumerate(run.records)
            if record.task == task and scorer.label(record) is not None
        ]
        scored = [place for place in places if rows[place].p_positive is not None]
        if scored:
            result.append(
                Probability(
                    task=task,
                    positive=positive,
                    negative=negative,
                    n_records=len(places),
                    n_scored=len(scored),
                    missing=_missing([rows[place] for place in places]),
                    at=dict(sorted(Counter(run.predictions[i].label_scores_at or "unknown" for i in scored).items())),
                    bins=reliability([rows[place] for place in scored], positive),
                )
            )
    return result


def _missing(rows: Sequence[RowResult]) -> list[MissingScores]:
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.p_positive is None:
            reason = "error" if row.error is not None else NO_SCORES if row.valid else INVALID
            found.setdefault(reason, []).append(row.id)
    return [MissingScores(reason=reason, count=len(ids), first=ids[0]) for reason, ids in sorted(found.items())]


def unused_scores(run: LoadedRun, pairs: Mapping[str, Pair]) -> dict[str, int]:
    """Task without a positive and a negative class -> how many of its predictions carry label scores all the same."""
    return dict(
        Counter(
            record.task
            for record, prediction in zip(run.records, run.predictions, strict=True)
            if prediction.label_scores is not None and record.task not in pairs
        )
    )
