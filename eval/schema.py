"""The result of an evaluation, as `python -m eval --json FILE` writes it and as the report reads it.

The JSON file is one `EvalResult` object. `version` is raised whenever fields are added, renamed, removed
or change their meaning:

* 2 adds closed answers as probabilities (`eval/schema_probability.py`): `p_positive` of a row,
  `probabilities` and `thresholds` of a system, and the metrics `auroc`, `average_precision`, `brier`
  and `ece`, which cover the records with label scores. Brier score and calibration error are better
  if lower.
* 3 adds SGMRI-VQA: `values` and `counts` of a row, and metrics that are means of `values`; `stops` of a published
  report is a list, since the benchmark's two levels are evaluated one by one, and a stop names its `part`.

Conventions throughout:

* rates, IoUs and scores are fractions in [0, 1], never percentages, and are not rounded but in the published profile;
* `null` is "not defined" (a rate over nothing, a class that does not occur), never zero;
* `low` and `high` bound the central 95 % of the bootstrap distribution over groups (patients), and are
  `null` where the records belong to one group only;
* `n_records` and `n_groups` count what a number rests on: records whose prediction failed on our
  side (`error`) are in neither;
* `task` is the benchmark's name of the task.

The parts are in `eval/schema_scores.py` (metrics, counts, rows) and `eval/schema_probability.py`. `read_result` reads
such a file back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from benchmarks.dataset import read_struct
from benchmarks.errors import DataError
from eval.schema_probability import Probability, Threshold
from eval.schema_scores import Confusion, InvalidCount, IouHistogram, Metric, RowError, RowResult, StratumMetric

RESULT_VERSION = 3


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
        task: Task name; `image` or `volume` in SGMRI-VQA, whose Tables 3 and 4 have all tasks of a level in one row.
        values: Metric name of the published profile -> value as printed (three decimals; SGMRI-VQA: `detection/a_score`
            and `average`, of which percentages with two decimals are printed).
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


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Where the published scorer stops with an exception.

    Attributes:
        exception: Its type.
        id: The first record that causes it.
        part: The part of the report that is lost, `image` or `volume`; `None` if it is the whole.
    """

    exception: str
    id: str
    part: str | None = None


class PublishedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the benchmark's own scorer gives, faults included; its own key names.

    Attributes:
        report: Rates per task, rounded to six places as published; `None` if the scorer stopped. SGMRI-VQA: `image` and
            `volume` hold the row of Table 3 and of Table 4 with the evaluation's `total_samples`, `aggregates` and
            `breakdowns`; each task of the records holds its own means and counts. A level with a stop is absent.
        threshold_sweep: Pooled IoU sweep.
        audit: Counts of issues per output.
        strata: Reports by view scope, region level and region.
        bootstrap: Patient intervals as published; `None` with fewer than two patients.
        stops: The exceptions that stop the report, at most one a part, each with the first record that causes it.
        audit_stops: The same for the audit, which stops in other cases.
    """

    report: dict[str, Any] | None = None
    threshold_sweep: dict[str, Any] | None = None
    audit: dict[str, Any] | None = None
    strata: dict[str, Any] | None = None
    bootstrap: dict[str, Any] | None = None
    stops: list[Stop] = []
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
