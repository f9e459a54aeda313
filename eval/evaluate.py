"""From loaded prediction folders to one `EvalResult`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from benchmarks.schema import Record
from collators.codecs.registry import get_codec
from collators.codecs.scintiground_official import official_row
from eval.corrected.faults import FAULTS
from eval.measure import Sample, compare, make_sample, measure, measure_strata
from eval.published import score_published
from eval.published_rows import OFFICIAL_TEST_COUNTS, published_rows
from eval.run import LoadedRun
from eval.schema import (
    ClassCount,
    Comparison,
    DatasetSummary,
    EvalResult,
    ManifestSummary,
    RowError,
    System,
)
from eval.scorer import Scorer, get_scorer
from eval.tally import confusion, histogram, invalid_counts

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
) -> EvalResult:
    """Scores runs that were loaded together.

    Args:
        runs: From `eval.run.load_runs`: same records in each.
        profiles: Which profiles; a benchmark without a published scorer has the corrected one only.
        resamples: Bootstrap resamples of the corrected profile.
        seed: Its seed. The published bootstrap has its own, fixed numbers.
        pairs: Names to compare; by default the first with each other one.

    Raises:
        DataError: A record that the benchmark's scorer does not allow.
    """
    from tqdm import tqdm

    records, info = runs[0].records, runs[0].info
    official = info.benchmark == "scintiground"
    scorer = get_scorer(info.benchmark)
    labels = {task: scorer.labels(task, records) for task in dict.fromkeys(record.task for record in records)}
    sample = None
    if "corrected" in profiles:
        sample = make_sample(records, labels, scorer.accuracy, resamples=resamples, seed=seed)
    official_rows = [official_row(record) for record in records] if official and "published" in profiles else None
    marks = _encoder_marks(runs)
    systems = []
    for run, mark in tqdm(list(zip(runs, marks, strict=True)), desc="scoring", unit="system", disable=None):
        system = _describe(run, mark)
        if official_rows is not None:
            system = msgspec.structs.replace(system, published=score_published(run, official_rows))
        if sample is not None:
            system = _score_corrected(system, run, scorer, sample)
        systems.append(system)
    comparisons: list[Comparison] = []
    if sample is not None:
        by_name = {system.name: system for system in systems}
        for first, second in pairs if pairs is not None else [(systems[0].name, other.name) for other in systems[1:]]:
            comparisons.extend(compare(by_name[first], by_name[second], sample))
    dataset = _summarise(runs[0], scorer, labels)
    return EvalResult(
        dataset=dataset,
        profiles=[profile for profile in profiles if official or profile == "corrected"],
        resamples=resamples,
        seed=seed,
        faults=list(FAULTS) if official and "corrected" in profiles else [],
        published_rows=published_rows() if official else [],
        systems=systems,
        comparisons=comparisons,
        notes=_notes(dataset, systems, marks),
    )


def _score_corrected(system: System, run: LoadedRun, scorer: Scorer, sample: Sample) -> System:
    scored = scorer.score(run.records, run.predictions, get_codec(run.manifest.codec))
    rows = scored.strict
    by_task = {task: [row for row in rows if row.task == task] for task in sample.tasks}
    return msgspec.structs.replace(
        system,
        metrics=measure(scored, sample),
        strata=measure_strata(scored, run.records, scorer.strata(run.records), sample),
        invalid=invalid_counts(rows),
        confusions=[confusion(task, by_task[task], sample.labels[task]) for task in by_task if sample.labels[task]],
        histograms=[histogram(task, part) for task, part in by_task.items() if any(row.ious for row in part)],
        rows=list(rows),
    )


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


def _summarise(run: LoadedRun, scorer: Scorer, labels: Mapping[str, tuple[str, ...]]) -> DatasetSummary:
    counts = run.info.counts.get(run.manifest.split, {})
    return DatasetSummary(
        name=run.info.name,
        benchmark=run.info.benchmark,
        content_hash=run.info.content_hash,
        split=run.manifest.split,
        limit=run.manifest.limit,
        n_records=len(run.records),
        n_groups=len({record.group for record in run.records}),
        tasks=[_class_count(task, run.records, scorer, found) for task, found in labels.items()],
        official_split=run.info.benchmark == "scintiground"
        and run.manifest.split == "test"
        and run.manifest.limit is None
        and counts == dict(OFFICIAL_TEST_COUNTS),
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


def _notes(dataset: DatasetSummary, systems: Sequence[System], marks: Sequence[str]) -> list[str]:
    notes = []
    if dataset.limit is not None:
        notes.append(f"PARTIAL: only the first {dataset.n_records} records of the split were predicted")
    for system in systems:
        if system.errors:
            notes.append(
                f"INCOMPLETE: {len(system.errors)} of {dataset.n_records} records of {system.name} failed on our side "
                f"(first: {system.errors[0].id}: {system.errors[0].error}); corrected scores leave them out, "
                "the published scorer reads them as empty texts"
            )
    if len(set(marks) - {""}) > 1:
        listed = ", ".join(f"{system.name} [{system.encoder_mark}]" for system in systems if system.encoder_mark)
        notes.append(f"different encoders (prompt, image plan, codec or processor) in one table: {listed}")
    if not any(system.control for system in systems):
        notes.append("no control in this table: a model that does not beat one has learnt nothing from the image")
    for system in systems:
        extra = sum(row.count for row in system.invalid if row.reason == "extra_view")
        if system.control and extra:
            notes.append(
                f"the control {system.name} boxes views that were not asked in {extra} records, which is invalid here: "
                "make controls that box the asked views only"
            )
    if dataset.benchmark == "scintiground":
        notes.append(
            "repeat decodings of one published adapter (other batch size or device) differed by up to .025: "
            "read smaller differences as noise"
        )
        if not dataset.official_split:
            notes.append("the published rows are for the official test split: other data than scored here")
    return notes
