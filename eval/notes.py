"""The warnings that a reader of a result needs beside its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eval.probability import unused_scores
from eval.published import failed_records, get_published
from eval.run import LoadedRun
from eval.schema import DatasetSummary, System
from eval.schema_probability import Probability
from eval.sgmri.marks import TextMarks

# What the rows of SGMRI-VQA count beside their scores -> what it means, after the number.
_COUNTED = {
    "open_ended": "open-ended keys outside localization and captioning are in no A-Score",
    "unknown_answer_type": "records whose answer type the benchmark does not name are in no A-Score",
    "unreadable_key": "keys without an option or text to compare with are in no A-Score",
    "no_truth_box": "localization or captioning records without a target box are in no box metric",
    "no_reference": "localization or captioning records whose target text holds places only are in no AR-Score",
    "truth_dropped": "target boxes are left out: repeated, or nothing of them lies inside the image",
    "box_clipped": "predicted boxes were clipped to their image",
    "box_repeated": "predicted boxes repeat an earlier one of the answer and count once",
    "box_dropped": "predicted boxes are left out: nothing of them lies inside the image",
    "box_unplaced": "predicted boxes lie on frames that were not shown and match nothing",
    "judge_missing": "answers have no three marks of the judge and are in neither judge nor AR-Score",
    "bertscore_missing": "answers have no BERTScore and are in neither BERTScore nor AR-Score",
}


def notes(
    runs: Sequence[LoadedRun],
    dataset: DatasetSummary,
    systems: Sequence[System],
    validation: Mapping[str, LoadedRun],
    marks: Mapping[str, Mapping[str, TextMarks]],
) -> list[str]:
    """All warnings, alarms first; `systems` are the scored `runs`, in the same order."""
    return [
        *_incomplete(dataset, systems),
        *_comparability(systems),
        *_benchmark(runs, dataset, systems, marks),
        *_counted(systems),
        *_label_scores(runs, dataset, systems),
        *_thresholds(dataset, systems, validation),
    ]


def _incomplete(dataset: DatasetSummary, systems: Sequence[System]) -> Iterator[str]:
    if dataset.limit is not None:
        yield f"PARTIAL: only the first {dataset.n_records} records of the split were predicted"
    for system in systems:
        if system.errors:
            yield (
                f"INCOMPLETE: {len(system.errors)} of {dataset.n_records} records of {system.name} failed on our side "
                f"(first: {system.errors[0].id}: {system.errors[0].error}); "
                f"{failed_records(dataset.benchmark)}"
            )


def _comparability(systems: Sequence[System]) -> Iterator[str]:
    if len({system.encoder_mark for system in systems} - {""}) > 1:
        listed = ", ".join(f"{system.name} [{system.encoder_mark}]" for system in systems if system.encoder_mark)
        yield f"different encoders (prompt, image plan, codec or processor) in one table: {listed}"
    if not any(system.control for system in systems):
        yield "no control in this table: a model that does not beat one has learnt nothing from the image"
    for system in systems:
        extra = sum(row.count for row in system.invalid if row.reason == "extra_view")
        if system.control and extra:
            yield (
                f"the control {system.name} boxes views that were not asked in {extra} records, which is invalid here: "
                "make controls that box the asked views only"
            )


def _benchmark(
    runs: Sequence[LoadedRun],
    dataset: DatasetSummary,
    systems: Sequence[System],
    marks: Mapping[str, Mapping[str, TextMarks]],
) -> Iterator[str]:
    published = get_published(dataset.benchmark)
    if published is None:
        return
    scored = [run for run, system in zip(runs, systems, strict=True) if system.published is not None]
    yield from published.notes(scored, marks)
    if not dataset.official_split:
        yield "the published rows are for the official test split: other data than scored here"


def _counted(systems: Sequence[System]) -> Iterator[str]:
    """What rows count beside their scores; what is the same in all systems once."""
    for name, meaning in _COUNTED.items():
        found: dict[int, list[str]] = {}
        for system in systems:
            found.setdefault(sum(row.counts.get(name, 0) for row in system.rows), []).append(system.name)
        for number, names in found.items():
            if number:
                where = f"{', '.join(names)}: " if len(names) < len(systems) else ""
                yield f"{where}{number} {meaning}"


def _label_scores(runs: Sequence[LoadedRun], dataset: DatasetSummary, systems: Sequence[System]) -> Iterator[str]:
    scored = {task for system in systems for task in (found.task for found in system.probabilities)}
    for run, system in zip(runs, systems, strict=True):
        for found in system.probabilities:
            if found.n_scored < found.n_records:
                yield f"{system.name}, {found.task}: {coverage(found)}"
            if len(found.at) > 1:
                listed = ", ".join(f"{place} {count}" for place, count in found.at.items())
                yield f"{system.name}, {found.task}: label scores were read at different places: {listed}"
        pairs = {found.task: (found.positive, found.negative) for found in system.probabilities}
        for task, count in unused_scores(run, pairs).items():
            if task not in scored and system.rows:
                labels = next(each.labels for each in dataset.tasks if each.task == task)
                yield (
                    f"{system.name}, {task}: label scores of {count} records are not used: its classes "
                    f"({', '.join(labels) or 'none'}) are not a positive and a negative one"
                )


def coverage(found: Probability) -> str:
    """How many records the numbers about probabilities cover, and why not the others."""
    covered = f"probabilities cover {found.n_scored} of {found.n_records} records with a class"
    missing = ", ".join(f"{entry.count} {entry.reason} (first: {entry.first})" for entry in found.missing)
    return f"{covered}; without: {missing}" if missing else covered


def _thresholds(
    dataset: DatasetSummary, systems: Sequence[System], validation: Mapping[str, LoadedRun]
) -> Iterator[str]:
    if not validation:
        return
    for system in systems:
        source = validation.get(system.name)
        if source is None:
            if system.probabilities:
                yield f"no threshold for {system.name}: no validation folder of this system was given"
            continue
        if source.manifest.limit is not None:
            yield f"thresholds of {system.name} rest on the first {len(source.records)} validation records only"
        if source.info.content_hash != dataset.content_hash:
            yield (
                f"thresholds of {system.name} were chosen on another dataset, {source.info.name} "
                f"({source.info.content_hash[:12]}): nothing checks that it shares no patient with the scored one"
            )
