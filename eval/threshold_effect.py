"""What a threshold chosen on validation predictions does to the scored ones.

The threshold is chosen from the validation rows alone. Then each valid closed answer with label scores
gets the class that the threshold gives it and is scored again; nothing else of it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.errors import DataError
from benchmarks.predictions import PREDICTIONS
from collators.codecs.registry import codec_of_run
from eval.intervals import Array
from eval.measure import Sample, differences, interval_metrics
from eval.metrics import row_columns
from eval.probability import Pair, attach_probabilities
from eval.run import LoadedRun
from eval.schema_probability import Threshold, ThresholdChange
from eval.schema_scores import RowResult
from eval.scorer import Scorer
from eval.threshold import choose_threshold


def thresholds(
    run: LoadedRun,
    rows: Sequence[RowResult],
    validation: LoadedRun,
    pairs: Mapping[str, Pair],
    scorer: Scorer,
    sample: Sample,
) -> list[Threshold]:
    """Chooses a threshold per task and applies it.

    Args:
        run: The scored run.
        rows: Its scored rows with their probabilities, in record order.
        validation: Validation predictions of the same system.
        pairs: Task -> positive and negative class.
        scorer: The benchmark's scorer.
        sample: The groups of `run` and their resamples.

    Raises:
        DataError: Either run has no label scores at all.
    """
    codec = codec_of_run(validation.manifest)
    known = scorer.score(validation.records, validation.predictions, codec).strict
    known = attach_probabilities(validation, known, pairs, scorer)
    for source, found in ((validation, known), (run, rows)):
        if all(row.p_positive is None for row in found):
            raise DataError(
                "a threshold needs label scores, and no closed answer here has any",
                where=str(source.folder / PREDICTIONS),
                fix="predict again with a system that writes label_scores",
            )
    result = []
    for task, pair in pairs.items():
        classed = [
            row
            for record, row in zip(validation.records, known, strict=True)
            if record.task == task and scorer.label(record) is not None
        ]
        chosen = _choose(task, classed, pair, validation)
        result.append(_apply(chosen, run, rows, scorer, sample))
    return result


def _choose(task: str, rows: Sequence[RowResult], pair: Pair, validation: LoadedRun) -> Threshold:
    """The threshold of a task from its validation rows that have a class; sees nothing of the scored run."""
    scored = [row for row in rows if row.p_positive is not None]
    counts = {label: sum(row.label == label for row in scored) for label in pair}
    p = np.array([row.p_positive for row in scored], dtype=np.float64)
    choice = choose_threshold(p, np.array([row.label == pair[0] for row in scored], dtype=np.bool_))
    listed = ", ".join(f"{count} {label}" for label, count in counts.items())
    return Threshold(
        task=task,
        positive=pair[0],
        negative=pair[1],
        folder=str(validation.folder),
        dataset_hash=validation.info.content_hash,
        validation=counts,
        validation_missing=len(rows) - len(scored),
        threshold=None if choice is None else choice.threshold,
        validation_balanced_accuracy=None if choice is None else choice.balanced_accuracy,
        note="" if choice is not None else f"no threshold: validation records with label scores are {listed}",
    )


def _apply(chosen: Threshold, run: LoadedRun, rows: Sequence[RowResult], scorer: Scorer, sample: Sample) -> Threshold:
    places = sample.places(rows, chosen.task)
    if chosen.threshold is None:
        return chosen
    if all(rows[place].p_positive is None for place in places):
        return msgspec.structs.replace(chosen, note="not applied: no scored record has label scores")
    decided = {place: _decide(rows[place], chosen) for place in places}
    turned = [place for place in places if decided[place] != rows[place].predicted]
    after = dict(zip(turned, _rescore(turned, decided, run, scorer), strict=True))
    support = {label: sum(rows[place].label == label for place in places) for label in sample.labels[chosen.task]}
    minority = min((chosen.positive, chosen.negative), key=lambda label: support.get(label, 0))
    columns = [
        row_columns([after.get(place, rows[place]) for place in places], sample.labels[chosen.task]),
        row_columns([rows[place] for place in places], sample.labels[chosen.task]),
    ]
    return msgspec.structs.replace(
        chosen,
        to_positive=sum(decided[place] == chosen.positive for place in turned),
        to_negative=sum(decided[place] == chosen.negative for place in turned),
        kept=sum(rows[place].valid and rows[place].p_positive is None for place in places),
        minority=minority,
        changes=list(_changes(chosen.task, minority, columns, places, sample)),
    )


def _decide(row: RowResult, chosen: Threshold) -> str | None:
    """The class of a row under the threshold; its own where it is invalid or has no probability."""
    if not row.valid or row.p_positive is None or chosen.threshold is None:
        return row.predicted
    return chosen.positive if row.p_positive >= chosen.threshold else chosen.negative


def _rescore(
    places: Sequence[np.intp], decided: Mapping[np.intp, str | None], run: LoadedRun, scorer: Scorer
) -> tuple[RowResult, ...]:
    """The rows of these records with the decided class in place of the answer's own."""
    changed = []
    for place in places:
        prediction = run.predictions[place]
        assert prediction.answer is not None, "only valid rows are decided anew"
        answer = msgspec.structs.replace(prediction.answer, label=decided[place])
        changed.append(msgspec.structs.replace(prediction, answer=answer))
    return scorer.score([run.records[place] for place in places], changed, codec_of_run(run.manifest)).strict


def _changes(
    task: str,
    minority: str,
    columns: Sequence[Mapping[str, Array]],
    places: NDArray[np.intp],
    sample: Sample,
) -> Iterator[ThresholdChange]:
    """Metrics after and before (in this order in `columns`), and their paired differences."""
    names = ("balanced_accuracy", "macro_f1", f"f1:{minority}", "strict")
    codes = sample.codes[places]
    new, old = (
        {metric.metric: metric for metric in interval_metrics(task, part, codes, sample, only=names)}
        for part in columns
    )
    paired = {row.metric: row for row in differences(task, ("after", "before"), columns, codes, sample, only=names)}
    for name in (name for name in names if name in paired):
        row = paired[name]
        yield ThresholdChange(
            metric=name,
            before=old[name].value,
            before_low=old[name].low,
            before_high=old[name].high,
            after=new[name].value,
            after_low=new[name].low,
            after_high=new[name].high,
            difference=row.difference,
            low=row.low,
            high=row.high,
            p=row.p,
            n_records=row.n_records,
            n_groups=row.n_groups,
            undefined_resamples=row.undefined_resamples,
        )
