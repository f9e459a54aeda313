"""From loaded prediction folders to one `EvalResult`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from benchmarks.schema import Record
from collators.codecs.registry import codec_of_run
from eval.measure import Sample, compare, make_sample, measure, measure_strata
from eval.notes import notes
from eval.probability import Pair, attach_probabilities, class_pairs, summarise
from eval.probability_metrics import compare_probabilities, measure_probabilities
from eval.published import PublishedScorer, get_published
from eval.run import LoadedRun
from eval.schema import ClassCount, Comparison, DatasetSummary, EvalResult, ManifestSummary, System
from eval.schema_scores import RowError
from eval.scorer import Scorer, get_scorer
from eval.sgmri.marks import TextMarks
from eval.tally import confusion, histogram, invalid_counts
from eval.threshold_effect import thresholds

Profile = Literal["published", "corrected"]
RESAMPLES = 2000
SEED = 20260722


def evaluate(
    runs: Sequence[LoadedRun],
    *,
    profiles: Sequence[Profile] = ("published", "corrected"),
    resamples: int = RESAMPLES,
    seed: int = SEED,
    pairs: Sequence[tuple[str, str]] | None = None,
    validation: Mapping[str, LoadedRun] | None = None,
    marks: Mapping[str, Mapping[str, TextMarks]] | None = None,
) -> EvalResult:
    """Scores runs that were loaded together.

    Args:
        runs: From `eval.run.load_runs`: same records in each.
        profiles: Which profiles; a benchmark without a published scorer has the corrected one only.
        resamples: Bootstrap resamples of the corrected profile.
        seed: Its seed. The published bootstrap has its own, fixed numbers.
        pairs: Names to compare; by default the first with each other one.
        validation: Name of a run -> validation predictions of the same system, from which thresholds on the
            probabilities of its closed answers are chosen (corrected profile).
        marks: Name of a run -> record id -> what a judge and BERTScore said of the answer.

    Raises:
        DataError: A record that a scorer of the benchmark does not allow, or label scores that are no log
            probabilities of the task's classes.
    """
    from tqdm import tqdm

    records, info = runs[0].records, runs[0].info
    published = get_published(info.benchmark)
    profiles = [profile for profile in profiles if published is not None or profile == "corrected"]
    marks = marks or {}
    scorer = get_scorer(info.benchmark)
    labels = {task: scorer.labels(task, records) for task in dict.fromkeys(record.task for record in records)}
    corrected = None
    if "corrected" in profiles:
        sample = make_sample(records, labels, scorer.accuracy, resamples=resamples, seed=seed)
        corrected = _Corrected(scorer, sample, class_pairs(scorer, labels), validation or {}, marks)
    systems = []
    labelled = list(zip(runs, _encoder_marks(runs), strict=True))
    for run, encoder in tqdm(labelled, desc="scoring", unit="system", disable=None):
        system = _describe(run, encoder)
        if published is not None and "published" in profiles:
            system = msgspec.structs.replace(system, published=published.score(run, marks.get(run.name, {})))
        systems.append(system if corrected is None else corrected.score(system, run))
    dataset = _summarise(runs[0], scorer, labels, published)
    return EvalResult(
        dataset=dataset,
        profiles=list(profiles),
        resamples=resamples,
        seed=seed,
        faults=list(scorer.faults) if "corrected" in profiles else [],
        published_rows=published.rows() if published is not None else [],
        systems=systems,
        comparisons=[] if corrected is None else corrected.compare(systems, pairs),
        notes=notes(runs, dataset, systems, validation or {}, marks),
    )


@dataclass(frozen=True, slots=True)
class _Corrected:
    """The corrected profile of one evaluation."""

    scorer: Scorer
    sample: Sample
    classes: Mapping[str, Pair]
    validation: Mapping[str, LoadedRun]
    marks: Mapping[str, Mapping[str, TextMarks]]

    def score(self, system: System, run: LoadedRun) -> System:
        """Adds everything that the corrected profile says of a run."""
        scorer, sample = self.scorer, self.sample
        marks = self.marks.get(run.name)
        scored = scorer.score(run.records, run.predictions, codec_of_run(run.manifest), marks=marks)
        rows = attach_probabilities(run, scored.strict, self.classes, scorer)
        by_task = {task: [row for row in rows if row.task == task] for task in sample.tasks}
        source = self.validation.get(run.name)
        return msgspec.structs.replace(
            system,
            metrics=[*measure(scored, sample), *measure_probabilities(rows, self.classes, sample)],
            strata=measure_strata(scored, run.records, scorer.strata(run.records), sample),
            invalid=invalid_counts(rows),
            confusions=[confusion(task, by_task[task], sample.labels[task]) for task in by_task if sample.labels[task]],
            histograms=[histogram(task, part) for task, part in by_task.items() if any(row.ious for row in part)],
            probabilities=summarise(run, rows, self.classes, scorer),
            thresholds=thresholds(run, rows, source, self.classes, scorer, sample) if source is not None else [],
            rows=list(rows),
        )

    def compare(self, systems: Sequence[System], pairs: Sequence[tuple[str, str]] | None) -> list[Comparison]:
        """Paired differences of the named pairs; by default of the first system with each other one."""
        by_name = {system.name: system for system in systems}
        result: list[Comparison] = []
        for first, second in pairs if pairs is not None else [(systems[0].name, other.name) for other in systems[1:]]:
            found = compare(by_name[first], by_name[second], self.sample)
            found += compare_probabilities(by_name[first], by_name[second], self.classes, self.sample)
            result += sorted(found, key=lambda row: self.sample.tasks.index(row.task))
        return result


def _describe(run: LoadedRun, mark: str) -> System:
    manifest = run.manifest
    return System(
        name=run.name,
        folder=str(run.folder),
        control=manifest.control,
        encoder_mark=mark,
        manifest=ManifestSummary(
            engine=manifest.engine,
            codec=manifest.codec,
            encoder_fingerprint=manifest.encoder_fingerprint,
            weights=manifest.weights,
            weights_hash=manifest.weights_hash,
            decoding=manifest.decoding,
            environment=manifest.environment,
            timing=manifest.timing,
        ),
        errors=[RowError(id=row.id, error=row.error) for row in run.predictions if row.error is not None],
    )


def _encoder_marks(runs: Sequence[LoadedRun]) -> list[str]:
    """A letter per distinct encoder fingerprint, in order of appearance; empty without a fingerprint."""
    found = [run.manifest.encoder_fingerprint for run in runs]
    order = list(dict.fromkeys(fingerprint for fingerprint in found if fingerprint is not None))
    return ["" if fingerprint is None else _letters(order.index(fingerprint)) for fingerprint in found]


def _letters(number: int) -> str:
    """0 -> a, 25 -> z, 26 -> aa."""
    head, last = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("a") + last)


def _summarise(
    run: LoadedRun, scorer: Scorer, labels: Mapping[str, tuple[str, ...]], published: PublishedScorer | None
) -> DatasetSummary:
    return DatasetSummary(
        name=run.info.name,
        benchmark=run.info.benchmark,
        content_hash=run.info.content_hash,
        split=run.manifest.split,
        limit=run.manifest.limit,
        n_records=len(run.records),
        n_groups=len({record.group for record in run.records}),
        tasks=[_class_count(task, run.records, scorer, found) for task, found in labels.items()],
        official_split=published is not None and published.is_official(run),
    )


def _class_count(task: str, records: Sequence[Record], scorer: Scorer, labels: tuple[str, ...]) -> ClassCount:
    part = [record for record in records if record.task == task]
    count = Counter(scorer.label(record) for record in part)
    return ClassCount(
        task=task,
        n_records=len(part),
        n_groups=len({record.group for record in part}),
        labels={label: count[label] for label in labels},
    )
