"""SGMRI-VQA's published profile: Tables 3 and 4, from exactly what `python -m infer export` writes.

The published code evaluates a model's two inference files one by one, so an output on which it stops costs the level of
that file only. It has no intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from benchmarks.sgmri import BOX_TASKS, LEVELS, PUBLISHED_COUNTS, TASKS, Level, record_task
from collators.codecs.sgmri_official import official_inference, official_task
from eval.published import Column, PublishedTable
from eval.run import LoadedRun
from eval.schema import PublishedReport, PublishedRow, Stop
from eval.sgmri.marks import TextMarks
from eval.sgmri.published_tables import AVERAGE, COLUMNS, PUBLISHED_TABLES, Mode
from eval.sgmri.scoring import evaluate_inference, paper_row

# What malformed outputs make the published scorer raise.
STOPS = (TypeError, ValueError, OverflowError, RecursionError, AttributeError)
NOTE = "published, not run here; official test split"
_MODES: Final[Mapping[Level, Mode]] = MappingProxyType({"image": "image", "volume": "video"})
_TITLES: Final[Mapping[Level, str]] = MappingProxyType(
    {"image": "Table 3 (image level)", "volume": "Table 4 (volume level)"}
)
_SCORES: Final = MappingProxyType(
    {
        "a_score": ("A", "A-Score: share of right answers; partial credit where several letters are right."),
        "v_score": ("V", "V-Score: matched IoU over the number of target boxes; further boxes cost nothing."),
        "ar_score": ("AR", "AR-Score: text compared with the answer, by judge, BERTScore, BLEU-4 and ROUGE-L."),
    }
)
_AVERAGE: Final = "mean of the six columns, localization counted twice"


class SgmriPublished:
    """See `eval.published.PublishedScorer`."""

    failed = "the published scorer scores the text [ERROR: ...] as an answer"

    def tables(self, tasks: Sequence[str]) -> list[PublishedTable]:
        """Table 3 and Table 4, as far as the levels are there."""
        return [
            PublishedTable(
                title=_TITLES[level],
                part=level,
                columns=(*map(_column, COLUMNS[_MODES[level]]), Column(name=AVERAGE, head="Avg.", help=_AVERAGE)),
                note=f"percent; Avg. is the {_AVERAGE}",
            )
            for level in LEVELS
            if any(record_task(level, task) in tasks for task in TASKS[level])
        ]

    def rows(self) -> list[PublishedRow]:
        """The rows of Tables 3 and 4; `task` is the level."""
        return [
            PublishedRow(
                system=system,
                task=level,
                values={name: round(percent / 100, 4) for name, percent in row.items()},
                kind="published",
                note=NOTE,
            )
            for level in LEVELS
            for system, row in PUBLISHED_TABLES[_MODES[level]].items()
        ]

    def is_official(self, run: LoadedRun) -> bool:
        """Whether the counts per organ and level are those of the paper's test split."""
        counts = Counter((record.strata.get("organ"), official_task(record)[0]) for record in run.records)
        test = {(organ, level): count for (organ, level, split), count in PUBLISHED_COUNTS.items() if split == "test"}
        return run.manifest.split == "test" and run.manifest.limit is None and counts == test

    def notes(self, runs: Sequence[LoadedRun], marks: Mapping[str, Mapping[str, TextMarks]]) -> list[str]:
        """Which runs have AR-Scores of fewer parts than the paper's."""
        named: dict[str, list[str]] = {}
        for run in runs:
            note = _ar_note(run, marks.get(run.name, {}))
            if note is not None:
                named.setdefault(note, []).append(run.name)
        return [f"AR-Scores of {', '.join(names)}: {note}" for note, names in named.items()]

    def score(self, run: LoadedRun, marks: Mapping[str, TextMarks]) -> PublishedReport:
        """Evaluates each level's inference file; an exception becomes an entry of `stops`."""
        report: dict[str, Any] = {}
        stops: list[Stop] = []
        for level in dict.fromkeys(official_task(record)[0] for record in run.records):
            inference = official_inference(run.records, run.predictions, run.manifest, level)
            try:
                evaluation = evaluate_inference(inference, _MODES[level], marks)
            except STOPS:
                stops.append(_stop(inference, level, marks))
            else:
                report |= _report(evaluation, level)
        return PublishedReport(report=report or None, stops=stops)


def _column(name: str) -> Column:
    task, _, score = name.partition("/")
    short, meaning = _SCORES[score]
    return Column(name=name, head=f"{task} {short}", help=meaning)


def _report(evaluation: Mapping[str, Any], level: Level) -> dict[str, Any]:
    """The level's row with the evaluation's means, and the means of each task under its name here."""
    row = {
        name: None if percent is None else round(percent / 100, 4)
        for name, percent in paper_row(evaluation, _MODES[level]).items()
    }
    means = {name: evaluation[name] for name in ("total_samples", "aggregates", "breakdowns")}
    tasks = {record_task(level, task): found for task, found in evaluation["breakdowns"]["task"].items()}
    return {level: row | means, **tasks}


def _stop(inference: Mapping[str, Any], level: Level, marks: Mapping[str, TextMarks]) -> Stop:
    for result in inference["results"]:
        try:
            evaluate_inference({**inference, "results": [result]}, _MODES[level], marks)
        except STOPS as error:
            return Stop(exception=type(error).__name__, id=result["sample_id"], part=level)
    raise AssertionError("the published scorer stops on the file but on none of its results")


def _ar_note(run: LoadedRun, marks: Mapping[str, TextMarks]) -> str | None:
    asked = [record.id for record in run.records if official_task(record)[1] in BOX_TASKS]
    found = [marks[key] for key in asked if key in marks]
    judged = sum(mark.judge_reply is not None for mark in found)
    compared = sum(mark.bertscore_f1 is not None for mark in found)
    if judged == compared == len(asked):
        return None
    return (
        f"{judged} of {len(asked)} answers have a judge's marks and {compared} a BERTScore; the "
        "others rest on the parts that are left. The published AR-Scores and Avg. have all parts: do not compare them"
    )
