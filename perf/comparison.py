"""Sides that do the same job, measured against each other case by case; what `train` and `infer` share."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from perf.rounds import Spread, alternating, measured_apart, spread
from perf.workload import MODEL, Workload, write_data, write_model

# What is measured -> decimals.
FIGURES = {"seconds_per_question": 4, "cpu_seconds_per_question": 4, "peak_rss_mb": 1}
FIX = "if memory ran out (-9), measure one case at a time with --cases"
Results = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job and who does it.

    Attributes:
        task: `volumes` or `pairs`.
        size: Its rows.
        sides: Who does it.
    """

    task: str
    size: Workload
    sides: tuple[str, ...]


def measure(benchmark: str, cases: Mapping[str, Case], rounds: int) -> dict[str, Results]:
    """Measures every side of every case once a round.

    Args:
        benchmark: Name of the command.
        cases: Name -> case.
        rounds: How often; every other round goes backwards.

    Returns:
        Case -> side -> what its process printed, by round.

    Raises:
        MeasurementError: A process was ended, most likely because memory ran out.
    """
    results: dict[str, Results] = {name: {side: [] for side in case.sides} for name, case in cases.items()}
    runs = {f"{name} {side}": (name, side) for name, case in cases.items() for side in case.sides}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_model(folder / MODEL)
        for name, case in cases.items():
            write_data(folder / name, folder / MODEL, case.size)
        for run in tqdm(alternating(list(runs), rounds), desc="measuring", unit="run"):
            name, side = runs[run]
            case = cases[name]
            options = {"data": folder / name, "model": folder / MODEL, "task": case.task}
            measured = measured_apart(
                benchmark, side, {**options, "questions": case.size.questions, "step": case.size.group}, fix=FIX
            )
            results[name][side].append(measured)
    return results


def spreads(found: Results) -> dict[str, dict[str, Spread]]:
    """Side -> figure -> median and range over the rounds."""
    return {
        side: {key: spread([each[key] for each in rounds], digits) for key, digits in FIGURES.items()}
        for side, rounds in found.items()
    }


def faster(measured: Mapping[str, Mapping[str, Spread]], side: str, baseline: str) -> dict[str, float] | None:
    """How many times as many `seconds` and processor's seconds (`cpu`) the baseline takes, if it was measured."""
    if baseline not in measured:
        return None
    keys = {"seconds": "seconds_per_question", "cpu": "cpu_seconds_per_question"}
    return {name: round(measured[baseline][key].median / measured[side][key].median, 2) for name, key in keys.items()}


def cells(measured: Mapping[str, Any]) -> tuple[str, ...]:
    """Seconds with their range, processor seconds and memory of a side's figures, for a table."""
    seconds, cpu, peak = (measured[key] for key in FIGURES)
    return (
        f"{seconds['median']:.3f} ({seconds['lowest']:.3f}-{seconds['highest']:.3f})",
        f"{cpu['median']:.3f}",
        f"{peak['median']:,.0f}",
    )


def times(ratios: Mapping[str, float] | None) -> tuple[str, str]:
    """The same for a table: by seconds, and by processor's seconds, which other programs on the machine disturb less."""
    return ("", "") if ratios is None else (f"{ratios['seconds']:.2f}", f"{ratios['cpu']:.2f}")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned in the text too: the first two to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if number < 2 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if number < 2 else "-" * (width - 1) + ":" for number, width in enumerate(widths)]
    return "\n".join([line(head), line(rule), *map(line, rows)])


@dataclass(frozen=True, slots=True)
class Comparison:
    """A command that measures sides against each other.

    Attributes:
        name: Its name, and that of its files.
        figures: What is written of a case, beside its numbers, from what its sides' processes printed.
        text: The table of all cases, from their figures.
    """

    name: str
    figures: Callable[[Case, Results], dict[str, Any]]
    text: Callable[[Mapping[str, Any]], str]

    def __call__(self, cases: Mapping[str, Case], *, rounds: int, threads: int, out: Path | None) -> None:
        """Measures and prints, the figures as JSON in the last line.

        Args:
            cases: Name -> case.
            rounds: Measurements of each side.
            threads: Threads of each process, for the report.
            out: Folder for the same as `NAME.json` and `NAME.md`, if they are wanted.

        Raises:
            MeasurementError: A process was ended, most likely because memory ran out.
        """
        results = measure(self.name, cases, rounds)
        figures = {
            name: {"task": case.task, **asdict(case.size), **self.figures(case, results[name])}
            for name, case in cases.items()
        }
        text = self.text(figures)
        print(text)
        line = json.dumps({"benchmark": self.name, "rounds": rounds, "threads": threads, "cases": figures})
        print(line)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{self.name}.json").write_text(line + "\n", encoding="utf-8")
            (out / f"{self.name}.md").write_text(text + "\n", encoding="utf-8")
