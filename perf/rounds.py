"""How sides are measured against each other: in alternating order, in fresh processes, the median with its spread."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipes.errors import UserError


class MeasurementError(UserError):
    """A measurement that cannot be made or did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Several measurements of one thing.

    Attributes:
        median: Their median.
        lowest: The lowest.
        highest: The highest.
    """

    median: float
    lowest: float
    highest: float


def spread(values: Sequence[float], digits: int) -> Spread:
    """Median and range of measurements, rounded to so many decimals."""
    median, lowest, highest = (round(f(values), digits) for f in (statistics.median, min, max))
    return Spread(median=median, lowest=lowest, highest=highest)


def alternating(sides: Sequence[str], rounds: int) -> list[str]:
    """Which side is measured when: every side once a round, every other round backwards."""
    return [side for number in range(rounds) for side in (sides if number % 2 == 0 else sides[::-1])]


def measured_apart(benchmark: str, side: str, options: Mapping[str, object], *, fix: str) -> dict[str, float]:
    """Measures one side of a benchmark in a process of its own.

    Args:
        benchmark: Name of the command; it prints its result as JSON, in its last line.
        side: Which side.
        options: Option -> value for the command.
        fix: What to do if the process does not end well.

    Raises:
        MeasurementError: It did not, most likely because memory ran out.
    """
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    result = subprocess.run(
        [sys.executable, "-m", "perf", benchmark, "--side", side, *words],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        said = result.stderr.strip().splitlines()
        raise MeasurementError(
            f"the process that measures {side!r} ended with {result.returncode}: {said[-1] if said else 'no message'}",
            fix=fix,
        )
    measured: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return measured
