"""Writes the report: one HTML file that needs nothing but a browser.

All text from data goes through the templates' escaping. The page also forbids itself, by a content
security policy, every script but its own and every load from outside.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import yaml
from markupsafe import Markup

from benchmarks.dataset import write_atomic
from benchmarks.predictions import Manifest
from eval import report_curves, report_details, report_figures, report_probability, report_tables
from eval.published import failed_records
from eval.report_format import interval, metric_help, metric_label, number, p_value, percent, signed, visible
from eval.report_gallery import build_gallery
from eval.report_history import History, find_history, read_history
from eval.run import LoadedRun
from eval.schema import EvalResult, System

# Notes that begin so are shown as alarms.
_ALARMS = ("PARTIAL", "INCOMPLETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSection:
    """What the report says of one system beyond the comparison."""

    system: System
    manifest: str
    recipe: str
    strata: Sequence[report_details.StratumTable]
    sweep: Sequence[tuple[str, Any]]
    histograms: Sequence[tuple[str, report_figures.Histogram]]
    history: History | None
    curve: report_figures.Curve | None
    scores: report_figures.Curve | None
    probabilities: Sequence[report_probability.TaskCharts]


def write_report(result: EvalResult, systems: Sequence[LoadedRun], path: Path) -> None:
    """Writes the report of a result.

    Args:
        result: From `eval.evaluate.evaluate`.
        systems: The runs it was made from, in the same order.
        path: The HTML file; its folder must exist.
    """
    write_atomic(path, render_report(result, systems).encode("utf-8", "backslashreplace"))


def render_report(result: EvalResult, systems: Sequence[LoadedRun]) -> str:
    """The page as text; the same input always gives the same page."""
    script = _asset("report.js") + _asset("viewer.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = _environment()
    thresholds = report_probability.thresholds(result)
    return environment.get_template("report.html.j2").render(
        result=result,
        dataset=result.dataset,
        alarms=[note for note in result.notes if note.startswith(_ALARMS)],
        notes=[note for note in result.notes if not note.startswith(_ALARMS)],
        tables=report_tables.headline_tables(result),
        pairs=report_details.pairs(result.comparisons),
        reach=report_details.reach(result.comparisons),
        probabilities=report_probability.probability_tables(result),
        thresholds=thresholds,
        threshold_reach=report_details.reach([change for _, found in thresholds for change in found.changes]),
        metrics=_explained(result),
        sections=[_section(system, run) for system, run in zip(result.systems, systems, strict=True)],
        gallery=build_gallery(result.systems, systems),
        figure=report_figures,
        square=report_curves,
        details=report_details,
        failed=failed_records(result.dataset.benchmark),
        style=Markup(_asset("report.css") + _asset("viewer.css")),
        script=Markup(script),
        script_hash=digest,
    )


def _asset(name: str) -> str:
    return resources.files("eval").joinpath("templates", name).read_text(encoding="utf-8")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("eval"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=number, percent=percent, signed=signed, p_value=p_value, label=metric_label, help=metric_help
    )
    environment.globals.update(interval=interval)
    return environment


def _explained(result: EvalResult) -> dict[str, str]:
    """Column head -> explanation, for every metric of the page."""
    names = [metric.metric for system in result.systems for metric in system.metrics]
    if "published" in result.profiles:
        names += [name for row in result.published_rows for name in row.values]
    bases = dict.fromkeys(name.partition(":")[0] for name in names)
    return {metric_label(name): metric_help(name) for name in bases if metric_help(name)}


def _section(system: System, run: LoadedRun) -> SystemSection:
    source = find_history(run.manifest.weights)
    history = read_history(source) if source is not None else None
    return SystemSection(
        system=system,
        manifest=_as_yaml(_facts(run.manifest)),
        recipe=_as_yaml(run.manifest.recipe) if run.manifest.recipe is not None else "",
        strata=report_details.strata_tables(system),
        sweep=report_details.sweep_rows(system),
        histograms=[(data.task, report_figures.iou_histogram(data)) for data in system.histograms],
        history=history,
        curve=report_figures.training_curve(history) if history is not None else None,
        scores=report_figures.score_curve(history) if history is not None else None,
        probabilities=report_probability.task_charts(system),
    )


def _facts(manifest: Manifest) -> dict[str, Any]:
    fields = (field for field in manifest.__struct_fields__ if field != "recipe")
    return {field: value for field in fields if (value := getattr(manifest, field)) not in (None, {})}


def _as_yaml(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
