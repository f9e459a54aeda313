"""ScintiGround's published profile: the benchmark's own scorer on official rows and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collators.codecs.scintiground_official import official_row, official_texts
from eval.published import PublishedTable
from eval.run import LoadedRun
from eval.schema import PublishedReport, PublishedRow, Stop
from eval.scintiground.bootstrap import intervals, patients_of, replicates
from eval.scintiground.parse import audit_issues
from eval.scintiground.published_rows import OFFICIAL_TEST_COUNTS, published_rows
from eval.scintiground.report import report
from eval.scintiground.scoring import ScoredRow, score_row
from eval.scintiground.strata import audit, strata, threshold_sweep
from eval.sgmri.marks import TextMarks

# What malformed outputs make the published scorer raise.
STOPS = (TypeError, ValueError, OverflowError, RecursionError)
OfficialRow = dict[str, Any]


class ScintiGroundPublished:
    """See `eval.published.PublishedScorer`."""

    failed = "the published scorer reads them as empty texts"

    def tables(self, tasks: Sequence[str]) -> list[PublishedTable]:
        """One table a task."""
        return [PublishedTable(title=task, part=task) for task in tasks]

    def rows(self) -> list[PublishedRow]:
        """The paper's rows."""
        return published_rows()

    def is_official(self, run: LoadedRun) -> bool:
        """Whether the counts per task are those of the locked test split."""
        manifest = run.manifest
        counts = run.info.counts.get(manifest.split, {})
        return manifest.split == "test" and manifest.limit is None and counts == dict(OFFICIAL_TEST_COUNTS)

    def notes(self, runs: Sequence[LoadedRun], marks: Mapping[str, Mapping[str, TextMarks]]) -> list[str]:  # noqa: ARG002 - the protocol's arguments
        """What repeats of one published system differ by."""
        return [
            "repeat decodings of one published adapter (other batch size or device) differed by up to .025: "
            "read smaller differences as noise"
        ]

    def score(self, run: LoadedRun, marks: Mapping[str, TextMarks]) -> PublishedReport:  # noqa: ARG002 - the protocol's arguments
        """Runs the published scorer; an exception of it becomes `stops`, with the record that causes it."""
        rows = [official_row(record) for record in run.records]
        texts = official_texts(run.records, run.predictions, run.manifest.codec)
        audited, audit_stops = _audit(rows, texts)
        scored = []
        for row in rows:
            try:
                scored.append(score_row(row, texts[row["task_id"]]))
            except STOPS as error:
                return PublishedReport(audit=audited, stops=[_stop(error, row)], audit_stops=audit_stops)
        return PublishedReport(
            report=report(scored),
            threshold_sweep=threshold_sweep(scored),
            audit=audited,
            strata=strata(scored),
            bootstrap=_bootstrap(scored),
            audit_stops=audit_stops,
        )


def selection_score(run: LoadedRun) -> float | None:
    """The published selection score; `None` if one of its terms is not defined, or where the scorer would stop."""
    texts = official_texts(run.records, run.predictions, run.manifest.codec)
    try:
        scored = [score_row(row, texts[row["task_id"]]) for row in map(official_row, run.records)]
    except STOPS:
        return None
    score: float | None = report(scored)["model_selection_score"]
    return score


def _audit(rows: Sequence[OfficialRow], texts: dict[str, str]) -> tuple[dict[str, Any] | None, Stop | None]:
    """The audit, or where it stops; it stops on other outputs than the report does."""
    try:
        return audit(rows, texts), None
    except STOPS as stopped:
        for row in rows:
            try:
                audit_issues(texts[row["task_id"]], row)
            except STOPS as error:
                return None, _stop(error, row)
        raise AssertionError("the audit stops on the set but on none of its rows") from stopped


def _stop(error: Exception, row: OfficialRow) -> Stop:
    return Stop(exception=type(error).__name__, id=row["task_id"])


def _bootstrap(scored: Sequence[ScoredRow]) -> dict[str, Any] | None:
    if len({row.row["patient_id"] for row in scored}) < 2:
        return None
    return intervals(replicates(scored), patients=len(patients_of(scored)))
