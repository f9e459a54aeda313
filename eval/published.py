"""The published profile of a run: the benchmark's own scorer on official rows and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collators.codecs.scintiground_official import official_row, official_texts
from eval.run import LoadedRun
from eval.schema import PublishedReport, Stop
from eval.scintiground.bootstrap import intervals, patients_of, replicates
from eval.scintiground.parse import audit_issues
from eval.scintiground.report import report
from eval.scintiground.scoring import ScoredRow, score_row
from eval.scintiground.strata import audit, strata, threshold_sweep

# What malformed outputs make the published scorer raise.
STOPS = (TypeError, ValueError, OverflowError, RecursionError)
OfficialRow = dict[str, Any]


def score_published(run: LoadedRun, rows: Sequence[OfficialRow]) -> PublishedReport:
    """Runs the published scorer; an exception of it becomes `stops`, with the record that causes it.

    Args:
        run: The run.
        rows: Its records as official rows, in the same order.
    """
    texts = official_texts(run.records, run.predictions, run.manifest.codec)
    audited, audit_stops = _audit(rows, texts)
    scored = []
    for row in rows:
        try:
            scored.append(score_row(row, texts[row["task_id"]]))
        except STOPS as error:
            return PublishedReport(audit=audited, stops=_stop(error, row), audit_stops=audit_stops)
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
