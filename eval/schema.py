"""The result of an evaluation, as `python -m eval --json FILE` writes it and as the report reads it.

The JSON file is one `EvalResult` object. `version` is raised whenever fields are added, renamed, removed
or change their meaning:

* 2 adds closed answers as probabilities (`eval/schema_probability.py`): `p_positive` of a row,
  `probabilities` and `thresholds` of a system, and the metrics `auroc`, `average_precision`, `brier`
  and `ece`, which cover the records with label scores. Brier score and calibration error are better
  if lower.

Conventions throughout:

* rates, IoUs and scores are fractions in [0, 1], never percentages, and are not rounded;
* `null` is "not defined" (a rate over nothing, a class that does not occur), never zero;
* `low` and `high` bound the central 95 % of the bootstrap distribution over groups (patients), and are
  `null` where the records belong to one group only;
* `n_records` and `n_groups` count what a number rests on: records whose prediction failed on our
  side (`error`) are in neither;
* `task` is the benchmark's name of the task.

`read_result` reads such a file back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchmarks.dataset import read_struct
from benchmarks.errors import DataError
from eval.schema_probability import Probability, Threshold

RESULT_VERSION = 2
INVALID = "invalid"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the published scorer or protocol that the corrected profile mends.

    Attributes:
        id: Short stable name.
        number: Its number in the benchmark's list of known faults.
        published: What the published scorer does.
        corrected: What the corrected profile does instead.
    """

    id: str
    number: int
    published: str
    corrected: str


class PublishedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a published table, not run here.

    Attributes:
        system: Model as the paper names it.
        task: Task name.
        values: Metric name of the published profile -> value as printed (three decimals).
        kind: `published`, or `inferred` where the value follows from published counts.
        note: What a reader must know to compare it.
    """

    system: str
    task: str
    values: dict[str, float]
    kind: str
    note: str


class ClassCount(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a task per target label; labels without a record are listed with 0."""

    task: str
    n_records: int
    n_groups: int
    labels: dict[str, int]


class DatasetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was scored.

    Attributes:
        name: Name of the dataset.
        benchmark: Its benchmark; picks the scorer.
        content_hash: Hash of the prepared dataset, equal for every system of the result.
        split: The split.
        limit: If only the first N records were predicted, N; the scores are then partial.
        n_records: Records scored.
        n_groups: Distinct groups (patients, volumes).
        tasks: Counts per task and label.
        official_split: Whether the task counts are those of the benchmark's official split.
    """

    name: str
    benchmark: str
    content_hash: str
    split: str
    limit: int | None
    n_records: int
    n_groups: int
    tasks: list[ClassCount]
    official_split: bool


class ManifestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a prediction manifest that a reader of a table needs."""

    engine: str
    codec: str
    encoder_fingerprint: str | None
    weights: str | None
    weights_hash: str | None
    decoding: dict[str, Any]
    environment: dict[str, Any]
    timing: dict[str, float]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the corrected profile with its interval.

    Attributes:
        metric: Name; a class metric of one class is `f1:yes`.
        task: Task name.
        value: The value over all counted records; `None` if not defined.
        low: Lower bound of the interval; `None` if fewer than two groups or resamples define it.
        high: Upper bound.
        n_records: Records it rests on.
        n_groups: Groups it rests on.
        undefined_resamples: Resamples in which the metric was not defined; they are left out of the interval.
        tolerant: The same metric after extraction-tolerant reading (fences and surrounding words removed).
        note: Why it is not defined, with counts; else empty.
    """

    metric: str
    task: str
    value: float | None
    low: float | None
    high: float | None
    n_records: int
    n_groups: int
    undefined_resamples: int
    tolerant: float | None = None
    note: str = ""


class StratumMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over the records whose stratum `key` has the value `stratum`."""

    key: str
    stratum: str
    metric: Metric


class InvalidCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many outputs of a task were invalid for a reason; they score zero."""

    task: str
    reason: str
    count: int


class RowError(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose prediction failed on our side; it is in no score."""

    id: str
    error: str


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """Confusion matrix of a task.

    Attributes:
        task: Task name.
        targets: Target labels, one per line of `counts`.
        predicted: Predicted labels, one per column; the last is `invalid`.
        counts: Records, `counts[target][predicted]`.
    """

    task: str
    targets: list[str]
    predicted: list[str]
    counts: list[list[int]]


class IouHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """IoU of every target box of a task in 20 equal bins of [0, 1]; the last bin holds 1 as well.

    Attributes:
        task: Task name.
        edges: The 21 bin edges.
        counts: Boxes per bin; boxes of invalid outputs have IoU 0 and are in the first bin.
        invalid: How many of the first bin's boxes belong to invalid outputs.
    """

    task: str
    edges: list[float]
    counts: list[int]
    invalid: int


class RowResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one record was scored (corrected profile).

    Attributes:
        id: The record's id.
        task: Task name.
        group: Patient or volume.
        valid: Whether the output counts as an answer.
        reason: Why it does not (short stable name); `None` if valid.
        tolerant_valid: Whether it does after extraction-tolerant reading.
        error: The failure on our side; then nothing else of the row counts.
        label: Target class; `None` if the record has none.
        predicted: Predicted class; `None` if invalid or not asked.
        class_correct: Whether the class (or the text of an open question) is right; `None` if not asked.
        ious: IoU per target box in the record's order.
        extra_boxes: Predicted boxes beyond the number of targets of their image; each counts as an IoU of 0.
        region_correct: Whether the region name is right, blanks and underscores alike; `None` if not asked.
        strict: Every box at IoU >= 0.5 and, if asked, the class right; the region name is not looked at.
        strict_with_region: As `strict`, and the region name right.
        p_positive: Probability of the positive class; `None` without label scores or without a target class.
    """

    id: str
    task: str
    group: str
    valid: bool
    reason: str | None = None
    tolerant_valid: bool = False
    error: str | None = None
    label: str | None = None
    predicted: str | None = None
    class_correct: bool | None = None
    ious: tuple[float, ...] = ()
    extra_boxes: int = 0
    region_correct: bool | None = None
    strict: bool | None = None
    strict_with_region: bool | None = None
    p_positive: float | None = None


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Where the published scorer stops with an exception."""

    exception: str
    id: str


class PublishedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the benchmark's own scorer gives, faults included; its own key names.

    Attributes:
        report: Rates per task, rounded to six places as published; `None` if the scorer stopped.
        threshold_sweep: Pooled IoU sweep.
        audit: Counts of issues per output.
        strata: Reports by view scope, region level and region.
        bootstrap: Patient intervals as published; `None` with fewer than two patients.
        stops: The exception that stops the report, and the first record that causes it.
        audit_stops: The same for the audit, which stops in other cases.
    """

    report: dict[str, Any] | None = None
    threshold_sweep: dict[str, Any] | None = None
    audit: dict[str, Any] | None = None
    strata: dict[str, Any] | None = None
    bootstrap: dict[str, Any] | None = None
    stops: Stop | None = None
    audit_stops: Stop | None = None


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One prediction folder, scored.

    Attributes:
        name: Name in tables, unique within the result.
        folder: The prediction folder.
        control: Name of the control if it is one.
        encoder_mark: `a`, `b`, ... per distinct encoder fingerprint; empty if it has none.
        manifest: How it was made.
        errors: Records that failed on our side; if there are any, the scores are incomplete.
        published: The published profile; `None` if not asked for or if the benchmark has none.
        metrics: The corrected profile.
        strata: The corrected profile's main metrics by stratum.
        invalid: Counts of invalid outputs by task and reason.
        confusions: One per task with classes.
        histograms: One per task with boxes.
        probabilities: One per task with label scores.
        thresholds: One per task with two classes, if validation predictions were given.
        rows: One per record, in dataset order.
    """

    name: str
    folder: str
    control: str | None
    encoder_mark: str
    manifest: ManifestSummary
    errors: list[RowError]
    published: PublishedReport | None = None
    metrics: list[Metric] = []
    strata: list[StratumMetric] = []
    invalid: list[InvalidCount] = []
    confusions: list[Confusion] = []
    histograms: list[IouHistogram] = []
    probabilities: list[Probability] = []
    thresholds: list[Threshold] = []
    rows: list[RowResult] = []


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Paired difference `first - second` of a metric; both scored on the same resampled groups.

    Attributes:
        first: System name.
        second: System name.
        metric: Metric name.
        task: Task name.
        difference: Value of the first minus value of the second; `None` if either is not defined.
        low: Lower bound of the interval of the difference.
        high: Upper bound.
        p: Two-sided bootstrap p; at least `2 / (resamples + 1)`.
        n_records: Records scored in both.
        n_groups: Groups they belong to.
        undefined_resamples: Resamples in which either is not defined.
    """

    first: str
    second: str
    metric: str
    task: str
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    n_records: int
    n_groups: int
    undefined_resamples: int


class EvalResult(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result of one command.

    Attributes:
        version: Version of this schema.
        dataset: What was scored.
        profiles: `published`, `corrected`.
        resamples: Bootstrap resamples of the corrected profile.
        seed: Seed of the corrected profile's bootstrap.
        faults: What `corrected` changes.
        published_rows: Published tables of the benchmark, not run here.
        systems: One per prediction folder, in the order given.
        comparisons: Paired comparisons.
        notes: Warnings a reader of the table needs.
    """

    dataset: DatasetSummary
    profiles: list[str]
    resamples: int
    seed: int
    faults: list[Fault]
    published_rows: list[PublishedRow]
    systems: list[System]
    comparisons: list[Comparison]
    notes: list[str]
    version: int = RESULT_VERSION


def encode_result(result: EvalResult) -> bytes:
    """The result as indented JSON; the same result always gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def read_result(path: Path) -> EvalResult:
    """Reads a file written by `python -m eval --json`.

    Raises:
        DataError: The file is missing, broken or of another version.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist", fix="write it with `python -m eval PREDICTIONS --json FILE`")
    result = read_struct(path, EvalResult, what="an evaluation result", fix="score again")
    if result.version != RESULT_VERSION:
        raise DataError(
            f"written with result schema {result.version}, this program reads {RESULT_VERSION}",
            where=str(path),
            fix="score again",
        )
    return result
