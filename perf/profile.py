"""Where the time of a training step and of an answer goes, on our path with and without sharing images.

    python -m perf profile [--cases volumes pairs] [--rounds 3] [--out FOLDER]

The job is that of `perf.job`, its rows a prepared dataset, trained as `python -m train` and answered as `python -m infer`
do it, each side in a process of its own with one thread, in balanced order. `train cached` goes over the data twice
with `vision_cache: memory`; each epoch has a column of its own.

The table has the seconds of a question that go to each phase (`perf.phase_hooks`), and their share. Phases exclude each other
and what is in none of them is the row `rest`, so that a column adds up to the time from the first step's begin to the
last one's end, as another clock measured it. Of several rounds the one with the median total is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

from perf.comparison import Case, Comparison, Results, markdown
from perf.workload import Workload

SIDES = ("train-shared", "train-separate", "train-cached", "answer-shared", "answer-separate")
CASES = {
    "volumes": Case(task="volumes", size=Workload(questions=20), sides=SIDES),
    "pairs": Case(
        task="pairs", size=Workload(questions=40), sides=("train-separate", "train-cached", "answer-separate")
    ),
}


def _figures(case: Case, found: Results) -> dict[str, Any]:  # noqa: ARG001 - as other comparisons
    return {"parts": _parts(found)}


def _text(figures: Mapping[str, Any]) -> str:
    return "\n\n".join(f"{name}\n\n{_table(each['parts'])}" for name, each in figures.items())


def _parts(found: Results) -> dict[str, Any]:
    """Column -> seconds of a question in all and by phase, from the round with the median total."""
    parts: dict[str, Any] = {}
    for side, rounds in found.items():
        for name in rounds[0]:
            total = median_low([each[name]["seconds"] for each in rounds])
            chosen = next(each[name] for each in rounds if each[name]["seconds"] == total)
            parts[f"{side.replace('-', ' ')} {name}".strip()] = chosen
    return parts


def _table(parts: Mapping[str, Any]) -> str:
    phases = {phase: None for each in parts.values() for phase in each["phases"]}
    rows: list[Sequence[str]] = [
        (phase, *(_cell(each["phases"].get(phase), each["seconds"]) for each in parts.values())) for phase in phases
    ]
    total = ("all", *(f"{each['seconds']:.4f}" for each in parts.values()))
    return markdown(("s/question", *parts), [*rows, total])


def _cell(seconds: float | None, total: float) -> str:
    return "" if seconds is None else f"{seconds:.4f} ({seconds / total:.0%})"


run_profile = Comparison("profile", _figures, _text)
