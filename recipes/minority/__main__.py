"""`python -m recipes.minority RESULT.json...`: what our training gives to the rare class, seed by seed.

Each result file is what `python -m eval OURS PAPER --json` wrote for one seed; the first system is compared with the
second. The claim: the paired patient-bootstrap interval of the difference in the rare class's F1 excludes zero.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from recipes.errors import run_command

# (task, metric) of the columns; the rare classes are `yes` and `abnormal`.
COLUMNS = (
    ("vqa", "f1:yes"),
    ("vqa", "balanced_accuracy"),
    ("grounded_vqa", "f1:abnormal"),
    ("grounded_vqa", "balanced_accuracy"),
    ("grounded_vqa", "strict"),
    ("grounding", "iou_at_0.5"),
)


def main() -> int:
    """Prints a table per metric: a row per seed with both systems, their difference and whether it is shown."""
    parser = argparse.ArgumentParser(prog="python -m recipes.minority", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="files of `python -m eval --json`, one per seed")
    arguments = parser.parse_args()
    results = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.results]
    for task, metric in COLUMNS:
        print(f"{task} {metric}")
        print("\n".join(f"  seed {seed}  {line(result, task, metric)}" for seed, result in enumerate(results)))
    return 0


def line(result: dict[str, Any], task: str, metric: str) -> str:
    """Both systems with intervals, and their paired difference."""
    found = next(each for each in result["comparisons"] if (each["task"], each["metric"]) == (task, metric))
    values = [
        next(each for each in system["metrics"] if (each["task"], each["metric"]) == (task, metric))
        for system in result["systems"]
    ]
    cells = [f"{system['name']} {_interval(value)}" for system, value in zip(result["systems"], values, strict=True)]
    shown = "shown" if (found["low"] or 0) > 0 else "NOT SHOWN"
    return f"{'  '.join(cells)}  difference {_interval(found, 'difference', sign='+')} {shown}"


def _interval(item: dict[str, Any], name: str = "value", sign: str = "") -> str:
    if item[name] is None:
        return "not defined"
    return f"{item[name]:{sign}.3f} [{item['low']:{sign}.3f}, {item['high']:{sign}.3f}]"


if __name__ == "__main__":
    sys.exit(run_command(main))
